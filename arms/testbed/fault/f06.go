package fault

import (
	"fmt"

	"kvladder/arms/testbed/sched"
)

// scanFromZero looks for the start of a load from the first entry of the
// recurrent row on and takes the first page that is there without a hash. A page
// that a local hit brought along may be such a one, before the local boundary,
// and then an assertion ends the engine.
var scanFromZero = Fault{
	ID:      "F06",
	Summary: "the start of a load is searched from block 0 and asserted to be behind the local hit",
	Plant: func(p *sched.Path) {
		healthy := p.Load
		p.Load = func(s sched.Span) (sched.Load, error) {
			for i, page := range s.States {
				if page.Null || page.Hashed {
					continue
				}
				if start := i * s.Every; s.Hit.Tokens > start {
					return sched.Load{}, fmt.Errorf("AssertionError: num_computed_tokens <= start (%d <= %d)", s.Hit.Tokens, start)
				}
				break
			}
			return healthy(s)
		}
	},
}
