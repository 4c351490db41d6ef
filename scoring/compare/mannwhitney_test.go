package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// All three of the first sample lie above the second: 1 of C(6,3) = 20 splits,
// doubled 0.1, the smallest p that 3 against 3 can give. U counts 3·3 pairs.
func ExampleMannWhitney() {
	r, err := compare.MannWhitney([]float64{7, 8, 9}, []float64{1, 2, 3})
	fmt.Println(r.U, r.TwoSided, err)
	// Output: 9 0.1 <nil>
}
