package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Six floor values, two arm values, both above 0.4. If all eight were
// exchangeable the two largest would both be the arm's in C(2,2) = 1 of
// C(8,2) = 28 ways: 1/28 = 0.035714.
func ExampleExceedance() {
	floor := []float64{0.1, 0.4, 0.2, 0.3, 0.1, 0.2}
	r, err := compare.Exceedance(floor, []float64{0.9, 0.5})
	fmt.Printf("%d of %d above %d: %.6f %v\n", r.K, r.N, r.M, r.P, err)
	// Output: 2 of 2 above 6: 0.035714 <nil>
}
