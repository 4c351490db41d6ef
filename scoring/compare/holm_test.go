package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Sorted: 0.01, 0.02, 0.03 times 3, 2, 1 = 0.03, 0.04, 0.03. The last may not be
// below the one before it, so it becomes 0.04.
func ExampleHolm() {
	fmt.Printf("%.2f\n", compare.Holm([]float64{0.02, 0.03, 0.01}))
	// Output: [0.04 0.04 0.03]
}
