package fault

import "kvladder/arms/testbed/sched"

// nullStored walks a request's rows of the block tables without leaving out the
// null block. Behind a local hit the recurrent row is null up to the hit, so once
// the store has lost those chunks they are stored again with the null block's
// bytes for their state.
var nullStored = Fault{
	ID:      "F04",
	Summary: "the store writes the null block where a local hit left no state",
	Plant: func(p *sched.Path) {
		p.Offer = func(n sched.Nulls) bool { return n.Attention == 0 }
	},
}
