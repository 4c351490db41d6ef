package sched

import (
	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
)

// Path is the way KV takes through the engine, as the functions that decide at
// each of its turns. The engine calls them and never asks whether one is
// faulty: a fault is a Path with one function replaced.
type Path struct {
	Cache cache.Hooks
	Store store.Hooks
	// LocalHit decides where a request resumes from the local cache.
	LocalHit func(Lookup) Hit
	// Load decides what is taken from the store once it is known to hold the
	// first ext tokens, ext being more than hit.Tokens.
	Load func(hit Hit, ext int) Load
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

// Load says what is taken from the store.
type Load struct {
	From, To int // the blocks loaded, as tokens, multiples of store.Tokens
	State    int // the boundary whose state is loaded; 0 keeps the hit's
}

// Healthy returns the path of an engine without faults.
func Healthy() Path {
	return Path{
		Cache:    cache.Healthy(),
		Store:    store.Healthy(),
		LocalHit: MinOverGroups,
		Load:     LoadAll,
	}
}

// MinOverGroups resumes at the deepest boundary that every group can resume
// from. This is what a hybrid model needs, since each layer sees all tokens:
// vLLM's HybridKVCacheCoordinator.find_longest_cache_hit
// (vllm/v1/core/kv_cache_coordinator.py).
func MinOverGroups(l Lookup) Hit {
	n := min(l.Local.AttentionRun(l.Chain)*model.BlockTokens, l.Limit)
	for b := l.Local.DeepestSnapshot(l.Chain, n); b > 0; b = l.Local.DeepestSnapshot(l.Chain, b-1) {
		if l.Local.WindowKnown(l.Chain, b) {
			return Hit{Tokens: b, State: b}
		}
	}
	return Hit{}
}

// LoadAll takes every group from the end of the hit to the end of what the
// store holds, so that all of them stand at the same token.
func LoadAll(hit Hit, ext int) Load {
	return Load{From: hit.Tokens, To: ext, State: ext}
}
