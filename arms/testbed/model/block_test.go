package model

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// filled returns a block written in all its slots.
func filled(g Group, dt DType, r *rand.Rand) *Block {
	b := NewBlock(g, dt)
	for slot := range BlockTokens {
		for i, s := range groupShapes[g] {
			b.put(i, slot, numbers(r, s.heads*s.dk, 0), numbers(r, s.heads*s.dv, 0))
		}
	}
	return b
}

// mirror joins the decoded values of b.
func (b *Block) mirror() []float32 {
	var x []float32
	for _, p := range b.parts {
		x = append(append(x, p.keys...), p.values...)
	}
	return x
}

func TestBlockBytes(t *testing.T) {
	// Bytes a token: layer 0 has 16+40 codes, layer 1 3x(32+32), layer 3 2x(32+32).
	for _, c := range []struct {
		g             Group
		dt            DType
		codes, scales int
	}{
		{Attention, BF16, 16 * 384, 0}, {Attention, FP8, 16 * 192, 3 * 8},
		{WindowGroup, BF16, 16 * (112 + 256), 0}, {WindowGroup, FP8, 16 * (56 + 128), (1 + 2) * 8},
	} {
		b := NewBlock(c.g, c.dt)
		if n, m := len(b.AppendCodes(nil)), len(b.AppendScales(nil)); n != c.codes || m != c.scales {
			t.Errorf("%s %s block: %d bytes of codes and %d of scales, want %d and %d", c.dt, c.g, n, m, c.codes, c.scales)
		}
		if b.Group() != c.g || b.DType() != c.dt {
			t.Errorf("%s %s block calls itself %s %s", c.dt, c.g, b.DType(), b.Group())
		}
	}
}

func TestBlockRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, g := range []Group{Attention, WindowGroup} {
		for _, dt := range []DType{BF16, FP8} {
			b := filled(g, dt, r)
			codes, scales := b.AppendCodes(nil), b.AppendScales(nil)
			for _, order := range []string{"codes first", "scales first"} {
				c := filled(g, dt, r)
				steps := []func() error{func() error { return c.SetCodes(codes) }, func() error { return c.SetScales(scales) }}
				if order == "scales first" {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				same(t, "decoded values, "+order, c.mirror(), b.mirror())
				if !bytes.Equal(c.AppendCodes(nil), codes) || !bytes.Equal(c.AppendScales(nil), scales) {
					t.Errorf("%s %s, %s: the bytes did not come back", dt, g, order)
				}
			}

			c := NewBlock(g, dt)
			c.CopyFrom(b)
			same(t, "copy", c.mirror(), b.mirror())
			if !bytes.Equal(c.AppendCodes(nil), codes) || !bytes.Equal(c.AppendScales(nil), scales) {
				t.Errorf("%s %s: the copy holds other bytes", dt, g)
			}
			c.Reset()
			same(t, "reset block", c.mirror(), NewBlock(g, dt).mirror())
			if !bytes.Equal(c.AppendScales(nil), NewBlock(g, dt).AppendScales(nil)) || !bytes.Equal(b.AppendCodes(nil), codes) {
				t.Errorf("%s %s: Reset left scales behind, or reached the block copied from", dt, g)
			}
			if c.SetCodes(codes[1:]) == nil || c.SetScales(append(scales, 0)) == nil {
				t.Errorf("%s %s: a wrong length was accepted", dt, g)
			}
		}
	}
}

// TestBlockDamage flips each byte of codes and scales and wants the decoded
// values to change: what the kernel reads is what is stored.
func TestBlockDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, g := range []Group{Attention, WindowGroup} {
		for _, dt := range []DType{BF16, FP8} {
			b := filled(g, dt, r)
			before, codes, scales := b.mirror(), b.AppendCodes(nil), b.AppendScales(nil)
			flip := func(what string, data []byte, set func([]byte) error) {
				for i := 0; i < len(data); i += 1 + len(data)/97 {
					data[i] ^= 0x40
					if err := set(data); err != nil {
						t.Fatal(err)
					}
					if _, bad := differs(b.mirror(), before); !bad {
						t.Errorf("%s %s: byte %d of the %s reaches nothing", dt, g, i, what)
					}
					data[i] ^= 0x40
				}
				if err := set(data); err != nil {
					t.Fatal(err)
				}
				same(t, "mended block", b.mirror(), before)
			}
			flip("codes", codes, b.SetCodes)
			flip("scales", scales, b.SetScales)
		}
	}
}

// TestFirstSlot writes slot 0 over a used fp8 block: the scale changes, and
// with it what the codes of later slots mean.
func TestFirstSlot(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	b := filled(Attention, FP8, r)
	k, v := numbers(r, 96, 0), numbers(r, 96, 0)
	for i := range k {
		k[i] *= 3
	}
	b.put(0, 0, k, v)
	fresh := NewBlock(Attention, FP8)
	if err := fresh.SetScales(b.AppendScales(nil)); err != nil {
		t.Fatal(err)
	}
	if err := fresh.SetCodes(b.AppendCodes(nil)); err != nil {
		t.Fatal(err)
	}
	same(t, "decoded values", b.mirror(), fresh.mirror())
}

func TestParseDType(t *testing.T) {
	for _, dt := range []DType{BF16, FP8} {
		if got, err := ParseDType(dt.String()); err != nil || got != dt {
			t.Errorf("ParseDType(%q) = %v, %v", dt.String(), got, err)
		}
	}
	if _, err := ParseDType("int8"); err == nil {
		t.Error("int8 was accepted")
	}
}

func TestNewBlockRefusesRecurrent(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a block of the recurrent group was made")
		}
	}()
	NewBlock(Recurrent, BF16)
}
