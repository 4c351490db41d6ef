package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// The smallest and the largest of six miss the median only if all six lie on one
// side of it: 2·(1/2)^6 = 0.03125.
func ExampleMedianInterval() {
	r, err := compare.MedianInterval([]float64{12, 10, 15, 11, 19, 14}, 0.95)
	fmt.Printf("%v to %v: %.5f %v\n", r.Low, r.High, r.Coverage, err)
	// Output: 10 to 19: 0.96875 <nil>
}

// The second smallest and second largest of six: 1 - 2·(1 + 6)/64 = 0.78125.
func ExampleMedianCoverage() {
	fmt.Printf("%.5f\n", compare.MedianCoverage(6, 2))
	// Output: 0.78125
}
