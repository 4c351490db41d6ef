package fault

import (
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// unalignedSnapshot lets a prefill chunk end anywhere and publishes the state
// there under the next boundary, once that many tokens have been computed: what
// is found under it later lacks the tokens in between.
var unalignedSnapshot = Fault{
	ID:      "F10",
	Summary: "the recurrent state of an unaligned chunk end is published under the next boundary",
	Plant: func(p *sched.Path) {
		p.Portion = func(_ model.Geometry, _, n, _ int) int { return n }
		p.Snapshot = func(g model.Geometry, pos, _ int) int {
			return (pos + g.Every - 1) / g.Every * g.Every
		}
	},
}
