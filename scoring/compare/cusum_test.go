package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// The sum goes 1, 0, 0, 2, 1, 3: it reaches 3 at step 5, and was last 0 after
// step 2, so the change began at step 3.
func ExampleCUSUM() {
	r, err := compare.CUSUM([]float64{1, -1, -1, 2, -1, 2}, 3)
	fmt.Println(*r.Alarm, *r.Onset, r.Peak, err)
	// Output: 5 3 3 <nil>
}
