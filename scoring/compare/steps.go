package compare

import (
	"fmt"
	"math"
)

// Steps are the two increments of a log-likelihood ratio ln(P1/P0), in nats: one
// for an event, one for each unit of quiet. They feed SPRT, LikelihoodRatio and
// CUSUM alike.
type Steps struct {
	Event float64 `json:"event"` // positive: an event speaks for H1
	Quiet float64 `json:"quiet"` // negative: quiet speaks for H0
}

// BernoulliSteps are the steps for failure rates p0 (H0) and p1 (H1) per
// request, 0 < p0 < p1 < 1. Quiet is one request that passed.
func BernoulliSteps(p0, p1 float64) (Steps, error) {
	if !(p0 > 0 && p0 < p1 && p1 < 1) {
		return Steps{}, fmt.Errorf("compare: bernoulli steps p0 %v, p1 %v: want 0 < p0 < p1 < 1", p0, p1)
	}
	return Steps{Event: math.Log(p1 / p0), Quiet: math.Log1p(-p1) - math.Log1p(-p0)}, nil
}

// ExponentialSteps are the steps for mean exposures between events of mtbf0 (H0)
// and mtbf1 (H1), 0 < mtbf1 < mtbf0. Quiet is one unit of exposure, with or
// without events in it.
func ExponentialSteps(mtbf0, mtbf1 float64) (Steps, error) {
	if !(mtbf1 > 0 && mtbf1 < mtbf0) || math.IsInf(mtbf0, 0) {
		return Steps{}, fmt.Errorf("compare: exponential steps mtbf0 %v, mtbf1 %v: want 0 < mtbf1 < mtbf0", mtbf0, mtbf1)
	}
	return Steps{Event: math.Log(mtbf0 / mtbf1), Quiet: 1/mtbf0 - 1/mtbf1}, nil
}

// LLR is the log-likelihood ratio after events and quiet units: for Bernoulli
// steps the failures and the passes, for exponential ones the events and the
// whole exposure.
func (st Steps) LLR(events int, quiet float64) float64 {
	return float64(events)*st.Event + quiet*st.Quiet
}
