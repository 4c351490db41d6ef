package model

import (
	"math"
	"math/bits"
)

// stream is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started from the
// FNV-1a hash of a name and a seed. Every tensor draws from a stream of its
// own, so none depends on the order in which the others are built.
type stream struct{ start, n uint64 }

const golden64 = 0x9E3779B97F4A7C15

func newStream(seed uint64, name string) *stream {
	return &stream{start: fnv64(name) ^ seed*golden64}
}

// fnv64 is FNV-1a with 64 bits.
func fnv64[T string | []byte](s T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

func (r *stream) next() uint64 {
	r.n++
	z := r.start + r.n*golden64
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// uniform is a number of zero mean and unit variance from the upper 24 bits.
func (r *stream) uniform() float32 {
	u := float64(r.next()>>40) * (1.0 / (1 << 23))
	return float32((u - 1) * 1.7320508075688772)
}

// source makes the random tensors of one seed.
type source uint64

// draw returns n uniform numbers of the stream called name.
func (s source) draw(name string, n int) []float32 {
	r := newStream(uint64(s), name)
	x := make([]float32, n)
	for i := range x {
		x[i] = r.uniform()
	}
	return x
}

// matrix is in x out uniform numbers times amp/sqrt(in).
func (s source) matrix(name string, in, out int, amp float64) *matrix {
	m := newMatrix(in, out)
	f := float32(amp / math.Sqrt(float64(in)))
	for i, x := range s.draw(name, in*out) {
		m.w[i] = f * x
	}
	return m
}

// residual is matrix with one column per residual dimension, weaker where the
// residual carries entities, types, flags and answers.
func (s source) residual(name string, in int, amp float64) *matrix {
	m := s.matrix(name, in, dim, amp)
	for i := range m.w {
		switch c := i % dim; {
		case c >= rEntity && c < rBOS, c >= rIndex && c < rConst:
			m.w[i] *= 0.25
		case c >= rOut:
			m.w[i] *= 0.5
		}
	}
	return m
}

// codewords returns count vectors of n signs, each pair with an inner product
// of at most limit in absolute value.
func (s source) codewords(name string, count, n, limit int) [][]float32 {
	r := newStream(uint64(s), name)
	var taken []uint64
	for len(taken) < count {
		z := r.next() & (1<<n - 1)
		fits := true
		for _, t := range taken {
			d := n - 2*bits.OnesCount64(t^z)
			if max(d, -d) > limit {
				fits = false
				break
			}
		}
		if fits {
			taken = append(taken, z)
		}
	}
	words := make([][]float32, count)
	for i, t := range taken {
		words[i] = make([]float32, n)
		for k := range words[i] {
			words[i][k] = 2*float32(t>>k&1) - 1
		}
	}
	return words
}

func sign(x float32) float32 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
