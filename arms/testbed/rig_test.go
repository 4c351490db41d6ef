package testbed

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// answer is what a request said, comparable bit for bit.
type answer struct {
	tokens []int
	bits   []uint64 // of the logprob of each token and of its alternatives
	split  sched.Split
	finish string
}

func (a answer) same(b answer) bool {
	return slices.Equal(a.tokens, b.tokens) && slices.Equal(a.bits, b.bits) && a.finish == b.finish
}

func (a answer) text() string { return model.Decode(a.tokens) }

// start builds an engine that ends with the test.
func start(t testing.TB, cfg Config) *Testbed {
	t.Helper()
	tb, err := New(cfg, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tb.Close)
	return tb
}

// begin submits a greedy request with 5 alternatives at each position.
func begin(t testing.TB, e *sched.Engine, prompt []int, max int, salt string) func() answer {
	t.Helper()
	events, err := e.Submit(context.Background(), sched.Request{Prompt: prompt, MaxTokens: max, Logprobs: 5, Who: cache.Who{Salt: salt}})
	if err != nil {
		t.Fatal(err)
	}
	return func() answer { return gather(events) }
}

// gather reads a request's events to its end.
func gather(events <-chan sched.Event) answer {
	var a answer
	for ev := range events {
		a.split, a.finish = ev.Split, ev.Finish
		if !ev.HasToken {
			continue
		}
		a.tokens = append(a.tokens, ev.Token.ID)
		a.bits = append(a.bits, math.Float64bits(ev.Token.Logprob))
		for _, alt := range ev.Top {
			a.bits = append(a.bits, uint64(alt.ID), math.Float64bits(alt.Logprob))
		}
	}
	return a
}

func ask(t testing.TB, tb *Testbed, prompt []int) answer {
	t.Helper()
	return begin(t, tb.Ranks[0], prompt, 6, "")()
}

func resetLocal(t testing.TB, tb *Testbed) {
	t.Helper()
	for _, e := range tb.Ranks {
		if ok, err := e.ResetLocal(); err != nil || !ok {
			t.Fatalf("local cache was not reset: %v %v", ok, err)
		}
	}
}

// page is a text built to a plan: filler up to a token position, then needles.
type page struct {
	rng    *rand.Rand
	tokens []int
}

func newPage(seed uint64) *page {
	return &page{rng: rand.New(rand.NewPCG(seed, 1)), tokens: []int{model.BOS}}
}

// fillTo adds filler words until the page has n tokens.
func (p *page) fillTo(n int) *page {
	for len(p.tokens) < n {
		p.tokens = append(p.tokens, 396+p.rng.IntN(model.Vocab-396))
	}
	return p
}

// add appends text.
func (p *page) add(text string) *page {
	p.tokens = append(p.tokens, model.Encode(text)[1:]...)
	return p
}

// with returns the page's tokens followed by text.
func (p *page) with(text string) []int {
	return append(slices.Clone(p.tokens), model.Encode(text)[1:]...)
}
