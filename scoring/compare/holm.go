package compare

import (
	"math"
	"slices"
)

// Holm returns the step-down adjusted p-values of one family, in the order
// given: sorted ascending, the i-th smallest (from 0) of m is multiplied by
// m-i, and no adjusted value is below the one before it. An adjusted value at or
// below alpha rejects at family-wise level alpha under any dependence. Unknown
// p-values are the caller's to leave out; they must not shrink the family by
// accident, so it panics on NaN.
//
// Holm, "A simple sequentially rejective multiple test procedure" (Scand. J.
// Statist. 1979).
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i, v := range p {
		mustProbability("Holm", v)
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case p[i] < p[j]:
			return -1
		case p[i] > p[j]:
			return 1
		}
		return 0
	})
	adjusted := make([]float64, len(p))
	floor := 0.0
	for rank, i := range order {
		floor = math.Max(floor, math.Min(1, float64(len(p)-rank)*p[i]))
		adjusted[i] = floor
	}
	return adjusted
}
