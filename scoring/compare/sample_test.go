package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// 1, 2, 6: mean 3, squares 1 + 4 + 36 = 41, so E[x²]-E[x]² = 41/3 - 9 = 14/3; over
// n-1 = 2 that is 7/3, whose root is 1.5275.
func ExampleMeanSE() {
	m, err := compare.MeanSE([]float64{1, 2, 6})
	fmt.Printf("%v ± %.4f (n=%d) %v\n", m.Value, *m.SE, m.N, err)
	// Output: 3 ± 1.5275 (n=3) <nil>
}

// sqrt((3² + 4²)/2) = sqrt(12.5).
func ExampleRMS() {
	r, err := compare.RMS([]float64{3, -4})
	fmt.Printf("%.4f %v\n", r, err)
	// Output: 3.5355 <nil>
}

// Index 0.9·4 = 3.6 of 1, 2, 3, 4, 10: six tenths of the way from 4 to 10.
func ExamplePercentile() {
	p, err := compare.Percentile([]float64{4, 1, 10, 3, 2}, 0.9)
	fmt.Printf("%.1f %v\n", p, err)
	// Output: 7.6 <nil>
}
