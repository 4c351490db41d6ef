package draw

import (
	"fmt"

	"kvladder/prompts"
)

// desk is what one draw works with.
type desk struct {
	pieces
	spec    Spec
	private bool // prompts list the values of their needles
	bound   int  // tokens between the places where a request can resume
	unit    int  // the span that prompts are planned in: the smallest multiple of bound, and of the store's chunk, of at least 64

	values map[byte]*values
}

func newDesk(tok Tokenizer, s Spec) *desk {
	d := &desk{pieces: pieces{tok: tok}, spec: s, bound: s.Geometry.Boundary()}
	step := lcm(d.bound, max(1, s.Geometry.StoreChunk))
	d.unit = step * ((63 + step) / step)
	d.values = map[byte]*values{
		'K': {r: stream(s.Seed, "values of keys"), lo: 1000, hi: 9999},
		'T': {r: stream(s.Seed, "values of tags"), lo: 100, hi: 999},
	}
	return d
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// last is the deepest place that a request of n tokens can resume from.
func (d *desk) last(n int) int { return (n - 1) / d.bound * d.bound }

// class is the geometry label of a prompt of n tokens whose prime leaves local tokens in
// the local cache; the store then has the rest up to the last boundary.
func (d *desk) class(n, local int) prompts.Class {
	c := prompts.Class{LengthMod: n % d.bound, Local: local, External: max(0, d.last(n)-local)}
	c.Label = fmt.Sprintf("m%d/l%d/e%d", c.LengthMod, c.Local, c.External)
	return c
}

// length draws the length of a prompt: k units, and a rest that is no multiple of the
// boundary and at least lo.
func (d *desk) length(r *random, k, lo int) int {
	for {
		if n := k*d.unit + r.within(lo, d.unit-1); n%d.bound != 0 || d.bound == 1 {
			return n
		}
	}
}

// prompt puts a written page into its frozen form. ask is nil for a text without question;
// prime is the length of the prime, 0 for none.
func (d *desk) prompt(id, document string, p *page, ask *needle, local, prime int) prompts.Prompt {
	out := prompts.Prompt{
		ID:       id,
		Role:     prompts.Target,
		Document: document,
		Class:    d.class(len(p.ids), local),
		Tokens:   p.ids,
		Body:     d.spec.Wire.Body(p.ids, d.spec.MaxTokens, nil),
		Salt:     d.spec.Wire.Salt,
	}
	if prime > 0 {
		out.Prime = &prompts.Prime{Tokens: prime, Body: d.spec.Wire.Body(p.ids[:prime], 1, nil)}
	}
	if d.private {
		for _, x := range p.needles {
			out.Codewords = append(out.Codewords, fmt.Sprint(x.value))
		}
	}
	if ask != nil {
		out.Expect.Needles = []prompts.Needle{ask.frozen(d.spec.Geometry)}
	}
	return out
}

// values deals numbers of a range in random order, each once until all are dealt: a value
// seen in the wrong reply then names the prompt that it came from.
type values struct {
	r      *random
	lo, hi int
	left   []int
}

func (v *values) next() int {
	if len(v.left) == 0 {
		for x := v.lo; x <= v.hi; x++ {
			v.left = append(v.left, x)
		}
		shuffle(v.r, v.left)
	}
	x := v.left[len(v.left)-1]
	v.left = v.left[:len(v.left)-1]
	return x
}
