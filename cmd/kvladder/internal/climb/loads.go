package climb

import (
	"context"
	"fmt"
	"slices"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/replay"
)

// blocksUsed is the invariant that a load writes the blocks behind the local hit and no
// other.
const blocksUsed = "blocks used = expected interval"

// loads asks the engine what it did for each request of the pass, where it can tell, and
// checks the blocks that were written against the tokens that came from where.
func (r *chainRun) loads(ctx context.Context, st arms.ChainStep) error {
	x, ok := r.c.Engine.(arms.LoadLister)
	if !ok || !r.arm.Connector {
		return nil
	}
	all, complete, err := x.Loads(ctx, r.proc.Endpoint)
	if err != nil {
		r.c.say("chain %s: no account of loads: %v", r.attempt, err)
		return nil
	}
	mine := map[string]bool{}
	for _, p := range r.c.Set.Prompts {
		mine[replay.RequestID(r.c.digest, r.arm.Name, r.job.run, st.Pass, p.ID)] = true
	}
	fact := probes.LoadsFact{Pass: st.Pass, Complete: complete, Loads: []probes.Load{}}
	told, wrong, first := 0, 0, ""
	seen := map[string]bool{}
	for _, l := range all {
		if !mine[l.RequestID] {
			continue
		}
		if l.Failed {
			continue // it was tried again, or computed
		}
		if !seen[l.RequestID] { // a request that was preempted is counted as it was first let in
			seen[l.RequestID] = true
			fact.Loads = append(fact.Loads, l.Load)
		}
		if l.Written == nil || l.Block < 1 {
			continue
		}
		told++
		if why := misplaced(l); why != "" {
			if wrong++; first == "" {
				first = why
			}
		}
	}
	if err := r.fact(probes.FactLoads, "engine", fact); err != nil {
		return err
	}
	if told == 0 || st.Pass != r.arm.Judge {
		return nil
	}
	held, what := wrong == 0, fmt.Sprintf("%d loads", told)
	if wrong > 0 {
		what = fmt.Sprintf("%d of %d loads, the first: %s", wrong, told, first)
	}
	return r.fact(probes.FactInvariant, "engine", probes.InvariantFact{Name: blocksUsed, Held: &held, Seen: what})
}

// misplaced says what is wrong with the blocks written for a load: the attention group gets
// every block between the local hit and the end of what the store supplied, the other
// groups none outside of it.
func misplaced(l arms.Load) string {
	from, to := l.Local/l.Block, (l.Local+l.External)/l.Block
	for _, group := range []string{"attention", "window", "recurrent"} {
		got, ok := l.Written[group]
		if !ok {
			continue
		}
		got = slices.Sorted(slices.Values(got))
		if n := l.Null[group]; n > 0 {
			return fmt.Sprintf("request %s, group %s: the block that stands for nothing was written %d times", l.RequestID, group, n)
		}
		for _, b := range got {
			if b < from || b >= to {
				return fmt.Sprintf("request %s, group %s: block %d written, [%d, %d) expected (local %d, external %d)", l.RequestID, group, b, from, to, l.Local, l.External)
			}
		}
		if group == "attention" && len(slices.Compact(got)) != to-from {
			return fmt.Sprintf("request %s, group %s: %d blocks written, [%d, %d) expected (local %d, external %d)", l.RequestID, group, len(got), from, to, l.Local, l.External)
		}
	}
	return ""
}
