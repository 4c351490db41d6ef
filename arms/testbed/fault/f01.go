package fault

import "kvladder/arms/testbed/sched"

// maxOverGroups resumes where the group that got furthest says, once a connector
// is attached: attention blocks reach further than the recurrent snapshot does,
// so the recurrent layer misses the tokens in between. The store, which has the
// right state, is not asked.
var maxOverGroups = Fault{
	ID:      "F01",
	Summary: "local hit is the maximum over cache groups when a connector is attached",
	Plant: func(p *sched.Path) {
		healthy := p.LocalHit
		p.LocalHit = func(l sched.Lookup) sched.Hit {
			if !l.Connector {
				return healthy(l)
			}
			n := min(l.Local.AttentionRun(l.Chain), l.Limit/l.Local.Block) * l.Local.Block
			if n == 0 {
				return sched.Hit{}
			}
			return sched.Hit{Tokens: n, State: l.Local.DeepestSnapshot(l.Chain, n), Only: true}
		}
	},
}
