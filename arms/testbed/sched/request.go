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
	ID        string    // for records; the engine does not look at it
	Who       cache.Who // requests reuse KV only of requests with the same identity
	// Logprobs is the number of most likely tokens reported at each position;
	// negative means that no logprobs are wanted at all.
	Logprobs    int
	Temperature float64 // 0 is greedy
	Seed        uint64  // of the sampler, for a temperature above 0
	// Trace, if not empty, is the output: each token is taken from it whatever the model
	// prefers, with the logprobs that the model gives at that place, and the request ends
	// behind its last (vllm/v1/worker/gpu/sample/trace_replay.py). Not with drafts.
	Trace []int
	// Stop, if not nil, is asked after each token whether the output so far
	// ends the request. It runs on the engine's goroutine.
	Stop func(output []int) bool
	// Patience, if not 0, is how many steps the request is waited for: at the
	// next one it is aborted, as if whoever sent it had gone.
	Patience int
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

	model             *model.Model
	seq               model.Sequence
	attention, window []cache.ID
	found             *found               // what a lookup before admission has found
	published         int                  // blocks offered to the local cache so far
	base              int                  // chunks that it resumed behind
	cursor            int                  // chunks done with, stored or not
	want              int                  // chunks that may be stored by now
	last              int                  // the last boundary at which a prefill chunk ends
	snaps             map[int]*model.State // states kept for boundaries not yet reached
	slots             []*model.State       // the state after each token of a draft
	accepted          int                  // draft tokens accepted in the last step; outlives the request
	place             []byte               // in lockstep, among requests that arrive together
	since             int                  // the step before which it arrived
	resident          bool                 // waits with the blocks of a load that is done
	admitted          bool
	corrupted         bool
	split             Split
	ready             []Event // what to send once the step's numbers are published
}

func (t *task) output() []int { return t.tokens[len(t.Prompt):] }
