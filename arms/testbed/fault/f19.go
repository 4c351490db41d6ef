package fault

import (
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// shortTail writes as many window blocks as the window reaches back, where the
// reader of an engine that drafts asks for one more: it never finds enough.
var shortTail = Fault{
	ID:      "F19",
	Summary: "the store keeps one window block fewer than a drafting reader asks for",
	Plant: func(p *sched.Path) {
		healthy := p.Store.Tail
		p.Store.Tail = func(g model.Geometry, draft bool) (written, asked int) {
			_, asked = healthy(g, draft)
			return g.Tail(), asked
		}
	},
}
