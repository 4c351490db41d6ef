package sched

import (
	"errors"
	"slices"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// ErrInjected is the failure that FailLoads orders.
var ErrInjected = errors.New("kv load failed: ordered by the operator")

// loading is a load under way: what it writes, where to, and when.
type loading struct {
	t                 *task
	hit               Hit
	plan              Load
	due               int // the step after which it is done
	attention, window []cache.ID
	state             *model.State
	orphan            bool // its request has ended
	held              bool // an orphan that still holds its blocks
}

// load takes from the store what it has beyond the hit. It returns the number of
// tokens the request then has; ok is false when there is no room for them and
// for the first portion behind them, or when the request is over. With parked
// set the load is under way and t waits for it.
func (e *Engine) load(t *task, f *found, budget int) (ext int, ok, parked bool) {
	for {
		ext := e.present(t)
		if ext <= f.hit.Tokens {
			return f.hit.Tokens, true, false
		}
		plan, err := e.cfg.Path.Load(Span{Hit: f.hit, Ext: ext, States: e.pages(t, f.hit, ext), Geometry: e.geo})
		if err != nil {
			e.release(t)
			e.die(err)
			return 0, false, false
		}
		t.seq.Pos = ext
		first := e.portion(t, budget)
		need := ext
		if e.cfg.LoadSteps == 0 {
			need += first
		}
		if first == 0 || !e.reserve(t, need) {
			e.release(t)
			return 0, false, false
		}
		l := &loading{t: t, hit: f.hit, plan: plan, due: e.steps + e.cfg.LoadSteps, state: t.seq.State}
		l.attention, l.window = t.tables()
		if e.cfg.LoadSteps > 0 {
			e.loading = append(e.loading, l)
			return ext, true, true
		}
		if e.fetch(l) == nil {
			t.base = ext / e.geo.Every
			return ext, true, false
		}
		if e.cfg.FailOnLoad {
			e.finish(t, Event{Finish: FinishError})
			return 0, false, true
		}
		// The chunk that failed is gone from the store, so the next try ends
		// before it. Blocks taken for it are given back first.
		e.release(t)
		e.resume(t, f)
	}
}

// present returns how many tokens of t the store holds from the first on.
func (e *Engine) present(t *task) int {
	limit := min((len(t.tokens)-1)/e.geo.Every, len(t.keys))
	runs := make([]int, len(e.cfg.Stores))
	for k, s := range e.cfg.Stores {
		runs[k] = s.Run(t.keys[:limit])
	}
	n := e.cfg.Path.Present(runs)
	for n > 0 && !e.windowed(t.keys[n-1]) {
		n--
	}
	return n * e.geo.Every
}

// windowed says whether the store's chunk has as many window blocks as are asked
// for. Only an engine that drafts asks for more than any writer keeps.
func (e *Engine) windowed(k store.Key) bool {
	if e.cfg.Draft == 0 {
		return true
	}
	_, asked := e.cfg.Path.Store.Tail(e.geo, true)
	src, err := e.cfg.Stores[0].Get(k)
	return err != nil || store.Tail(src, asked) >= asked
}

// pages describes the recurrent row of t up to ext: null up to the hit's page,
// and new pages behind it.
func (e *Engine) pages(t *task, hit Hit, ext int) []Page {
	row := make([]Page, ext/e.geo.Every)
	local := hit.Tokens / e.geo.Every
	for i := range row {
		switch {
		case i >= local:
		case i/2 == (local-1)/2:
			_, row[i].Hashed = e.local.Snapshot(t.chain, (i+1)*e.geo.Every)
		default:
			row[i].Null = true
		}
	}
	return row
}

// fetch reads the chunks of a load into their blocks.
func (e *Engine) fetch(l *loading) error {
	t, per := l.t, e.geo.PerChunk()
	rec := LoadRecord{ID: t.ID, Rank: e.cfg.Rank, Local: l.hit.Tokens, External: l.plan.To - l.hit.Tokens}
	defer func() { e.note(rec) }()
	var bytes int64
	for at := l.plan.From; at < l.plan.To; at += e.geo.Every {
		key := t.keys[at/e.geo.Every]
		c := store.NewChunk(per)
		for j := range per {
			to := l.plan.Into + (at-l.plan.From)/e.geo.Block + j
			if to >= len(l.attention) {
				continue
			}
			if id := l.attention[to]; id != 0 || l.plan.Null {
				c.Attention[j] = e.local.Attention.Item(id)
				rec.Attention.add(to, id)
			}
			if id := l.window[to]; id != 0 || l.plan.Null {
				c.Window[j] = e.local.Window.Item(id)
				rec.Window.add(to, id)
			}
		}
		if end := at + e.geo.Every; end == l.plan.State {
			c.State = l.state
			rec.Recurrent.add(end/e.geo.Every-1, -1)
		} else if l.plan.Null {
			c.State = e.local.States.Item(0)
			rec.Recurrent.add(end/e.geo.Every-1, 0)
		}
		for k := range e.cfg.Stores {
			n, err := e.share(c, key, k)
			if err != nil {
				e.count.LoadFailures++
				if err = e.cfg.Path.Fetched(k, err); err != nil {
					for _, s := range e.cfg.Stores {
						s.Drop(key)
					}
					rec.Failed = true
					return err
				}
			}
			bytes += n
		}
	}
	e.count.LoadBytes += bytes
	e.count.ChunksLoaded += (l.plan.To - l.hit.Tokens) / e.geo.Every
	return nil
}

// share reads rank k's share of a chunk.
func (e *Engine) share(c *store.Chunk, key store.Key, k int) (bytes int64, err error) {
	if e.failing > 0 && e.rng.IntN(2) == 0 {
		e.failing--
		return 0, ErrInjected
	}
	src, err := e.cfg.Stores[k].Get(key)
	if err != nil {
		return 0, err
	}
	return int64(len(src)), e.cfg.Path.Store.Codec.Decode(src, c.Shard(k, len(e.cfg.Stores)))
}

// land does the loads that are due, in a seeded order.
func (e *Engine) land() {
	var due []*loading
	e.loading = slices.DeleteFunc(e.loading, func(l *loading) bool {
		if l.due > e.steps {
			return false
		}
		due = append(due, l)
		return true
	})
	e.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, l := range due {
		err := e.fetch(l)
		t := l.t
		switch {
		case l.orphan:
			if l.held {
				e.free(l.attention, l.window)
			}
		case err == nil:
			t.base, t.resident = l.plan.To/e.geo.Every, true
			e.account(t, l.hit, l.plan.To)
			e.keep(t)
			e.waiting = slices.Insert(e.waiting, 0, t)
		case e.cfg.FailOnLoad:
			e.finish(t, Event{Finish: FinishError})
		default:
			e.release(t)
			e.waiting = slices.Insert(e.waiting, 0, t)
		}
	}
}

// abandon takes t's load, if there is one, away from it. It says whether the
// blocks stay with the load.
func (e *Engine) abandon(t *task) bool {
	for _, l := range e.loading {
		if l.t == t && !l.orphan {
			l.orphan, l.held = true, e.cfg.Path.Abandon()
			l.state = new(model.State)
			return l.held
		}
	}
	return false
}
