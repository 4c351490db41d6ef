package sched

import (
	"slices"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// share is a request's part of a step.
type share struct {
	t *task
	n int
}

// step schedules and computes one batch.
func (e *Engine) step() {
	e.dropAbandoned()
	var batch []share
	budget := e.cfg.Budget
	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		t := e.running[i]
		n := e.portion(t, budget)
		if n == 0 {
			continue
		}
		for !e.reserve(t, t.seq.Pos+n) {
			victim := e.running[len(e.running)-1]
			e.preempt(victim)
			preempted = true
			if victim == t {
				n = 0
				break
			}
		}
		if n > 0 {
			batch = append(batch, share{t, n})
			budget -= n
		}
	}
	for len(e.waiting) > 0 && len(e.running) < maxRunning && budget > 0 && !preempted {
		t := e.waiting[0]
		n := e.admit(t, budget)
		if n == 0 {
			break
		}
		e.waiting = e.waiting[1:]
		e.running = append(e.running, t)
		batch = append(batch, share{t, n})
		budget -= n
	}
	for _, s := range batch {
		e.compute(s.t, s.n)
	}
}

// aligned says whether prefill chunks have to end at recurrent boundaries.
func (e *Engine) aligned() bool { return e.cfg.PrefixCaching || e.cfg.Store != nil }

// portion returns how many tokens t computes next within budget; 0 when the
// budget does not reach the next place where it may stop.
func (e *Engine) portion(t *task, budget int) int {
	n := min(len(t.tokens)-t.seq.Pos, budget)
	if !e.aligned() || t.seq.Pos >= t.last {
		return n
	}
	end := min(t.seq.Pos+n, t.last)
	return max(0, end/model.StateEvery*model.StateEvery-t.seq.Pos)
}

// reserve gives t the blocks that its first n tokens need. It says whether
// there were enough; if not, t keeps what it had.
func (e *Engine) reserve(t *task, n int) bool {
	need := blocksFor(n) - len(t.attention)
	if need > e.local.Attention.Available() || need > e.local.Window.Available() {
		return false
	}
	for range need {
		a, err := e.local.Attention.Take()
		if err != nil {
			panic(err) // Available said otherwise
		}
		w, err := e.local.Window.Take()
		if err != nil {
			panic(err)
		}
		e.attach(t, a, w)
	}
	return true
}

// preempt takes everything from a running request and queues it again, first in
// line. What it computed stays findable until the room is needed.
func (e *Engine) preempt(t *task) {
	e.release(t)
	i := slices.Index(e.running, t)
	e.running = slices.Delete(e.running, i, i+1)
	e.waiting = slices.Insert(e.waiting, 0, t)
	e.count.Preemptions++
}

// compute runs n tokens of t, stopping wherever something can be kept.
func (e *Engine) compute(t *task, n int) {
	for n > 0 {
		from := t.seq.Pos
		piece := min(n, model.StateEvery-from%model.StateEvery)
		n -= piece
		end := from+piece == len(t.tokens)
		logits := e.decoder.Prefill(&t.seq, t.tokens[from:from+piece], end)
		e.keep(t)
		if end {
			if from < len(t.Prompt) && len(t.output()) == 0 {
				e.count.PromptTokens += len(t.Prompt)
				e.count.LocalTokens += t.split.Local
				e.count.ExternalTokens += t.split.External
				e.count.ComputedTokens += t.split.Computed
			}
			e.sample(t, logits)
		}
	}
}

// keep offers what t has just completed to the local cache and to the store.
func (e *Engine) keep(t *task) {
	pos := t.seq.Pos
	if e.cfg.PrefixCaching {
		e.extendChain(t)
		for full := pos / model.BlockTokens; t.published < full; t.published++ {
			h := t.chain[t.published]
			e.local.Attention.Publish(t.attention[t.published], h)
			e.local.Window.Publish(t.window[t.published], h)
		}
		if pos == t.last && pos > 0 {
			e.snapshot(t)
		}
	}
	if e.cfg.Store != nil && pos%store.Tokens == 0 && pos > 0 {
		e.offer(t, pos/store.Tokens-1)
	}
}

// snapshot keeps the recurrent state of t at its last boundary.
func (e *Engine) snapshot(t *task) {
	h := t.chain[t.seq.Pos/model.BlockTokens-1]
	if _, known := e.local.States.Find(h); known {
		return
	}
	id, err := e.local.States.Take()
	if err != nil {
		return // more requests than snapshots: this one goes without
	}
	*e.local.States.Item(id) = *t.seq.State
	e.local.States.Publish(id, h)
	e.local.States.Release(id)
}

// settle reports what the step did: first the numbers, then the events.
func (e *Engine) settle() {
	e.publish()
	for _, t := range e.done {
		e.send(t)
	}
	e.done = e.done[:0]
	for _, t := range e.running {
		e.send(t)
	}
}

func (e *Engine) send(t *task) {
	for _, ev := range t.ready {
		ev.Split = t.split
		t.events <- ev
		if ev.Finish != "" {
			close(t.events)
		}
	}
	t.ready = t.ready[:0]
}

// dropAbandoned ends the requests nobody waits for any more.
func (e *Engine) dropAbandoned() {
	for _, list := range [][]*task{e.running, e.waiting} {
		for _, t := range slices.Clone(list) {
			if t.ctx.Err() != nil {
				e.finish(t, Event{Finish: FinishAbort})
			}
		}
	}
}

// finish ends a request wherever it is. ev is its last event.
func (e *Engine) finish(t *task, ev Event) {
	e.release(t)
	same := func(o *task) bool { return o == t }
	e.running = slices.DeleteFunc(e.running, same)
	e.waiting = slices.DeleteFunc(e.waiting, same)
	e.count.Finished[ev.Finish]++
	t.ready = append(t.ready, ev)
	e.done = append(e.done, t)
}
