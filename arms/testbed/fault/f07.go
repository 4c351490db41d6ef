package fault

import "kvladder/arms/testbed/sched"

// frontSlice fills as many blocks as the store supplies, counted from the front
// of each table: with a local hit these are the shared blocks of the prefix, and
// the blocks behind it stay as they were allocated.
var frontSlice = Fault{
	ID:      "F07",
	Summary: "a load fills the first blocks of the table, not those behind the local hit",
	Plant: func(p *sched.Path) {
		healthy := p.Load
		p.Load = func(s sched.Span) (sched.Load, error) {
			l, err := healthy(s)
			l.Into = 0
			return l, err
		}
	},
}
