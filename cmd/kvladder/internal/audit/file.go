package audit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kvladder/probes/metrics"
)

// File is one file of the evidence.
type File struct {
	Name   string // as it was asked for, or its path below the folder that was
	Empty  bool   // nothing in it but white space
	Root   *Value // the document; several of them are the items of one list; nil in a file of counters
	Docs   int
	Series []metrics.Series // of a file of counters
	Notes  []string         // what was overlooked to read it
	Cut    bool             // a text ended within a value, which is left out
	Found  bool             // in a folder that was given as a whole: what lies beside it is evidence too
}

// Evidence is what is looked at together: arms that lie in several files are one ladder.
type Evidence struct {
	Files []*File
}

// mostBytes bounds what a file may hold, and what it may hold after it is unpacked.
const mostBytes = 512 << 20

var (
	dataName    = regexp.MustCompile(`(?i)\.(json|jsonl|ndjson)(\.gz)?$`)
	counterName = regexp.MustCompile(`(?i)(metrics[^/]*\.txt|\.prom)(\.gz)?$`)
)

// Open reads files, and of folders every file that is named like JSON or like a snapshot of
// counters. What cannot be read is an error: an audit that skips is none.
func Open(paths []string) (*Evidence, error) {
	e := &Evidence{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, plainError(path, err)
		}
		if !info.IsDir() {
			b, err := readFile(path)
			if err != nil {
				return nil, plainError(path, err)
			}
			if err := e.Add(filepath.ToSlash(path), b); err != nil {
				return nil, err
			}
			continue
		}
		found := 0
		// with the separator a link to a folder is the folder
		err = filepath.WalkDir(path+string(filepath.Separator), func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !dataName.MatchString(at) && !counterName.MatchString(at) {
				return err
			}
			b, err := readFile(at)
			if err != nil {
				return plainError(at, err)
			}
			found++
			if err := e.Add(filepath.ToSlash(at), b); err != nil {
				return err
			}
			e.Files[len(e.Files)-1].Found = true
			return nil
		})
		if err != nil {
			return nil, err
		}
		if found == 0 {
			return nil, fmt.Errorf("%s: no file in this folder is named like JSON or like counters (*.json, *.jsonl, *metrics*.txt, plain or .gz): name the files themselves", path)
		}
	}
	return e, nil
}

// readFile reads a regular file of a size that can be held: a pipe or a device may have no
// end.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is neither a file nor a folder")
	case info.Size() > mostBytes:
		return nil, fmt.Errorf("it holds %d bytes, more than %d: give a part of it", info.Size(), mostBytes)
	}
	return os.ReadFile(path)
}

func plainError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Add reads one file from its bytes.
func (e *Evidence) Add(name string, b []byte) error {
	f := &File{Name: name}
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(io.LimitReader(z, mostBytes+1))
		}
		if err != nil {
			return fmt.Errorf("%s: not a whole gzip file: %w; fetch it again", name, err)
		}
		if len(b) > mostBytes {
			return fmt.Errorf("%s: more than %d bytes when unpacked", name, mostBytes)
		}
	}
	f.Empty = len(bytes.TrimSpace(b)) == 0
	switch {
	case f.Empty:
	case counterName.MatchString(name):
		series, err := metrics.Parse(string(b))
		if err != nil {
			return fmt.Errorf("%s: counters cannot be read: line %w", name, err)
		}
		f.Series = series
	default:
		if bytes.IndexByte(b, 0) >= 0 {
			return fmt.Errorf("%s: not a text: audit reads JSON, JSONL and counters", name)
		}
		docs, notes, err := parse(b)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.Docs, f.Notes = len(docs), notes
		f.Cut = slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, errEnd.Error()) })
		switch len(docs) {
		case 0:
			return fmt.Errorf("%s: there is no JSON in it: audit reads JSON, JSONL and counters", name)
		case 1:
			f.Root = docs[0]
		default:
			f.Root = &Value{Kind: List, Line: 1, Items: docs}
			for i, d := range docs {
				d.Parent, d.Index = f.Root, int32(i)
			}
		}
	}
	e.Files = append(e.Files, f)
	return nil
}

// values visits every value of every document.
func (e *Evidence) values(visit func(f *File, v *Value)) {
	for _, f := range e.Files {
		if f.Root != nil {
			f.Root.each(func(v *Value) { visit(f, v) })
		}
	}
}

// Names under which harnesses keep the list of what they asked.
var rowLists = []string{"rows", "results", "records", "samples", "items", "cases", "outcomes", "comparisons", "checks", "requests", "responses", "entries"}

// rows are the objects of a list that holds one object a request: a member named like one,
// or the lines of a file.
func (v *Value) rows() []*Value {
	if v.Kind != List || len(v.Items) == 0 || v.Parent != nil && !slices.Contains(rowLists, strings.ToLower(v.Key)) {
		return nil
	}
	for _, x := range v.Items {
		if x.Kind != Object {
			return nil
		}
	}
	return v.Items
}

// table is an object beside the rows that it describes.
type table struct {
	file *File
	in   *Value // the object that holds the rows
	list *Value
	rows []*Value
}

// tables finds every list of rows with the object around it.
func (e *Evidence) tables() []table {
	var out []table
	e.values(func(f *File, v *Value) {
		if rows := v.rows(); rows != nil && v.Parent != nil && v.Parent.Kind == Object {
			out = append(out, table{f, v.Parent, v, rows})
		}
	})
	return out
}

// counts are the members of the object and of its summaries: what is said about all rows.
func (t table) counts() []*Value {
	var out []*Value
	for _, x := range t.in.Items {
		switch {
		case x.Kind == Object && slices.Contains([]string{"summary", "totals", "counts", "stats", "statistics", "aggregate", "header", "meta", "metadata"}, strings.ToLower(x.Key)):
			out = append(out, x.Items...)
		case x != t.list:
			out = append(out, x)
		}
	}
	return out
}

// arm is one arm of a ladder.
type arm struct {
	file        *File
	at          *Value
	name, about string
}

// arms finds the arms of the whole evidence: objects that name an arm and hold rows or a
// verdict, and those in a list or an object called arms.
func (e *Evidence) arms() []arm {
	var out []arm
	e.values(func(f *File, v *Value) {
		if v.Kind != Object {
			return
		}
		a := arm{file: f, at: v, name: v.text("arm", "name", "arm_name", "id"), about: v.text("arm_description", "description", "about", "config", "label")}
		inArms := v.Parent != nil && (strings.EqualFold(v.Parent.Key, "arms") || strings.EqualFold(v.Parent.Key, "per_arm"))
		switch {
		case inArms:
			if v.Key != "" {
				a.name = v.Key
			}
		case v.text("arm", "arm_name") != "" && hasRows(v):
		default:
			return
		}
		if a.name != "" {
			out = append(out, a)
		}
	})
	return out
}

func hasRows(v *Value) bool {
	for _, x := range v.Items {
		if x.rows() != nil {
			return true
		}
	}
	return false
}
