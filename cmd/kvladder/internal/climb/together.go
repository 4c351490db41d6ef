package climb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/replay"
)

// together sends the Set by n clients at once: client c has the prompts c, c+n, c+2n ... in
// order and sends one when the record of its last one is written. Meanwhile the gauge of
// running requests is read. In lockstep the engine is told of each client that has sent its
// last, and says itself how many requests ran at once. A client that meets a dead engine, or
// cannot go on, keeps the others from sending more; what they have on the wire is still
// written down.
func (r *chainRun) together(ctx context.Context, st arms.ChainStep, n int) error {
	set := r.c.Set
	n = min(n, len(set.Prompts))
	stop := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var errs []error
	fail := func(err error) {
		mu.Lock()
		errs = append(errs, err)
		mu.Unlock()
		once.Do(func() { close(stop) })
	}
	var beside, aborting, clients sync.WaitGroup
	enough, done := make(chan struct{}), make(chan struct{})
	var seen probes.RunningFact
	beside.Add(1)
	go func() {
		defer beside.Done()
		seen = r.watch(ctx, st.Pass, done)
	}()
	live := n
	if r.aborts != nil {
		live = 2 * n
	}
	if err := r.lockstep(ctx, live); err != nil {
		close(done)
		beside.Wait()
		return err
	}
	leave := func() { // one client fewer
		mu.Lock()
		defer mu.Unlock()
		if live--; live > 0 && len(errs) == 0 {
			if err := r.lockstep(ctx, live); err != nil {
				errs = append(errs, err)
				once.Do(func() { close(stop) })
			}
		} else if live > 0 {
			r.tell(ctx, live) // the others are to come back, too
		}
	}
	if r.aborts != nil {
		cuts := r.cuts()
		for c := range n {
			aborting.Add(1)
			go func() {
				defer aborting.Done()
				defer leave()
				for k := c; k < len(cuts); k += n {
					select {
					case <-stop:
						return
					case <-enough:
						return
					default:
					}
					if err := r.abort(ctx, k, cuts[k]); err != nil {
						fail(err)
						return
					}
				}
			}()
		}
	}
	for c := range n {
		clients.Add(1)
		go func() {
			defer clients.Done()
			defer leave()
			for i := c; i < len(set.Prompts); i += n {
				p := &set.Prompts[i]
				select {
				case <-stop:
					return
				default:
				}
				if st.Do == "prime" && p.Prime != nil {
					if _, err := r.ask(ctx, st, i, p, true, nil); err != nil {
						fail(err)
						return
					}
				}
				if _, err := r.ask(ctx, st, i, p, false, nil); err != nil {
					fail(err)
					return
				}
			}
		}()
	}
	clients.Wait()
	if !r.c.Plan.Replay.Lockstep {
		close(enough) // in lockstep all of them are sent, or their number would be the clock's
	}
	aborting.Wait()
	close(done)
	beside.Wait()
	if len(errs) > 0 {
		r.tell(ctx, 0)
	} else if r.c.Plan.Replay.Lockstep {
		peak, err := r.conductor().Lockstep(ctx, r.proc.Endpoint, 0)
		if err != nil {
			return r.gone(ctx, r.harness("lockstep", err))
		}
		seen.Peak, seen.Readings = max(seen.Peak, peak), seen.Readings+1
	}
	if r.aborts != nil {
		if err := r.tellAborts(); err != nil {
			return err
		}
	}
	if err := r.fact(probes.FactRunning, "gauge of running requests", seen); err != nil {
		return err
	}
	for _, err := range errs {
		if errors.Is(err, errDied) { // what the others met is its echo
			return err
		}
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// conductor is the engine as a Conductor, which a plan in lockstep has.
func (r *chainRun) conductor() arms.Conductor { return r.c.Engine.(arms.Conductor) }

// lockstep tells the engine how many clients there are, where the plan is in lockstep.
func (r *chainRun) lockstep(ctx context.Context, clients int) error {
	if !r.c.Plan.Replay.Lockstep {
		return nil
	}
	if _, err := r.conductor().Lockstep(ctx, r.proc.Endpoint, clients); err != nil {
		return r.gone(ctx, r.harness("lockstep", err))
	}
	return nil
}

// tell is lockstep behind something that went wrong: an engine that is no longer there to be
// told needs no telling.
func (r *chainRun) tell(ctx context.Context, clients int) {
	if r.c.Plan.Replay.Lockstep {
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		_, _ = r.conductor().Lockstep(ctx, r.proc.Endpoint, clients)
	}
}

// watch reads the gauge of running requests until done, summed over ranks, and keeps the
// highest reading.
func (r *chainRun) watch(ctx context.Context, pass int, done <-chan struct{}) probes.RunningFact {
	f := probes.RunningFact{Pass: pass}
	if _, ok := r.c.Engine.Counters()[probes.Running]; !ok {
		return f
	}
	for {
		if vs, err := r.scrape(ctx); err == nil {
			sum, known := 0.0, false
			for _, v := range vs {
				if v.Role == probes.Running {
					sum, known = sum+v.Value, true
				}
			}
			if known {
				f.Readings++
				f.Peak = max(f.Peak, int(sum))
			}
		}
		select {
		case <-done:
			return f
		case <-ctx.Done():
			return f
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// aborts are requests whose connections are closed on purpose beside a pass.
type aborts struct {
	n      int
	within time.Duration
	steps  int // in place of within
	args   []string

	cut, whole, failed int
}

// cut says when a connection is closed: after a time, or after steps of the engine.
type cut struct {
	after time.Duration
	steps int
}

// cuts are drawn with a seed that the Set and the arm give.
func (r *chainRun) cuts() []cut {
	seed := replay.RequestID(string(r.c.Set.Digest), r.arm.Name, 0, 0, "abort")
	var hi, lo uint64
	fmt.Sscanf(seed, "%16x%16x", &hi, &lo)
	rng := rand.New(rand.NewPCG(hi, lo))
	out := make([]cut, r.aborts.n)
	for k := range out {
		if r.aborts.steps > 0 {
			out[k].steps = 1 + rng.IntN(r.aborts.steps)
		} else {
			out[k].after = max(100*time.Microsecond, time.Duration(rng.Int64N(int64(r.aborts.within)+1)))
		}
	}
	return out
}

// abort sends the k-th of the requests that are cut off: a prompt of the Set, counted from
// its end, so that the pass has not come to it yet. In lockstep it is always the last one, as
// of somebody who tries again and again: what one owner's aborted requests leave in the
// answers to others is then seen as his, by two of his private values.
func (r *chainRun) abort(ctx context.Context, k int, c cut) error {
	set := r.c.Set
	p := &set.Prompts[len(set.Prompts)-1-k%len(set.Prompts)]
	if c.steps > 0 {
		p = &set.Prompts[len(set.Prompts)-1]
	}
	actx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.steps == 0 {
		actx, cancel = context.WithTimeout(ctx, c.after)
		defer cancel()
	}
	req := replay.Request{Path: set.Path, Body: []byte(p.Body), RequestID: replay.RequestID(r.c.ids, r.arm.Name, r.job.run, 0, fmt.Sprintf("abort/%d", k))}
	if r.c.Plan.Replay.Ranks > 0 {
		rank := r.c.Plan.Replay.Rank(p.ID)
		req.Rank = &rank
	}
	if c.steps > 0 {
		req.Header = r.conductor().AbortAfter(c.steps)
	}
	reply := r.client().Send(actx, req)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case actx.Err() != nil, c.steps > 0 && reply.Status == http.StatusServiceUnavailable:
		r.aborts.cut++
	case reply.Status == 200:
		r.aborts.whole++
	default:
		r.aborts.failed++
	}
	return nil
}

// tellAborts writes down what came of them; a pass beside which none was cut off did not
// try what it was there for.
func (r *chainRun) tellAborts() error {
	a := r.aborts
	r.aborts = nil
	return r.fact(probes.FactStep, "client", probes.StepFact{Step: "abort", Args: a.args, Done: a.cut > 0, Proved: new(a.cut > 0),
		Seen: fmt.Sprintf("%d connections closed before the reply, %d answered before, %d refused", a.cut, a.whole, a.failed)})
}
