package fault

import "kvladder/arms/testbed/sched"

// nullLoaded begins a load at the first row of the tables, not at the first that
// has a block: the states before the last, and behind a local hit the blocks that
// the window has left, are written into the null blocks. The request itself is
// right; those that start from the null state afterwards are not.
var nullLoaded = Fault{
	ID:      "F05",
	Summary: "a load writes into the null block where the table has no block",
	Plant: func(p *sched.Path) {
		healthy := p.Load
		p.Load = func(s sched.Span) (sched.Load, error) {
			l, err := healthy(s)
			l.From, l.Into, l.Null = 0, 0, true
			return l, err
		}
	},
}
