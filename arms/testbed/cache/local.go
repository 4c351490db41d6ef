// Package cache is the engine's own memory of what it has computed: paged
// blocks, their hashes, and which prefix of a new request can be resumed.
//
// The story of a request, seen from here:
//
//  1. Chain names its full blocks: each hash covers the tokens of the block,
//     everything before it, and the salt.
//  2. Local answers, group by group, how far those names are known. The
//     attention group needs every block, the window group only the blocks the
//     next query can still see, the recurrent group one snapshot.
//  3. Whoever resumes holds the slots found, takes fresh ones for the rest, and
//     publishes each when its last token has been written.
//  4. When it ends it releases them. They stay findable until they are the
//     least recently used and somebody needs the room.
package cache

import "kvladder/arms/testbed/model"

// Hooks are the points of the local cache that a fault may replace.
type Hooks struct {
	// Root makes the parent of every first block from the operator's seed.
	Root func(seed string) Hash
	// Extra gives what block hashes cover of an identity.
	Extra func(Who) string
	// Fresh prepares a block, new or recycled, for its next holder.
	Fresh func(*model.Block)
}

// Healthy returns the hooks of an engine without faults.
func Healthy() Hooks {
	return Hooks{Root: Root, Extra: Who.Extra, Fresh: (*model.Block).Reset}
}

// Local holds the pools of one data-parallel rank, one for each cache group.
// It is not safe for concurrent use.
type Local struct {
	model.Geometry
	Attention *Pool[*model.Block]
	Window    *Pool[*model.Block]
	States    *Pool[*model.State]
}

// NewLocal returns pools of blocks attention blocks, as many window blocks, and
// one recurrent snapshot for each g.Every tokens of them.
func NewLocal(blocks int, dt model.DType, geometry model.Geometry, hooks Hooks) *Local {
	geometry = geometry.Filled()
	pool := func(g model.Group) *Pool[*model.Block] {
		return NewPool(blocks, func() *model.Block { return geometry.NewBlock(g, dt) }, hooks.Fresh)
	}
	states := max(1, blocks*geometry.Block/geometry.Every)
	return &Local{
		Geometry:  geometry,
		Attention: pool(model.Attention),
		Window:    pool(model.WindowGroup),
		States: NewPool(states,
			func() *model.State { return new(model.State) },
			func(s *model.State) { *s = model.State{} }),
	}
}

// AttentionRun returns how many blocks from the start of chain are known.
func (l *Local) AttentionRun(chain []Hash) int {
	for i, h := range chain {
		if _, ok := l.Attention.Find(h); !ok {
			return i
		}
	}
	return len(chain)
}

// WindowKnown says whether every window block that a query at position n can
// still see is known. n must be a multiple of the block size.
func (l *Local) WindowKnown(chain []Hash, n int) bool {
	for i := l.WindowFirst(n); i < n/l.Block; i++ {
		if _, ok := l.Window.Find(chain[i]); !ok {
			return false
		}
	}
	return true
}

// Snapshot returns the slot of the recurrent state after n tokens, if it is
// known. n must be a multiple of l.Every and positive.
func (l *Local) Snapshot(chain []Hash, n int) (ID, bool) {
	return l.States.Find(chain[n/l.Block-1])
}

// DeepestSnapshot returns the largest boundary at or below n whose recurrent
// state is known; 0 when there is none.
func (l *Local) DeepestSnapshot(chain []Hash, n int) int {
	for b := n / l.Every * l.Every; b > 0; b -= l.Every {
		if _, ok := l.Snapshot(chain, b); ok {
			return b
		}
	}
	return 0
}

// Forget empties all three groups, or none of them while any block is held.
func (l *Local) Forget() bool {
	if l.Attention.Counts().Used+l.Window.Counts().Used+l.States.Counts().Used > 0 {
		return false
	}
	return l.Attention.Forget() && l.Window.Forget() && l.States.Forget()
}
