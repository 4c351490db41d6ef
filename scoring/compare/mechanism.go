package compare

import (
	"math"
	"math/big"
)

// MechanismCount is 1/C(n,k): the chance that k failures placed at random among
// n requests fall on exactly the k requests a mechanism named beforehand.
func MechanismCount(k, n int) float64 {
	mustCounts("MechanismCount", k, n, n-k)
	return ratio(big.NewInt(1), choose(n, k))
}

// MechanismTable is the chance that a rule which named tp+fp of the requests
// catches tp or more of the tp+fn failures, were they placed at random: the
// hypergeometric upper tail (Fisher's exact test toward the rule).
func MechanismTable(tp, fp, fn, tn int) float64 {
	return Fisher(fn, tn, tp, fp).OneSided
}

// FalseAlarm is how often the rule "an arm has a failure and the reference has
// none" accuses at least one of several arms when nothing is wrong and every
// request fails with probability flake: (1-q)^n · (1 - (1-q)^(n·arms)).
func FalseAlarm(n, arms int, flake float64) float64 {
	mustCounts("FalseAlarm", n, arms)
	mustProbability("FalseAlarm", flake)
	clean := math.Pow(1-flake, float64(n))
	return clean * PowerAtLeast(n*arms, flake, 1)
}
