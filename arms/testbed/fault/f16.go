package fault

import "kvladder/arms/testbed/sched"

// lateWrite frees the blocks of a request that ends while its load is under way.
// The load is done all the same, into whoever has the blocks by then.
var lateWrite = Fault{
	ID:      "F16",
	Summary: "blocks are freed under a pending load, which writes into their next owner",
	Plant: func(p *sched.Path) {
		p.Abandon = func() bool { return false }
	},
}
