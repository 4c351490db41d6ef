package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// No failure in 38: B(1,39) = 1/39, so (1-p)^38 = 0.05/39 and p = 1 -
// (0.05/39)^(1/38) = 0.1607, against 0.0758 for someone who looks only once.
func ExampleConfidenceSequence() {
	iv, err := compare.ConfidenceSequence(0, 38, 0.95)
	fmt.Printf("%v %.4f %v\n", iv.Low, iv.High, err)
	// Output: 0 0.1607 <nil>
}
