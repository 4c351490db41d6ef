package fault

import (
	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/sched"
)

// processRoot gives every process its own chain root, as an engine does whose
// hash seed is not pinned: what one process stored, no other ever finds.
var processRoot = Fault{
	ID:      "F12",
	Summary: "the root of the block hashes is random in every process",
	Plant: func(p *sched.Path) {
		p.Cache.Root = func(string) cache.Hash { return cache.RandomRoot() }
	},
}
