package compare

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"
)

// ClopperPearson is the exact interval for a proportion seen as k of n, at
// confidence conf. The end that side leaves open is 0 or 1. Its coverage is at
// least conf for every true proportion. No trials at all is ErrUndefined: a
// share of nothing has no bound.
//
// The low end solves P(Bin(n,p) >= k) = tail, the high end P(Bin(n,p) <= k) =
// tail. Both start from a Beta quantile and are then bisected on the binomial
// tail itself, to within 1e-13 relative.
//
// Clopper & Pearson, "The use of confidence or fiducial limits illustrated in
// the case of the binomial" (Biometrika 1934).
func ClopperPearson(k, n int, conf float64, side Side) (Interval, error) {
	low, high, err := side.tails(conf)
	if err != nil {
		return Interval{}, err
	}
	if n == 0 && k == 0 {
		return Interval{}, undefined("clopper-pearson 0/0: no trials")
	}
	if n < 0 || k < 0 || k > n {
		return Interval{}, fmt.Errorf("compare: clopper-pearson %d/%d: want 0 <= k <= n", k, n)
	}
	iv := Interval{0, 1}
	if low > 0 {
		iv.Low = clopperLow(k, n, low)
	}
	if high > 0 {
		iv.High = clopperHigh(k, n, high)
	}
	return iv, nil
}

func clopperLow(k, n int, tail float64) float64 {
	switch k {
	case 0:
		return 0
	case n:
		return math.Exp(math.Log(tail) / float64(n))
	}
	f := func(p float64) float64 { return atLeast(n, k, p, 1-p) }
	return root(f, tail, 0, 1, mathext.InvRegIncBeta(float64(k), float64(n-k+1), tail))
}

func clopperHigh(k, n int, tail float64) float64 {
	switch k {
	case 0:
		return -math.Expm1(math.Log(tail) / float64(n))
	case n:
		return 1
	}
	f := func(p float64) float64 { return atMost(n, k, p, 1-p) }
	return root(f, tail, 0, 1, mathext.InvRegIncBeta(float64(k+1), float64(n-k), 1-tail))
}

// Upper95 is the one-sided 95 % upper bound of the proportion behind k of n, and
// nil where there is none to give: no trials, or k outside 0..n. At k = 0 it is
// 1 - 0.05^(1/n).
func Upper95(k, n int) *float64 {
	iv, err := ClopperPearson(k, n, 0.95, UpperSided)
	if err != nil {
		return nil
	}
	return &iv.High
}

// Lower95 is the one-sided 95 % lower bound, nil like Upper95.
func Lower95(k, n int) *float64 {
	iv, err := ClopperPearson(k, n, 0.95, LowerSided)
	if err != nil {
		return nil
	}
	return &iv.Low
}
