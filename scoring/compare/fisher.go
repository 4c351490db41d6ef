package compare

import "math/big"

// FisherResult holds the p-values of one 2×2 table.
type FisherResult struct {
	OneSided float64 `json:"one_sided"` // toward "the second row is higher"
	TwoSided float64 `json:"two_sided"` // tables no likelier than the one seen
}

// Fisher is the exact test on the table
//
//	         failed  passed
//	first       a       b
//	second      c       d
//
// with all margins held. OneSided is P(the second row's failures >= c).
// TwoSided adds every table whose probability is not above that of the observed
// one; the comparison is between integers, so ties are ties and no tolerance is
// needed (SciPy and R allow 1e-7 for the same rule).
//
// Fisher, "Statistical Methods for Research Workers" (5th ed. 1934); Irwin
// (Metron 1935).
func Fisher(a, b, c, d int) FisherResult {
	mustCounts("Fisher", a, b, c, d)
	r1, r2, failed := a+b, c+d, a+c
	// x is the second row's failures; its weight is C(r2,x)·C(r1,failed-x).
	lo, hi := max(0, failed-r1), min(r2, failed)
	seen := new(big.Int).Mul(choose(r2, c), choose(r1, a))
	w := new(big.Int).Mul(choose(r2, lo), choose(r1, failed-lo))
	all, one, two := new(big.Int), new(big.Int), new(big.Int)
	for x := lo; x <= hi; x++ {
		all.Add(all, w)
		if x >= c {
			one.Add(one, w)
		}
		if w.Cmp(seen) <= 0 {
			two.Add(two, w)
		}
		w.Mul(w, big.NewInt(int64(r2-x)))
		w.Mul(w, big.NewInt(int64(failed-x)))
		w.Quo(w, big.NewInt(int64(x+1)))
		if x < hi {
			w.Quo(w, big.NewInt(int64(r1-failed+x+1)))
		}
	}
	return FisherResult{OneSided: ratio(one, all), TwoSided: ratio(two, all)}
}
