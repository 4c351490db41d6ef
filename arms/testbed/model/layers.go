package model

import (
	"math"
	"strconv"
)

// attention holds the tensors of one attention layer. The common part mu of
// the values is taken out again by the output bias, exactly as long as the
// values come back at the scale they were stored with.
type attention struct {
	shape         // key and value heads
	queries int   // query heads: as many as heads, or several on one
	window  int   // keys seen, the query's own included; 0 is all
	periods []int // rotary period of dims (0,1), (2,3), ...; later dims do not rotate
	wq, wk  *matrix
	wv, wo  *matrix
	ws      *matrix // virtual sink, one column per head; nil without a sink
	bq, bk  []float32
	bv, bo  []float32
	bs      []float32
	mu      []float32 // [heads][dv]
}

// copying builds layer 0: query head h looks h+1 tokens back, through a rotary
// phase alone, and copies an entity's code and type into the residual.
func (s source) copying() *attention {
	const heads, dk, dv = 6, 16, 40
	l := &attention{
		shape: shape{1, dk, dv}, queries: heads, window: Window,
		periods: []int{2, 4, 8, 16, 32, 64},
		wq:      s.matrix("L0.q", dim, heads*dk, 0.06),
		wk:      s.matrix("L0.k", dim, dk, 0.06),
		wv:      s.matrix("L0.v", dim, dv, 0.03),
		wo:      s.residual("L0.o", heads*dv, 0.03),
		bq:      make([]float32, heads*dk),
		bk:      make([]float32, dk),
		bv:      make([]float32, dv),
		mu:      make([]float32, dv),
	}
	for f, period := range l.periods {
		l.bk[2*f] = 1
		for h := range heads {
			phase := 2 * math.Pi * float64(h+1) / float64(period)
			l.bq[h*dk+2*f] = float32(3.5 * math.Cos(phase))
			l.bq[h*dk+2*f+1] = float32(-3.5 * math.Sin(phase))
		}
	}
	for i := range dim {
		for c, r := 0, l.wq.row(i); c < len(r); c++ {
			if c%dk < 12 {
				r[c] *= 0.5
			}
		}
	}
	for j := range 32 {
		l.wv.add(rEntity+j, j, 1)
	}
	for j := range 3 {
		l.wv.add(rType+j, 32+j, 1)
		l.wv.add(rType+j, 35, 1)
	}
	l.wv.place(0, 36, s.matrix("L0.vr", dim, 4, 0.25))
	for j, x := range s.draw("L0.mu", 4) {
		l.mu[36+j] = sign(x) * 2.5
	}
	copy(l.bv, l.mu)
	for h := range heads {
		o := h * dv
		for j := range 32 {
			l.wo.add(o+j, rEntity+j, 1)
		}
		for j := range 3 {
			l.wo.add(o+32+j, rType+j, 1)
		}
		l.wo.add(o+35, rIndex+h, 1)
		l.wo.place(o+36, 0, s.residual("L0.or"+strconv.Itoa(h), 4, 0.2))
	}
	l.cancel()
	return l
}

// recall builds layers 1 and 3. The first of the heads retrieve: they match an
// entity and the distance to it, and write the digit found to rOut with weight
// out; for entities of another type than kind the sink takes all. The remaining
// heads are diffuse and make every stored byte matter a little.
func (s source) recall(name string, heads, retrieving int, out float32, kind int) *attention {
	const d = 32
	n := heads * d
	l := &attention{
		shape: shape{heads, d, d}, queries: heads,
		periods: []int{48, 192, 1024, 8192},
		wq:      s.matrix(name+".q", dim, n, 0.06),
		wk:      s.matrix(name+".k", dim, n, 0.06),
		wv:      s.matrix(name+".v", dim, n, 0.25),
		wo:      s.residual(name+".o", n, 0.10),
		ws:      s.matrix(name+".s", dim, heads, 0.03),
		bq:      make([]float32, n),
		bk:      make([]float32, n),
		bs:      make([]float32, heads),
		mu:      make([]float32, n),
	}
	for h := range heads {
		o, suffix := h*d, strconv.Itoa(h)
		for f, a := range []float64{0.3, 0.5, 0.8, 1.2} {
			l.bk[o+2*f] = 1
			l.bq[o+2*f] = float32(a * 0.7071)
			l.bq[o+2*f+1] = float32(a * 0.7071)
		}
		mu := l.mu[o : o+d]
		for j, x := range s.draw(name+".mu"+suffix, d) {
			mu[j] = sign(x) * 2.5
			if j < 16 {
				mu[j] *= 0.4
			}
		}
		if h < retrieving {
			s.retrieve(l, name, h, out, kind)
			l.salad(s.draw(name+".G"+suffix, dim), h, 16, 3, 100)
		} else {
			l.wq.place(0, o+8, s.matrix(name+".qd"+suffix, dim, 24, 0.55))
			l.wk.place(0, o+8, s.matrix(name+".kd"+suffix, dim, 24, 0.55))
			l.wo.place(o, 0, s.residual(name+".od"+suffix, d, 0.30))
			l.bs[h] = -2
			l.salad(s.draw(name+".G"+suffix, dim), h, 0, 2, 116)
		}
	}
	l.bv = append(l.bv, l.mu...)
	l.cancel()
	return l
}

// retrieve turns head h of l into a retrieval head.
func (s source) retrieve(l *attention, name string, h int, out float32, kind int) {
	o := h * 32
	for j := range 16 {
		l.wk.add(rEntity+16*h+j, o+8+j, 1)
		l.wq.add(rEntity+16*h+j, o+8+j, 1.953125)
	}
	for j := range 6 {
		l.wk.add(rIndex+j, o+24+j, 1)
	}
	for j := range 5 { // asks one further from the entity than it stands
		l.wq.add(rIndex+j, o+25+j, 4.6875)
	}
	l.bs[h] = 15
	for j := range 3 {
		if j != kind {
			l.ws.add(rType+j, h, 28.125)
		}
	}
	l.wv.place(0, o, s.matrix(name+".vd"+strconv.Itoa(h), dim, 16, 0.03))
	for j := range 16 {
		l.wv.add(rDigit+j, o+j, 1)
		l.wo.scale(o+j, 0.3)
		l.wo.add(o+j, rOut+j, out)
		l.wo.scale(o+16+j, 2)
	}
}

// salad ties the common part of head h's values, from dimension first on, to
// one random direction g: invisible while bo cancels it, overwhelming when the
// values come back at another scale.
func (l *attention) salad(g []float32, h, first int, amp, share float32) {
	for j := first; j < l.dv; j++ {
		c := l.mu[h*l.dv+j] / share
		r := l.wo.row(h*l.dv + j)
		for k := range r {
			r[k] += float32(c * float32(g[k]*amp))
		}
	}
}

// cancel sets the output bias to minus the common part's own output.
func (l *attention) cancel() {
	var mu []float32
	for len(mu) < l.wo.in {
		mu = append(mu, l.mu...)
	}
	column := make([]float32, l.wo.in)
	l.bo = make([]float32, dim)
	for o := range l.bo {
		for i := range column {
			column[i] = l.wo.w[i*dim+o]
		}
		l.bo[o] = -dot4(mu, column)
	}
}

// recurrent holds the tensors of layer 2, a gated delta rule (Yang, Kautz and
// Hatamizadeh, arXiv:2412.06464): four heads, one per distance to the entity.
type recurrent struct{ k, q, v, beta, gate, alpha, out *matrix }

const (
	recHeads, recK, recV = 4, 32, 16
	betaBias, gateBias   = 18, 17
)

func (s source) recurrent() recurrent {
	l := recurrent{
		k:     s.matrix("L2.k", dim, recK, 0.03),
		q:     s.matrix("L2.q", dim, recK, 0.03),
		v:     s.matrix("L2.v", dim, recV, 0.03),
		beta:  s.matrix("L2.b", dim, recHeads, 0.12),
		gate:  s.matrix("L2.g", dim, recHeads, 0.12),
		alpha: s.matrix("L2.a", dim, recHeads, 0.3),
		out:   s.residual("L2.o", recHeads*recV, 0.10),
	}
	for j := range recK {
		l.k.add(rEntity+j, j, 1)
		l.q.add(rEntity+j, j, 1)
	}
	for j := range recV {
		l.v.add(rDigit+j, j, 1)
	}
	for h := range recHeads {
		l.beta.add(rType+1, h, 7.5)
		l.beta.add(rIndex+h+1, h, 7.5)
		l.gate.add(rType+1, h, 7.5)
		l.gate.add(rIndex+h, h, 7.5)
		for j := range recV {
			l.out.add(h*recV+j, rOut+j, 1.45)
		}
	}
	return l
}

// mlp holds a gated feed-forward layer of mlpWidth units.
type mlp struct{ gate, up, down *matrix }

const mlpWidth = 48

func (s source) mlp(name string) mlp {
	return mlp{
		gate: s.matrix(name+".g", dim, mlpWidth, 1),
		up:   s.matrix(name+".u", dim, mlpWidth, 1),
		down: s.residual(name+".d", mlpWidth, 0.4),
	}
}
