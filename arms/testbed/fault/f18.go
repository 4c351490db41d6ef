package fault

import "kvladder/arms/testbed/sched"

// failureSwallowed reports a load as finished whose chunk could not be had: the
// blocks stay as they were allocated, and their tokens count as computed.
var failureSwallowed = Fault{
	ID:      "F18",
	Summary: "a failed load counts as done",
	Plant: func(p *sched.Path) {
		p.Fetched = func(int, error) error { return nil }
	},
}
