package compare_test

import (
	"fmt"

	"kvladder/scoring/compare"
)

// No event in 60 minutes: the rate is at most -ln(0.05)/60 = 2.9957/60 = 0.04993
// a minute, so the mean time between events is at least 60/2.9957 = 20.03.
func ExamplePoissonRate() {
	r, err := compare.PoissonRate(compare.Events{Count: 0, Exposure: 60}, 0.95, compare.UpperSided)
	fmt.Printf("%.5f %.2f %v\n", *r.High, *r.MTBFAtLeast(), err)
	// Output: 0.04993 20.03 <nil>
}

// To claim a mean of at least 20 minutes: 2.995732·20 = 59.91 quiet minutes.
func ExampleSoakExposure() {
	t, err := compare.SoakExposure(20, 0.95)
	fmt.Printf("%.2f %v\n", t, err)
	// Output: 59.91 <nil>
}

// To bound the failure rate by 1/20: 0.95^59 = 0.0485 is the first below 0.05.
func ExampleSoakRequests() {
	n, err := compare.SoakRequests(1.0/20, 0.95)
	fmt.Println(n, err)
	// Output: 59 <nil>
}
