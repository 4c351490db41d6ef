package compare

import (
	"math"
	"math/big"
)

// ExceedanceResult counts the arm's values above everything the floor showed.
type ExceedanceResult struct {
	K int     `json:"k"` // arm values strictly above the largest floor value
	M int     `json:"m"` // floor values
	N int     `json:"n"` // arm values
	P float64 `json:"p"` // P(K >= k) if floor and arm are exchangeable
}

// Exceedance compares one value per request from an arm with the values of its
// floor. Equal to the maximum is not above it. An empty floor or arm is
// ErrUndefined, and so is a value that is NaN; an infinite value is only large.
//
// Values of one process share whatever is peculiar to it, so this is a screen:
// a small P asks for a second process before it accuses anyone.
//
// Rosenbaum, "Tables for a nonparametric test of location" (Ann. Math. Stat.
// 1954).
func Exceedance(floor, arm []float64) (ExceedanceResult, error) {
	if len(floor) == 0 {
		return ExceedanceResult{}, undefined("exceedance: the floor has no values: run a control process first")
	}
	if len(arm) == 0 {
		return ExceedanceResult{}, undefined("exceedance: the arm has no values")
	}
	top := math.Inf(-1)
	for i, v := range floor {
		if math.IsNaN(v) {
			return ExceedanceResult{}, undefined("exceedance: floor value %d is not a number", i)
		}
		top = math.Max(top, v)
	}
	r := ExceedanceResult{M: len(floor), N: len(arm)}
	for i, v := range arm {
		if math.IsNaN(v) {
			return ExceedanceResult{}, undefined("exceedance: arm value %d is not a number", i)
		}
		if v > top {
			r.K++
		}
	}
	r.P = ExceedanceP(r.K, r.N, r.M)
	return r, nil
}

// ExceedanceP is P(K >= k) = C(n,k)/C(m+n,k): the k largest of m+n exchangeable
// values all fall among the arm's n. It is 0 for k > n. With no floor (m = 0)
// it is 1: nothing was exceeded.
func ExceedanceP(k, n, m int) float64 {
	mustCounts("ExceedanceP", k, n, m)
	num, den := big.NewInt(1), big.NewInt(1)
	for i := range k {
		if i >= n {
			return 0
		}
		num.Mul(num, big.NewInt(int64(n-i)))
		den.Mul(den, big.NewInt(int64(m+n-i)))
	}
	return ratio(num, den)
}
