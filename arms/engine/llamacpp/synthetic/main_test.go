package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The recorded models are what is written: sets and receipts belong to these bytes.
func TestRecordedModels(t *testing.T) {
	recorded, err := os.ReadFile("../sha256sums")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct {
		shape string
		seed  uint64
	}{
		"synthetic-llama.gguf": {"llama", 1}, "synthetic-llama-other.gguf": {"llama", 2}, "synthetic-llama-small.gguf": {"llama-2", 1}, "synthetic-lfm2.gguf": {"lfm2", 1},
	} {
		g, err := model(m.shape, m.seed)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := g.write(&b); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b.Bytes())
		if line := hex.EncodeToString(sum[:]) + "  " + name; !strings.Contains(string(recorded), line) {
			t.Errorf("not recorded: %s", line)
		}
		if h := b.Bytes(); string(h[:4]) != "GGUF" || binary.LittleEndian.Uint32(h[4:]) != 3 || binary.LittleEndian.Uint64(h[8:]) != uint64(len(g.tensors)) ||
			binary.LittleEndian.Uint64(h[16:]) != uint64(len(g.names)) || b.Len()%align != 0 {
			t.Errorf("%s: head %x, %d bytes", name, h[:24], b.Len())
		}
	}
}

// A tensor whose data does not fill its dimensions is not written, and neither is a value of
// a type that the format does not have.
func TestWriteRefuses(t *testing.T) {
	g := &gguf{}
	g.add("x", make([]float32, 5), 2, 3)
	if err := g.write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "tensor x") {
		t.Errorf("%v", err)
	}
	g = &gguf{}
	g.set("x", 1.5)
	if err := g.write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("%v", err)
	}
	if err := write("mamba", 1, filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), "llama, llama-2 or lfm2") {
		t.Errorf("%v", err)
	}
}

// Whatever the model says is plain text.
func TestVocabulary(t *testing.T) {
	tokens, scores, types := vocabulary()
	if len(tokens) != 99 || len(scores) != len(tokens) || len(types) != len(tokens) {
		t.Fatalf("%d tokens, %d scores, %d types", len(tokens), len(scores), len(types))
	}
	seen := map[string]bool{}
	for i, s := range tokens {
		if seen[s] || i > 2 && types[i] != 1 || i > 4 && (len(s) != 1 || s[0] <= ' ' || s[0] > '~') {
			t.Errorf("token %d: %q, type %d", i, s, types[i])
		}
		seen[s] = true
	}
}
