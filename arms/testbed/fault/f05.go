package fault

import "kvladder/arms/testbed/sched"

// nullLoaded begins a load at the first row of the tables, not at the first that
// has a block: what belongs to positions before the window, and to states before
// the last, is written into the null block. The request itself is right; those
// that start from the null state afterwards are not.
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
