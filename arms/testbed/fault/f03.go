package fault

import "kvladder/arms/testbed/sched"

// mixedSourceSplice loads the blocks of the external span behind a local hit but
// keeps the recurrent state that the local hit came with.
var mixedSourceSplice = Fault{
	ID:      "F03",
	Summary: "a local hit extended from the store keeps the local recurrent state",
	Plant: func(p *sched.Path) {
		healthy := p.Load
		p.Load = func(s sched.Span) (sched.Load, error) {
			l, err := healthy(s)
			if s.Hit.Tokens > 0 {
				l.State = 0
			}
			return l, err
		}
	},
}
