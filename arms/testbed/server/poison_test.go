package server_test

import (
	"os"
	"path/filepath"
	"testing"
)

// poison overwrites the codes of the first attention block of every stored chunk
// with the NaN code of e4m3. The block's frame begins behind 8 bytes of magic
// and 4 of length; 16 positions of 3 heads with 32 + 32 codes are 3,072 bytes.
func poison(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "rank-0", "*.kv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no chunk to poison: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw[12 : 12+3072] {
			raw[12+i] = 0x7f
		}
		if err := os.WriteFile(f, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
