package compare

import (
	"fmt"
	"math"
)

// EValue is evidence against H0 that may be read at any time: its expectation
// under H0 is at most 1 whenever one stops. It is kept as a logarithm (nats), so
// that a long run cannot overflow. The zero EValue is 1, no evidence.
type EValue struct {
	Log float64 `json:"log_e"`
}

// LikelihoodRatio is the e-value of s failures in n requests for failure rates
// p0 (H0) against p1 (H1), 0 < p0 < p1 < 1.
//
// Ville, "Étude critique de la notion de collectif" (1939); Shafer, "Testing by
// betting" (JRSS A 2021).
func LikelihoodRatio(p0, p1 float64, s, n int) (EValue, error) {
	st, err := BernoulliSteps(p0, p1)
	if err != nil {
		return EValue{}, err
	}
	if s < 0 || n < s {
		return EValue{}, fmt.Errorf("compare: likelihood ratio of %d in %d: want 0 <= s <= n", s, n)
	}
	return EValue{st.LLR(s, float64(n-s))}, nil
}

// Value is E itself, nil where it is too large for a float64.
func (e EValue) Value() *float64 {
	v := math.Exp(e.Log)
	if !finite(v) {
		return nil
	}
	return &v
}

// AlarmAt is the logarithm of E at which Alarm begins, in nats.
func AlarmAt(alpha float64) float64 { return -math.Log(alpha) }

// Alarm reports E >= 1/alpha. Under H0 the chance that this ever happens, at
// any of the moments one looked, is at most alpha (Ville's inequality).
func (e EValue) Alarm(alpha float64) bool { return e.Log >= -math.Log(alpha) }

// Independent multiplies the evidence of independent arms.
func Independent(es ...EValue) EValue {
	var all EValue
	for _, e := range es {
		all.Log += e.Log
	}
	return all
}

// Dependent averages the evidence of arms that may depend on each other (a
// shared process, store or document). No evidence at all is EValue{}.
func Dependent(es ...EValue) EValue {
	if len(es) == 0 {
		return EValue{}
	}
	top := es[0].Log
	for _, e := range es {
		top = math.Max(top, e.Log)
	}
	sum := 0.0
	for _, e := range es {
		sum += math.Exp(e.Log - top)
	}
	return EValue{top + math.Log(sum/float64(len(es)))}
}
