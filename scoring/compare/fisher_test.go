package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// 0 of 4 failed in one arm and 3 of 4 in the other. With three failures among
// eight, the second four hold x of them in C(4,x)·C(4,3-x) ways: 4, 24, 24, 4 of
// 56. Three or more: 4/56 = 1/14. The other end is as unlikely as the one seen,
// so two-sided counts both: 8/56 = 1/7.
func ExampleFisher() {
	r := compare.Fisher(0, 4, 3, 1)
	fmt.Printf("%.6f %.6f\n", r.OneSided, r.TwoSided)
	// Output: 0.071429 0.142857
}
