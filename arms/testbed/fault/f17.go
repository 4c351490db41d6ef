package fault

import "kvladder/arms/testbed/sched"

// unpinnedHit looks up all waiting requests before any of them is given blocks,
// and holds what a request found only when its turn comes. Blocks that nobody
// holds are free for those before it.
var unpinnedHit = Fault{
	ID:      "F17",
	Summary: "blocks that a lookup found may be recycled before the request is admitted",
	Plant: func(p *sched.Path) {
		p.Lookahead = func(waiting int) int { return waiting }
	},
}
