package compare_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"kvladder/scoring/compare"
)

// Two documents of two replies each, one right and one wrong. A resample takes two of the
// two: both times the first (mean 0) with chance 1/4, both times the second (mean 1) with
// 1/4, else one of each. The 2.5 % and 97.5 % points are the ends; the standard error is
// sqrt(1/4·1/4 + 1/4·1/4) = 0.3536.
func ExampleClusterBootstrap() {
	b, _ := compare.ClusterBootstrap([][]float64{{0, 0}, {1, 1}}, 0.95, 10000, 1)
	fmt.Printf("%.2f [%.2f, %.2f], se %.2f, %d values in %d clusters\n", b.Mean, b.Low, b.High, b.SE, b.N, b.Clusters)
	// Output: 0.50 [0.00, 1.00], se 0.35, 4 values in 2 clusters
}

// 38 replies about 18 documents, failing by document: copies of a reply add nothing.
func TestBootstrapCountsClusters(t *testing.T) {
	var once, copied [][]float64
	for i := range 18 {
		v := 0.0
		if i%3 == 0 {
			v = 1
		}
		once = append(once, []float64{v})
		copied = append(copied, []float64{v, v, v, v, v})
	}
	a := must(compare.ClusterBootstrap(once, 0.95, 20000, 7))
	b := must(compare.ClusterBootstrap(copied, 0.95, 20000, 7))
	if !agree(b.Mean, a.Mean, 1e-12) || !agree(b.Low, a.Low, 1e-12) || !agree(b.High, a.High, 1e-12) || !agree(b.SE, a.SE, 1e-12) || b.N != 90 || a.N != 18 {
		t.Errorf("five copies of each reply change the interval: %+v and %+v", a, b)
	}
	// The variance of a mean of 18 draws from {0, 1} with a third of ones: 1/3·2/3/18.
	if want := math.Sqrt(1. / 3 * 2 / 3 / 18); !agree(a.SE, want, 0.02) {
		t.Errorf("se %.5f, want %.5f", a.SE, want)
	}
	var loose [][]float64
	for _, c := range copied {
		for _, v := range c {
			loose = append(loose, []float64{v})
		}
	}
	if c := must(compare.ClusterBootstrap(loose, 0.95, 20000, 7)); agree(c.SE, a.SE, 0.3) {
		t.Errorf("replies taken one by one give se %.5f like clusters %.5f: this test cannot fail", c.SE, a.SE)
	}
}

// The interval holds the true mean about as often as it says.
func TestBootstrapCoverage(t *testing.T) {
	const trials, k = 300, 40
	held := 0
	state := uint64(38)
	next := func() float64 { // a linear congruence, so that the data owe nothing to the resampling
		state = state*6364136223846793005 + 1442695040888963407
		return float64(state>>11) / (1 << 53)
	}
	for trial := range trials {
		var cs [][]float64
		for range k {
			v := next() // uniform: its mean is 1/2
			cs = append(cs, []float64{v, v})
		}
		b := must(compare.ClusterBootstrap(cs, 0.95, 400, uint64(trial)))
		if b.Low <= 0.5 && 0.5 <= b.High {
			held++
		}
	}
	if held < trials*90/100 || held > trials*99/100 {
		t.Errorf("the 95 %% interval holds the mean in %d of %d", held, trials)
	}
}

func TestBootstrapSeed(t *testing.T) {
	cs := [][]float64{{1, 2}, {3}, {5, 8, 13}, {21}}
	a := must(compare.ClusterBootstrap(cs, 0.9, 1000, 38))
	if b := must(compare.ClusterBootstrap(cs, 0.9, 1000, 38)); a != b {
		t.Errorf("the same seed gives %+v and %+v", a, b)
	}
	if b := must(compare.ClusterBootstrap(cs, 0.9, 1000, 39)); a.SE == b.SE {
		t.Error("the seed changes nothing")
	}
	if a.Low >= a.Mean || a.High <= a.Mean {
		t.Errorf("%+v does not hold its own mean", a)
	}
}

func TestBootstrapUndefined(t *testing.T) {
	for name, cs := range map[string][][]float64{
		"no cluster":   nil,
		"one cluster":  {{0, 1}},
		"all alike":    {{0, 0}, {0}, {0}},
		"same means":   {{0, 1}, {0.5}},
		"empty":        {{0}, {}},
		"not a number": {{0}, {math.NaN()}},
		"infinite":     {{0}, {math.Inf(1)}},
	} {
		if b, err := compare.ClusterBootstrap(cs, 0.95, 1000, 1); !errors.Is(err, compare.ErrUndefined) {
			t.Errorf("%s: %+v, %v; want undefined", name, b, err)
		}
	}
	cs := [][]float64{{0}, {1}}
	if _, err := compare.ClusterBootstrap(cs, 1.5, 1000, 1); err == nil {
		t.Error("confidence 1.5 was taken")
	}
	if _, err := compare.ClusterBootstrap(cs, 0.95, 10, 1); err == nil {
		t.Error("ten resamples were taken")
	}
}
