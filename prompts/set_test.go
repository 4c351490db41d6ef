package prompts

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small is a set of two prompts with every member in use.
func small(t testing.TB) *Set {
	t.Helper()
	slot := 3
	s, err := Freeze(Header{
		Name: "small", Kind: "needle", Tokenizer: "none", Dialect: "vllm", Path: "/v1/completions", Model: "m",
		Seed: 1, Random: true, MaxTokens: 8, Note: "two", Licence: "CC0-1.0",
		Geometry: Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64},
	}, []Prompt{
		{
			ID: "a", Role: Target, Document: "d", Class: Class{Label: "m1", LengthMod: 1, Local: 64, External: 128},
			Tokens: []int{1, 2, 3}, Body: `{"prompt":[1,2,3]}`, Prime: &Prime{Tokens: 2, Body: `{"prompt":[1,2]}`},
			Expect: Expectation{Needles: []Needle{{Key: "K07", Answer: "48<21", Offset: 1, End: 2, Rides: "attention", Scored: true}}},
		},
		{ID: "b", Role: Bystander, Document: "d", Tokens: []int{1}, Body: `{"prompt":[1]}`, Slot: &slot, Salt: "s", Expect: Expectation{Empty: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s *Set) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sets", "small.jsonl")
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenReadsWhatFreezeWrote(t *testing.T) {
	s := small(t)
	path := write(t, s)
	got, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != s.Digest || !bytes.Equal(got.Bytes(), s.Bytes()) || got.File != path {
		t.Errorf("opened %s from %q, wrote %s", got.Digest, got.File, s.Digest)
	}
	if d := cmp.Diff(s.Prompts, got.Prompts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(s.Header, got.Header); d != "" {
		t.Error(d)
	}
	side, err := os.ReadFile(path + ".sha256")
	if err != nil {
		t.Fatal(err)
	}
	if want := s.Digest.Hex() + "  small.jsonl\n"; string(side) != want {
		t.Errorf("sidecar %q, want %q", side, want)
	}
	if err := s.Write(path); err != nil {
		t.Errorf("writing the same set again: %v", err)
	}
}

// Every byte of the file is flipped once. The complaint names the prompt when the byte is in
// a prompt's line, and the file always.
func TestOpenRefusesEveryChangedByte(t *testing.T) {
	s := small(t)
	path := write(t, s)
	lines := bytes.SplitAfter(s.Bytes(), []byte("\n"))
	at := 0
	for i, l := range lines[:len(lines)-1] {
		want := ""
		if i > 0 {
			want = s.Header.Prompts[i-1].ID
		}
		for j := range l {
			for _, bit := range []byte{1, 2, 0x20, 0x80} {
				b := bytes.Clone(s.Bytes())
				b[at+j] ^= bit
				if err := os.WriteFile(path, b, 0o644); err != nil {
					t.Fatal(err)
				}
				_, err := Open(path)
				if err == nil {
					t.Fatalf("byte %d ^ %#x went unseen", at+j, bit)
				}
				if !strings.Contains(err.Error(), path) {
					t.Fatalf("byte %d ^ %#x: %v does not name the file", at+j, bit, err)
				}
				var changed *ChangedError
				if want != "" && j < len(l)-1 && (!errors.As(err, &changed) || changed.Prompt != want) {
					t.Fatalf("byte %d ^ %#x of prompt %q: %v", at+j, bit, want, err)
				}
			}
		}
		at += len(l)
	}
}

// Changes that leave every prompt line as it was, and so must be seen otherwise.
func TestParseRefuses(t *testing.T) {
	s := small(t)
	b := string(s.Bytes())
	lines := strings.SplitAfter(b, "\n")
	for name, changed := range map[string]string{
		"no final newline":           strings.TrimSuffix(b, "\n"),
		"carriage returns":           strings.ReplaceAll(b, "\n", "\r\n"),
		"space in the header":        " " + b,
		"a second value":             strings.Replace(b, "}\n", "} 1\n", 1),
		"an empty line at the end":   b + "\n",
		"a line that is not listed":  b + lines[2],
		"a missing line":             lines[0] + lines[1],
		"lines in another order":     lines[0] + lines[2] + lines[1],
		"an unknown header member":   strings.Replace(b, `"dialect"`, `"dialekt"`, 1),
		"another schema":             strings.Replace(b, Schema, "kvladder/set/9", 1),
		"a header that is not JSON":  b[1:],
		"nothing":                    "",
		"a null list in the header":  strings.Replace(b, `"note":"two"`, `"note":null`, 1),
		"members in another order":   strings.Replace(b, `"seed":1,"tokenizer":"none"`, `"tokenizer":"none","seed":1`, 1),
		"a number in another format": strings.Replace(b, `"max_tokens":8`, `"max_tokens":8.0`, 1),
	} {
		if changed == b {
			t.Fatalf("%s: nothing was changed", name)
		}
		if got, err := Parse("small", []byte(changed)); err == nil {
			t.Errorf("%s: accepted as %s", name, got.Digest)
		}
	}
}

func TestOpenNeedsTheSidecar(t *testing.T) {
	s := small(t)
	path := write(t, s)
	if err := os.WriteFile(path+".sha256", []byte(strings.Repeat("0", 64)+"  small.jsonl\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var changed *ChangedError
	if _, err := Open(path); !errors.As(err, &changed) || changed.Prompt != "" {
		t.Errorf("another digest beside it: %v", err)
	}
	if err := os.Remove(path + ".sha256"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "has no small.jsonl.sha256 beside it") {
		t.Errorf("no sidecar: %v", err)
	}
	if _, err := Open(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestWriteNeverReplacesAnotherSet(t *testing.T) {
	s := small(t)
	path := write(t, s)
	h := s.Header
	h.Seed++
	other, err := Freeze(h, s.Prompts)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Write(path); err == nil || !strings.Contains(err.Error(), "never written over") {
		t.Errorf("written over: %v", err)
	}
	if _, err := Open(path); err != nil {
		t.Errorf("the first set is gone: %v", err)
	}
}

func TestFreezeRefuses(t *testing.T) {
	p := Prompt{ID: "a", Body: "{}"}
	for want, ps := range map[string][]Prompt{
		"at least one prompt": nil,
		"prompt 2 has no id":  {p, {Body: "{}"}},
		`"a" is used twice`:   {p, p},
		`"b" has no body`:     {p, {ID: "b"}},
	} {
		if _, err := Freeze(Header{Name: "x"}, ps); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSetLookups(t *testing.T) {
	s := small(t)
	if p, ok := s.ByID("b"); !ok || p.Role != Bystander {
		t.Errorf("b is %v, %v", p, ok)
	}
	if _, ok := s.ByID("c"); ok {
		t.Error("c is there")
	}
	if n := s.Classes(); n != 2 { // "m1" and ""
		t.Errorf("%d classes, want 2", n)
	}
	for g, want := range map[Geometry]int{
		{}:                                       1,
		{AttentionBlock: 16}:                     16,
		{AttentionBlock: 16, RecurrentBlock: 64}: 64,
		{AttentionBlock: 16, StoreChunk: 256}:    16,
	} {
		if got := g.Boundary(); got != want {
			t.Errorf("boundary of %+v is %d, want %d", g, got, want)
		}
	}
}

// FuzzParse: what parses is what freezing its content writes.
func FuzzParse(f *testing.F) {
	b := small(f).Bytes()
	f.Add(b)
	f.Add(bytes.TrimSuffix(b, []byte("\n")))
	f.Add([]byte(`{"schema":"kvladder/set/1"}`))
	f.Add(bytes.Replace(b, []byte(`"note":"two"`), []byte(`"note":"\u0074wo"`), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse("fuzz", b)
		if err != nil {
			return
		}
		again, err := Freeze(s.Header, s.Prompts)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), b) {
			t.Errorf("freezing again gives\n%s\nfrom\n%s", again.Bytes(), b)
		}
	})
}
