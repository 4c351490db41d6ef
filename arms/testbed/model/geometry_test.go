package model

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

// run computes tokens in tiles of step under a geometry and returns the last
// logits and the sequence.
func (r Geometry) run(m *Model, dt DType, tokens []int, cut int) ([]float32, *Sequence) {
	s := &Sequence{State: new(State)}
	r = r.Filled()
	for range r.Blocks(len(tokens)) {
		s.Attention = append(s.Attention, r.NewBlock(Attention, dt))
		s.Window = append(s.Window, r.NewBlock(WindowGroup, dt))
	}
	d := m.Decoder()
	d.Cut = cut
	return slices.Clone(d.Prefill(s, tokens, true)), s
}

// TestBlockSizeChangesNoBit runs bf16, which has no scales, in blocks of 16, 32
// and 48: the logits and the state are the same. In fp8 a longer block has one
// scale for more tokens, so its logits differ from those of 16.
func TestBlockSizeChangesNoBit(t *testing.T) {
	m := New(11)
	tokens := Encode(strings.Repeat(" river stone bridge forest", 20) + "\nfact: key K07 is 4821 .\nnote: tag T03 is 772 .\n" + strings.Repeat(" hill valley", 24) + "\nquestion: key K07 ?")
	want, ws := Geometry{}.run(m, BF16, tokens, 0)
	scaled, _ := Geometry{}.run(m, FP8, tokens, 0)
	for _, g := range []Geometry{{32, 96}, {48, 96}} {
		got, s := g.run(m, BF16, tokens, 0)
		if !slices.Equal(got, want) || *s.State != *ws.State {
			t.Errorf("blocks of %d change bits", g.Block)
		}
		narrow, _ := g.run(m, FP8, tokens, 0)
		if slices.Equal(narrow, scaled) {
			t.Errorf("fp8 blocks of %d take no scale of their own", g.Block)
		}
		if argmax(narrow) != argmax(want) {
			t.Errorf("fp8 blocks of %d answer %d", g.Block, argmax(narrow))
		}
	}
	// A block that was stored and read again holds the same.
	b, c := s32(t, m, tokens), Geometry{Block: 32}.NewBlock(Attention, FP8)
	if err := c.SetCodes(b.AppendCodes(nil)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetScales(b.AppendScales(nil)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.parts[0].keys, c.parts[0].keys) || !slices.Equal(b.parts[0].values, c.parts[0].values) || !bytes.Equal(b.AppendCodes(nil), c.AppendCodes(nil)) {
		t.Error("a block of 32 read again holds something else")
	}
}

func s32(t *testing.T, m *Model, tokens []int) *Block {
	t.Helper()
	_, s := Geometry{Block: 32, Every: 96}.run(m, FP8, tokens, 0)
	return s.Attention[1]
}

// TestCut sums in two parts: the result moves in its last bits and no further,
// and a cut before the first key or behind the last is none.
func TestCut(t *testing.T) {
	m := New(11)
	tokens := Encode(strings.Repeat(" river stone bridge forest", 30))
	want, _ := Geometry{}.run(m, BF16, tokens, 0)
	if got, _ := (Geometry{}).run(m, BF16, tokens, 1000); !slices.Equal(got, want) {
		t.Error("a cut behind the last key changes bits")
	}
	got, _ := Geometry{}.run(m, BF16, tokens, 50)
	if slices.Equal(got, want) {
		t.Error("a cut changes no bit")
	}
	for i := range got {
		if math.Abs(float64(got[i]-want[i])) > 0.05 {
			t.Fatalf("a cut moves logit %d from %g to %g", i, want[i], got[i])
		}
	}
}

// TestVariant asks two variants of one seed: both answer, with other bits.
func TestVariant(t *testing.T) {
	tokens := Encode(strings.Repeat(" river stone", 20) + "\nfact: key K07 is 4821 .\n" + strings.Repeat(" hill", 24) + "\nquestion: key K07 ?")
	base, _ := Geometry{}.run(New(11), BF16, tokens, 0)
	other, _ := Geometry{}.run(NewVariant(11, 3), BF16, tokens, 0)
	if argmax(base) != idSpacedDigit+4 || argmax(other) != idSpacedDigit+4 || slices.Equal(base, other) {
		t.Errorf("answers %d and %d", argmax(base), argmax(other))
	}
}

func TestGeometryCheck(t *testing.T) {
	for says, g := range map[string]Geometry{
		"multiple of 16":             {Block: 24},
		"multiple of the block size": {Block: 32, Every: 80},
		"shorter than the window":    {Every: 32},
	} {
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	for _, g := range []Geometry{{}, {32, 96}} {
		if err := g.Check(); err != nil {
			t.Error(err)
		}
	}
}
