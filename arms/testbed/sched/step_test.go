package sched

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

var weights = sync.OnceValue(func() *model.Model { return model.New(11) })

// engine returns one whose goroutine has not been started, to be stepped by hand.
func engine(cfg Config) *Engine {
	cfg.Model = weights()
	cfg.Path = Healthy()
	cfg.Root = cache.Root("0")
	return New(cfg)
}

func filler(n int) []int {
	out := []int{model.BOS}
	for i := 1; i < n; i++ {
		out = append(out, 400+i%200)
	}
	return out
}

// queue puts a request in line without the engine's goroutine.
func queue(e *Engine, prompt []int, max int) *task {
	t := &task{
		Request: Request{Prompt: prompt, MaxTokens: max, IgnoreEOS: true, Logprobs: -1},
		ctx:     context.Background(),
		events:  make(chan Event, max+1),
		tokens:  slices.Clone(prompt),
	}
	e.prepare(t)
	e.waiting = append(e.waiting, t)
	return t
}

// TestPrefillSplit records where the steps of a prompt end. Aligned, no step
// crosses the last boundary below the prompt's end, 192 for 250, and all before
// end at multiples of 64; without reuse nothing matters but the budget.
func TestPrefillSplit(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		budget  int
		caching bool
		want    []int
	}{
		{"aligned", 250, 127, true, []int{64, 128, 192, 250}},
		{"aligned, wide", 250, 200, true, []int{192, 250}},
		{"ends on a boundary", 192, 127, true, []int{64, 128, 192}},
		{"short", 60, 127, true, []int{60}},
		{"free", 250, 100, false, []int{100, 200, 250}},
		{"token by token", 3, 1, false, []int{1, 2, 3}},
	} {
		e := engine(Config{Blocks: 40, Budget: c.budget, PrefixCaching: c.caching})
		task := queue(e, filler(c.n), 2)
		var got []int
		for len(task.output()) == 0 {
			e.step()
			got = append(got, task.seq.Pos)
			e.settle()
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: steps end at %v, want %v", c.name, got, c.want)
		}
	}
}

// TestBudgetIsShared lets a decoding request and a prompt share a step: 1 + 64
// of 65 tokens.
func TestBudgetIsShared(t *testing.T) {
	e := engine(Config{Blocks: 40, Budget: 65, PrefixCaching: true})
	first := queue(e, filler(20), 10)
	e.step()
	e.settle()
	second := queue(e, filler(200)[1:], 2)
	e.step()
	e.settle()
	if len(first.output()) != 2 || second.seq.Pos != 64 {
		t.Errorf("first has %d tokens, second stands at %d", len(first.output()), second.seq.Pos)
	}
	if st := e.Stats(); st.Running != 2 || st.Waiting != 0 {
		t.Errorf("%d running, %d waiting", st.Running, st.Waiting)
	}
}

// TestPreemptionTakesTheLast fills a pool of 8 blocks with two requests that
// both outgrow it: 60 + 20 and 60 + 20 tokens need 5 blocks each.
func TestPreemptionTakesTheLast(t *testing.T) {
	e := engine(Config{Blocks: 8, Budget: 127, PrefixCaching: true})
	first, second := queue(e, filler(60), 20), queue(e, filler(61)[1:], 20)
	for len(e.running)+len(e.waiting) > 0 {
		e.step()
		e.settle()
		if slices.Contains(e.waiting, first) {
			t.Fatal("the request admitted first was preempted")
		}
	}
	st := e.Stats()
	if st.Preemptions == 0 {
		t.Error("nobody was preempted")
	}
	if len(first.output()) != 20 || len(second.output()) != 20 {
		t.Errorf("outputs of %d and %d tokens, want 20", len(first.output()), len(second.output()))
	}
	if st.PromptTokens != 120 || st.LocalQueries != 120 || st.GenerationTokens != 40 {
		t.Errorf("a preempted request was counted twice: %+v", st)
	}
}

// TestNullBlockIsNeverStored empties the store behind a local hit. What the hit
// skipped is the null block in the window table and must not be written under
// any key; only chunks computed in full may.
func TestNullBlockIsNeverStored(t *testing.T) {
	s, err := store.Open("")
	if err != nil {
		t.Fatal(err)
	}
	e := engine(Config{Blocks: 60, Budget: 127, PrefixCaching: true, Stores: []*store.Store{s}})
	run := func(prompt []int) {
		queue(e, prompt, 1)
		for len(e.running)+len(e.waiting) > 0 {
			e.step()
			e.settle()
		}
	}
	run(filler(200)) // chunks 0, 1 and 2
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	run(filler(330)) // resumes at 192: chunks 3 and 4
	st := e.Stats()
	if st.LocalHits != 192 || st.ChunksStored != 5 || s.Len() != 2 {
		t.Errorf("hit %d, stored %d, present %d; want 192, 5, 2", st.LocalHits, st.ChunksStored, s.Len())
	}
	null := e.local.Attention.Item(0)
	if fresh := model.NewBlock(model.Attention, model.BF16); !slices.Equal(null.AppendCodes(nil), fresh.AppendCodes(nil)) {
		t.Error("somebody wrote into the null block")
	}
}

func TestSubmitRefuses(t *testing.T) {
	e := engine(Config{Blocks: 8, Budget: 127})
	for _, r := range []Request{
		{MaxTokens: 1},
		{Prompt: []int{256}},
		{Prompt: filler(120), MaxTokens: 9}, // 129 tokens, 8 blocks hold 128
	} {
		if _, err := e.Submit(context.Background(), r); err == nil {
			t.Errorf("accepted %d tokens with max %d", len(r.Prompt), r.MaxTokens)
		}
	}
}

// TestShutdown ends an engine with work in it: every request gets its end, and
// later calls are told.
func TestShutdown(t *testing.T) {
	e := engine(Config{Blocks: 200, Budget: 127, PrefixCaching: true})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	events, err := e.Submit(context.Background(), Request{Prompt: filler(100), MaxTokens: 3000, IgnoreEOS: true, Logprobs: -1})
	if err != nil {
		t.Fatal(err)
	}
	<-events
	if ok, err := e.ResetLocal(); ok || err != nil {
		t.Errorf("reset in the middle of a request: %t, %v", ok, err)
	}
	stop()
	<-done
	last := Event{}
	for ev := range events {
		last = ev
	}
	if last.Finish != FinishAbort || e.Stats().Finished[FinishAbort] != 1 {
		t.Errorf("ended with %+v", last)
	}
	if _, err := e.Submit(context.Background(), Request{Prompt: filler(9), MaxTokens: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed engine said %v", err)
	}
	if err := e.ResetStore(); err != nil {
		t.Errorf("no store to reset: %v", err)
	}
}
