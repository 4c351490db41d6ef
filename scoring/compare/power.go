package compare

import (
	"fmt"
	"math"
)

// MinArmOnly is the fewest arm-only failures c that reach alpha in the one-sided
// exact McNemar test when the reference alone failed nowhere (b = 0): the
// smallest c with 2^-c <= alpha. For m arms under Holm the first step is at
// alpha/m, so pass that. alpha must lie strictly between 0 and 1.
func MinArmOnly(alpha float64) int {
	if !(alpha > 0 && alpha < 1) {
		panic(fmt.Sprintf("compare: MinArmOnly: alpha %v: want a value strictly between 0 and 1", alpha))
	}
	c := 0
	for math.Ldexp(1, -c) > alpha {
		c++
	}
	return c
}

// PowerAtLeast is P(Bin(n,q) >= k): the chance that n independent requests, each
// failing with probability q, show at least k failures.
func PowerAtLeast(n int, q float64, k int) float64 {
	mustCounts("PowerAtLeast", n)
	mustProbability("PowerAtLeast", q)
	return atLeast(n, k, q, 1-q)
}

// Power is the power of the one-sided exact McNemar test at family level alpha
// over arms judged under Holm (its strictest step, alpha/arms), for n requests
// of which each fails under the arm with probability q and none fails under the
// reference.
func Power(n int, q, alpha float64, arms int) float64 {
	if arms < 1 {
		panic(fmt.Sprintf("compare: Power: %d judged arms", arms))
	}
	return PowerAtLeast(n, q, MinArmOnly(alpha/float64(arms)))
}

// SmallestRate is the smallest true failure rate q for which n requests show at
// least k failures with the given power. It equals the Clopper-Pearson upper
// bound of k-1 of n at confidence power. nil when no rate below or at 1 does:
// k > n, or no requests; 0 is never the answer for k >= 1.
func SmallestRate(n, k int, power float64) *float64 {
	mustCounts("SmallestRate", n)
	if k < 1 || !(power > 0 && power < 1) {
		panic(fmt.Sprintf("compare: SmallestRate: k %d, power %v: want k >= 1 and a power strictly between 0 and 1", k, power))
	}
	if k > n {
		return nil
	}
	return ptr(clopperHigh(k-1, n, 1-power))
}

// SmallestN is the fewest requests that show at least k failures with the given
// power when each fails with probability q. q and power must lie strictly
// between 0 and 1, k >= 1.
func SmallestN(q float64, k int, power float64) int {
	if k < 1 || !(q > 0 && q < 1) || !(power > 0 && power < 1) {
		panic(fmt.Sprintf("compare: SmallestN: q %v, k %d, power %v: want rates strictly between 0 and 1 and k >= 1", q, k, power))
	}
	hi := k
	for PowerAtLeast(hi, q, k) < power {
		hi *= 2
	}
	lo := k - 1 // too few by definition
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if PowerAtLeast(mid, q, k) < power {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
