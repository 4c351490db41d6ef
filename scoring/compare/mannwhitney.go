package compare

import (
	"fmt"
	"math"
	"slices"
)

// mannWhitneyMax bounds the exact enumeration: its cost grows with the fourth
// power of the joint sample size.
const mannWhitneyMax = 128

// MannWhitneyResult compares the location of two small samples.
type MannWhitneyResult struct {
	U        float64 `json:"u"` // pairs where the first is larger, ties as 1/2
	TwoSided float64 `json:"two_sided"`
}

// MannWhitney is the exact two-sided rank test: twice the smaller tail of the
// rank sum over all ways to split the pooled values, ties held at their mid-ranks,
// at most 1. The smallest p two samples of 4 can give is 2/C(8,4) = 0.029. An
// empty sample or a value that is not finite is ErrUndefined; more than 128
// values together is an error.
//
// Mann & Whitney, "On a test of whether one of two random variables is
// stochastically larger than the other" (Ann. Math. Stat. 1947).
func MannWhitney(x, y []float64) (MannWhitneyResult, error) {
	if err := checkSample("mann-whitney: first sample", x); err != nil {
		return MannWhitneyResult{}, err
	}
	if err := checkSample("mann-whitney: second sample", y); err != nil {
		return MannWhitneyResult{}, err
	}
	n := len(x) + len(y)
	if n > mannWhitneyMax {
		return MannWhitneyResult{}, fmt.Errorf("compare: mann-whitney on %d values: the exact test takes at most %d, thin the samples", n, mannWhitneyMax)
	}
	pool := slices.Sorted(slices.Values(slices.Concat(x, y)))
	ranks := doubledRanks(pool)
	seen := 0
	for _, v := range x {
		i, _ := slices.BinarySearch(pool, v)
		seen += ranks[i]
	}
	ways := rankSums(ranks, len(x))
	var below, above, all float64
	for s, w := range ways {
		all += w
		if s <= seen {
			below += w
		}
		if s >= seen {
			above += w
		}
	}
	least := len(x) * (len(x) + 1) // doubled rank sum when every x is smallest
	return MannWhitneyResult{
		U:        float64(seen-least) / 2,
		TwoSided: math.Min(1, 2*math.Min(below, above)/all),
	}, nil
}

// doubledRanks are the mid-ranks of sorted values times 2, so that they are
// whole.
func doubledRanks(sorted []float64) []int {
	ranks := make([]int, len(sorted))
	for i := 0; i < len(sorted); {
		j := i
		for j < len(sorted) && sorted[j] == sorted[i] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[k] = i + 1 + j // first rank i+1, last rank j
		}
		i = j
	}
	return ranks
}

// rankSums counts, for every total, the subsets of k ranks with that total.
func rankSums(ranks []int, k int) []float64 {
	total := 0
	for _, r := range ranks {
		total += r
	}
	ways := make([][]float64, k+1)
	for i := range ways {
		ways[i] = make([]float64, total+1)
	}
	ways[0][0] = 1
	reach := 0
	for i, r := range ranks {
		reach += r
		for j := min(i+1, k); j >= 1; j-- {
			for s := reach; s >= r; s-- {
				ways[j][s] += ways[j-1][s-r]
			}
		}
	}
	return ways[k]
}
