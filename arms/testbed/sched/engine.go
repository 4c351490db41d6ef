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
//     chunks end at multiples of model.StateEvery, so that a recurrent snapshot
//     exists there (vLLM's align mode). The local cache keeps the one at the
//     prompt's last such boundary; the store gets one with every chunk.
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
	"math/rand/v2"
	"sync"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// maxRunning is the most requests that run at once.
const maxRunning = 64

// Config is what an Engine is made from.
type Config struct {
	Model         *model.Model
	DType         model.DType
	Blocks        int          // of each block group
	Budget        int          // tokens a step may compute
	PrefixCaching bool         // whether the local cache is looked into and filled
	Store         *store.Store // nil without a connector
	Identity      store.Identity
	Root          cache.Hash // parent of every first block
	Path          Path
}

// Engine is one rank. Its methods are safe for concurrent use.
type Engine struct {
	cfg     Config
	decoder *model.Decoder
	local   *cache.Local

	mail chan func()   // run by the engine's goroutine between steps
	quit chan struct{} // closed when Run returns

	running, waiting []*task // the goroutine's own
	done             []*task // finished in this step, not yet told
	scratch          []float64

	mu    sync.Mutex
	stats Stats // what Stats returns; written at the end of each step
	count Stats // the goroutine's own
}

// New returns an engine that works once Run is called.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:     cfg,
		decoder: cfg.Model.Decoder(),
		local:   cache.NewLocal(cfg.Blocks, cfg.DType, cfg.Path.Cache),
		mail:    make(chan func()),
		quit:    make(chan struct{}),
		scratch: make([]float64, model.Vocab),
		count:   Stats{Finished: make(map[string]int)},
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
		idle := len(e.running)+len(e.waiting) == 0
		if idle {
			select {
			case f := <-e.mail:
				f()
			case <-ctx.Done():
				return
			}
			e.publish()
		}
		for more := true; more; {
			select {
			case f := <-e.mail:
				f()
			case <-ctx.Done():
				for _, t := range append(e.running, e.waiting...) {
					e.finish(t, Event{Finish: FinishAbort})
				}
				e.settle()
				return
			default:
				more = false
			}
		}
		e.step()
		e.settle()
	}
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
	if need := blocksFor(len(r.Prompt) + r.MaxTokens); need > e.cfg.Blocks {
		return nil, fmt.Errorf("request needs %d kv blocks and the pool has %d: ask for fewer tokens or start with more blocks", need, e.cfg.Blocks)
	}
	t := &task{
		Request: r,
		ctx:     ctx,
		events:  make(chan Event, r.MaxTokens+1),
		tokens:  append(make([]int, 0, len(r.Prompt)+r.MaxTokens), r.Prompt...),
		rng:     rand.New(rand.NewPCG(r.Seed, 0x6b766c6164646572)),
	}
	t.seq.State = new(model.State)
	err := e.call(func() {
		e.waiting = append(e.waiting, t)
		e.publish()
	})
	if err != nil {
		return nil, err
	}
	return t.events, nil
}

// ResetLocal empties the local prefix cache. It refuses, and says so, while any
// request holds blocks.
func (e *Engine) ResetLocal() (bool, error) {
	var ok bool
	err := e.call(func() {
		ok = e.local.Forget()
		e.publish()
	})
	return ok, err
}

// ResetStore empties both tiers of the store, if there is one.
func (e *Engine) ResetStore() error {
	if e.cfg.Store == nil {
		return nil
	}
	var failed error
	err := e.call(func() {
		failed = e.cfg.Store.Clear()
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
	e.count.Running, e.count.Waiting = len(e.running), len(e.waiting)
	e.count.Attention = e.local.Attention.Counts()
	e.count.Window = e.local.Window.Counts()
	e.count.States = e.local.States.Counts()
	if e.cfg.Store != nil {
		e.count.ChunksPresent = e.cfg.Store.Len()
	}
	e.mu.Lock()
	e.stats = e.count.clone()
	e.mu.Unlock()
}

func blocksFor(tokens int) int {
	return (tokens + model.BlockTokens - 1) / model.BlockTokens
}
