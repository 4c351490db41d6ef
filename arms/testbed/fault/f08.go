package fault

import (
	"fmt"

	"kvladder/arms/testbed/sched"
)

// The two ways of taking the store's boundary from the progress of a request's
// tokens, although a request that was preempted has no blocks for them.

// cursorAsserts insists that there are as many blocks as keys.
var cursorAsserts = Fault{
	ID:      "F08-strict",
	Summary: "the store boundary follows the tokens, and an assertion compares it with the blocks",
	Plant: func(p *sched.Path) {
		p.Boundary = func(progress, ready int) (stored, done int, err error) {
			if ready < progress {
				return 0, 0, fmt.Errorf("AssertionError: len(keys) == len(block_ids) (%d == %d)", progress, ready)
			}
			return progress, progress, nil
		}
	},
}

// cursorSkips stores what both lists have and goes on behind the longer one.
var cursorSkips = Fault{
	ID:      "F08-lenient",
	Summary: "the store boundary follows the tokens, and chunks without blocks are passed over for good",
	Plant: func(p *sched.Path) {
		p.Boundary = func(progress, ready int) (stored, done int, err error) {
			return min(progress, ready), progress, nil
		}
	},
}
