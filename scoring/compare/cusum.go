package compare

import (
	"fmt"
	"math"
)

// CUSUMResult is where a change for the worse was noticed and where it began.
type CUSUMResult struct {
	Alarm *int    `json:"alarm"` // index of the step that reached the threshold; nil if none did
	Onset *int    `json:"onset"` // index of the first step after the sum was last 0 before the alarm
	Peak  float64 `json:"peak"`  // largest sum seen, in nats
}

// CUSUM runs S <- max(0, S + step) over the log-likelihood steps of an arm in
// order (Steps.Event for a failure, Steps.Quiet for a pass) and stops at the
// first S >= threshold. The onset is the usual maximum-likelihood estimate of
// the change point. Without an alarm there is no onset to report. The threshold
// must be positive and the steps finite.
//
// Page, "Continuous inspection schemes" (Biometrika 1954).
func CUSUM(steps []float64, threshold float64) (CUSUMResult, error) {
	if !(threshold > 0) || math.IsInf(threshold, 0) {
		return CUSUMResult{}, fmt.Errorf("compare: cusum threshold %v: want a positive number such as the SPRT's reject boundary", threshold)
	}
	var r CUSUMResult
	sum, start := 0.0, 0
	for i, step := range steps {
		if !finite(step) {
			return CUSUMResult{}, undefined("cusum: step %d is %v", i, step)
		}
		if sum == 0 {
			start = i
		}
		sum = math.Max(0, sum+step)
		r.Peak = math.Max(r.Peak, sum)
		if sum >= threshold {
			r.Alarm, r.Onset = &i, &start
			return r, nil
		}
	}
	return r, nil
}
