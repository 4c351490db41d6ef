package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// 2^-6 = 0.015625 is the first power of 1/2 at or below 0.04/2 = 0.02, so with
// two judged arms six arm-only failures are needed.
func ExampleMinArmOnly() {
	fmt.Println(compare.MinArmOnly(0.04 / 2))
	// Output: 6
}

// Three requests that fail half the time show at least two failures in 3 + 1 of
// 8 ways.
func ExamplePowerAtLeast() {
	fmt.Printf("%.4f\n", compare.PowerAtLeast(3, 0.5, 2))
	// Output: 0.5000
}

// One arm at 0.04 needs 2^-5 = 0.03125, five failures. Five requests that fail
// nine times in ten give five with probability 0.9^5 = 0.59049.
func ExamplePower() {
	fmt.Printf("%.5f\n", compare.Power(5, 0.9, 0.04, 1))
	// Output: 0.59049
}

// At least one failure in two requests with power 0.75: 1 - (1-q)^2 = 0.75 at
// q = 0.5.
func ExampleSmallestRate() {
	fmt.Printf("%.4f\n", *compare.SmallestRate(2, 1, 0.75))
	// Output: 0.5000
}

// At least one failure with power 0.95 at q = 1/20: 0.95^58 = 0.0510 is too much
// to miss, 0.95^59 = 0.0485 is not.
func ExampleSmallestN() {
	fmt.Println(compare.SmallestN(0.05, 1, 0.95))
	// Output: 59
}
