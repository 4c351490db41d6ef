package sched

import (
	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// admit finds what t can reuse, takes the blocks for it and for the first
// portion of the rest, and returns the length of that portion. It returns 0,
// and leaves everything as it was, when there is no room yet.
func (e *Engine) admit(t *task, budget int) int {
	if e.aligned() && budget < model.StateEvery {
		return 0 // may not reach the first place where a chunk may end
	}
	e.extendChain(t)
	t.last = 0
	if e.aligned() {
		t.last = (len(t.tokens) - 1) / model.StateEvery * model.StateEvery
	}
	hit := Hit{}
	if e.cfg.PrefixCaching {
		hit = e.cfg.Path.LocalHit(Lookup{
			Local:     e.local,
			Chain:     t.chain,
			Limit:     len(t.tokens) - 1,
			Connector: e.cfg.Store != nil,
		})
	}
	if e.cfg.Store != nil && t.keys == nil {
		t.keys = e.cfg.Path.Store.Keys(e.cfg.Identity, store.Prefix{
			Root:   e.cfg.Root,
			Tokens: t.Prompt,
			Salt:   t.Salt,
			Chain:  t.chain[:len(t.Prompt)/model.BlockTokens],
		})
	}
	e.resume(t, hit)
	ext, bytes := hit.Tokens, int64(0)
	if e.cfg.Store != nil && !hit.Only {
		ext, bytes = e.load(t, hit, budget)
	}
	n := e.portion(t, budget)
	if ext < 0 || n == 0 || !e.reserve(t, t.seq.Pos+n) {
		e.release(t)
		return 0
	}
	if bytes > 0 {
		e.count.LoadBytes += bytes
		e.count.ChunksLoaded += (ext - hit.Tokens) / store.Tokens
	}
	if !t.admitted {
		t.admitted = true
		t.split.Local = min(hit.Tokens, len(t.Prompt))
		t.split.External = ext - hit.Tokens
		t.split.Computed = len(t.Prompt) - t.split.Local - t.split.External
		if e.cfg.PrefixCaching {
			e.count.LocalQueries += len(t.Prompt)
			e.count.LocalHits += t.split.Local
		}
		if e.cfg.Store != nil && !hit.Only {
			e.count.ExternalQueries += len(t.Prompt) - t.split.Local
			e.count.ExternalHits += t.split.External
		}
	}
	e.keep(t) // what was loaded is findable locally from now on
	return n
}

// resume puts t where a local hit allows. Blocks that the hit does not find are
// the null block.
func (e *Engine) resume(t *task, hit Hit) {
	t.seq.Pos = hit.Tokens
	*t.seq.State = model.State{}
	blocks := hit.Tokens / model.BlockTokens
	for i := range blocks {
		a, _ := e.local.Attention.Find(t.chain[i])
		var w cache.ID
		if i >= cache.WindowFirst(hit.Tokens) {
			w, _ = e.local.Window.Find(t.chain[i])
		}
		e.local.Attention.Hold(a)
		e.local.Window.Hold(w)
		e.attach(t, a, w)
	}
	if hit.State > 0 {
		if id, ok := e.local.Snapshot(t.chain, hit.State); ok {
			e.local.States.Hold(id) // and so the last to be recycled
			*t.seq.State = *e.local.States.Item(id)
			e.local.States.Release(id)
		}
	}
	t.published, t.stored = blocks, hit.Tokens/store.Tokens
}

// load takes from the store what it has beyond the hit. It returns the number of
// tokens the request then has, and the bytes read; -1 tokens when there is no
// room for them and for the first portion behind them.
func (e *Engine) load(t *task, hit Hit, budget int) (tokens int, bytes int64) {
	limit := (len(t.tokens) - 1) / store.Tokens
	for {
		ext := e.cfg.Store.Run(t.keys[:min(limit, len(t.keys))]) * store.Tokens
		if ext <= hit.Tokens {
			return hit.Tokens, 0
		}
		t.seq.Pos = ext
		first := e.portion(t, budget)
		if first == 0 || !e.reserve(t, ext+first) {
			return -1, 0
		}
		n, err := e.fill(t, e.cfg.Path.Load(hit, ext))
		if err == nil {
			t.stored = ext / store.Tokens
			return ext, n
		}
		// The chunk that failed is gone from the store, so the next try ends
		// before it. Blocks taken for it are given back first.
		e.count.LoadFailures++
		e.release(t)
		e.resume(t, hit)
	}
}

// fill reads the chunks of a load into the blocks t has for them.
func (e *Engine) fill(t *task, plan Load) (bytes int64, err error) {
	for at := plan.From; at < plan.To; at += store.Tokens {
		i := at / store.Tokens
		src, err := e.cfg.Store.Get(t.keys[i])
		if err != nil {
			e.cfg.Store.Drop(t.keys[i])
			return bytes, err
		}
		var c store.Chunk
		for j := range store.PerChunk {
			b := i*store.PerChunk + j
			c.Attention[j] = t.seq.Attention[b]
			c.Window[j] = t.seq.Window[b]
		}
		if plan.State == at+store.Tokens {
			c.State = t.seq.State
		}
		if err := e.cfg.Path.Store.Codec.Decode(src, &c); err != nil {
			e.cfg.Store.Drop(t.keys[i])
			return bytes, err
		}
		bytes += int64(len(src))
	}
	return bytes, nil
}

// offer stores chunk i of t's prompt, which ends where t now stands, unless the
// store has it or t has not all of it.
func (e *Engine) offer(t *task, i int) {
	if i < t.stored || i >= len(t.keys) {
		return
	}
	t.stored = i + 1
	if e.cfg.Store.Has(t.keys[i]) {
		return
	}
	c := store.Chunk{State: t.seq.State}
	for j := range store.PerChunk {
		b := i*store.PerChunk + j
		if t.attention[b] == 0 || t.window[b] == 0 {
			return // the null block holds nobody's tokens
		}
		c.Attention[j] = t.seq.Attention[b]
		c.Window[j] = t.seq.Window[b]
	}
	bytes := e.cfg.Path.Store.Codec.Encode(&c)
	if err := e.cfg.Store.Put(t.keys[i], bytes); err != nil {
		e.count.StoreFailures++
		return
	}
	e.count.StoreBytes += int64(len(bytes))
	e.count.ChunksStored++
}

// attach appends one block of each group to t's tables.
func (e *Engine) attach(t *task, a, w cache.ID) {
	t.attention = append(t.attention, a)
	t.window = append(t.window, w)
	t.seq.Attention = append(t.seq.Attention, e.local.Attention.Item(a))
	t.seq.Window = append(t.seq.Window, e.local.Window.Item(w))
}

// release takes all blocks from t. The last ones go first, so that of a prefix
// the end is recycled before the beginning.
func (e *Engine) release(t *task) {
	for i := len(t.attention) - 1; i >= 0; i-- {
		e.local.Attention.Release(t.attention[i])
		e.local.Window.Release(t.window[i])
	}
	t.attention, t.window = t.attention[:0], t.window[:0]
	clear(t.seq.Attention)
	clear(t.seq.Window)
	t.seq.Attention, t.seq.Window = t.seq.Attention[:0], t.seq.Window[:0]
	t.seq.Pos = 0
}

// extendChain brings t's block hashes up to its tokens.
func (e *Engine) extendChain(t *task) {
	t.chain = cache.Extend(t.chain, e.cfg.Root, t.tokens, t.Salt)
}
