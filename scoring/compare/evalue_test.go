package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Two failures in three requests, 1/4 against 1/2: 2·2·(2/3) = 2.6667, short of
// the 20 that alarms at 0.05. Two independent arms with the same: 7.1111.
func ExampleLikelihoodRatio() {
	e, err := compare.LikelihoodRatio(0.25, 0.5, 2, 3)
	both := compare.Independent(e, e)
	fmt.Printf("%.4f %.4f %v %v\n", *e.Value(), *both.Value(), both.Alarm(0.05), err)
	// Output: 2.6667 7.1111 false <nil>
}
