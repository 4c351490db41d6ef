package compare

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Bootstrap is a mean over all values with an interval from resampled clusters.
type Bootstrap struct {
	Mean      float64 `json:"mean"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	SE        float64 `json:"se"` // standard deviation of the resampled means
	N         int     `json:"n"`  // values
	Clusters  int     `json:"clusters"`
	Resamples int     `json:"resamples"`
	Seed      uint64  `json:"seed"`
}

// ClusterBootstrap is the percentile interval at confidence conf of the mean of
// values that come in clusters: the replies about one document, or those of one
// geometry. A resample draws as many clusters as there are, with replacement,
// and keeps each whole, so that fifty replies about one document count as one
// document. A failure is 1 and a success 0; a difference between two arms is
// resampled by handing over the differences.
//
// The seed belongs into the plan, before the data: with the same seed and the
// same order of clusters the result is the same to the last bit. Draw j of the
// stream is cluster floor(u·K/2^64), where u is the j-th output of the PCG-DXSM
// generator of math/rand/v2 seeded (seed, 0) and K the number of clusters.
//
// Fewer than two clusters, or clusters whose means are all equal, are
// ErrUndefined: there is no spread to resample, and an interval of no width
// would say that the mean is known. For 0 failures use ClopperPearson over the
// clusters.
//
// Davison & Hinkley, "Bootstrap Methods and their Application" (1997), 3.8;
// Miller, "Adding Error Bars to Evals" (arXiv 2411.00640) on clusters.
func ClusterBootstrap(clusters [][]float64, conf float64, resamples int, seed uint64) (Bootstrap, error) {
	tail, _, err := TwoSided.tails(conf)
	if err != nil {
		return Bootstrap{}, err
	}
	if resamples < 100 {
		return Bootstrap{}, fmt.Errorf("compare: cluster bootstrap: %d resamples: want 100 or more, such as 10000", resamples)
	}
	b := Bootstrap{Clusters: len(clusters), Resamples: resamples, Seed: seed}
	sums, total := make([]float64, len(clusters)), 0.0
	alike := true
	for i, c := range clusters {
		if err := checkSample(fmt.Sprintf("cluster %d", i), c); err != nil {
			return Bootstrap{}, err
		}
		for _, v := range c {
			sums[i] += v
		}
		b.N += len(c)
		total += sums[i]
		alike = alike && sums[i]/float64(len(c)) == sums[0]/float64(len(clusters[0]))
	}
	switch {
	case len(clusters) < 2:
		return Bootstrap{}, undefined("cluster bootstrap: %d clusters: nothing to resample", len(clusters))
	case alike:
		return Bootstrap{}, undefined("cluster bootstrap: all %d clusters have the same mean: no spread to resample; bound it with ClopperPearson over clusters", len(clusters))
	case !finite(total):
		return Bootstrap{}, undefined("cluster bootstrap: the sum overflows")
	}
	b.Mean = total / float64(b.N)
	src := rand.NewPCG(seed, 0)
	means := make([]float64, resamples)
	average := 0.0
	for r := range means {
		sum, n := 0.0, 0
		for range clusters {
			i, _ := bits.Mul64(src.Uint64(), uint64(len(clusters)))
			sum += sums[i]
			n += len(clusters[i])
		}
		means[r] = sum / float64(n)
		average += means[r] / float64(resamples)
	}
	for _, m := range means {
		b.SE += (m - average) * (m - average) / float64(resamples-1)
	}
	b.SE = math.Sqrt(b.SE)
	slices.Sort(means)
	if b.Low, err = Percentile(means, tail); err != nil {
		return Bootstrap{}, err
	}
	if b.High, err = Percentile(means, 1-tail); err != nil {
		return Bootstrap{}, err
	}
	return b, nil
}
