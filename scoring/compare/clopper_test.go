package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// One of two failed. Low end: P(at least 1 of 2) = 1 - (1-p)^2 = 0.025, so
// p = 1 - sqrt(0.975) = 0.012579. High end: P(at most 1) = 1 - p^2 = 0.025, so
// p = sqrt(0.975) = 0.987421.
func ExampleClopperPearson() {
	iv, err := compare.ClopperPearson(1, 2, 0.95, compare.TwoSided)
	fmt.Printf("%.6f %.6f %v\n", iv.Low, iv.High, err)
	// Output: 0.012579 0.987421 <nil>
}

// Nothing failed in 38 requests: the rate is at most 1 - 0.05^(1/38) = 0.0758,
// which is far from "none". No requests at all bound nothing.
func ExampleUpper95() {
	fmt.Printf("%.4f\n", *compare.Upper95(0, 38))
	fmt.Println(compare.Upper95(0, 0))
	// Output:
	// 0.0758
	// <nil>
}

// Two of two failed: p^2 = 0.05 at p = sqrt(0.05) = 0.2236.
func ExampleLower95() {
	fmt.Printf("%.4f\n", *compare.Lower95(2, 2))
	// Output: 0.2236
}
