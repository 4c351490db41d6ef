package climb

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestCorruptPlaces(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		at   map[string][2]int // file -> first and one past the last flipped byte
		bad  bool
	}{
		{"from the start", []string{"slot-*.bin", "3", "2"}, map[string][2]int{"slot-0.bin": {3, 5}, "slot-1.bin": {3, 5}}, false},
		{"from the end", []string{"slot-1.bin", "-2", "2"}, map[string][2]int{"slot-1.bin": {18, 20}}, false},
		// 25 % of 10 bytes is byte 2 (2.5 cut), of 20 bytes byte 5
		{"a part of the size", []string{"slot-*.bin", "25%", "1"}, map[string][2]int{"slot-0.bin": {2, 3}, "slot-1.bin": {5, 6}}, false},
		{"no such file", []string{"x", "0", "1"}, nil, true},
		{"past the end", []string{"slot-0.bin", "9", "2"}, nil, true},
		{"no number", []string{"slot-0.bin", "nine", "2"}, nil, true},
		{"no share", []string{"slot-0.bin", "100%", "1"}, nil, true},
		{"no count", []string{"slot-0.bin", "0", "0"}, nil, true},
	} {
		dir := t.TempDir()
		was := map[string][]byte{"slot-0.bin": bytes.Repeat([]byte{7}, 10), "slot-1.bin": bytes.Repeat([]byte{7}, 20)}
		for n, b := range was {
			if err := os.WriteFile(filepath.Join(dir, n), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err := corrupt(dir, c.args)
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", c.name, err)
		}
		for n, b := range was {
			if r, ok := c.at[n]; ok {
				for i := r[0]; i < r[1]; i++ {
					b[i] = ^b[i]
				}
			}
			if got, _ := os.ReadFile(filepath.Join(dir, n)); !bytes.Equal(got, b) {
				t.Errorf("%s: %s is %v, want %v", c.name, n, got, b)
			}
		}
	}
}
