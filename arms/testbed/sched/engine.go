// Package sched runs requests: it decides at each step who computes how many
// tokens, finds and loads what can be reused, keeps what was computed, and
// samples.
//
// One Engine is one data-parallel rank: a decoder, private pools, perhaps a
// private store, and one goroutine that owns all of them. The life of a request:
//
//  1. Submit puts it in the queue.
//  2. Admission asks Path.LocalHit how much the local cache has and, with a
//     connector, the store how much it has beyond that; holds and loads the
//     blocks, sets the recurrent state, and counts where every token came from.
//  3. Each step gives every running request a share of the token budget. Prefill
//     chunks end at recurrent boundaries, so that a snapshot exists there (vLLM's align mode). The local cache keeps the one at the
//     prompt's last such boundary; the store gets one with every chunk.
//     Copies to the store and loads from it may take some steps; what they read
//     and write stays held until they are done.
//  4. When blocks run out, the request admitted last loses all of its own and
//     starts over from the queue (preemption by recomputation).
//  5. At its end it releases its blocks, and only then is the end reported, so
//     that whoever waits for the reply sees an idle engine after it.
//
// Nothing that a step computes depends on the budget, on who else runs, or on
// where a block came from.
package sched

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// maxRunning is the most requests that run at once.
const maxRunning = 64

// idleStep is how long a step takes in which nobody computes because something
// is under way to or from the store; in lockstep it takes no time.
const idleStep = 2 * time.Millisecond

// Config is what an Engine is made from.
type Config struct {
	Rank          int
	Model         *model.Model
	Variant       func(cache.Who) *model.Model // the model of an identity; nil means Model for all
	DType         model.DType
	Geometry      model.Geometry
	Blocks        int            // of each block group
	Budget        int            // tokens a step may compute
	PrefixCaching bool           // whether the local cache is looked into and filled
	Stores        []*store.Store // one for each rank of the tensor split; none without a connector
	StoreSteps    int            // steps that a copy to the store takes
	LoadSteps     int            // steps that a load takes
	FailOnLoad    bool           // a request whose load fails ends with an error, instead of computing
	Draft         int            // most tokens drafted a step; 0 drafts none
	Seed          uint64         // of the order in which copies and loads are done, and of that in which requests are let in that arrive together
	Identity      store.Identity
	Root          cache.Hash // parent of every first block
	Path          Path
	// Cut, if not nil, says for a portion that begins at position from where the
	// kernels cut their sums; see model.Decoder.
	Cut func(from int) int
	// Flake, if not nil, says whether a request is to be answered wrongly.
	Flake func() bool
	// Audit, if not nil, is told after each step whether the pools balance.
	Audit func(error)
	// Died, if not nil, is called once when the engine cannot go on, before
	// anybody else learns of it.
	Died func(error)
}

// Engine is one rank. Its methods are safe for concurrent use.
type Engine struct {
	cfg     Config
	geo     model.Geometry
	decoder *model.Decoder
	local   *cache.Local
	rng     *rand.Rand
	steps   int
	fatal   error

	mail chan func()   // run by the engine's goroutine between steps
	quit chan struct{} // closed when Run returns

	running, waiting []*task // the goroutine's own
	arrived          []*task // since the last step
	done             []*task // finished in this step, not yet told
	clients          int     // in lockstep; 0 where requests come as they like
	peak             int     // most running at once since lockstep began
	lapsed           bool    // lockstep was given up
	patience         time.Duration
	rows             []*task // the batch, where the engine drafts
	idle             bool    // nobody computed in the last step
	copying          []*copying
	loading          []*loading
	failing          int    // loads of chunks that are to fail
	nulls            []byte // scratch of nullChecksum
	scratch          []float64

	mu      sync.Mutex
	records []LoadRecord
	stats   Stats // what Stats returns; written at the end of each step
	count   Stats // the goroutine's own
}

// New returns an engine that works once Run is called.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:     cfg,
		geo:     cfg.Geometry.Filled(),
		decoder: cfg.Model.Decoder(),
		local:   cache.NewLocal(cfg.Blocks, cfg.DType, cfg.Geometry, cfg.Path.Cache),
		rng:     rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Rank))),
		mail:    make(chan func()),
		quit:    make(chan struct{}),
		scratch: make([]float64, model.Vocab),
		count:   Stats{Finished: make(map[string]int)},

		patience: patience,
	}
	e.publish()
	return e
}

// ErrClosed is what calls get once the engine's Run has returned.
var ErrClosed = errors.New("engine is shut down")

// Run computes until ctx is done, then aborts what is left and returns.
func (e *Engine) Run(ctx context.Context) {
	defer close(e.quit)
	for {
		if !e.listen(ctx) {
			e.end(FinishAbort)
			return
		}
		e.queue()
		e.step()
		if e.fatal != nil {
			if e.cfg.Died != nil {
				e.cfg.Died(e.fatal)
			}
			e.end(FinishError)
			return
		}
		if e.cfg.Audit != nil {
			e.cfg.Audit(e.balance())
		}
		e.settle()
		if e.idle && e.clients == 0 && len(e.loading)+len(e.copying) > 0 {
			time.Sleep(idleStep)
		}
	}
}

// end finishes every request and does what is under way.
func (e *Engine) end(reason string) {
	e.queue()
	for _, t := range append(append([]*task{}, e.running...), e.waiting...) {
		e.finish(t, Event{Finish: reason})
	}
	for _, l := range e.loading {
		if !l.orphan {
			e.finish(l.t, Event{Finish: reason})
		}
	}
	e.quiesce()
	e.settle()
}

// quiesce does every copy and load that is under way.
func (e *Engine) quiesce() {
	for _, l := range e.loading {
		l.due = e.steps
	}
	e.land()
	e.drain(math.MaxInt)
}

// die stops the engine at the end of the step.
func (e *Engine) die(err error) {
	if e.fatal == nil {
		e.fatal = err
	}
}

// connected says whether a store is attached.
func (e *Engine) connected() bool { return len(e.cfg.Stores) > 0 }

// balance compares the pools' books with who holds what.
func (e *Engine) balance() error {
	attention, window := map[cache.ID]int{}, map[cache.ID]int{}
	hold := func(a, w []cache.ID) {
		for i := range a {
			attention[a[i]]++
			window[w[i]]++
		}
	}
	for _, list := range [][]*task{e.running, e.waiting} {
		for _, t := range list {
			hold(t.attention, t.window)
		}
	}
	for _, l := range e.loading {
		if !l.orphan || l.held {
			hold(l.attention, l.window)
		}
	}
	for _, c := range e.copying {
		hold(c.attention, c.window)
	}
	return errors.Join(e.local.Attention.Audit(attention), e.local.Window.Audit(window), e.local.States.Audit(nil))
}

// call runs f on the engine's goroutine and waits for it.
func (e *Engine) call(f func()) error {
	done := make(chan struct{})
	select {
	case e.mail <- func() { f(); close(done) }:
		<-done
		return nil
	case <-e.quit:
		return ErrClosed
	}
}

// Submit queues a request. Its events arrive on the channel, which is closed
// after the last; nobody has to read it. When ctx ends, so does the request,
// with FinishAbort.
func (e *Engine) Submit(ctx context.Context, r Request) (<-chan Event, error) {
	if len(r.Prompt) == 0 {
		return nil, errors.New("prompt is empty")
	}
	if r.MaxTokens < 1 {
		return nil, fmt.Errorf("max_tokens is %d, must be at least 1", r.MaxTokens)
	}
	if len(r.Trace) > 0 {
		if e.cfg.Draft > 0 {
			return nil, errors.New("trace_decode_token_ids is not supported with speculative decoding")
		}
		r.MaxTokens = len(r.Trace)
	}
	if need := e.geo.Blocks(len(r.Prompt) + r.MaxTokens); need > e.cfg.Blocks {
		return nil, fmt.Errorf("request needs %d kv blocks and the pool has %d: ask for fewer tokens or start with more blocks", need, e.cfg.Blocks)
	}
	t := &task{
		Request: r,
		ctx:     ctx,
		events:  make(chan Event, r.MaxTokens+1),
		tokens:  append(make([]int, 0, len(r.Prompt)+r.MaxTokens), r.Prompt...),
		rng:     rand.New(rand.NewPCG(r.Seed, 0x6b766c6164646572)),
	}
	e.prepare(t)
	err := e.call(func() {
		e.arrived = append(e.arrived, t)
		e.publish()
	})
	if err != nil {
		return nil, err
	}
	return t.events, nil
}

// prepare gives a new task its sequence and its model.
func (e *Engine) prepare(t *task) {
	t.slots = make([]*model.State, 1+e.cfg.Draft)
	for i := range t.slots {
		t.slots[i] = new(model.State)
	}
	t.seq.State = t.slots[0]
	e.cfg.Path.Sequence(&t.seq)
	t.model = e.cfg.Model
	if e.cfg.Variant != nil {
		t.model = e.cfg.Variant(t.Who)
	}
}

// FailLoads makes the next n loads of chunks fail, in a pattern that the seed
// decides: about every second one, until n have.
func (e *Engine) FailLoads(n int) error {
	return e.call(func() { e.failing = n })
}

// nullChecksum is a checksum over the null blocks of all cache groups. In a
// healthy engine it never changes.
func (e *Engine) nullChecksum() uint32 {
	b := e.nulls[:0]
	for _, null := range []*model.Block{e.local.Attention.Item(0), e.local.Window.Item(0)} {
		b = null.AppendScales(null.AppendCodes(b))
	}
	e.nulls = e.local.States.Item(0).AppendBinary(b)
	return crc32.ChecksumIEEE(e.nulls)
}

// ResetLocal empties the local prefix cache, once the copies to the store that
// hold blocks of it are done. It refuses, and says so, while any request holds
// blocks.
func (e *Engine) ResetLocal() (bool, error) {
	var ok bool
	err := e.call(func() {
		for _, l := range e.loading {
			if l.orphan {
				l.due = e.steps
			}
		}
		e.land()
		e.drain(math.MaxInt)
		ok = e.local.Forget()
		e.publish()
	})
	return ok, err
}

// ResetStore empties both tiers of the store, if there is one: all shares of a
// tensor split, or those named.
func (e *Engine) ResetStore(shares ...int) error {
	if !e.connected() {
		return nil
	}
	var failed error
	err := e.call(func() {
		e.drain(math.MaxInt)
		for k, s := range e.cfg.Stores {
			if len(shares) == 0 || slices.Contains(shares, k) {
				failed = errors.Join(failed, s.Clear())
			}
		}
		e.publish()
	})
	return errors.Join(err, failed)
}

// Stats returns the numbers as of the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats.clone()
}

// publish makes the goroutine's numbers visible.
func (e *Engine) publish() {
	e.count.Running, e.count.Waiting = len(e.running), len(e.arrived)+len(e.waiting)+len(e.loading)
	e.count.Loading, e.count.Copying = len(e.loading), len(e.copying)
	e.count.Steps = e.steps
	if len(e.running)+len(e.waiting)+len(e.loading) == 0 {
		e.count.NullChecksum = e.nullChecksum()
	}
	e.count.Evictions = e.local.Attention.Evictions() + e.local.Window.Evictions() + e.local.States.Evictions()
	e.count.Attention = e.local.Attention.Counts()
	e.count.Window = e.local.Window.Counts()
	e.count.States = e.local.States.Counts()
	if e.connected() {
		e.count.ChunksPresent = e.cfg.Stores[0].Len()
	}
	e.mu.Lock()
	e.stats = e.count.clone()
	e.mu.Unlock()
}
