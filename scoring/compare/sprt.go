package compare

import (
	"fmt"
	"math"
)

// Decision is what a sequential test says so far. The zero value is Continue.
type Decision int

const (
	Continue Decision = iota // no boundary reached: cannot tell yet
	AcceptH0                 // the log-likelihood ratio is at or below Accept
	RejectH0                 // the log-likelihood ratio is at or above Reject
)

func (d Decision) String() string {
	switch d {
	case Continue:
		return "continue"
	case AcceptH0:
		return "accept"
	case RejectH0:
		return "reject"
	}
	return fmt.Sprintf("decision(%d)", int(d))
}

// SPRT is the sequential probability ratio test of one simple hypothesis against
// another, as boundaries on the log-likelihood ratio ln(P1/P0), in nats.
type SPRT struct {
	Alpha  float64 `json:"alpha"`  // wanted chance of rejecting H0 when it holds
	Beta   float64 `json:"beta"`   // wanted chance of accepting H0 when H1 holds
	Accept float64 `json:"accept"` // ln(beta/(1-alpha)), below 0
	Reject float64 `json:"reject"` // ln((1-beta)/alpha), above 0
}

// NewSPRT computes Wald's boundaries. The true error rates are at most
// alpha/(1-beta) and beta/(1-alpha), and their sum at most alpha+beta. alpha and
// beta must be positive with alpha+beta below 1.
//
// Wald, "Sequential tests of statistical hypotheses" (Ann. Math. Stat. 1945).
func NewSPRT(alpha, beta float64) (SPRT, error) {
	if !(alpha > 0 && beta > 0 && alpha+beta < 1) {
		return SPRT{}, fmt.Errorf("compare: sprt alpha %v, beta %v: want both positive and their sum below 1", alpha, beta)
	}
	return SPRT{
		Alpha:  alpha,
		Beta:   beta,
		Accept: math.Log(beta / (1 - alpha)),
		Reject: math.Log((1 - beta) / alpha),
	}, nil
}

// Decide compares a running log-likelihood ratio with the boundaries. A ratio
// that is not a number decides nothing.
func (s SPRT) Decide(llr float64) Decision {
	switch {
	case s.Accept >= s.Reject: // the zero SPRT
		return Continue
	case llr >= s.Reject:
		return RejectH0
	case llr <= s.Accept:
		return AcceptH0
	}
	return Continue
}

// QuietToAccept is the least quiet exposure that accepts H0 with no event: in
// requests after rounding up for Bernoulli steps, in units of time for
// exponential ones.
func (s SPRT) QuietToAccept(st Steps) float64 { return s.Accept / st.Quiet }

// EventsToReject is the fewest events that reject H0 when nothing quiet lies
// before or between them.
func (s SPRT) EventsToReject(st Steps) int { return int(math.Ceil(s.Reject / st.Event)) }

// SampleNumbers is Wald's approximation to the expected number of requests under
// H0 and under H1 for Bernoulli steps with failure rates p0 and p1. It ignores
// how far the last step overshoots the boundary, so the truth is a little higher.
func (s SPRT) SampleNumbers(p0, p1 float64) (h0, h1 float64, err error) {
	st, err := BernoulliSteps(p0, p1)
	if err != nil {
		return 0, 0, err
	}
	h0 = ((1-s.Alpha)*s.Accept + s.Alpha*s.Reject) / (p0*st.Event + (1-p0)*st.Quiet)
	h1 = (s.Beta*s.Accept + (1-s.Beta)*s.Reject) / (p1*st.Event + (1-p1)*st.Quiet)
	return h0, h1, nil
}
