package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Boundaries at alpha = beta = 0.05: ln(0.95/0.05) = ln 19 = 2.944 and its
// negative. Against p0 = 0.001, p1 = 0.05 a failure adds ln 50 = 3.912, over the
// upper one at once; a pass adds ln(0.95/0.999) = -0.0503, and 2.944/0.0503 =
// 58.5, so the 59th clean request accepts.
func ExampleSPRT() {
	s, _ := compare.NewSPRT(0.05, 0.05)
	st, _ := compare.BernoulliSteps(0.001, 0.05)
	fmt.Printf("%.3f %.3f\n", s.Accept, s.Reject)
	fmt.Println(s.Decide(st.LLR(0, 58)), s.Decide(st.LLR(0, 59)), s.Decide(st.LLR(1, 0)))
	// Output:
	// -2.944 2.944
	// continue accept reject
}
