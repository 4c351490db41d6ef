package cache

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func counters() (*Pool[*int], *int) {
	fresh := 0
	return NewPool(4, func() *int { return new(int) }, func(x *int) { *x = 0; fresh++ }), &fresh
}

// TestRecyclesLeastRecentlyHeld publishes four slots and touches the first: the
// second is the one that goes.
func TestRecyclesLeastRecentlyHeld(t *testing.T) {
	p, fresh := counters()
	var held []ID
	for i := range 4 {
		id, err := p.Take()
		if err != nil {
			t.Fatal(err)
		}
		*p.Item(id) = 10 + i
		p.Publish(id, Hash{byte(i)})
		held = append(held, id)
	}
	if _, err := p.Take(); !errors.Is(err, ErrFull) {
		t.Fatalf("a fifth of four slots: %v", err)
	}
	if p.Forget() {
		t.Fatal("forgot while slots were held")
	}
	for _, id := range held {
		p.Release(id)
	}
	first, _ := p.Find(Hash{0})
	p.Hold(first)
	p.Release(first)
	got, err := p.Take()
	if err != nil || got != held[1] || *p.Item(got) != 0 || *fresh != 5 {
		t.Fatalf("took %v (%v) with %d in it, want the second slot, made fresh", got, err, *p.Item(got))
	}
	if _, ok := p.Find(Hash{1}); ok {
		t.Error("a recycled slot is still found under its old hash")
	}
	if id, ok := p.Find(Hash{0}); !ok || *p.Item(id) != 10 {
		t.Error("the touched slot was lost")
	}
	if c := p.Counts(); c != (Counts{Free: 0, Used: 1, Cached: 3}) {
		t.Errorf("counts %+v", c)
	}
	p.Release(got)
	if !p.Forget() || p.Counts() != (Counts{Free: 4}) {
		t.Errorf("after Forget: %+v", p.Counts())
	}
}

// TestNullSlot checks that slot 0 is never handed out and cannot be lost.
func TestNullSlot(t *testing.T) {
	p, _ := counters()
	p.Hold(0)
	p.Release(0)
	p.Release(0)
	for range 4 {
		if id, err := p.Take(); err != nil || id == 0 {
			t.Fatalf("took %d (%v)", id, err)
		}
	}
	if p.Publish(0, Hash{9}) {
		t.Error("the null slot was published")
	}
}

func TestReleaseTwicePanics(t *testing.T) {
	p, _ := counters()
	id, _ := p.Take()
	p.Release(id)
	defer func() {
		if recover() == nil {
			t.Error("the second release went unnoticed")
		}
	}()
	p.Release(id)
}

// TestPoolAgainstModel compares the pool with a plain list of what it should
// hold, over random operations.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 6
		p := NewPool(n, func() *int { return new(int) }, func(x *int) { *x = 0 })
		refs := map[ID]int{}
		names := map[ID]Hash{}
		queue := []ID{1, 2, 3, 4, 5, 6}
		drop := func(id ID) {
			for i, q := range queue {
				if q == id {
					queue = append(queue[:i:i], queue[i+1:]...)
					return
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				id, err := p.Take()
				if len(queue) == 0 {
					if err == nil {
						t.Fatal("took from a full pool")
					}
					return
				}
				if err != nil || id != queue[0] {
					t.Fatalf("took %d (%v), want %d", id, err, queue[0])
				}
				delete(names, id)
				refs[id] = 1
				queue = queue[1:]
			},
			"hold": func(t *rapid.T) {
				id := ID(rapid.IntRange(1, n).Draw(t, "id"))
				if _, named := names[id]; refs[id] == 0 && !named {
					t.Skip("nobody could have found it")
				}
				p.Hold(id)
				if refs[id]++; refs[id] == 1 {
					drop(id)
				}
			},
			"release": func(t *rapid.T) {
				id := ID(rapid.IntRange(1, n).Draw(t, "id"))
				if refs[id] == 0 {
					t.Skip("not held")
				}
				p.Release(id)
				if refs[id]--; refs[id] == 0 {
					queue = append(queue, id)
				}
			},
			"publish": func(t *rapid.T) {
				id := ID(rapid.IntRange(1, n).Draw(t, "id"))
				if refs[id] == 0 {
					t.Skip("not held")
				}
				h := Hash{byte(rapid.IntRange(0, 5).Draw(t, "hash"))}
				_, named := names[id]
				for _, other := range names {
					named = named || other == h
				}
				if p.Publish(id, h) == named {
					t.Fatalf("publish says %t", !named)
				}
				if !named {
					names[id] = h
				}
			},
			"": func(t *rapid.T) {
				want := Counts{}
				for id := ID(1); id <= n; id++ {
					_, named := names[id]
					switch {
					case refs[id] > 0:
						want.Used++
					case named:
						want.Cached++
					default:
						want.Free++
					}
				}
				if got := p.Counts(); got != want || p.Available() != len(queue) {
					t.Fatalf("counts %+v, want %+v", got, want)
				}
				for id, h := range names {
					if got, ok := p.Find(h); !ok || got != id {
						t.Fatalf("%v is at %d, want %d", h[:1], got, id)
					}
				}
			},
		})
	})
}
