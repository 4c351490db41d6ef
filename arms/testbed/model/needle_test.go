package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// needle is one line to be recalled.
type needle struct {
	line, question, answer string
}

// haystack makes a prompt of keys, tags and pins among filler, gap filler
// tokens or so between lines, and the needles in it by kind.
func haystack(r *rand.Rand, keys, tags, pins, gap int) (text string, found [3][]needle) {
	w := Words()
	fill := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(w[r.IntN(len(w))])
		}
		return strings.TrimPrefix(b.String(), " ") + " .\n"
	}
	type placed struct {
		kind int
		needle
	}
	make := func(kind int, line, what, name string, value int) placed {
		return placed{kind, needle{
			line:     fmt.Sprintf("%s: %s %s is %d .\n", line, what, name, value),
			question: fmt.Sprintf("question: %s %s ?", what, name),
			answer:   fmt.Sprintf(" %d", value),
		}}
	}
	var early, late []placed
	for _, i := range r.Perm(Keys)[:keys] {
		early = append(early, make(0, "fact", "key", Key(i), 1000+r.IntN(9000)))
	}
	for _, i := range r.Perm(Tags)[:tags] {
		early = append(early, make(1, "note", "tag", Tag(i), 100+r.IntN(900)))
	}
	for _, i := range r.Perm(Pins)[:pins] {
		late = append(late, make(2, "mark", "pin", Pin(i), 10+r.IntN(90)))
	}
	r.Shuffle(len(early), func(i, j int) { early[i], early[j] = early[j], early[i] })
	text = fill(8)
	for _, p := range early {
		text += p.line
		if gap > 0 {
			text += fill(5 + r.IntN(2*gap))
		}
	}
	for _, p := range late {
		text += p.line
	}
	for _, p := range append(early, late...) {
		found[p.kind] = append(found[p.kind], p.needle)
	}
	return text, found
}

// ask continues the cache of text with a question and returns whether the
// greedy answer is right to the end. The cache is copied first.
func ask(d *Decoder, s *Sequence, dt DType, n needle) bool {
	q := Encode(n.question)[1:]
	c := newSequence(dt, s.Pos+len(q)+8)
	c.Pos, *c.State = s.Pos, *s.State
	for i := range s.Attention {
		c.Attention[i].CopyFrom(s.Attention[i])
		c.Window[i].CopyFrom(s.Window[i])
	}
	want := append(Encode(n.answer)[1:], EOS)
	return slices.Equal(greedy(d, c, d.Prefill(c, q, true), len(want)), want)
}

func TestNeedles(t *testing.T) {
	d := New(DefaultSeed).Decoder()
	r := rand.New(rand.NewPCG(11, 12))
	asked := 0
	for i := range 6 {
		text, found := haystack(r, 8, 6, 2, []int{0, 6, 25}[i%3])
		ids := Encode(text)
		for _, dt := range []DType{BF16, FP8} {
			s := newSequence(dt, len(ids))
			d.Prefill(s, ids, false)
			for _, n := range slices.Concat(found[0], found[1], found[2]) {
				asked++
				if !ask(d, s, dt, n) {
					t.Errorf("prompt %d (%d tokens), %s: %s wrong, want%s", i, len(ids), dt, n.question, n.answer)
				}
			}
		}
	}
	if asked != 6*2*16 {
		t.Errorf("%d questions asked, want %d", asked, 6*2*16)
	}
}

// TestDamage spoils one part of the cache at a time and wants the answers that
// depend on it wrong and those of the other kind right.
func TestDamage(t *testing.T) {
	d := New(DefaultSeed).Decoder()
	for _, c := range []struct {
		name       string
		dt         DType
		spoil      func(*Sequence)
		keys, tags bool // right after it
	}{
		{"nothing", FP8, func(*Sequence) {}, true, true},
		{"state zero", FP8, func(s *Sequence) { *s.State = State{} }, true, false},
		{"attention of another prompt", BF16, func(s *Sequence) {
			text, _ := haystack(rand.New(rand.NewPCG(15, 16)), 6, 6, 0, 20)
			ids := Encode(text + strings.Repeat(" warm", s.Pos))[:s.Pos]
			o := newSequence(BF16, len(ids))
			d.Prefill(o, ids, false)
			s.Attention = o.Attention
		}, false, true},
		{"scales lost", FP8, func(s *Sequence) {
			for _, b := range s.Attention {
				one := NewBlock(b.Group(), b.DType()).AppendScales(nil)
				if err := b.SetScales(one); err != nil {
					t.Fatal(err)
				}
			}
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(13, 14))
			text, found := haystack(r, 6, 6, 0, 20)
			ids := Encode(text + "the river stone bridge forest hill valley road field garden house window door" + strings.Repeat(" quiet lamp", 20) + " .\n")
			s := newSequence(c.dt, len(ids))
			d.Prefill(s, ids, false)
			c.spoil(s)
			for kind, want := range []bool{c.keys, c.tags} {
				right := 0
				for _, n := range found[kind] {
					if ask(d, s, c.dt, n) {
						right++
					}
				}
				if n := len(found[kind]); want && right != n || !want && right > 0 {
					t.Errorf("%s: %d of %d right, want all: %v", []string{"keys", "tags"}[kind], right, n, want)
				}
			}
		})
	}
}
