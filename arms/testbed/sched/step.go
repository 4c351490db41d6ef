package sched

import (
	"maps"
	"slices"

	"kvladder/arms/testbed/model"
)

// share is a request's part of a step.
type share struct {
	t *task
	n int
}

// step schedules and computes one batch.
func (e *Engine) step() {
	e.steps++
	e.dropAbandoned()
	e.land()
	e.advance()
	var batch []share
	budget := e.cfg.Budget
	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		t := e.running[i]
		n := e.portion(t, budget)
		if n == 0 {
			continue
		}
		for !e.reserve(t, t.seq.Pos+n+e.ahead(t)) {
			victim := e.running[len(e.running)-1]
			planned := 0
			if victim == t {
				planned = n
			}
			progress := e.progress(victim, planned)
			e.preempt(victim)
			e.missed(victim, progress)
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
	for _, t := range e.waiting[:min(len(e.waiting), e.cfg.Path.Lookahead(len(e.waiting)))] {
		if !t.resident {
			t.found = e.lookup(t)
		}
	}
	for len(e.waiting) > 0 && len(e.running) < maxRunning && budget > 0 && !preempted && e.fatal == nil {
		t := e.waiting[0]
		n, parked := e.admit(t, budget)
		if n == 0 && !parked {
			break
		}
		if len(e.waiting) > 0 && e.waiting[0] == t { // and has not ended
			e.waiting = e.waiting[1:]
		}
		if parked {
			continue
		}
		e.running = append(e.running, t)
		t.accepted = 0
		if e.cfg.Draft > 0 {
			e.rows = append(e.rows, t)
		}
		batch = append(batch, share{t, n})
		budget -= n
	}
	for _, t := range e.waiting {
		t.found = nil
	}
	if len(batch)+len(e.running)+len(e.loading)+len(e.copying) == 0 {
		e.yield()
	}
	for _, s := range batch {
		e.order(s.t, s.n)
	}
	e.idle, e.peak = len(batch) == 0, max(e.peak, len(e.running))
	if e.fatal != nil {
		return
	}
	for _, s := range batch {
		e.compute(s.t, s.n, len(batch))
	}
	e.drain(e.steps)
}

// yield takes the blocks from the last of the waiting requests that have some,
// when nothing else will set any free.
func (e *Engine) yield() {
	for i := len(e.waiting) - 1; i > 0; i-- {
		if t := e.waiting[i]; t.resident {
			e.release(t)
			e.count.Preemptions++
			return
		}
	}
}

// aligned says whether prefill chunks have to end at recurrent boundaries.
func (e *Engine) aligned() bool { return e.cfg.PrefixCaching || e.connected() }

// portion returns how many tokens t computes next within budget; 0 when the
// budget does not reach the next place where it may stop.
func (e *Engine) portion(t *task, budget int) int {
	n := min(len(t.tokens)-t.seq.Pos, budget)
	if !e.aligned() {
		return n
	}
	return e.cfg.Path.Portion(e.geo, t.seq.Pos, n, t.last)
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

// compute runs n tokens of t, stopping wherever something can be kept. inFlight
// requests share the step.
func (e *Engine) compute(t *task, n, inFlight int) {
	e.decoder.Use(t.model)
	if e.cfg.Cut != nil {
		e.decoder.Cut = e.cfg.Cut(t.seq.Pos)
	}
	if e.drafts(t) {
		e.speculate(t)
		return
	}
	if e.connected() {
		e.overtake(t, inFlight)
	}
	for n > 0 {
		from := t.seq.Pos
		piece := min(n, e.geo.Every-from%e.geo.Every)
		n -= piece
		end := from+piece == len(t.tokens)
		logits := e.decoder.Prefill(&t.seq, t.tokens[from:from+piece], end)
		if n == 0 {
			e.snap(t)
		}
		e.keep(t)
		if end {
			e.prompted(t, from)
			e.sample(t, logits)
		}
	}
}

// prompted counts t's prompt when its first output token is about to be sampled.
func (e *Engine) prompted(t *task, from int) {
	if from < len(t.Prompt) && len(t.output()) == 0 {
		e.count.PromptTokens += len(t.Prompt)
		e.count.LocalTokens += t.split.Local
		e.count.ExternalTokens += t.split.External
		e.count.ComputedTokens += t.split.Computed
	}
}

// keep offers what t has just completed to the local cache and to the store.
func (e *Engine) keep(t *task) {
	pos := t.seq.Pos
	if e.cfg.PrefixCaching {
		e.extendChain(t)
		for full := pos / e.geo.Block; t.published < full; t.published++ {
			h := t.chain[t.published]
			e.local.Attention.Publish(t.attention[t.published], h)
			e.local.Window.Publish(t.window[t.published], h)
		}
		if pos == t.last && pos > 0 && t.base*e.geo.Every == pos { // loaded up to there
			e.snap(t)
		}
	}
	if e.connected() {
		e.storeDone(t)
	}
	e.publishSnaps(t)
}

// snap keeps the state of t, where a chunk has ended, for the boundary that the
// path says. The store is offered it with the chunk that ends there.
func (e *Engine) snap(t *task) {
	if !e.aligned() || t.seq.Pos > t.last {
		return
	}
	b := e.cfg.Path.Snapshot(e.geo, t.seq.Pos, t.last)
	if b == 0 {
		return
	}
	if t.snaps == nil {
		t.snaps = make(map[int]*model.State)
	}
	if t.snaps[b] == nil {
		s := *t.seq.State
		t.snaps[b] = &s
	}
}

// publishSnaps makes the snapshots findable whose boundary t has reached.
func (e *Engine) publishSnaps(t *task) {
	for _, b := range slices.Sorted(maps.Keys(t.snaps)) {
		if b > t.seq.Pos {
			break
		}
		s := t.snaps[b]
		delete(t.snaps, b)
		if !e.cfg.PrefixCaching {
			continue
		}
		h := t.chain[b/e.geo.Block-1]
		if _, known := e.local.States.Find(h); known {
			continue
		}
		id, err := e.local.States.Take()
		if err != nil {
			continue // more requests than snapshots: this one goes without
		}
		*e.local.States.Item(id) = *s
		e.local.States.Publish(id, h)
		e.local.States.Release(id)
	}
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
	all := append(slices.Clone(e.running), e.waiting...)
	for _, l := range e.loading {
		if !l.orphan {
			all = append(all, l.t)
		}
	}
	for _, t := range all {
		if t.ctx.Err() != nil || t.Patience > 0 && e.steps > t.since+t.Patience {
			e.finish(t, Event{Finish: FinishAbort})
		}
	}
}

// finish ends a request wherever it is. ev is its last event.
func (e *Engine) finish(t *task, ev Event) {
	if e.abandon(t) {
		e.clear(t)
	} else {
		e.release(t)
	}
	same := func(o *task) bool { return o == t }
	e.running = slices.DeleteFunc(e.running, same)
	e.waiting = slices.DeleteFunc(e.waiting, same)
	e.count.Finished[ev.Finish]++
	t.ready = append(t.ready, ev)
	e.done = append(e.done, t)
}
