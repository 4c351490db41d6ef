package fault

import "kvladder/arms/testbed/sched"

// countsMovedTwice closes up the rows of a batch twice for the counts of accepted
// draft tokens: behind a request that ended, rows advance their recurrent state by
// the count of the row behind them.
var countsMovedTwice = Fault{
	ID:      "F20",
	Summary: "accepted counts are permuted twice when a request leaves the batch",
	Plant: func(p *sched.Path) {
		healthy := p.Condense
		p.Condense = func(accepted, moves []int) []int {
			once := healthy(accepted, moves)
			twice := append([]int(nil), once...)
			for i, from := range moves {
				if from < len(once) {
					twice[i] = once[from]
				}
			}
			return twice
		}
	},
}
