// Package compare is the arithmetic between two arms: integers and samples go
// in, exact p-values, intervals and effect sizes come out. It decides nothing.
//
// In the order a caller meets it:
//
//  1. Same requests, pass or fail in both arms: McNemar. Different requests:
//     Fisher. How clean is clean: ClopperPearson, Upper95, Lower95. Requests that
//     share a document or a geometry: ClusterBootstrap.
//  2. One number per request, with a floor taken from control processes:
//     Exceedance.
//  3. Several arms judged at once: Holm.
//  4. Counts over unequal exposures (flips over positions, crashes over
//     minutes): ConditionalBinomial, PoissonRate, SoakExposure.
//  5. Watching while it runs: SPRT, EValue, ConfidenceSequence, CUSUM.
//  6. Distributions of the next token: KLTopK, then Percentile and MeanSE over
//     the positions. Timings: MannWhitney, MedianInterval.
//  7. Before any of it: Power, SmallestRate, SmallestN, MinArmOnly say what a
//     plan of this size can see, and FalseAlarm what a naive rule would cost.
//
// Tests on integers (McNemar, Fisher, Exceedance, Mechanism) are computed with
// exact rationals and rounded once. The others hold 1e-12 relative or better;
// the package's vectors are checked at 1e-10.
//
// No function returns NaN or an infinity. What the data leave undefined (no
// trials, no floor, an empty sample) is a nil pointer or an error that wraps
// ErrUndefined, with the reason in its text. Functions without an error result
// take only counts and rates a caller made itself; a negative count or a
// probability outside 0..1 is a bug there, and panics like an index out of
// range. Nothing here changes a slice it is given.
package compare

import (
	"errors"
	"fmt"
	"math"
)

// ErrUndefined marks a question the data cannot answer, as opposed to an answer
// of zero. Callers show it as unknown.
var ErrUndefined = errors.New("undefined")

func undefined(format string, args ...any) error {
	return fmt.Errorf("compare: %s: %w", fmt.Sprintf(format, args...), ErrUndefined)
}

// Side says which ends of an interval are bounded.
type Side int

const (
	TwoSided   Side = iota // both ends, (1-conf)/2 in each tail
	LowerSided             // only the low end, 1-conf in its tail
	UpperSided             // only the high end, 1-conf in its tail
)

func (s Side) String() string {
	switch s {
	case TwoSided:
		return "two-sided"
	case LowerSided:
		return "lower"
	case UpperSided:
		return "upper"
	}
	return fmt.Sprintf("side(%d)", int(s))
}

// tails returns the probability left in the low and the high tail; zero means
// that end is not bounded.
func (s Side) tails(conf float64) (low, high float64, err error) {
	if !(conf > 0 && conf < 1) {
		return 0, 0, fmt.Errorf("compare: confidence %v: want a value strictly between 0 and 1, such as 0.95", conf)
	}
	switch s {
	case TwoSided:
		return (1 - conf) / 2, (1 - conf) / 2, nil
	case LowerSided:
		return 1 - conf, 0, nil
	case UpperSided:
		return 0, 1 - conf, nil
	}
	return 0, 0, fmt.Errorf("compare: unknown %v: use TwoSided, LowerSided or UpperSided", s)
}

// Interval is a range of proportions, 0 <= Low <= High <= 1.
type Interval struct {
	Low, High float64
}

func ptr(x float64) *float64 { return &x }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func mustCounts(what string, counts ...int) {
	for _, c := range counts {
		if c < 0 {
			panic(fmt.Sprintf("compare: %s: negative count in %v", what, counts))
		}
	}
}

func mustProbability(what string, p float64) {
	if !(p >= 0 && p <= 1) {
		panic(fmt.Sprintf("compare: %s: %v is no probability", what, p))
	}
}
