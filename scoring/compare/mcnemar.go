package compare

import "math/big"

// McNemarResult holds the three p-values of one paired comparison. OneSided is
// the one that can carry a verdict.
type McNemarResult struct {
	OneSided float64 `json:"one_sided"` // P(Bin(b+c, 1/2) <= b): the arm fails more
	TwoSided float64 `json:"two_sided"` // twice the smaller tail, at most 1
	MidP     float64 `json:"mid_p"`     // TwoSided less P(Bin(b+c, 1/2) = b)
}

// McNemar is the exact paired test on discordant requests: b failed only under
// the reference, c only under the arm. Given b+c and no difference between the
// two, b is Bin(b+c, 1/2). With no discordant request every p-value is 1. The
// mid-p value is for reading beside others: it does not keep its level.
//
// McNemar, "Note on the sampling error of the difference between correlated
// proportions" (Psychometrika 1947), in the exact binomial form; mid-p as in
// Fagerland, Lydersen & Laake (BMC Med. Res. Methodol. 2013).
func McNemar(b, c int) McNemarResult {
	mustCounts("McNemar", b, c)
	n := b + c
	if n == 0 {
		return McNemarResult{1, 1, 1}
	}
	all := new(big.Int).Lsh(big.NewInt(1), uint(n))
	low := halfTail(n, b)
	small := low
	if c < b {
		small = halfTail(n, c)
	}
	two := new(big.Int).Lsh(small, 1)
	if two.Cmp(all) > 0 {
		two.Set(all)
	}
	return McNemarResult{
		OneSided: ratio(low, all),
		TwoSided: ratio(two, all),
		MidP:     ratio(new(big.Int).Sub(two, choose(n, b)), all),
	}
}

// halfTail is 2^n · P(Bin(n, 1/2) <= k), an integer.
func halfTail(n, k int) *big.Int {
	sum := new(big.Int)
	term := big.NewInt(1)
	for i := 0; i <= k && i <= n; i++ {
		sum.Add(sum, term)
		term.Mul(term, big.NewInt(int64(n-i)))
		term.Quo(term, big.NewInt(int64(i+1)))
	}
	return sum
}
