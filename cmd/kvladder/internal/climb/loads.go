package climb

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/replay"
)

// logged is how much the process has printed so far.
func (r *chainRun) logged() int64 {
	st, err := os.Stat(r.c.Folder.at(r.logName))
	if err != nil {
		return 0
	}
	return st.Size()
}

// account reads from the log of a pass, which began at byte from, where each request's tokens
// came from, where the engine says it there alone. A server prints behind its replies, so a
// log that is short of requests is read again.
func (r *chainRun) account(ctx context.Context, st arms.ChainStep, from int64) error {
	x, ok := r.c.Engine.(arms.Accountant)
	if !ok || !r.arm.Connector {
		return nil
	}
	var ids []string
	for _, p := range r.c.Set.Prompts {
		if st.Do == "prime" && p.Prime != nil {
			ids = append(ids, p.ID+"/prime")
		}
		ids = append(ids, p.ID)
	}
	var loads []arms.Load
	for range 100 {
		f, err := os.Open(r.c.Folder.at(r.logName))
		if err != nil {
			return r.harness("reading the log", err)
		}
		_, err = f.Seek(from, io.SeekStart)
		told := false
		if err == nil {
			loads, told, err = x.Account(f, r.pins)
		}
		f.Close()
		if err != nil {
			return r.harness("reading the log", err)
		}
		if !told {
			return nil
		}
		if len(loads) >= len(ids) {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if len(loads) != len(ids) {
		r.c.say("chain %s: the log tells of %d requests, %d were sent: it is not taken for an account of them", r.attempt, len(loads), len(ids))
		return nil
	}
	fact := probes.LoadsFact{Pass: st.Pass, Complete: true, Loads: []probes.Load{}}
	for i, l := range loads {
		l.RequestID = replay.RequestID(r.c.ids, r.arm.Name, r.job.run, st.Pass, ids[i])
		fact.Loads = append(fact.Loads, l.Load)
	}
	return r.fact(probes.FactLoads, "log", fact)
}

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
		mine[replay.RequestID(r.c.ids, r.arm.Name, r.job.run, st.Pass, p.ID)] = true
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
