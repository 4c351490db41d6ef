package model

import "math"

// rotary rotates pairs of dims (2f, 2f+1) by the position, each pair with a
// period of its own (Su et al., arXiv:2104.09864, with integer periods so that
// the angles come from a table). A pair (a, b) becomes (a c - b s, a s + b c).
type rotary []rotaryTable

// rotaryTable holds cosine and sine of 2 pi i / period for each i < period.
type rotaryTable struct{ cos, sin []float32 }

func newRotary(periods []int) rotary {
	r := make(rotary, len(periods))
	for f, period := range periods {
		t := rotaryTable{make([]float32, period), make([]float32, period)}
		for i := range period {
			a := 2 * math.Pi * float64(i) / float64(period)
			t.cos[i], t.sin[i] = float32(math.Cos(a)), float32(math.Sin(a))
		}
		r[f] = t
	}
	return r
}

// at fills angles with cosine and sine of each pair at position pos.
func (r rotary) at(pos int, angles [][2]float32) {
	for f, t := range r {
		i := pos % len(t.cos)
		angles[f] = [2]float32{t.cos[i], t.sin[i]}
	}
}

// rotate turns each head of x, dk long, by angles.
func rotate(x []float32, dk int, angles [][2]float32) {
	for len(x) >= dk {
		for f, cs := range angles {
			a, b := x[2*f], x[2*f+1]
			x[2*f] = float32(a*cs[0]) - float32(b*cs[1])
			x[2*f+1] = float32(a*cs[1]) + float32(b*cs[0])
		}
		x = x[dk:]
	}
}
