package cache

import (
	"errors"
	"fmt"
)

// ErrFull is what Take returns when every slot is held.
var ErrFull = errors.New("kv cache pool is full: every block is in use")

// ID numbers a slot of a pool. Zero is the null slot: it exists, it is never
// handed out, and block tables point at it where they need nothing.
type ID int

// Pool is a fixed number of slots with reference counts, an index by hash, and
// one queue of the slots nobody holds. A slot keeps its content and its hash
// while it waits in the queue, so that a later request may still find it; Take
// recycles from the front of the queue, which is the least recently held slot.
// The layout follows vLLM's BlockPool and its FreeKVCacheBlockQueue
// (vllm/v1/core/block_pool.py). A Pool is not safe for concurrent use.
type Pool[T any] struct {
	slots  []slot[T]
	index  map[Hash]ID
	create func() T
	fresh  func(T)
	free   int // slots in the queue that carry no hash
	cached int // slots in the queue that carry one
	lost   int // slots recycled that carried one
}

type slot[T any] struct {
	item       T
	made       bool
	refs       int
	hash       Hash
	hashed     bool
	prev, next ID // neighbours in the queue; slot 0 is both its ends
}

// Counts says where the slots of a pool are, the null slot left out.
type Counts struct {
	Free   int // held by nobody, holding nothing findable
	Used   int // held
	Cached int // held by nobody, still findable
}

// NewPool returns a pool of n slots beside the null one. Items are created when
// a slot is first taken. fresh prepares an item, new or recycled, for its next
// holder.
func NewPool[T any](n int, create func() T, fresh func(T)) *Pool[T] {
	p := &Pool[T]{
		slots:  make([]slot[T], n+1),
		index:  make(map[Hash]ID),
		create: create,
		fresh:  fresh,
		free:   n,
	}
	for i := range p.slots {
		p.slots[i].prev = ID((i + n) % (n + 1))
		p.slots[i].next = ID((i + 1) % (n + 1))
	}
	p.slots[0].item, p.slots[0].made, p.slots[0].refs = create(), true, 1
	return p
}

// Item returns what slot id holds. The null slot has an item too.
func (p *Pool[T]) Item(id ID) T { return p.slots[id].item }

// Size returns the number of slots, the null slot left out.
func (p *Pool[T]) Size() int { return len(p.slots) - 1 }

// Available returns how many slots Take can hand out before it fails.
func (p *Pool[T]) Available() int { return p.free + p.cached }

// Counts returns where the slots are.
func (p *Pool[T]) Counts() Counts {
	return Counts{Free: p.free, Used: p.Size() - p.free - p.cached, Cached: p.cached}
}

// Evictions returns how many findable slots Take has recycled.
func (p *Pool[T]) Evictions() int { return p.lost }

// Hashed says whether slot id is findable.
func (p *Pool[T]) Hashed(id ID) bool { return p.slots[id].hashed }

// Audit compares the holders that the pool counts with those that somebody else
// has counted, and its queue with both.
func (p *Pool[T]) Audit(holders map[ID]int) error {
	queued := 0
	for id := p.slots[0].next; id != 0; id = p.slots[id].next {
		if p.slots[id].refs != 0 {
			return fmt.Errorf("slot %d is in the queue and has %d holders", id, p.slots[id].refs)
		}
		queued++
	}
	if queued != p.free+p.cached {
		return fmt.Errorf("%d slots in the queue, counted %d free and %d cached", queued, p.free, p.cached)
	}
	for id := 1; id < len(p.slots); id++ {
		if got, want := p.slots[id].refs, holders[ID(id)]; got != want {
			return fmt.Errorf("slot %d has %d holders on its books and %d in truth", id, got, want)
		}
	}
	return nil
}

// Find returns the slot published under h.
func (p *Pool[T]) Find(h Hash) (ID, bool) {
	id, ok := p.index[h]
	return id, ok
}

// Hold adds a holder to a slot, which is safe from recycling from then on.
// Holding the null slot does nothing.
func (p *Pool[T]) Hold(id ID) {
	if id == 0 {
		return
	}
	s := &p.slots[id]
	if s.refs == 0 {
		p.unlink(id)
		p.count(s, -1)
	}
	s.refs++
}

// Take recycles the least recently held slot, holds it and returns it with its
// item made fresh and its hash forgotten.
func (p *Pool[T]) Take() (ID, error) {
	id := p.slots[0].next
	if id == 0 {
		return 0, ErrFull
	}
	s := &p.slots[id]
	p.unlink(id)
	p.count(s, -1)
	if s.hashed {
		delete(p.index, s.hash)
		s.hash, s.hashed = Hash{}, false
		p.lost++
	}
	if !s.made {
		s.item, s.made = p.create(), true
	}
	p.fresh(s.item)
	s.refs = 1
	return id, nil
}

// Publish makes a held slot findable under h. It does nothing, and says so,
// when another slot already answers for h or when this one has a hash.
func (p *Pool[T]) Publish(id ID, h Hash) bool {
	s := &p.slots[id]
	if _, taken := p.index[h]; taken || s.hashed || id == 0 {
		return false
	}
	s.hash, s.hashed = h, true
	p.index[h] = id
	return true
}

// Release takes a holder off a slot. The last one to leave sends it to the back
// of the queue. Releasing the null slot does nothing.
func (p *Pool[T]) Release(id ID) {
	if id == 0 {
		return
	}
	s := &p.slots[id]
	if s.refs == 0 {
		panic("cache: slot released more often than it was held")
	}
	if s.refs--; s.refs > 0 {
		return
	}
	last := p.slots[0].prev
	s.prev, s.next = last, 0
	p.slots[last].next = id
	p.slots[0].prev = id
	p.count(s, +1)
}

// Forget makes nothing findable. It refuses, and changes nothing, while any
// slot is held.
func (p *Pool[T]) Forget() bool {
	if p.Available() < p.Size() {
		return false
	}
	for _, id := range p.index {
		p.slots[id].hash, p.slots[id].hashed = Hash{}, false
	}
	clear(p.index)
	p.free, p.cached = p.Size(), 0
	return true
}

func (p *Pool[T]) unlink(id ID) {
	s := &p.slots[id]
	p.slots[s.prev].next = s.next
	p.slots[s.next].prev = s.prev
	s.prev, s.next = 0, 0
}

func (p *Pool[T]) count(s *slot[T], d int) {
	if s.hashed {
		p.cached += d
	} else {
		p.free += d
	}
}
