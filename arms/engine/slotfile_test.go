package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/arms/engine"
)

// The files were saved by llama-server 0.7.0 (build 11669): a prompt of 40 tokens and three of
// its reply, two layers of keys and values with 64 dimensions, in f16 (values transposed, since
// flash attention was off) and in q8_0; and a hybrid model with one layer of them.
var slotFiles = map[string]struct {
	layers, kind, row int
	transposed        bool
}{
	"f16":    {2, 1, 128, true},
	"q8_0":   {2, 8, 68, false},
	"hybrid": {1, 1, 128, true},
}

func slotFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/llamacpp-slot-" + name + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseSlotFile(t *testing.T) {
	for name, want := range slotFiles {
		b := slotFile(t, name)
		f, err := engine.ParseSlotFile(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Tokens != 43 || f.Cells != 43 || len(f.Sections) != 2*want.layers {
			t.Errorf("%s: %d tokens, %d cells, %d sections", name, f.Tokens, f.Cells, len(f.Sections))
		}
		for i, s := range f.Sections {
			kind := "K"
			if i >= want.layers {
				kind = "V"
			}
			if s.Kind != kind || s.Layer != i%want.layers || s.Type != want.kind || s.To-s.From != 43*want.row || s.Transposed != (kind == "V" && want.transposed) {
				t.Errorf("%s: section %d: %+v", name, i, s)
			}
		}
	}
}

// Whatever is cut off or changed before the layers makes it another layout, and nothing is
// read beyond the file's end.
func TestParseSlotFileRefuses(t *testing.T) {
	b := slotFile(t, "f16")
	for n := 0; n < len(b)-4; n += 97 {
		if _, err := engine.ParseSlotFile(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken for a whole file", n, len(b))
		}
	}
	for _, at := range []int{0, 4, 8} {
		c := bytes.Clone(b)
		c[at] ^= 1
		if _, err := engine.ParseSlotFile(c); err == nil {
			t.Errorf("byte %d was changed and the file was taken", at)
		}
	}
}

func FuzzParseSlotFile(f *testing.F) {
	for name := range slotFiles {
		f.Add(slotFile(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := engine.ParseSlotFile(b)
		if err != nil {
			return
		}
		for _, s := range file.Sections {
			if s.From < 0 || s.To < s.From || s.To > len(b) {
				t.Errorf("%+v of %d bytes", s, len(b))
			}
		}
	})
}

// damaged is a copy of a slot file after args were done to it.
func damaged(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	res := arms.Resources{Slots: t.TempDir()}
	path := filepath.Join(res.Slots, "slot-0.bin")
	if err := os.WriteFile(path, slotFile(t, name), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (engine.LlamaCpp{}).Damage(res, args); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// One bit, in the keys of the layer that was named, 32 tokens in.
func TestDamageLowBit(t *testing.T) {
	for name, want := range slotFiles {
		was, is := slotFile(t, name), damaged(t, name, "low-bit", "0")
		f, _ := engine.ParseSlotFile(was)
		bits := 0
		for i := range was {
			for x := was[i] ^ is[i]; x != 0; x &= x - 1 {
				bits++
				if at := f.Sections[0].From + 32*want.row; i < at || i >= at+want.row {
					t.Errorf("%s: byte %d was changed, token 32 begins at %d", name, i, at)
				}
			}
		}
		if bits != 1 || len(was) != len(is) {
			t.Errorf("%s: %d bits were changed", name, bits)
		}
	}
}

// A file of 43 tokens has no room for 16 behind the 32nd; cut to the first layer, where it
// has, every value is hit once and in its lowest bit.
func TestDamageLowBits(t *testing.T) {
	res := arms.Resources{Slots: t.TempDir()}
	if err := os.WriteFile(filepath.Join(res.Slots, "slot-0.bin"), slotFile(t, "f16"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (engine.LlamaCpp{}).Damage(res, []string{"low-bits", "0"}); err == nil || !strings.Contains(err.Error(), "goes to token 48") {
		t.Errorf("%v", err)
	}
	for name, c := range map[string]struct {
		kind, row, values int
		mask              byte
		at, every         int
	}{
		"f16":  {1, 128, 64, 1, 0, 2},
		"f32":  {0, 256, 64, 1, 0, 4},
		"q8_0": {8, 68, 64, 1, -1, 0},
		"q4_0": {2, 36, 64, 0x11, -1, 0},
	} {
		was := made(48, c.kind, c.row)
		file := filepath.Join(res.Slots, "slot-0.bin")
		if err := os.WriteFile(file, was, 0o644); err != nil {
			t.Fatal(err)
		}
		seen, err := (engine.LlamaCpp{}).Damage(res, []string{"low-bits", "0"})
		if err != nil || !strings.Contains(seen, fmt.Sprintf("%d values changed in 1 files", 16*c.values)) {
			t.Errorf("%s: %q, %v", name, seen, err)
		}
		is, _ := os.ReadFile(file)
		f, err := engine.ParseSlotFile(is)
		if err != nil {
			t.Fatal(err)
		}
		for i := range was {
			at := i - f.Sections[0].From - 32*c.row
			hit := at >= 0 && at < 16*c.row
			if c.every > 0 {
				hit = hit && at%c.every == c.at
			} else {
				hit = hit && at%(c.row/2) >= 2
			}
			if want := was[i] ^ map[bool]byte{true: c.mask}[hit]; is[i] != want {
				t.Fatalf("%s: byte %d is %x, want %x", name, i, is[i], want)
			}
		}
	}
}

// made is a slot file of one layer, untransposed, all of whose values are zero.
func made(cells, kind, row int) []byte {
	var b []byte
	u32 := func(vs ...int) {
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	u32(0x67677371, 4, cells+4)
	u32(make([]int, cells+4)...)
	u32(1, cells)
	for i := range cells {
		u32(i, 1, 0)
	}
	u32(0, 1, 0, 0)
	for range 2 {
		u32(kind, row, 0)
		b = append(b, make([]byte, cells*row)...)
	}
	return b
}

// All values, and nothing else: the file is still of the layout, and the values are 1.02
// times what they were as far as half a number goes.
func TestDamageScale(t *testing.T) {
	was, is := slotFile(t, "f16"), damaged(t, "f16", "scale", "1.02")
	f, err := engine.ParseSlotFile(is)
	if err != nil {
		t.Fatal(err)
	}
	at, moved := 0, 0
	for _, s := range f.Sections {
		if !bytes.Equal(was[at:s.From], is[at:s.From]) {
			t.Errorf("bytes before %d were changed", s.From)
		}
		at = s.To
		for i := s.From; i < s.To; i += 2 {
			a, b := half(was[i:]), half(is[i:])
			if math.Abs(b-1.02*a) > 0.0006*math.Abs(a)+1e-7 {
				t.Fatalf("byte %d: %g became %g", i, a, b)
			}
			if a != b {
				moved++
			}
		}
	}
	if !bytes.Equal(was[at:], is[at:]) {
		t.Error("bytes behind the values were changed")
	}
	if want := 4 * 43 * 64; moved < want*9/10 {
		t.Errorf("%d of %d values moved", moved, want)
	}
	if bytes.Equal(slotFile(t, "q8_0"), damaged(t, "q8_0", "scale", "1.02")) {
		t.Error("q8_0: nothing was changed")
	}
}

func half(b []byte) float64 {
	h := binary.LittleEndian.Uint16(b)
	v := math.Ldexp(float64(h&0x3ff|0x400), int(h>>10&0x1f)-25)
	if h>>10&0x1f == 0 {
		v = math.Ldexp(float64(h&0x3ff), -24)
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return v
}

func TestDamageRefuses(t *testing.T) {
	e := engine.LlamaCpp{}
	for _, args := range [][]string{nil, {"scale"}, {"scale", "x"}, {"scale", "NaN"}, {"low-bit", "-1"}, {"nan", "x"}, {"low-bits"}, {"melt", "1"}} {
		if e.CheckDamage(args) == "" {
			t.Errorf("%q was taken", args)
		}
	}
	if _, err := e.Damage(arms.Resources{Slots: t.TempDir()}, []string{"scale", "2"}); err == nil || !strings.Contains(err.Error(), "no slot file") {
		t.Errorf("nothing to damage: %v", err)
	}
	res := arms.Resources{Slots: t.TempDir()}
	if err := os.WriteFile(filepath.Join(res.Slots, "slot-0.bin"), slotFile(t, "f16"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Damage(res, []string{"nan", "7"}); err == nil || !strings.Contains(err.Error(), "no layer 7") {
		t.Errorf("a layer that is not there: %v", err)
	}
}
