package compare

import (
	"fmt"
	"slices"
)

// MedianRange is an interval for the median between two order statistics.
type MedianRange struct {
	Low, High float64
	Coverage  float64 // at least the confidence asked for
}

// MedianCoverage is the chance that the k-th smallest and the k-th largest of n
// values (k from 1) enclose the true median: 1 - 2·P(Bin(n, 1/2) <= k-1). It is
// 0 where the two have met or crossed.
func MedianCoverage(n, k int) float64 {
	mustCounts("MedianCoverage", n, k)
	if k < 1 || 2*k > n {
		return 0
	}
	return max(0, 1-2*atMost(n, k-1, 0.5, 0.5))
}

// MedianInterval is the narrowest symmetric pair of order statistics that covers
// the median with at least conf. Too few values to reach conf is ErrUndefined:
// 95 % needs 6.
//
// Thompson, "On confidence ranges for the median" (Ann. Math. Stat. 1936).
func MedianInterval(x []float64, conf float64) (MedianRange, error) {
	if err := checkSample("median interval", x); err != nil {
		return MedianRange{}, err
	}
	if !(conf > 0 && conf < 1) {
		return MedianRange{}, fmt.Errorf("compare: median interval at %v: want a confidence strictly between 0 and 1", conf)
	}
	n := len(x)
	k := 1
	if best := MedianCoverage(n, 1); best < conf {
		return MedianRange{}, undefined("median interval: %d values cover at most %.4g, below %v: take more", n, best, conf)
	}
	for MedianCoverage(n, k+1) >= conf {
		k++
	}
	s := slices.Sorted(slices.Values(x))
	return MedianRange{Low: s[k-1], High: s[n-k], Coverage: MedianCoverage(n, k)}, nil
}
