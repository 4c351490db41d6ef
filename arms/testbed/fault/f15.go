package fault

import (
	"math/rand/v2"

	"kvladder/arms/testbed/sched"
)

// storeOvertakes starts the copy of a chunk with the step that fills it and does
// not order the two: with several requests in the step the copy may come first
// and take the blocks as they were.
var storeOvertakes = Fault{
	ID:      "F15",
	Summary: "the copy to the store is not ordered behind the step that fills the blocks",
	Plant: func(p *sched.Path) {
		p.Overtakes = func(inFlight int, rng *rand.Rand) bool { return rng.IntN(inFlight) > 0 }
	},
}
