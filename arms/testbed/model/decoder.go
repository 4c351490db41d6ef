package model

import "fmt"

// tile is the number of positions computed together, all in one panel of keys.
const tile = panelWidth

// Decoder computes positions of sequences. It holds scratch space only, no
// part of any sequence, and is for one goroutine at a time.
type Decoder struct {
	// Cut makes the attention layers sum over the keys before position Cut and
	// over those from there on apart from each other, and then add the two, as
	// kernels do that split a long reduction. It changes results by rounding
	// alone. Zero, the default, sums in one go.
	Cut int

	m *Model

	x, h    []float32 // [tile][dim] residual, normalised residual
	in      []float32 // [tile][widest input matrix]
	mix     []float32 // [tile][widest output matrix input]
	out     []float32 // [tile][dim]
	weights []float32 // [tile][stride] scores, then weights, of one query head
	rows    []row     // per position of the tile, for one query head
	gates   []float32
	logits  []float32
	apart   []float32 // [tile][widest value] what the keys behind Cut add
	angles  [8][2]float32
}

// row is the running softmax of one position.
type row struct {
	lo, hi int // the first key seen; one past the last key seen
	sum    float32
	late   float32 // the share of the keys behind Cut
}

// Decoder returns a new decoder on m.
func (m *Model) Decoder() *Decoder {
	widest, mixed := 0, 0
	for _, p := range []panels{m.l0.in, m.l1.in, m.l2.in, m.l3.in, m.m1.in} {
		widest = max(widest, p.n*panelWidth)
	}
	for _, p := range []panels{m.l0.out, m.l1.out, m.l2.out, m.l3.out, m.m1.out} {
		mixed = max(mixed, p.in)
	}
	return &Decoder{
		m: m,
		x: make([]float32, tile*dim), h: make([]float32, tile*dim), out: make([]float32, tile*dim),
		in: make([]float32, tile*widest), mix: make([]float32, tile*mixed),
		rows: make([]row, tile), gates: make([]float32, tile*mlpWidth),
		logits: make([]float32, m.unembed.n*panelWidth), apart: make([]float32, tile*40),
	}
}

// Use makes the decoder compute with m from now on.
func (d *Decoder) Use(m *Model) { d.m = m }

// Step computes position s.Pos for token and advances s.Pos by one. The blocks
// that cover the position must exist, and so must those of every position it
// sees. With logits set it returns the Vocab logits of the position, valid
// until the next call; without, it returns nil and saves their cost. It panics
// on a token id outside the vocabulary and on a missing block or state.
func (d *Decoder) Step(s *Sequence, token int, logits bool) []float32 {
	return d.Prefill(s, []int{token}, logits)
}

// Prefill computes the positions s.Pos, s.Pos+1, ... for tokens, up to a block
// at a time, and advances s.Pos. The cache it leaves and the logits of the last
// position, returned if lastLogits is set, equal those of Step by Step, bit for
// bit. The rules of Step hold; for no tokens it returns nil.
func (d *Decoder) Prefill(s *Sequence, tokens []int, lastLogits bool) []float32 {
	var last []float32
	for len(tokens) > 0 {
		n := min(len(tokens), tile-s.Pos%tile)
		if s.WholePage {
			n = 1 // the slots after a position still hold what the last owner left
		}
		d.compute(s, tokens[:n])
		s.Pos += n
		tokens = tokens[n:]
		last = d.x[(n-1)*dim : n*dim]
	}
	if !lastLogits || last == nil {
		return nil
	}
	rmsNorm(d.h[:dim], last)
	d.m.unembed.apply(d.logits, 0, d.h, 1)
	lg := d.logits[:Vocab]
	addTo(lg, d.m.unembedBias)
	return lg
}

// compute runs the layers over tokens, which lie in one block.
func (d *Decoder) compute(s *Sequence, tokens []int) {
	for i, t := range tokens {
		if t < 0 || t >= Vocab {
			panic(fmt.Sprintf("model: token id %d at position %d is outside 0..%d", t, s.Pos+i, Vocab-1))
		}
		copy(d.x[i*dim:], d.m.embed[t*dim:(t+1)*dim])
	}
	n := len(tokens)
	d.attend(&d.m.l0, s, s.Window, 0, n)
	d.attend(&d.m.l1, s, s.Attention, 0, n)
	d.feed(&d.m.m1, n)
	d.recur(&d.m.l2, s.State, n)
	d.attend(&d.m.l3, s, s.Window, 1, n)
	d.feed(&d.m.m2, n)
}

// project normalises the tile's residual into h and applies p to it. It
// returns the result's rows and their stride.
func (d *Decoder) project(p *panels, n int) (rows []float32, stride int) {
	for t := range n {
		rmsNorm(d.h[t*dim:(t+1)*dim], d.x[t*dim:(t+1)*dim])
	}
	stride = p.n * panelWidth
	p.apply(d.in, stride, d.h, n)
	return d.in, stride
}

// residual adds p applied to the rows of mix, and the bias if there is one, to
// the tile's residual.
func (d *Decoder) residual(p *panels, bias []float32, n int) {
	p.apply(d.out, dim, d.mix, n)
	for t := range n {
		out := d.out[t*dim : (t+1)*dim]
		if bias != nil {
			addTo(out, bias)
		}
		addTo(d.x[t*dim:(t+1)*dim], out)
	}
}

// addTo adds x to dst, element by element; dst is at least as long.
func addTo(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += v
	}
}

// feed runs a gated MLP with the SiLU gate.
func (d *Decoder) feed(l *mlpLayer, n int) {
	in, stride := d.project(&l.in, n)
	e := d.gates[:n*mlpWidth]
	for t := range n {
		for i, a := range in[t*stride:][:mlpWidth] {
			e[t*mlpWidth+i] = -a
		}
	}
	expShift(e, e, 0)
	for t := range n {
		gate, up := in[t*stride:][:mlpWidth], in[t*stride+mlpWidth:][:mlpWidth]
		mix, e := d.mix[t*mlpWidth:][:mlpWidth], e[t*mlpWidth:][:mlpWidth]
		for i, a := range gate {
			mix[i] = float32(a*(1/(1+e[i]))) * up[i]
		}
	}
	d.residual(&l.out, nil, n)
}

// recur runs the gated delta rule: per head, with state S [32][16],
//
//	S = alpha S;  u = beta (v - S'k);  S = S + k u';  o = S'q
//
// and the normalised, gated o goes on.
func (d *Decoder) recur(l *recurrentLayer, state *State, n int) {
	in, stride := d.project(&l.in, n)
	for t := range n {
		r := in[t*stride:]
		k, q := (*[recK]float32)(r), (*[recK]float32)(r[recK:])
		v, beta := r[2*recK:][:recV], r[2*recK+recV:][:recHeads]
		gate, alpha := r[2*recK+recV+recHeads:][:recHeads], r[2*recK+recV+2*recHeads:][:recHeads]
		for _, y := range []*[recK]float32{k, q} {
			f := 1 / sqrt32(dot4(y[:], y[:])+float32(1e-2))
			for i := range y {
				y[i] *= f
			}
		}
		for h := range recHeads {
			b, g := sigmoid(beta[h]-betaBias), sigmoid(gate[h]-gateBias)
			a := 1 - float32(float32(1.0/4096)*sigmoid(alpha[h]))
			s := state[h*recK*recV:][:recK*recV]
			var u, o [recV]float32
			decayRead(s, a, k, &u)
			for j := range u {
				u[j] = b * (v[j] - u[j])
			}
			writeRead(s, k, &u, q, &o)
			var square float32
			for _, x := range o {
				square += float32(x * x)
			}
			f := 1 / sqrt32(square/recV+float32(2e-3))
			mix := d.mix[(t*recHeads+h)*recV:][:recV]
			for j, x := range o {
				mix[j] = float32(x*f) * g
			}
		}
	}
	d.residual(&l.out, nil, n)
}
