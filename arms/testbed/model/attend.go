package model

import (
	"fmt"
	"math"
)

// attend runs one attention layer over the n positions from s.Pos on, all in
// one block. layer is the layer's index among those of the blocks' group.
//
// Keys are read a block at a time, since decoded keys are laid out like a
// weight panel: sixteen scores are one dotPanel. Values are weighed in
// ascending order of position, so a tile gives each query the additions it
// would have had alone.
func (d *Decoder) attend(l *attentionLayer, s *Sequence, blocks []*Block, layer, n int) {
	in, stride := d.project(&l.in, n)
	nq, nk, nv := l.queries*l.dk, l.heads*l.dk, l.heads*l.dv
	size := s.blockTokens()
	own := block(blocks, s.Pos/size, size)
	angles := d.angles[:len(l.rope)]
	for t := range n {
		r := in[t*stride:]
		addTo(r, l.inBias)
		l.rope.at(s.Pos+t, angles)
		rotate(r[:nq+nk], l.dk, angles)
		own.put(layer, (s.Pos+t)%size, r[nq:nq+nk], r[nq+nk:nq+nk+nv])
	}

	first := 0 // first panel any of the positions sees
	if l.window > 0 {
		first = max(0, s.Pos-l.window+1) / panelWidth
	}
	last := s.Pos / panelWidth
	wide := (last - first + 1) * panelWidth
	if need := n * wide; len(d.weights) < need {
		d.weights = make([]float32, 2*need)
	}
	query := d.out[:n*l.dk] // the tile's queries of one head, close together
	for q := range l.queries {
		head := q * l.heads / l.queries
		for t := range n {
			copy(query[t*l.dk:(t+1)*l.dk], in[t*stride+q*l.dk:])
		}
		for b := first; b <= last; b++ {
			keys, _ := panel(blocks, b, size, layer, head)
			dotPanel(d.weights[(b-first)*panelWidth:], wide, query, l.dk, keys, n)
		}
		for t := range n {
			pos := s.Pos + t
			lo := 0
			if l.window > 0 {
				lo = max(0, pos-l.window+1)
			}
			acc := d.mix[(t*l.queries+q)*l.dv:][:l.dv]
			w := d.weights[t*wide:][:wide]
			d.rows[t] = l.soften(w, lo-first*panelWidth, pos+1-first*panelWidth, acc, in[t*stride:], q)
			if s.WholePage {
				clear(w[d.rows[t].hi:])
				d.rows[t].hi = wide
			}
		}
		for b := first; b <= last; b++ {
			_, values := panel(blocks, b, size, layer, head)
			for t := range n {
				r := &d.rows[t]
				at := (b - first) * panelWidth
				lo, hi := max(r.lo, at), min(r.hi, at+panelWidth)
				cut := hi // keys from here on are summed apart
				if d.Cut > 0 {
					cut = min(hi, max(lo, d.Cut-first*panelWidth))
				}
				if lo < cut {
					acc := d.mix[(t*l.queries+q)*l.dv:][:l.dv]
					r.sum = weigh(acc, r.sum, d.weights[t*wide+lo:t*wide+cut], values[(lo-at)*l.dv:])
				}
				if cut < hi {
					r.late = weigh(d.apart[t*l.dv:][:l.dv], r.late, d.weights[t*wide+cut:t*wide+hi], values[(cut-at)*l.dv:])
				}
			}
		}
		if d.Cut > 0 {
			for t := range n {
				addTo(d.mix[(t*l.queries+q)*l.dv:], d.apart[t*l.dv:][:l.dv])
				d.rows[t].sum += d.rows[t].late
			}
			clear(d.apart)
		}
		for t := range n {
			acc := d.mix[(t*l.queries+q)*l.dv:][:l.dv]
			for i := range acc {
				acc[i] /= d.rows[t].sum
			}
		}
	}
	d.residual(&l.out, l.outBias, n)
}

// soften turns the scores w[lo:hi] into softmax weights, not yet divided by
// their sum, and starts acc and the sum with the sink's share. What w holds
// outside lo and hi is overwritten.
func (l *attentionLayer) soften(w []float32, lo, hi int, acc, in []float32, q int) row {
	// Past hi, up to a multiple of eight or the row's end, -Inf keeps the
	// vector kernels out of their tails and changes neither maximum nor weights.
	end := min(len(w), lo+(hi-lo+7)&^7)
	for i := hi; i < end; i++ {
		w[i] = float32(math.Inf(-1))
	}
	w = w[lo:end]
	top := maxAbove(w, -3e38)
	r := row{lo: lo, hi: hi}
	if l.sink {
		sink := in[(l.queries*l.dk+l.heads*(l.dk+l.dv))+q]
		if sink > top {
			top = sink
		}
		r.sum = exp32(sink - top)
		for i, m := range l.mu[q*l.dv:][:l.dv] {
			acc[i] = r.sum * m
		}
	} else {
		clear(acc)
	}
	expShift(w, w, top)
	return r
}

// block returns block i of size positions, or says which one is missing.
func block(blocks []*Block, i, size int) *Block {
	if i >= len(blocks) || blocks[i] == nil {
		panic(fmt.Sprintf("model: the sequence has no block for positions %d..%d", i*size, (i+1)*size-1))
	}
	return blocks[i]
}

// panel returns the decoded keys and values of panel i of the sequence, in
// blocks of size positions.
func panel(blocks []*Block, i, size, layer, head int) (keys, values []float32) {
	at := i * panelWidth
	return block(blocks, at/size, size).parts[layer].panel(at%size/panelWidth, head)
}
