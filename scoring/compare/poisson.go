package compare

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Events is a count with what it was exposed to: flips over positions at risk,
// crashes over minutes, failures over partial hits. The unit is the caller's,
// and both sides of a comparison use the same one.
type Events struct {
	Count    int     `json:"count"`
	Exposure float64 `json:"exposure"`
}

func (e Events) check(what string) error {
	if e.Count < 0 {
		return fmt.Errorf("compare: %s: negative count %d", what, e.Count)
	}
	if !(e.Exposure > 0) || math.IsInf(e.Exposure, 0) {
		return undefined("%s: exposure %v: nothing was at risk, or it was not recorded", what, e.Exposure)
	}
	return nil
}

// RateInterval is a range of event rates per unit of exposure. High is nil where
// the interval has no upper end.
type RateInterval struct {
	Low  float64  `json:"low"`
	High *float64 `json:"high"`
}

// MTBFAtLeast is 1/High, the mean exposure between events that the interval
// still allows as its smallest. nil when High is nil.
func (r RateInterval) MTBFAtLeast() *float64 {
	if r.High == nil {
		return nil
	}
	return ptr(1 / *r.High)
}

// PoissonRate is the exact interval for the rate behind e at confidence conf. No
// event in T bounds the rate by -ln(1-conf)/T, one-sided; it never says "none".
//
// Garwood, "Fiducial limits for the Poisson distribution" (Biometrika 1936).
func PoissonRate(e Events, conf float64, side Side) (RateInterval, error) {
	low, high, err := side.tails(conf)
	if err != nil {
		return RateInterval{}, err
	}
	if err := e.check("poisson rate"); err != nil {
		return RateInterval{}, err
	}
	var r RateInterval
	k := float64(e.Count)
	far := 2*k + 50 - 4*math.Log(1-conf) // beyond any bound for this tail
	if low > 0 && e.Count > 0 {
		f := func(m float64) float64 { return poissonAtLeast(e.Count, m) }
		r.Low = root(f, low, 0, far, mathext.GammaIncRegInv(k, low)) / e.Exposure
	}
	switch {
	case high > 0 && e.Count == 0:
		r.High = ptr(-math.Log(high) / e.Exposure)
	case high > 0:
		f := func(m float64) float64 { return poissonAtMost(e.Count, m) }
		r.High = ptr(root(f, high, 0, far, mathext.GammaIncRegCompInv(k+1, high)) / e.Exposure)
	}
	return r, nil
}

// SoakExposure is how long a run without any event must last to claim, at
// confidence conf, a mean exposure between events of at least mtbf:
// -ln(1-conf)·mtbf.
func SoakExposure(mtbf, conf float64) (float64, error) {
	if !(mtbf > 0) || math.IsInf(mtbf, 0) || !(conf > 0 && conf < 1) {
		return 0, fmt.Errorf("compare: soak exposure for mtbf %v at confidence %v: want a positive mtbf and a confidence strictly between 0 and 1", mtbf, conf)
	}
	return -math.Log1p(-conf) * mtbf, nil
}

// SoakRequests is the fewest requests without a failure that bound the failure
// rate per request by rate at confidence conf: the smallest n with
// 1 - (1-conf)^(1/n) <= rate.
func SoakRequests(rate, conf float64) (int, error) {
	if !(rate > 0 && rate < 1) || !(conf > 0 && conf < 1) {
		return 0, fmt.Errorf("compare: soak requests for rate %v at confidence %v: want both strictly between 0 and 1", rate, conf)
	}
	n := math.Log1p(-conf) / math.Log1p(-rate)
	if n > 1<<53 {
		return 0, fmt.Errorf("compare: soak requests for rate %v: more than 2^53 needed", rate)
	}
	return int(math.Ceil(n)), nil
}
