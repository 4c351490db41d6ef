package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// A rule named two of five requests beforehand and exactly those two failed:
// 1 of C(5,2) = 10 ways.
func ExampleMechanismCount() {
	fmt.Println(compare.MechanismCount(2, 5))
	// Output: 0.1
}

// The rule named three of six and caught both failures: C(3,2) = 3 of C(6,2) = 15
// ways, 0.2.
func ExampleMechanismTable() {
	fmt.Println(compare.MechanismTable(2, 1, 0, 3))
	// Output: 0.2
}

// One request that fails by itself half the time, one arm: the reference passes
// (1/2) and the arm fails (1/2), so the rule accuses an innocent arm 1 time in 4.
func ExampleFalseAlarm() {
	fmt.Println(compare.FalseAlarm(1, 1, 0.5))
	// Output: 0.25
}
