package compare

import (
	"math"
	"math/big"
	"testing"
)

// wide is x with 400 bits, so that the references below round nothing that
// matters.
func wide(x float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(x) }

func power(x *big.Float, n int) *big.Float {
	out, square := wide(1), wide(0).Set(x)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out.Mul(out, square)
		}
		square.Mul(square, square)
	}
	return out
}

func relative(got float64, want *big.Float) float64 {
	if want.Sign() == 0 {
		return math.Abs(got)
	}
	d := wide(0).Sub(wide(got), want)
	r, _ := d.Quo(d, want).Float64()
	return math.Abs(r)
}

// Point probabilities against C(n,k)·p^k·(1-p)^(n-k) in wide floats, from tiny
// counts to the largest this program has met.
func TestLogBinomial(t *testing.T) {
	for _, n := range []int{1, 2, 15, 16, 17, 38, 114, 850, 12000, 47142} {
		for _, share := range []float64{0, .001, .02, .2, .5, .8, .98, 1} {
			k := int(share * float64(n))
			ways := choose(n, k)
			for _, p := range []float64{1e-9, .001, .05, .3, .5, .7, .999} {
				q := wide(1)
				q.Sub(q, wide(p))
				want := wide(0).SetInt(ways)
				want.Mul(want, power(wide(p), k)).Mul(want, power(q, n-k))
				if f, _ := want.Float64(); f < 1e-290 {
					continue
				}
				// exp turns an absolute error of its argument into a relative one.
				l := logBinomial(n, k, p, 1-p)
				if r := relative(math.Exp(l), want); r > 1e-13*(10+math.Abs(l)) {
					t.Errorf("P(Bin(%d,%v) = %d): off by %.2g relative", n, p, k, r)
				}
			}
		}
	}
}

func TestTailsAgainstSums(t *testing.T) {
	for _, n := range []int{1, 5, 38, 114, 266} {
		for _, p := range []float64{.001, .05, .3, .5, .83} {
			q := wide(1)
			q.Sub(q, wide(p))
			up := wide(0)
			for k := n; k >= 0; k-- {
				term := wide(0).SetInt(choose(n, k))
				up.Add(up, term.Mul(term, power(wide(p), k)).Mul(term, power(q, n-k)))
				if f, _ := up.Float64(); f < 1e-290 {
					continue
				}
				if r := relative(atLeast(n, k, p, 1-p), up); r > 2e-12 {
					t.Errorf("P(Bin(%d,%v) >= %d): off by %.2g relative", n, p, k, r)
				}
				if got := atLeast(n, k, p, 1-p) + atMost(n, k-1, p, 1-p); math.Abs(got-1) > 1e-12 {
					t.Errorf("P(Bin(%d,%v) >= %d) and its complement add to %v", n, p, k, got)
				}
			}
		}
	}
}

func TestPoissonTailsAgainstSums(t *testing.T) {
	for _, m := range []float64{.01, 1, 3.5, 40, 250} {
		term := math.Exp(-m)
		low := 0.0
		for k := 0; k < 400; k++ {
			low += term
			term *= m / float64(k+1)
			if got := poissonAtMost(k, m); low > 1e-290 && math.Abs(got-low) > 1e-12*low {
				t.Errorf("P(Poisson(%v) <= %d): got %v, want %v", m, k, got, low)
			}
			if got := poissonAtLeast(k+1, m) + poissonAtMost(k, m); math.Abs(got-1) > 1e-12 {
				t.Errorf("Poisson(%v) at %d: the tails add to %v", m, k, got)
			}
		}
		// Far out the upper tail is its first terms: no 1-minus may eat it.
		k := int(m) + 60
		first := math.Exp(logPoisson(k, m))
		if got := poissonAtLeast(k, m); got < first || got > first/(1-m/float64(k+1)) {
			t.Errorf("P(Poisson(%v) >= %d) = %v, its first term alone is %v", m, k, got, first)
		}
	}
}

// The starting guess must not matter, only save steps.
func TestRootIgnoresItsGuess(t *testing.T) {
	f := func(x float64) float64 { return x * x }
	falling := func(x float64) float64 { return 1 - x*x }
	for _, guess := range []float64{math.NaN(), -1, 0, 1e-9, .3, math.Sqrt(.5), .7071067, 1, 2, math.Inf(1)} {
		if x := root(f, .5, 0, 1, guess); math.Abs(x-math.Sqrt(.5)) > 3e-16 {
			t.Errorf("rising, from %v: %.17g", guess, x)
		}
		if x := root(falling, .5, 0, 1, guess); math.Abs(x-math.Sqrt(.5)) > 3e-16 {
			t.Errorf("falling, from %v: %.17g", guess, x)
		}
	}
	if x := root(f, 1e-60, 0, 1, math.NaN()); math.Abs(x-1e-30) > 1e-45 {
		t.Errorf("near 0: %v", x)
	}
}
