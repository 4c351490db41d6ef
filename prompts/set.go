// Package prompts holds what is asked: frozen Sets of requests.
//
// A Set is a JSONL file. Its first line is the Header; each further line is one Prompt.
// Beside it lies NAME.sha256, one line of the form that `sha256sum -c` reads. The header
// lists the digest of every prompt line, so that a changed byte is refused by name: of the
// prompt where the prompt was changed, of the file where the header was.
//
//  1. Freeze draws or reads prompts once and writes the file.
//  2. Open reads it back and refuses a changed byte.
//  3. Every later step names the Set by the digest of the file's bytes.
package prompts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kvladder/receipts/digest"
)

// Schema is the format of the file, named in its first line.
const Schema = "kvladder/set/1"

// Header is the first line of a Set.
type Header struct {
	Schema    string   `json:"schema"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`      // needle, shared-prefix, partial-hit, mixed, file
	Tokenizer string   `json:"tokenizer"` // "kvladder-testbed", or the model name a /tokenize server reported
	Dialect   string   `json:"dialect"`   // wire form of the bodies: "vllm" or "llamacpp"
	Path      string   `json:"path"`      // URL path that the bodies go to
	Model     string   `json:"model"`     // model name inside the bodies
	Seed      uint64   `json:"seed"`
	Random    bool     `json:"random"` // geometry drawn at random from registered ranges: a class bound is then a rate
	Geometry  Geometry `json:"geometry"`
	MaxTokens int      `json:"max_tokens"`
	Note      string   `json:"note,omitempty"`
	Licence   string   `json:"licence,omitempty"`

	Prompts []Entry `json:"prompts"`
}

// Entry names one prompt line and its digest.
type Entry struct {
	ID     string        `json:"id"`
	Digest digest.Digest `json:"digest"`
}

// Geometry is where the engine can cut a prompt, in tokens.
type Geometry struct {
	Mode           string `json:"mode"`            // "paged": block-hashed prefix cache; "slot": one live prompt per slot
	AttentionBlock int    `json:"attention_block"` // KV block
	RecurrentBlock int    `json:"recurrent_block"` // state boundary; 0 = no recurrent group
	StoreChunk     int    `json:"store_chunk"`     // chunk of the external store; 0 = no store known
}

// Boundary is the unit that hits come in: the largest of the block sizes, at least 1.
func (g Geometry) Boundary() int {
	return max(1, g.AttentionBlock, g.RecurrentBlock)
}

// Set is a frozen, ordered, digested list of prompts.
type Set struct {
	Header
	Digest  digest.Digest // of the file's bytes
	File    string        // where it was read from; "" when not from a file
	Prompts []Prompt

	bytes []byte
}

// Bytes is the Set's file as it was read or made.
func (s *Set) Bytes() []byte { return s.bytes }

// ByID finds a prompt.
func (s *Set) ByID(id string) (*Prompt, bool) {
	for i := range s.Prompts {
		if s.Prompts[i].ID == id {
			return &s.Prompts[i], true
		}
	}
	return nil, false
}

// Classes counts the distinct class labels among the prompts.
func (s *Set) Classes() int {
	seen := map[string]bool{}
	for _, p := range s.Prompts {
		seen[p.Class.Label] = true
	}
	return len(seen)
}

// Freeze makes the Set of a header and its prompts: ids must be present and unique and
// bodies must not be empty.
func Freeze(h Header, ps []Prompt) (*Set, error) {
	h.Schema = Schema
	h.Prompts = nil
	if err := complete(ps); err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	for _, p := range ps {
		b, err := digest.Canonical(p)
		if err != nil {
			return nil, fmt.Errorf("prompt %q: %w", p.ID, err)
		}
		lines.Write(append(b, '\n'))
		h.Prompts = append(h.Prompts, Entry{ID: p.ID, Digest: digest.Of(b)})
		if lines.Len() > MaxBytes {
			return nil, fmt.Errorf("set %s: its first %d prompts have more than %d bytes, the most of a set: ask for fewer or shorter prompts", h.Name, len(h.Prompts), MaxBytes)
		}
	}
	hb, err := digest.Canonical(h)
	if err != nil {
		return nil, err
	}
	return Parse(h.Name, slices.Concat(hb, []byte("\n"), lines.Bytes()))
}

// complete checks what every Set must have.
func complete(ps []Prompt) error {
	if len(ps) == 0 {
		return errors.New("a set needs at least one prompt")
	}
	seen := map[string]bool{}
	for i, p := range ps {
		switch {
		case p.ID == "":
			return fmt.Errorf("prompt %d has no id", i+1)
		case seen[p.ID]:
			return fmt.Errorf("prompt id %q is used twice", p.ID)
		case p.Body == "":
			return fmt.Errorf("prompt %q has no body", p.ID)
		}
		seen[p.ID] = true
	}
	return nil
}

// ChangedError says that a Set is not the one that was frozen.
type ChangedError struct {
	File   string
	Prompt string // "" when the header or the whole file is meant
	What   string
}

func (e *ChangedError) Error() string {
	if e.Prompt != "" {
		return fmt.Sprintf("set %s: prompt %q was changed after it was frozen: %s", e.File, e.Prompt, e.What)
	}
	return fmt.Sprintf("set %s was changed after it was frozen: %s", e.File, e.What)
}

// Parse reads a Set from the bytes of its file; name is used in errors.
func Parse(name string, b []byte) (*Set, error) {
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 256<<20)
	var s Set
	s.File, s.bytes = name, b
	line := 0
	for sc.Scan() {
		line++
		if line == 1 {
			if err := strict(sc.Bytes(), &s.Header); err != nil {
				return nil, fmt.Errorf("set %s: line 1: %w", name, err)
			}
			if s.Schema != Schema {
				return nil, fmt.Errorf("set %s: schema %q, this program reads %q", name, s.Schema, Schema)
			}
			continue
		}
		i := line - 2
		if i >= len(s.Header.Prompts) {
			return nil, &ChangedError{File: name, What: fmt.Sprintf("line %d is not listed in the header", line)}
		}
		e := s.Header.Prompts[i]
		if d := digest.Of(sc.Bytes()); d != e.Digest {
			is, says := apart(d.Hex(), e.Digest.Hex())
			return nil, &ChangedError{File: name, Prompt: e.ID, What: fmt.Sprintf("its digest is %s, the header says %s", is, says)}
		}
		var p Prompt
		if err := strict(sc.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("set %s: line %d: %w", name, line, err)
		}
		if p.ID != e.ID {
			return nil, &ChangedError{File: name, Prompt: e.ID, What: fmt.Sprintf("line %d holds %q", line, p.ID)}
		}
		s.Prompts = append(s.Prompts, p)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("set %s: %w", name, err)
	}
	if line == 0 {
		return nil, fmt.Errorf("set %s is empty", name)
	}
	if len(s.Prompts) != len(s.Header.Prompts) {
		return nil, &ChangedError{File: name, What: fmt.Sprintf("%d prompts, the header lists %d", len(s.Prompts), len(s.Header.Prompts))}
	}
	if err := complete(s.Prompts); err != nil {
		return nil, fmt.Errorf("set %s: %w", name, err)
	}
	// Digests of lines say nothing about the header, the line ends or a second value on a
	// line: what was frozen is exactly what freezing again would write.
	c := comparison{with: b}
	if err := s.encode(&c); err != nil {
		return nil, fmt.Errorf("set %s: %w", name, err)
	}
	if at, equal := c.result(); !equal {
		return nil, &ChangedError{File: name, What: fmt.Sprintf("byte %d is not as freezing writes it", at)}
	}
	s.Digest = digest.Of(b)
	return &s, nil
}

// encode writes the file of the header and the prompts that s holds.
func (s *Set) encode(w io.Writer) error {
	line := func(v any) error {
		b, err := digest.Canonical(v)
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return err
	}
	if err := line(s.Header); err != nil {
		return err
	}
	for _, p := range s.Prompts {
		if err := line(p); err != nil {
			return err
		}
	}
	return nil
}

// comparison compares what is written to it with bytes that are there, without keeping it.
type comparison struct {
	with   []byte
	at     int // bytes that were equal
	differ bool
}

func (c *comparison) Write(b []byte) (int, error) {
	for i := 0; i < len(b) && !c.differ; i++ {
		if c.at == len(c.with) || c.with[c.at] != b[i] {
			c.differ = true
		} else {
			c.at++
		}
	}
	return len(b), nil
}

// result is the first byte that differs, counted from 1, and whether none does.
func (c *comparison) result() (int, bool) { return c.at + 1, !c.differ && c.at == len(c.with) }

func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// Open reads the Set at path and refuses it when a byte differs from what was frozen:
// the sidecar path+".sha256" must be there and must agree.
func Open(path string) (*Set, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", path, err)
	}
	s, perr := Parse(path, b)
	side, err := readFile(path + ".sha256")
	if err != nil {
		return nil, fmt.Errorf("set %s has no %s.sha256 beside it: freeze it again, or write it with sha256sum", path, filepath.Base(path))
	}
	want, _, _ := strings.Cut(string(side), " ")
	if perr != nil {
		return nil, perr
	}
	if want = strings.TrimSpace(want); s.Digest.Hex() != want {
		is, says := apart(s.Digest.Hex(), want)
		return nil, &ChangedError{File: path, What: fmt.Sprintf("its digest is %s, %s.sha256 says %.80q", is, filepath.Base(path), says)}
	}
	return s, nil
}

// MaxBytes is the most bytes of a Set's file, 1 GiB.
const MaxBytes = 1 << 30

// readFile reads a regular file of at most MaxBytes: a device has no end, and a pipe may
// have no beginning.
func readFile(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file: name a file that kvladder freeze wrote", path)
	case fi.Size() > MaxBytes:
		return nil, fmt.Errorf("%s has %d bytes, %d are the most: freeze a smaller set", path, fi.Size(), MaxBytes)
	}
	return os.ReadFile(path)
}

// apart cuts two texts behind the first character in which they differ, and not before the
// twelfth.
func apart(a, b string) (string, string) {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	n = max(12, n+1)
	return a[:min(n, len(a))], b[:min(n, len(b))]
}
