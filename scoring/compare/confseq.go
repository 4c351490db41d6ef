package compare

import (
	"fmt"
	"math"
)

// ConfidenceSequence is the interval for a failure rate seen as s of n that one
// may look at after every request: with probability at least conf the true rate
// lies in all of them. It keeps every p with p^s·(1-p)^(n-s) >= (1-conf)·B(s+1,
// n-s+1), the likelihood mixed over a uniform prior; as an equation in the
// binomial probability that is P(Bin(n,p) = s) >= (1-conf)/(n+1). The price of
// peeking is its width beside ClopperPearson's. n = 0 is ErrUndefined.
//
// Robbins, "Statistical methods related to the law of the iterated logarithm"
// (Ann. Math. Stat. 1970), with Ville's inequality (1939).
func ConfidenceSequence(s, n int, conf float64) (Interval, error) {
	if !(conf > 0 && conf < 1) {
		return Interval{}, fmt.Errorf("compare: confidence sequence at %v: want a confidence strictly between 0 and 1", conf)
	}
	if n == 0 && s == 0 {
		return Interval{}, undefined("confidence sequence 0/0: no trials")
	}
	if n < 0 || s < 0 || s > n {
		return Interval{}, fmt.Errorf("compare: confidence sequence %d/%d: want 0 <= s <= n", s, n)
	}
	limit := math.Log1p(-conf) - math.Log(float64(n)+1)
	f := func(p float64) float64 {
		switch p {
		case 0, 1: // s is strictly inside wherever an end is searched
			return math.Inf(-1)
		}
		return logBinomial(n, s, p, 1-p)
	}
	mode := float64(s) / float64(n)
	iv := Interval{0, 1}
	switch s {
	case 0:
		iv.High = -math.Expm1(limit / float64(n))
	case n:
		iv.Low = math.Exp(limit / float64(n))
	default:
		iv.Low = root(f, limit, 0, mode, math.NaN())
		iv.High = root(f, limit, mode, 1, math.NaN())
	}
	return iv, nil
}
