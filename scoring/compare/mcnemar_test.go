package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Seven requests failed only under the arm, none only under the reference. Were
// both alike, each of the seven would be a coin toss: all seven heads has
// probability 2^-7 = 0.0078125. Two-sided doubles it. Mid-p takes the observed
// outcome's 2^-7 off the two-sided value: 0.015625 - 0.0078125.
func ExampleMcNemar() {
	r := compare.McNemar(0, 7)
	fmt.Println(r.OneSided, r.TwoSided, r.MidP)
	// Output: 0.0078125 0.015625 0.0078125
}
