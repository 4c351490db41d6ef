package sched

import (
	"slices"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/store"
)

// found is what a request finds in the local cache: where it resumes, and the
// slots that hold it.
type found struct {
	hit               Hit
	attention, window []cache.ID
	state             cache.ID
}

// lookup finds what t can reuse of the local cache. It holds nothing.
func (e *Engine) lookup(t *task) *found {
	e.extendChain(t)
	t.last = 0
	if e.aligned() {
		t.last = (len(t.tokens) - 1) / e.geo.Every * e.geo.Every
	}
	f := &found{}
	if !e.cfg.PrefixCaching {
		return f
	}
	f.hit = e.cfg.Path.LocalHit(Lookup{
		Local:     e.local,
		Chain:     t.chain,
		Limit:     len(t.tokens) - 1,
		Connector: e.connected(),
	})
	for i := range f.hit.Tokens / e.geo.Block {
		a, _ := e.local.Attention.Find(t.chain[i])
		var w cache.ID
		if i >= e.geo.WindowFirst(f.hit.Tokens) {
			w, _ = e.local.Window.Find(t.chain[i])
		}
		f.attention, f.window = append(f.attention, a), append(f.window, w)
	}
	if f.hit.State > 0 {
		f.state, _ = e.local.Snapshot(t.chain, f.hit.State)
	}
	return f
}

// admit takes the blocks for what t can reuse and for the first portion of the
// rest, and returns the length of that portion. It returns 0, and leaves
// everything as it was, when there is no room yet; and 0 with parked set when t
// has to wait for a load.
func (e *Engine) admit(t *task, budget int) (n int, parked bool) {
	if e.aligned() && budget < e.geo.Every {
		return 0, false // may not reach the first place where a chunk may end
	}
	if t.resident { // its load has been done
		if n := e.portion(t, budget); n > 0 && e.reserve(t, t.seq.Pos+n) {
			t.resident = false
			return n, false
		}
		return 0, false
	}
	if t.found == nil {
		t.found = e.lookup(t)
	}
	f := t.found
	t.found = nil
	if e.connected() && t.keys == nil {
		t.keys = e.cfg.Path.Store.Keys(e.cfg.Identity, store.Prefix{
			Root:     e.cfg.Root,
			Tokens:   t.Prompt,
			Who:      t.Who,
			Geometry: e.geo,
			Chain:    t.chain[:len(t.Prompt)/e.geo.Block],
		})
	}
	e.resume(t, f)
	ext := f.hit.Tokens
	if e.connected() && !f.hit.Only {
		var ok bool
		if ext, ok, parked = e.load(t, f, budget); !ok || parked {
			return 0, parked
		}
	}
	n = e.portion(t, budget)
	if n == 0 || !e.reserve(t, t.seq.Pos+n) {
		e.release(t)
		return 0, false
	}
	e.account(t, f.hit, ext)
	e.keep(t) // what was loaded is findable locally from now on
	return n, false
}

// account counts where the tokens of t's prompt came from, once a request.
func (e *Engine) account(t *task, hit Hit, ext int) {
	if t.admitted {
		return
	}
	t.admitted = true
	t.split.Local = min(hit.Tokens, len(t.Prompt))
	t.split.External = ext - hit.Tokens
	t.split.Computed = len(t.Prompt) - t.split.Local - t.split.External
	if e.cfg.PrefixCaching {
		e.count.LocalQueries += len(t.Prompt)
		e.count.LocalHits += t.split.Local
	}
	if e.connected() && !hit.Only {
		e.count.ExternalQueries += len(t.Prompt) - t.split.Local
		e.count.ExternalHits += t.split.External
	}
}

// resume puts t where a local hit allows. Blocks that the hit does not find are
// the null block, and so is the state that a request starts from which resumes
// nowhere.
func (e *Engine) resume(t *task, f *found) {
	t.seq.Pos = f.hit.Tokens
	*t.seq.State = *e.local.States.Item(0)
	for i, a := range f.attention {
		e.local.Attention.Hold(a)
		e.local.Window.Hold(f.window[i])
		e.attach(t, a, f.window[i])
	}
	if f.state != 0 {
		e.local.States.Hold(f.state) // and so the last to be recycled
		*t.seq.State = *e.local.States.Item(f.state)
		e.local.States.Release(f.state)
	}
	t.published, t.base = len(f.attention), f.hit.Tokens/e.geo.Every
}

// reserve gives t the blocks that its first n tokens need. It says whether there
// were enough; if not, t keeps what it had.
func (e *Engine) reserve(t *task, n int) bool {
	need := e.geo.Blocks(n) - len(t.attention)
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

// attach appends one block of each group to t's tables.
func (e *Engine) attach(t *task, a, w cache.ID) {
	t.attention = append(t.attention, a)
	t.window = append(t.window, w)
	t.seq.Attention = append(t.seq.Attention, e.local.Attention.Item(a))
	t.seq.Window = append(t.seq.Window, e.local.Window.Item(w))
}

// release takes all blocks from t.
func (e *Engine) release(t *task) {
	e.cfg.Path.Retire(&t.seq)
	e.free(t.attention, t.window)
	e.clear(t)
}

// free gives blocks back. The last ones go first, so that of a prefix the end is
// recycled before the beginning.
func (e *Engine) free(attention, window []cache.ID) {
	for i := len(attention) - 1; i >= 0; i-- {
		e.local.Attention.Release(attention[i])
		e.local.Window.Release(window[i])
	}
}

// clear empties t's tables.
func (e *Engine) clear(t *task) {
	t.attention, t.window = t.attention[:0], t.window[:0]
	clear(t.seq.Attention)
	clear(t.seq.Window)
	t.seq.Attention, t.seq.Window = t.seq.Attention[:0], t.seq.Window[:0]
	t.seq.Pos = 0
	t.resident = false
	t.snaps = nil
	e.unspeculate(t)
}

// extendChain brings t's block hashes up to its tokens.
func (e *Engine) extendChain(t *task) {
	t.chain = cache.Extend(t.chain, e.cfg.Root, t.tokens, e.cfg.Path.Cache.Extra(t.Who), e.geo.Block)
}

// tables returns copies of t's tables.
func (t *task) tables() (attention, window []cache.ID) {
	return slices.Clone(t.attention), slices.Clone(t.window)
}
