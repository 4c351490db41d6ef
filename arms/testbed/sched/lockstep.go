package sched

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"time"
)

// Lockstep: clients that come one request after another say how many they are,
// and the engine takes no step while one of them is between two requests. What
// comes in meanwhile is put in an order that the seed and the requests' own
// tokens give. The whole schedule, who is let in at which step, who is preempted,
// what is under way to the store by then, follows from the seed and no longer
// from how fast anybody was. A batcher that waits for a preferred size and for no
// longer than a delay (Triton's dynamic batcher) has the same end in view; the
// clients' number makes the delay, which is a clock, unnecessary.

// patience is how long the engine waits for a client before it takes it for gone.
const patience = 60 * time.Second

// ErrLapsed is what Lockstep returns at the end of a pass in which the engine had
// to go on without some client.
var ErrLapsed = errors.New("lockstep was given up: a client neither sent a request nor left within a minute")

// Lockstep says how many clients send requests from now on, each one at a time.
// The first call of a pass names all of them; whoever has sent its last request
// is left out of a later one; zero ends the pass. Before a pass and at its end,
// what is under way to and from the store is brought to its end. It returns the most
// requests that were running at once since the pass began.
func (e *Engine) Lockstep(clients int) (peak int, err error) {
	failed := e.call(func() {
		switch {
		case e.lapsed && clients == 0:
			e.lapsed, err = false, ErrLapsed
		case !e.lapsed:
			if (e.clients == 0) != (clients == 0) {
				e.unwind()
			}
			if e.clients == 0 {
				e.peak = 0
			}
			e.clients = clients
		}
		peak = e.peak
		e.publish()
	})
	return peak, cmp.Or(failed, err)
}

// unwind steps until nothing is under way, unless somebody is served.
func (e *Engine) unwind() {
	for e.inside() == 0 && len(e.loading)+len(e.copying) > 0 {
		e.step()
		e.settle()
	}
}

// inside is how many requests the engine has.
func (e *Engine) inside() int {
	n := len(e.arrived) + len(e.running) + len(e.waiting)
	for _, l := range e.loading {
		if !l.orphan {
			n++
		}
	}
	return n
}

// rests says whether there is to be no step before something comes in.
func (e *Engine) rests() bool {
	if e.clients > 0 {
		return e.inside() < e.clients
	}
	return e.inside()+len(e.loading)+len(e.copying) == 0
}

// listen runs what has come in, and waits for more while the engine rests. It
// returns false when ctx is done.
func (e *Engine) listen(ctx context.Context) bool {
	for e.rests() {
		var gone <-chan time.Time
		if e.clients > 0 {
			gone = time.After(e.patience)
		}
		select {
		case f := <-e.mail:
			f()
		case <-gone:
			e.clients, e.lapsed = 0, true
		case <-ctx.Done():
			return false
		}
		e.publish()
	}
	for {
		select {
		case f := <-e.mail:
			f()
		case <-ctx.Done():
			return false
		default:
			return true
		}
	}
}

// queue puts the requests that have arrived behind those that wait: as they came,
// or, in lockstep, in the seeded order.
func (e *Engine) queue() {
	if e.clients > 0 {
		for _, t := range e.arrived {
			t.place = e.placeOf(&t.Request)
		}
		slices.SortStableFunc(e.arrived, func(a, b *task) int {
			return cmp.Or(bytes.Compare(a.place, b.place), cmp.Compare(a.Patience, b.Patience), cmp.Compare(a.ID, b.ID))
		})
	}
	for _, t := range e.arrived {
		t.since = e.steps
	}
	e.waiting = append(e.waiting, e.arrived...)
	e.arrived = nil
}

// placeOf is where a request stands among those that arrive with it.
func (e *Engine) placeOf(r *Request) []byte {
	h := fnv.New128a()
	put := func(n uint64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	put(e.cfg.Seed)
	for _, id := range r.Prompt {
		put(uint64(id))
	}
	for _, s := range []string{r.Who.Salt, r.Who.Adapter, r.Who.Image} {
		put(uint64(len(s)))
		h.Write([]byte(s))
	}
	return h.Sum(nil)
}
