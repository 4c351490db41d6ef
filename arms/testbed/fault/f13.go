package fault

import (
	"kvladder/arms/testbed/sched"
	"kvladder/arms/testbed/store"
)

// epochForgotten names chunks without the weights and the configuration they were
// computed with: a store that outlives a change of either answers for both.
var epochForgotten = Fault{
	ID:      "F13",
	Summary: "the store key leaves out the weights and the configuration epoch",
	Plant: func(p *sched.Path) {
		healthy := p.Store.Keys
		p.Store.Keys = func(id store.Identity, x store.Prefix) []store.Key {
			id.ModelSeed, id.Epoch = 0, 0
			return healthy(id, x)
		}
	},
}
