package model

// newSequence returns a sequence with fresh blocks for n positions.
func newSequence(dt DType, n int) *Sequence {
	s := &Sequence{State: new(State)}
	for range (n + BlockTokens - 1) / BlockTokens {
		s.Attention = append(s.Attention, NewBlock(Attention, dt))
		s.Window = append(s.Window, NewBlock(WindowGroup, dt))
	}
	return s
}

// argmax is the first maximum; NaN is never greater.
func argmax(lg []float32) int {
	best := 0
	for i, v := range lg {
		if v > lg[best] {
			best = i
		}
	}
	return best
}

// greedy continues s from logits lg, up to n tokens or EOS.
func greedy(d *Decoder, s *Sequence, lg []float32, n int) []int {
	var out []int
	for len(out) < n {
		id := argmax(lg)
		out = append(out, id)
		if id == EOS {
			break
		}
		lg = d.Step(s, id, true)
	}
	return out
}
