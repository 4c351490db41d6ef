package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Of ten forked requests, one forked later under the arm and nine earlier. At
// even odds one or fewer of ten has probability (1 + 10)/1024 = 0.0107421875.
func ExampleSignTest() {
	r := compare.SignTest(1, 9)
	fmt.Println(r.OneSided, r.TwoSided)
	// Output: 0.0107421875 0.021484375
}
