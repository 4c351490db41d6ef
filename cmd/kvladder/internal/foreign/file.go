package foreign

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"kvladder/receipts/digest"
)

// mostBytes bounds what a file may hold after it is unpacked.
const mostBytes = 2 << 30

// File is one file of rows.
type File struct {
	Name   string // its base name
	Dir    string // where it lies: snapshots are looked for beside it
	Bytes  []byte // as they are on disk
	Digest digest.Digest
	Arms   []Arm
}

// Arm is the rows of one arm as a file holds them.
type Arm struct {
	Name        string // as the file names it; "" where it does not
	Label       string // how its configuration is declared; "" where it is not
	PromptsSHA  string // digest of the prompts as the file states it
	ScoredNames []string

	rows []*row
}

// Rows is how many requests the arm holds.
func (a *Arm) Rows() int { return len(a.rows) }

// Open reads the file at path and finds its arms. Whether it is gzip is seen from its bytes.
func Open(path string) (*File, error) {
	name := filepath.Base(path)
	b, err := os.ReadFile(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := unpack(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	arms, err := findArms(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{Name: name, Dir: filepath.Dir(path), Bytes: b, Digest: digest.Of(b), Arms: arms}, nil
}

// unpack gives the text of a file that may be gzip.
func unpack(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errors.New("the file is empty: fetch it again")
	}
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("not a whole gzip file: %w; fetch it again", err)
		}
		text, err := io.ReadAll(io.LimitReader(z, mostBytes+1))
		if err != nil {
			return nil, fmt.Errorf("not a whole gzip file: %w; fetch it again", err)
		}
		if len(text) > mostBytes {
			return nil, fmt.Errorf("more than %d bytes when unpacked", mostBytes)
		}
		if len(text) == 0 {
			return nil, errors.New("a gzip file with nothing in it: fetch it again")
		}
		return text, nil
	}
	return b, nil
}

// isPage says whether a text is a page for people and not data.
func isPage(b []byte) bool {
	b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\ufeff")))
	return bytes.HasPrefix(b, []byte("<"))
}

// findArms finds every list of rows in a text.
func findArms(text []byte) ([]Arm, error) {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("nothing in it but white space: fetch it again")
	case isPage(text):
		return nil, errors.New("a web page and not rows: fetch the raw file that the page is about")
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return nil, errors.New("a Git LFS pointer and not rows: fetch the file that it points to")
	case !utf8.Valid(text):
		return nil, errors.New("not UTF-8 text: damaged characters could not be told from replies that are damaged")
	}
	docs, err := parse(text)
	if err != nil {
		return nil, err
	}
	f := &finder{}
	switch {
	case len(docs) > 1:
		err = f.list(docs, Arm{})
	case docs[0].isList():
		var es []node
		if es, err = docs[0].elements(); err == nil {
			err = f.list(es, Arm{})
		}
	default:
		err = f.walk(docs[0], Arm{}, "", 0)
	}
	if err != nil {
		return nil, err
	}
	if len(f.arms) == 0 {
		if f.why != nil {
			return nil, f.why
		}
		return nil, fmt.Errorf("no rows in it: want a list of objects with %s and %s, alone or under \"rows\"", idNames[0], textNames[0])
	}
	seen := map[string]bool{}
	for _, a := range f.arms {
		if seen[a.Name] && len(f.arms) > 1 {
			return nil, fmt.Errorf("it holds the arm %q twice", a.Name)
		}
		seen[a.Name] = true
	}
	return f.arms, nil
}

// finder walks a document for lists of rows.
type finder struct {
	arms []Arm
	why  error // why the first list that was to hold rows holds none
}

// deepest is how far below the document rows are looked for.
const deepest = 6

// walk looks for "rows" in an object, and in the objects and lists below it; key is the name
// that the object has there, which names the arm where nothing else does.
func (f *finder) walk(n node, from Arm, key string, depth int) error {
	ms, err := n.members()
	if err != nil {
		return err
	}
	o := object{}
	for _, m := range ms {
		o[m.name] = m.value
	}
	here := from
	if name := o.word("arm", "name"); name != "" {
		here.Name = name
	} else if key != "" {
		here.Name = key
	}
	if label := o.word("arm_description", "description", "label"); label != "" {
		here.Label = label
	}
	if sha := o.word("prompts_sha256"); sha != "" {
		here.PromptsSHA = sha
	}
	if es, err := o["scoring_fields"].elements(); err == nil && len(es) > 0 {
		here.ScoredNames = nil
		for _, e := range es {
			if s, ok := e.text(); ok {
				here.ScoredNames = append(here.ScoredNames, s)
			}
		}
	}
	if rows, ok := o["rows"]; ok && rows.isList() {
		es, err := rows.elements()
		if err != nil {
			return err
		}
		return f.list(es, here)
	}
	if depth == deepest {
		return nil
	}
	for _, m := range ms {
		switch {
		case m.value.isObject():
			key := m.name
			if slices.Contains([]string{"arms", "per_arm", "results", "data"}, key) {
				key = "" // these hold arms and are none
			}
			if err := f.walk(m.value, here.without(depth > 0 || key != ""), key, depth+1); err != nil {
				return err
			}
		case m.value.isList() && m.name == "arms":
			es, err := m.value.elements()
			if err != nil {
				return err
			}
			for _, e := range es {
				if err := f.walk(e, here, "", depth+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// without drops the label that belongs to an object above: an arm's own is below.
func (a Arm) without(drop bool) Arm {
	if drop {
		a.Label = ""
	}
	return a
}

// list takes a list of rows, one arm or several: rows may name theirs.
func (f *finder) list(es []node, from Arm) error {
	var rows []*row
	for i, e := range es {
		if !looksLikeRow(e) {
			why := "it is no row: want an object with " + idNames[0] + " and " + textNames[0]
			if _, err := readRow(e); err != nil {
				why = err.Error()
			}
			if f.why == nil {
				f.why = fmt.Errorf("row %d: %s", i+1, why)
			}
			if i > 0 {
				return f.why
			}
			return nil
		}
		r, err := readRow(e)
		if err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		if f.why == nil {
			f.why = errors.New("its list of rows is empty")
		}
		return nil
	}
	var order []string
	by := map[string][]*row{}
	for _, r := range rows {
		if by[r.arm] == nil {
			order = append(order, r.arm)
		}
		by[r.arm] = append(by[r.arm], r)
	}
	if len(order) > 1 {
		for _, name := range order {
			if name == "" {
				return errors.New("some rows name their arm and some do not")
			}
		}
	}
	for _, name := range order {
		a := from
		if name != "" && (a.Name == "" || len(order) > 1) {
			a.Name = name
		}
		a.rows = by[name]
		if err := a.unique(); err != nil {
			return err
		}
		f.arms = append(f.arms, a)
	}
	return nil
}

// unique refuses an arm in which one request is there twice: which reply counts cannot be
// known, and to count both would count it twice.
func (a *Arm) unique() error {
	type key struct{ id, pass string }
	first := map[key]int{}
	for i, r := range a.rows {
		k := key{r.requestID, r.pass}
		if at, twice := first[k]; twice {
			of := ""
			if r.pass != "" {
				of = " of pass " + r.pass
			}
			return fmt.Errorf("row %d: request %s%s is there already, as row %d: keep one of them", i+1, r.requestID, of, at+1)
		}
		first[k] = i
	}
	return nil
}

// Pick gives the arm that is meant by NAME=FILE: the only one, or the one of that name.
func (f *File) Pick(name string) (Arm, error) {
	if len(f.Arms) == 1 {
		return f.Arms[0], nil
	}
	var have []string
	for _, a := range f.Arms {
		if a.Name == name {
			return a, nil
		}
		have = append(have, a.Name)
	}
	return Arm{}, fmt.Errorf("%s holds several arms and none is named %q: it has %s", f.Name, name, strings.Join(have, ", "))
}
