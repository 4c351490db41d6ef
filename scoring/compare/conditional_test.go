package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// Four crashes in 168 minutes against none in 336. At equal rates each of the
// four falls into the first 168 of 504 minutes with probability 1/3, so all four
// do with (1/3)^4 = 1/81 = 0.012346. No outcome on the other side is as unlikely
// ((2/3)^4 = 16/81 is the least of them), so two-sided is the same. The share's
// lower limit solves s^4 = 0.025, s = 0.397635; the ratio's is
// s/(1-s)·336/168 = 1.320248. It has no upper limit.
func ExampleConditionalBinomial() {
	b := compare.Events{Count: 4, Exposure: 168}
	d := compare.Events{Count: 0, Exposure: 336}
	r, err := compare.ConditionalBinomial(b, d, 0.95)
	fmt.Printf("%.6f %.6f\n", r.OneSided, r.TwoSided)
	fmt.Printf("%.6f %v %v %v\n", r.Low, r.High, r.Ratio, err)
	// Output:
	// 0.012346 0.012346
	// 1.320248 <nil> <nil> <nil>
}
