package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Failure rates 1/4 against 1/2: a failure is twice as likely under H1, ln 2 =
// 0.6931; a pass is (1/2)/(3/4) = 2/3 as likely, ln(2/3) = -0.4055. Two failures
// and one pass: 2·0.6931 - 0.4055 = 0.9808 = ln(8/3).
func ExampleBernoulliSteps() {
	st, err := compare.BernoulliSteps(0.25, 0.5)
	fmt.Printf("%.4f %.4f %.4f %v\n", st.Event, st.Quiet, st.LLR(2, 1), err)
	// Output: 0.6931 -0.4055 0.9808 <nil>
}

// Mean times of 100 against 50 minutes: a crash adds ln(100/50) = 0.6931, each
// minute 1/100 - 1/50 = -0.01.
func ExampleExponentialSteps() {
	st, err := compare.ExponentialSteps(100, 50)
	fmt.Printf("%.4f %.4f %v\n", st.Event, st.Quiet, err)
	// Output: 0.6931 -0.0100 <nil>
}
