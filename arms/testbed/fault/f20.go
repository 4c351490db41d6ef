package fault

import "kvladder/arms/testbed/sched"

// countsMovedTwice exchanges the rows of the accepted counts twice when a request
// leaves the batch, which puts them back where they were: the request that moved
// into the free row, the last of the batch, advances its recurrent state by the
// count of the one that left.
var countsMovedTwice = Fault{
	ID:      "F20",
	Summary: "accepted counts are permuted twice when a request leaves the batch",
	Plant: func(p *sched.Path) {
		p.Condense = func(accepted, moves []int) []int {
			for range 2 {
				for i, from := range moves {
					accepted[i], accepted[from] = accepted[from], accepted[i]
				}
			}
			return accepted[:len(moves)]
		}
	},
}
