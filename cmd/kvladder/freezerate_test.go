package main

import "testing"

// Classes by share, of the binomial: P(Bin(n, q) >= k) reaches 0.95 first at n. One arm needs
// 5 failures (2^-5 <= 0.04), three need 7 (2^-7 <= 0.04/3).
func TestSizeFor(t *testing.T) {
	check := func(rate float64, arms, failures, bound, need int) {
		t.Helper()
		s, err := sizeFor(rate, arms)
		if err != nil {
			t.Fatal(err)
		}
		if s.Failures != failures || s.Bound != bound || s.Need != need {
			t.Errorf("%v, %d arms: %d failures, bound %d, need %d; want %d, %d, %d", rate, arms, s.Failures, s.Bound, s.Need, failures, bound, need)
		}
	}
	check(0.01, 0, 1, 299, 299)
	check(0.01, 1, 5, 299, 913)
	check(0.01, 3, 7, 299, 1182)
	check(0.001, 3, 7, 2995, 11840)
	check(7./38, 3, 7, 15, 62)
	for _, rate := range []float64{0, -1, 1, 0.00001} {
		if _, err := sizeFor(rate, 3); err == nil {
			t.Errorf("the rate %v was taken", rate)
		}
	}
	if _, err := sizeFor(0.1, -1); err == nil {
		t.Error("-1 arms were taken")
	}
}
