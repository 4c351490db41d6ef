package sched

import (
	"math/rand/v2"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// Path is the way KV takes through the engine, as the functions that decide at
// each of its turns. The engine calls them and never asks whether one is
// faulty: a fault is a Path with one turn changed.
type Path struct {
	Cache cache.Hooks
	Store store.Hooks
	// Scope says whether each data-parallel rank has a store to itself, given
	// what the operator asked for.
	Scope func(private bool) bool
	// Sequence prepares a new request's view of its cache for the kernels, and
	// Retire is told of it before its blocks go back to the pools.
	Sequence, Retire func(*model.Sequence)
	// Lookahead says how many of the waiting requests are looked up in the local
	// cache before the first of them is given blocks. What a request found is
	// held from its own admission on.
	Lookahead func(waiting int) int
	// LocalHit decides where a request resumes from the local cache.
	LocalHit func(Lookup) Hit
	// Present says how many chunks a load can count on when each rank of a
	// tensor split has its share of so many.
	Present func(runs []int) int
	// Load decides what is taken from the store, and where to, once it is known
	// to hold more than the local cache. An error ends the engine.
	Load func(Span) (Load, error)
	// Fetched is told how rank k of a tensor split got on with its share of a
	// chunk, and says what the engine is to make of it. Where it returns nil for
	// an error, the blocks stay as they are.
	Fetched func(k int, err error) error
	// Abandon says whether the blocks of a request that ended with a load under
	// way stay held until the load has been done.
	Abandon func() bool
	// Portion cuts what a request may compute next, n tokens from pos on, to
	// where a chunk may end; last is the prompt's last recurrent boundary.
	Portion func(g model.Geometry, pos, n, last int) int
	// Snapshot says for which boundary the state at pos, where a chunk of the
	// prompt has ended, is kept in the local cache; 0 is none.
	Snapshot func(g model.Geometry, pos, last int) int
	// Boundary says how many of a request's chunks are stored, and how many are
	// done with, when it has come progress chunks far by its tokens and has
	// blocks for ready of them. An error ends the engine.
	Boundary func(progress, ready int) (stored, done int, err error)
	// Offer says whether a chunk is stored that some tables have no block for.
	Offer func(nulls Nulls) bool
	// Overtakes says whether the copy of a chunk to the store runs before the
	// step that computes the chunk, with so many requests in that step.
	Overtakes func(inFlight int, rng *rand.Rand) bool
	// Condense carries the counts of accepted draft tokens from the rows of the
	// last step to those of this one: row i was row moves[i].
	Condense func(accepted, moves []int) []int
}

// Lookup is what LocalHit may look at.
type Lookup struct {
	Local *cache.Local
	Chain []cache.Hash // of all tokens of the request
	// Limit is the most tokens that may be resumed, one less than there are, so
	// that something is left to compute the first logits from.
	Limit int
	// Connector says whether a store is attached.
	Connector bool
}

// Hit says where a request resumes from the local cache.
type Hit struct {
	Tokens int  // attention and window blocks are reused up to here
	State  int  // the snapshot taken; 0 means the zero state
	Only   bool // the store is not asked for more
}

// Span is what Load may look at: a local hit, the number of tokens the store
// holds, which is more, and the recurrent group's row of the block table with
// one entry for each boundary up to there.
type Span struct {
	Hit    Hit
	Ext    int
	States []Page
	model.Geometry
}

// Page is an entry of the recurrent group's row. Pages hold the states of two
// neighbouring boundaries, so a page that is there for one of them brings the
// other.
type Page struct{ Null, Hashed bool }

// Load says what is taken from the store.
type Load struct {
	From, To int  // the tokens loaded, multiples of the recurrent block
	State    int  // the boundary whose state is loaded; 0 keeps the hit's
	Into     int  // the table position that receives the first block
	Null     bool // positions that are the null block are written, too
}

// Nulls counts the entries of a chunk's tables that are the null block.
type Nulls struct{ Attention, Window, State int }

// Healthy returns the path of an engine without faults.
func Healthy() Path {
	return Path{
		Cache:     cache.Healthy(),
		Store:     store.Healthy(),
		Scope:     func(private bool) bool { return private },
		Sequence:  func(*model.Sequence) {},
		Retire:    func(*model.Sequence) {},
		Lookahead: func(int) int { return 0 },
		LocalHit:  MinOverGroups,
		Present:   leastOf,
		Load:      LoadAll,
		Fetched:   func(_ int, err error) error { return err },
		Abandon:   func() bool { return true },
		Portion:   AlignedPortion,
		Snapshot:  LastBoundary,
		Boundary:  ReadyBoundary,
		Offer:     func(n Nulls) bool { return n == Nulls{} },
		Overtakes: func(int, *rand.Rand) bool { return false },
		Condense:  MoveOnce,
	}
}

// MinOverGroups resumes at the deepest boundary that every group can resume
// from. This is what a hybrid model needs, since each layer sees all tokens:
// vLLM's HybridKVCacheCoordinator.find_longest_cache_hit
// (vllm/v1/core/kv_cache_coordinator.py).
func MinOverGroups(l Lookup) Hit {
	n := min(l.Local.AttentionRun(l.Chain)*l.Local.Block, l.Limit)
	for b := l.Local.DeepestSnapshot(l.Chain, n); b > 0; b = l.Local.DeepestSnapshot(l.Chain, b-1) {
		if l.Local.WindowKnown(l.Chain, b) {
			return Hit{Tokens: b, State: b}
		}
	}
	return Hit{}
}

func leastOf(runs []int) int {
	n := runs[0]
	for _, r := range runs {
		n = min(n, r)
	}
	return n
}

// LoadAll takes every group from the end of the hit to the end of what the
// store holds, so that all of them stand at the same token.
func LoadAll(s Span) (Load, error) {
	return Load{From: s.Hit.Tokens, To: s.Ext, State: s.Ext, Into: s.Hit.Tokens / s.Block}, nil
}

// AlignedPortion ends chunks at multiples of the recurrent block up to last,
// vLLM's align mode (mamba_cache_mode in vllm/config/cache.py). It returns 0
// when n does not reach the next place where a chunk may end.
func AlignedPortion(g model.Geometry, pos, n, last int) int {
	if pos >= last {
		return n
	}
	return max(0, min(pos+n, last)/g.Every*g.Every-pos)
}

// LastBoundary keeps one snapshot of a prompt, at its last boundary.
func LastBoundary(_ model.Geometry, pos, last int) int {
	if pos == last {
		return pos
	}
	return 0
}

// ReadyBoundary stores, and is done with, the chunks that have all their blocks.
func ReadyBoundary(progress, ready int) (stored, done int, err error) {
	n := min(progress, ready)
	return n, n, nil
}

// MoveOnce gives each row the count it came with.
func MoveOnce(accepted, moves []int) []int {
	out := make([]int, len(moves))
	for i, from := range moves {
		out[i] = accepted[from]
	}
	return out
}
