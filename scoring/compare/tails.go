package compare

import (
	"math"
	"math/big"
)

// Point probabilities by saddle-point expansion and tails by summing away from
// the mode: C. Loader, "Fast and Accurate Computation of Binomial
// Probabilities" (2000). Sums of log-gammas lose n·ln(n) units in the last
// place; this form keeps about 1e-14 relative at any n.

// stirlingError is ln(n!) less Stirling's ln(sqrt(2πn)·(n/e)^n), for n >= 1.
func stirlingError(n float64) float64 {
	if n <= 15 {
		lg, _ := math.Lgamma(n + 1)
		return lg - (n+0.5)*math.Log(n) + n - 0.5*math.Log(2*math.Pi)
	}
	// The first term left out is below 2e-3/n^11, 1e-16 at n = 16.
	nn := n * n
	return (1.0/12 - (1.0/360-(1.0/1260-(1.0/1680-1.0/1188/nn)/nn)/nn)/nn) / n
}

// deviance is x·ln(x/m) + m - x for x > 0, m > 0, without cancellation near x = m.
func deviance(x, m float64) float64 {
	d := x - m
	if math.Abs(d) >= 0.1*(x+m) {
		return x*math.Log(x/m) - d
	}
	v := d / (x + m)
	sum := d * v
	term := 2 * x * v
	for j := 1; j < 1000; j++ {
		term *= v * v
		next := sum + term/float64(2*j+1)
		if next == sum {
			break
		}
		sum = next
	}
	return sum
}

// logBinomial is ln P(Bin(n,p) = k), 0 <= k <= n, 0 < p < 1, q = 1-p. Both p
// and q are passed so that a tiny one of them keeps all its digits.
func logBinomial(n, k int, p, q float64) float64 {
	switch k {
	case 0:
		if p < 0.5 {
			return float64(n) * math.Log1p(-p)
		}
		return float64(n) * math.Log(q)
	case n:
		if q < 0.5 {
			return float64(n) * math.Log1p(-q)
		}
		return float64(n) * math.Log(p)
	}
	fn, fk := float64(n), float64(k)
	fr := fn - fk
	return stirlingError(fn) - stirlingError(fk) - stirlingError(fr) -
		deviance(fk, fn*p) - deviance(fr, fn*q) -
		0.5*math.Log(2*math.Pi*fk*(fr/fn))
}

// atLeast is P(Bin(n,p) >= k).
func atLeast(n, k int, p, q float64) float64 {
	switch {
	case k <= 0:
		return 1
	case k > n || p == 0:
		return 0
	case q == 0:
		return 1
	case float64(k) <= float64(n)*p:
		return 1 - atLeast(n, n-k+1, q, p)
	}
	term := 1.0
	sum := 1.0
	for i := k; i < n; i++ {
		term *= float64(n-i) / float64(i+1) * (p / q)
		sum += term
		if term < sum*1e-18 {
			break
		}
	}
	return math.Min(1, math.Exp(logBinomial(n, k, p, q))*sum)
}

// atMost is P(Bin(n,p) <= k).
func atMost(n, k int, p, q float64) float64 { return atLeast(n, n-k, q, p) }

// logPoisson is ln P(Poisson(m) = k), m > 0.
func logPoisson(k int, m float64) float64 {
	if k == 0 {
		return -m
	}
	fk := float64(k)
	return -stirlingError(fk) - deviance(fk, m) - 0.5*math.Log(2*math.Pi*fk)
}

// poissonAtLeast is P(Poisson(m) >= k).
func poissonAtLeast(k int, m float64) float64 {
	if k <= 0 {
		return 1
	}
	if float64(k) <= m {
		return 1 - poissonAtMost(k-1, m)
	}
	term, sum := 1.0, 1.0
	for i := k + 1; term >= sum*1e-18; i++ {
		term *= m / float64(i)
		sum += term
	}
	return math.Min(1, math.Exp(logPoisson(k, m))*sum)
}

// poissonAtMost is P(Poisson(m) <= k).
func poissonAtMost(k int, m float64) float64 {
	if k < 0 {
		return 0
	}
	if float64(k) > m {
		return 1 - poissonAtLeast(k+1, m)
	}
	term, sum := 1.0, 1.0
	for i := k; i > 0 && term >= sum*1e-18; i-- {
		term *= float64(i) / m
		sum += term
	}
	return math.Min(1, math.Exp(logPoisson(k, m))*sum)
}

// root returns the x in [lo, hi] where the monotone f crosses target, to the
// last bit or two. guess may be anything, even NaN: a good one only saves steps.
func root(f func(float64) float64, target, lo, hi, guess float64) float64 {
	rising := f(hi) > f(lo)
	below := func(x float64) bool { return (f(x) < target) == rising }
	if guess > lo && guess < hi {
		for width := 1e-12; width < 1; width *= 1000 {
			a, b := guess*(1-width), guess*(1+width)
			if a > lo && b < hi && below(a) && !below(b) {
				lo, hi = a, b
				break
			}
		}
	}
	for range 2000 { // far more than the bits of a float64 exponent and mantissa
		mid := lo + (hi-lo)/2
		if mid <= lo || mid >= hi || hi-lo <= 1e-16*mid {
			break
		}
		if below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo + (hi-lo)/2
}

// choose is the binomial coefficient, 0 outside 0 <= k <= n.
func choose(n, k int) *big.Int {
	if k < 0 || k > n {
		return new(big.Int)
	}
	return new(big.Int).Binomial(int64(n), int64(k))
}

// ratio rounds num/den once. Below 5e-324 it is 0.
func ratio(num, den *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(num, den).Float64()
	return f
}
