package fault

import "kvladder/arms/testbed/sched"

// privatePools gives every data-parallel rank a store of its own, whatever was
// asked for, behind a router that takes turns: what one rank stored, the next
// request does not find.
var privatePools = Fault{
	ID:      "F14a",
	Summary: "each data-parallel rank has its own store although one was to be shared",
	Plant: func(p *sched.Path) {
		p.Scope = func(bool) bool { return true }
	},
}

// rankZeroAnswers looks up rank 0 of a tensor split alone. Where another rank has
// lost its share, that rank loads nothing, and nobody is told.
var rankZeroAnswers = Fault{
	ID:      "F14b",
	Summary: "a lookup is answered by rank 0 of the tensor split for all of them",
	Plant: func(p *sched.Path) {
		healthy := p.Fetched
		p.Present = func(runs []int) int { return runs[0] }
		p.Fetched = func(k int, err error) error {
			if k > 0 {
				return nil
			}
			return healthy(k, err)
		}
	},
}
