package damage

import (
	"math"
	"slices"

	"kvladder/arms/testbed/model"
)

// computed is a healthy prefill: the whole cache and the snapshots on the way.
type computed struct {
	prompt
	dt    model.DType
	seq   *model.Sequence
	snaps []model.State // snaps[i] is the state after StateEvery i tokens
}

func compute(d *model.Decoder, dt model.DType, p prompt) *computed {
	c := &computed{prompt: p, dt: dt, seq: &model.Sequence{State: new(model.State)}}
	c.snaps = append(c.snaps, *c.seq.State)
	for ids := range slices.Chunk(p.ids, model.StateEvery) {
		advance(d, c.seq, dt, ids, false)
		if len(ids) == model.StateEvery {
			c.snaps = append(c.snaps, *c.seq.State)
		}
	}
	return c
}

// upto returns what a prefix hit of n tokens, a multiple of BlockTokens, brings,
// with the state after at tokens. Blocks are shared with c until own is called;
// the decoder writes none of them.
func (c *computed) upto(n, at int) *model.Sequence {
	s := c.snaps[at/model.StateEvery]
	blocks := n / model.BlockTokens
	return &model.Sequence{
		Pos: n, State: &s,
		Attention: slices.Clone(c.seq.Attention[:blocks]),
		Window:    slices.Clone(c.seq.Window[:blocks]),
	}
}

// last returns the last snapshot's position.
func (c *computed) last() int { return down(len(c.ids), model.StateEvery) }

// advance computes ids on s, on fresh blocks where there are none yet.
func advance(d *model.Decoder, s *model.Sequence, dt model.DType, ids []int, logits bool) []float32 {
	for len(s.Attention)*model.BlockTokens < s.Pos+len(ids) {
		s.Attention = append(s.Attention, model.NewBlock(model.Attention, dt))
		s.Window = append(s.Window, model.NewBlock(model.WindowGroup, dt))
	}
	return d.Prefill(s, ids, logits)
}

// own gives the sequence a copy of its own of block i of one table.
func own(table []*model.Block, i int) *model.Block {
	b := model.NewBlock(table[i].Group(), table[i].DType())
	b.CopyFrom(table[i])
	table[i] = b
	return b
}

// fork returns a copy of s that can be advanced without a trace in s.
func fork(s *model.Sequence) *model.Sequence {
	state := *s.State
	c := &model.Sequence{
		Pos: s.Pos, State: &state,
		Attention: slices.Clone(s.Attention), Window: slices.Clone(s.Window),
	}
	for i := s.Pos / model.BlockTokens; i < len(c.Attention); i++ {
		own(c.Attention, i)
		own(c.Window, i)
	}
	return c
}

// reply is a greedy answer of at most six tokens.
type reply struct {
	tokens []int
	first  []float64 // log probabilities at the first token; NaN if any logit was
	chosen []float64 // probability of each token of the answer
}

// ask puts a question to a fork of s.
func ask(d *model.Decoder, s *model.Sequence, dt model.DType, n needle) (a reply) {
	s = fork(s)
	lg := advance(d, s, dt, n.question(), true)
	for {
		lp := model.LogSoftmax(lg, nil)
		if a.first == nil {
			a.first = lp
		}
		best := 0
		for i, x := range lg {
			if x > lg[best] {
				best = i
			}
		}
		a.chosen = append(a.chosen, math.Exp(lp[best]))
		if a.tokens = append(a.tokens, best); best == model.EOS || len(a.tokens) == 6 {
			return a
		}
		lg = advance(d, s, dt, []int{best}, true)
	}
}
