package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// specials are the numbers kernels tend to disagree about.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, math.SmallestNonzeroFloat32, -1e-40,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	-87, math.Nextafter32(-87, -88), 88, math.Nextafter32(88, 89), 1.17549435e-38,
}

// numbers returns n numbers: of ordinary size if odd is 0, else one in odd of
// them special or of random bits.
func numbers(r *rand.Rand, n, odd int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		if odd > 0 && r.IntN(odd) == 0 {
			x[i] = specials[r.IntN(len(specials))]
			if r.IntN(2) == 0 {
				x[i] = math.Float32frombits(r.Uint32())
			}
		}
	}
	return x
}

// differs reports the first element whose bits differ; any NaN equals any NaN.
func differs(a, b []float32) (int, bool) {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i, true
		}
	}
	return 0, len(a) != len(b)
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if i, bad := differs(got, want); bad {
		t.Fatalf("%s: element %d is %x (%g), want %x (%g)", what, i,
			math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
	}
}

// TestKernels holds the kernels in use against the portable ones, and the
// panel product against dot4 itself.
func TestKernels(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 400 {
		odd := []int{0, 3, 50, 1000}[round%4]

		n, rows, stride := 4*(1+r.IntN(60)), 1+r.IntN(17), 16*(1+r.IntN(3))
		x, w := numbers(r, rows*n, odd), numbers(r, n*panelWidth, odd)
		got, want := make([]float32, rows*stride), make([]float32, rows*stride)
		dotPanel(got, stride, x, n, w, rows)
		dotPanelGo(want, stride, x, n, w, rows)
		same(t, "dotPanel", got, want)
		column := make([]float32, n)
		for c := range panelWidth {
			for i := range column {
				column[i] = w[i*panelWidth+c]
			}
			last := (rows - 1) * stride
			same(t, "dot4", got[last+c:last+c+1], []float32{dot4(x[(rows-1)*n:], column)})
		}

		for _, width := range []int{32, 40, 24} {
			k := r.IntN(17)
			e, v, acc := numbers(r, k, odd), numbers(r, k*width, odd), numbers(r, width, odd)
			other := append([]float32(nil), acc...)
			sum := weigh(acc, 0.5, e, v)
			same(t, "weigh's sum", []float32{sum}, []float32{weighGo(other, 0.5, e, v)})
			same(t, "weigh", acc, other)
		}

		src, shift := numbers(r, r.IntN(50), odd), float32(r.NormFloat64()*40)
		for i := range src {
			src[i] *= 40
		}
		got, want = make([]float32, len(src)), make([]float32, len(src))
		expShift(got, src, shift)
		expShiftGo(want, src, shift)
		same(t, "expShift", got, want)
		same(t, "maxAbove", []float32{maxAbove(src, -3e38) + 0}, []float32{maxAboveGo(src, -3e38) + 0})

		s, k, q := numbers(r, recK*recV, odd), [recK]float32(numbers(r, recK, odd)), [recK]float32(numbers(r, recK, odd))
		other := append([]float32(nil), s...)
		var p, o, p2, o2 [recV]float32
		decayRead(s, 0.999, &k, &p)
		decayReadGo(other, 0.999, &k, &p2)
		same(t, "decayRead's state", s, other)
		same(t, "decayRead", p[:], p2[:])
		u := [recV]float32(numbers(r, recV, odd))
		writeRead(s, &k, &u, &q, &o)
		writeReadGo(other, &k, &u, &q, &o2)
		same(t, "writeRead's state", s, other)
		same(t, "writeRead", o[:], o2[:])
	}
}

// TestExpKernel walks the whole range of float32 in steps of 10007 codes, and
// the specials, the ends of exp32 among them.
func TestExpKernel(t *testing.T) {
	src, got, want := append([]float32(nil), specials...), make([]float32, 1<<19), make([]float32, 1<<19)
	for u := uint64(0); u < 1<<32; u += 10007 {
		src = append(src, math.Float32frombits(uint32(u)))
	}
	expShift(got, src, 0)
	expShiftGo(want, src, 0)
	same(t, "expShift", got[:len(src)], want[:len(src)])
}

func TestKernelBounds(t *testing.T) {
	short := make([]float32, 8)
	for name, call := range map[string]func(){
		"dotPanel with a short panel": func() { dotPanel(make([]float32, 16), 16, make([]float32, 16), 16, short, 1) },
		"dotPanel with a short dst":   func() { dotPanel(short, 16, make([]float32, 16), 16, make([]float32, 256), 1) },
		"weigh with short values":     func() { weigh(make([]float32, 32), 0, short, make([]float32, 255)) },
		"expShift with a short dst":   func() { expShift(short, make([]float32, 16), 0) },
		"decayRead with a short head": func() { decayRead(short, 1, new([recK]float32), new([recV]float32)) },
		"writeRead with a short head": func() {
			writeRead(short, new([recK]float32), new([recV]float32), new([recK]float32), new([recV]float32))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}
