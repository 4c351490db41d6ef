package sched

import (
	"context"
	"math/rand/v2"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// Request is one prompt and how to continue it.
type Request struct {
	Prompt    []int
	MaxTokens int
	IgnoreEOS bool
	Salt      string // requests reuse KV only of requests with the same salt
	// Logprobs is the number of most likely tokens reported at each position;
	// negative means that no logprobs are wanted at all.
	Logprobs    int
	Temperature float64 // 0 is greedy
	Seed        uint64  // of the sampler, for a temperature above 0
	// Stop, if not nil, is asked after each token whether the output so far
	// ends the request. It runs on the engine's goroutine.
	Stop func(output []int) bool
}

// The reasons for which a request finishes.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	FinishAbort  = "abort"
	FinishError  = "error"
)

// Alternative is a token and its natural-log probability.
type Alternative struct {
	ID      int
	Logprob float64 // NaN when the logits were
}

// Event is one thing that happened to a request. All but the last carry a token;
// the last has a Finish and may carry none.
type Event struct {
	HasToken bool
	Token    Alternative
	Top      []Alternative // descending
	Finish   string
	Split    Split // valid in every event
}

// Split says where the prompt's tokens came from when the request was first
// admitted. Local + External + Computed is the length of the prompt.
type Split struct{ Local, External, Computed int }

// task is a request on its way.
type task struct {
	Request
	ctx    context.Context
	events chan Event // room for every event, so that sending never waits

	tokens []int // prompt and output
	chain  []cache.Hash
	keys   []store.Key // of the prompt's full chunks, when a store is attached
	rng    *rand.Rand

	seq               model.Sequence
	attention, window []cache.ID
	published         int // blocks offered to the local cache so far
	stored            int // chunks offered to the store so far
	last              int // the last boundary at which a prefill chunk ends
	admitted          bool
	corrupted         bool
	split             Split
	ready             []Event // what to send once the step's numbers are published
}

func (t *task) output() []int { return t.tokens[len(t.Prompt):] }
