package damage

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"kvladder/arms/testbed/model"
)

// needle is one fact of a prompt and the question for it.
type needle struct {
	kind  byte // 'K', 'T' or 'P'
	index int
	value int
	at    int // position of the name
}

var grammar = map[byte]struct {
	line, what string
	name       func(int) string
	low, digit int // values are low..10 low - 1, of that many digits
}{
	'K': {"fact", "key", model.Key, 1000, 4},
	'T': {"note", "tag", model.Tag, 100, 3},
	'P': {"mark", "pin", model.Pin, 10, 2},
}

func (n needle) line() string {
	g := grammar[n.kind]
	return fmt.Sprintf("%s: %s %s is %d .\n", g.line, g.what, g.name(n.index), n.value)
}

func (n needle) question() []int {
	g := grammar[n.kind]
	return model.Encode(fmt.Sprintf("question: %s %s ?", g.what, g.name(n.index)))[1:]
}

func (n needle) answer() []int {
	return append(model.Encode(fmt.Sprintf(" %d", n.value))[1:], model.EOS)
}

// rows returns the positions [from, to) that hold the digits and the stop.
func (n needle) rows() (from, to int) {
	return n.at + 2, n.at + 2 + grammar[n.kind].digit + 1
}

// prompt is a token sequence and the needles in it.
type prompt struct {
	ids     []int
	needles []needle
}

// draw returns count needles of one kind with different names.
func draw(r *rand.Rand, kind byte, names, count int) (out []needle) {
	low := grammar[kind].low
	for _, i := range r.Perm(names)[:count] {
		out = append(out, needle{kind: kind, index: i, value: low + r.IntN(9*low)})
	}
	return out
}

// filler returns a line of n words.
func filler(r *rand.Rand, n int) string {
	w := model.Words()
	var b strings.Builder
	for range n {
		b.WriteString(w[r.IntN(len(w))])
	}
	return b.String() + " .\n"
}

// compose makes the lines of a prompt of about length tokens, in which keys and
// tags are shuffled among filler and pins come last.
func compose(r *rand.Rand, keys, tags, pins, length int) (lines []string, needles []needle) {
	needles = append(draw(r, 'K', model.Keys, keys), draw(r, 'T', model.Tags, tags)...)
	r.Shuffle(len(needles), func(i, j int) { needles[i], needles[j] = needles[j], needles[i] })
	const bare, pin = 12, 9 // tokens of the first line; of a pin's line, and one to spare
	spare := length - bare - pin*pins
	for _, n := range needles {
		spare -= len(model.Encode(n.line())) - 1
	}
	gap := max(0, spare) / max(1, len(needles))
	lines = []string{filler(r, 8)}
	for _, n := range needles {
		lines = append(lines, n.line())
		for g := r.IntN(2*gap + 1); g > 2; {
			k := min(g-1, 5+r.IntN(8))
			lines = append(lines, filler(r, k))
			g -= k + 2
		}
	}
	late := draw(r, 'P', model.Pins, pins)
	for _, n := range late {
		lines = append(lines, n.line())
	}
	return lines, append(needles, late...)
}

// encode joins lines to a prompt of the needles that are in them.
func encode(lines []string, needles []needle) prompt {
	p := prompt{ids: model.Encode(strings.Join(lines, ""))}
	at := map[int]int{}
	for i, id := range p.ids {
		at[id] = i
	}
	for _, n := range needles {
		name := model.Encode(" " + grammar[n.kind].name(n.index))[1]
		var ok bool
		if n.at, ok = at[name]; ok {
			p.needles = append(p.needles, n)
		}
	}
	return p
}

// cutPrompt returns a prompt of 372 to 445 tokens, about 13 keys and 11 tags,
// that ends with a line and has a tag between the last snapshot and the last
// full block: what F01 needs to be seen.
func cutPrompt(r *rand.Rand) prompt {
	for {
		lines, needles := compose(r, 14, 12, 0, 430)
		for cut := len(lines); cut > 0; cut-- {
			p := encode(lines[:cut], needles)
			if n := len(p.ids); n < 372 {
				break
			} else if n > 445 {
				continue
			}
			full := down(len(p.ids), model.BlockTokens)
			for _, n := range p.needles {
				if n.kind == 'T' && n.at >= down(full, model.StateEvery) && n.at+6 < full {
					return p
				}
			}
		}
	}
}

// pinPrompt returns a prompt of 448 to 517 tokens that ends, at most 5 tokens
// behind a snapshot, with three pins.
func pinPrompt(r *rand.Rand) prompt {
	for {
		lines, needles := compose(r, 14, 12, 0, 430)
		pins := draw(r, 'P', model.Pins, 3)
		var tail []string
		for _, n := range pins {
			tail = append(tail, n.line())
		}
		n := len(model.Encode(strings.Join(append(lines[:len(lines):len(lines)], tail...), "")))
		switch need := (r.IntN(6) - n%model.StateEvery + model.StateEvery) % model.StateEvery; {
		case need >= 3:
			lines = append(lines, filler(r, need-2))
		case need > 0:
			continue
		}
		p := encode(append(lines, tail...), append(needles, pins...))
		if n := len(p.ids); n >= 448 && n <= 517 {
			return p
		}
	}
}

// down rounds n down to a multiple of step.
func down(n, step int) int { return n - n%step }
