package compare_test

import (
	"fmt"
	"math"

	"kvladder/scoring/compare"
)

// P = (1/2, 1/4 | tail 1/4), Q = (1/4, 1/4 | tail 1/2): only the first bucket and
// the tail differ. KL = 1/2·ln 2 + 1/4·ln(1/2) = ln(2)/4 = 0.173287; TV = (1/4 +
// 1/4)/2. The midpoint is (3/8, 1/4, 3/8): each of the two halves of the
// Jensen-Shannon divergence is 1/2·ln(4/3) + 1/4·ln(2/3) = 0.042475.
func ExampleKLTopK() {
	half, quarter := -math.Ln2, -2*math.Ln2
	reference := []compare.TokenLogprob{{ID: 7, Logprob: half}, {ID: 8, Logprob: quarter}}
	arm := []compare.TokenLogprob{{ID: 8, Logprob: quarter}, {ID: 7, Logprob: quarter}}
	d, err := compare.KLTopK(reference, arm)
	fmt.Printf("%.6f %.6f %.6f %.2f %v\n", *d.KL, *d.Reverse, d.JSD, d.TV, err)
	// Output: 0.173287 0.173287 0.042475 0.25 <nil>
}
