package sched

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPatience aborts a request after so many steps, whoever reads its events.
func TestPatience(t *testing.T) {
	for _, c := range []struct{ patience, tokens int }{{0, 30}, {1, 1}, {5, 5}, {40, 30}} {
		e := engine(Config{Blocks: 40, Budget: 200})
		task := queue(e, filler(50), 30)
		task.Patience = c.patience
		reason := ""
		for reason == "" {
			e.step()
			e.settle()
			for len(task.events) > 0 {
				reason = (<-task.events).Finish
			}
		}
		want := FinishLength
		if c.tokens < 30 {
			want = FinishAbort
		}
		if got := len(task.output()); got != c.tokens || reason != want {
			t.Errorf("patience %d: %d tokens, %s; want %d, %s", c.patience, got, reason, c.tokens, want)
		}
		if e.local.Attention.Counts().Used > 0 {
			t.Errorf("patience %d: it left blocks behind", c.patience)
		}
	}
}

// TestLockstepLapses leaves the engine waiting for a client that never comes: the
// one that came is served after a while, and the end of the pass tells.
func TestLockstepLapses(t *testing.T) {
	e := engine(Config{Blocks: 40, Budget: 200})
	e.patience = 30 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if _, err := e.Lockstep(2); err != nil {
		t.Fatal(err)
	}
	events, err := e.Submit(ctx, Request{Prompt: filler(50), MaxTokens: 2, Logprobs: -1})
	if err != nil {
		t.Fatal(err)
	}
	for range events {
	}
	if _, err := e.Lockstep(1); err != nil {
		t.Errorf("a client leaves: %v", err)
	}
	if _, err := e.Lockstep(0); !errors.Is(err, ErrLapsed) {
		t.Errorf("the pass ended with %v, want %v", err, ErrLapsed)
	}
	if _, err := e.Lockstep(1); err != nil {
		t.Errorf("the next pass: %v", err)
	}
	if peak, err := e.Lockstep(0); err != nil || peak != 0 {
		t.Errorf("a pass without requests: peak %d, %v", peak, err)
	}
}
