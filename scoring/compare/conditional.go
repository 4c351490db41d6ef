package compare

import "math"

// RateComparison sets the rate of a first set of events against a second.
type RateComparison struct {
	OneSided float64  `json:"one_sided"` // toward "the first comes faster"
	TwoSided float64  `json:"two_sided"` // outcomes no likelier than the one seen
	Ratio    *float64 `json:"ratio"`     // first rate over second; nil when the second saw no event
	Low      float64  `json:"low"`       // exact interval of the ratio
	High     *float64 `json:"high"`      // nil when unbounded
}

// ConditionalBinomial compares two rates exactly: given E1+E2 events and equal
// rates, E1 is Bin(E1+E2, X1/(X1+X2)). OneSided is P(that >= E1), TwoSided the
// sum over outcomes no likelier than E1 (with R's relative tolerance of 1e-7 on
// ties), and the interval of the ratio carries the two-sided Clopper-Pearson
// limits of E1/(E1+E2) over. With no event on either side both p-values are 1
// and nothing is known of the ratio. An exposure of zero is ErrUndefined.
//
// Przyborowski & Wilenski, "Homogeneity of results in testing samples from
// Poisson series" (Biometrika 1940).
func ConditionalBinomial(first, second Events, conf float64) (RateComparison, error) {
	if _, _, err := TwoSided.tails(conf); err != nil {
		return RateComparison{}, err
	}
	if err := first.check("first rate"); err != nil {
		return RateComparison{}, err
	}
	if err := second.check("second rate"); err != nil {
		return RateComparison{}, err
	}
	n := first.Count + second.Count
	if n == 0 {
		return RateComparison{OneSided: 1, TwoSided: 1}, nil
	}
	// Shares by division of each exposure, so that neither is 1 minus the other.
	p := 1 / (1 + second.Exposure/first.Exposure)
	q := 1 / (1 + first.Exposure/second.Exposure)
	c := RateComparison{
		OneSided: atLeast(n, first.Count, p, q),
		TwoSided: noLikelier(n, first.Count, p, q),
	}
	scale := second.Exposure / first.Exposure
	if second.Count > 0 {
		c.Ratio = ptr(float64(first.Count) / float64(second.Count) * scale)
	}
	iv, err := ClopperPearson(first.Count, n, conf, TwoSided)
	if err != nil {
		return RateComparison{}, err
	}
	if iv.Low > 0 {
		c.Low = iv.Low / (1 - iv.Low) * scale
	}
	if iv.High < 1 {
		c.High = ptr(iv.High / (1 - iv.High) * scale)
	}
	return c, nil
}

// noLikelier is the probability of all k' with P(Bin(n,p)=k') <= P(Bin(n,p)=k).
func noLikelier(n, k int, p, q float64) float64 {
	limit := logBinomial(n, k, p, q) + 1e-7
	sum := 0.0
	for i := range n + 1 {
		if l := logBinomial(n, i, p, q); l <= limit {
			sum += math.Exp(l)
		}
	}
	return math.Min(1, sum)
}
