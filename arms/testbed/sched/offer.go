package sched

import (
	"slices"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// copying is a copy of a chunk to the store on its way. It holds the blocks it
// reads.
type copying struct {
	key               store.Key
	chunk             *store.Chunk
	attention, window []cache.ID
	due               int // the step after which it is done
}

// progress returns how many of t's chunks n more tokens complete.
func (e *Engine) progress(t *task, n int) int {
	return min((t.seq.Pos+n)/e.geo.Every, len(t.keys))
}

// order says, when a step is scheduled, how many of t's chunks are to be stored
// by its end; n are the tokens it computes.
func (e *Engine) order(t *task, n int) {
	if !e.connected() {
		return
	}
	progress := e.progress(t, n)
	stored, _, err := e.cfg.Path.Boundary(progress, min(progress, len(t.attention)/e.geo.PerChunk()))
	if err != nil {
		e.die(err)
		return
	}
	t.want = stored
}

// missed is order for a request that lost its blocks in this step, after it had
// come to progress chunks.
func (e *Engine) missed(t *task, progress int) {
	if !e.connected() {
		return
	}
	_, done, err := e.cfg.Path.Boundary(progress, 0)
	if err != nil {
		e.die(err)
		return
	}
	t.cursor = max(t.cursor, done)
}

// storeDone stores those of t's chunks that were ordered and are complete.
func (e *Engine) storeDone(t *task) {
	for t.cursor < min(t.want, t.seq.Pos/e.geo.Every) {
		e.offer(t, t.cursor)
		t.cursor++
	}
}

// overtake stores those of the chunks that a step completes of t whose copies the
// path lets run before it.
func (e *Engine) overtake(t *task, inFlight int) {
	for i := max(t.cursor, t.seq.Pos/e.geo.Every); i < t.want; i++ {
		if e.cfg.Path.Overtakes(inFlight, e.rng) {
			e.offer(t, i)
		}
	}
}

// offer copies chunk i of t's prompt to the store, unless the store has it or
// the path refuses it for its null blocks.
func (e *Engine) offer(t *task, i int) {
	key, per := t.keys[i], e.geo.PerChunk()
	if e.has(key) {
		return
	}
	var nulls Nulls
	job := &copying{key: key, chunk: store.NewChunk(per), due: e.steps + e.cfg.StoreSteps}
	written, _ := e.cfg.Path.Store.Tail(e.geo, e.cfg.Draft > 0)
	for j := range per {
		a, w := t.attention[i*per+j], t.window[i*per+j]
		if a == 0 {
			nulls.Attention++
		}
		if w == 0 {
			nulls.Window++
		}
		job.attention, job.window = append(job.attention, a), append(job.window, w)
		job.chunk.Attention[j] = e.local.Attention.Item(a)
		if j >= per-written {
			job.chunk.Window[j] = e.local.Window.Item(w)
		}
	}
	state := new(model.State)
	if i < t.base { // the request resumed behind it
		*state = *e.local.States.Item(0)
		nulls.State++
	} else {
		*state = *e.stateFor(t, (i+1)*e.geo.Every)
	}
	job.chunk.State = state
	if !e.cfg.Path.Offer(nulls) {
		return
	}
	e.count.OfferedNull += nulls.Attention + nulls.Window + nulls.State
	if e.cfg.StoreSteps == 0 {
		e.put(job)
		return
	}
	for j := range job.attention {
		e.local.Attention.Hold(job.attention[j])
		e.local.Window.Hold(job.window[j])
	}
	e.copying = append(e.copying, job)
}

// has says whether the store holds a chunk, or will.
func (e *Engine) has(k store.Key) bool {
	for _, s := range e.cfg.Stores {
		if !s.Has(k) {
			return slices.ContainsFunc(e.copying, func(c *copying) bool { return c.key == k })
		}
	}
	return e.windowed(k)
}

// stateFor returns the state that t has for a boundary.
func (e *Engine) stateFor(t *task, boundary int) *model.State {
	if s := t.snaps[boundary]; s != nil {
		return s
	}
	return t.seq.State
}

// put writes a chunk, each rank its share.
func (e *Engine) put(job *copying) {
	n := len(e.cfg.Stores)
	for k, s := range e.cfg.Stores {
		bytes := e.cfg.Path.Store.Codec.Encode(job.chunk.Shard(k, n))
		if err := s.Put(job.key, bytes); err != nil {
			e.count.StoreFailures++
			return
		}
		e.count.StoreBytes += int64(len(bytes))
	}
	e.count.ChunksStored++
}

// drain does the copies that are due by a step, in a seeded order.
func (e *Engine) drain(by int) {
	var due []*copying
	e.copying = slices.DeleteFunc(e.copying, func(c *copying) bool {
		if c.due > by {
			return false
		}
		due = append(due, c)
		return true
	})
	e.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, c := range due {
		e.put(c)
		e.free(c.attention, c.window)
	}
}
