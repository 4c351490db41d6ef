package model

import "fmt"

// Geometry is the pair of sizes that the KV path is cut into. The zero value
// means the defaults, BlockTokens and StateEvery.
type Geometry struct {
	Block int // positions of a block, a multiple of 16
	Every int // positions between recurrent snapshots, a multiple of Block
}

// Filled returns g with the defaults in place of zeros.
func (g Geometry) Filled() Geometry {
	if g.Block == 0 {
		g.Block = BlockTokens
	}
	if g.Every == 0 {
		g.Every = StateEvery
	}
	return g
}

// Check says what is wrong with g.
func (g Geometry) Check() error {
	g = g.Filled()
	switch {
	case g.Block < panelWidth || g.Block%panelWidth != 0:
		return fmt.Errorf("block size %d is not a positive multiple of %d", g.Block, panelWidth)
	case g.Every < g.Block || g.Every%g.Block != 0:
		return fmt.Errorf("recurrent block %d is not a positive multiple of the block size %d", g.Every, g.Block)
	case g.Every < Window:
		return fmt.Errorf("recurrent block %d is shorter than the window of %d: a snapshot could not be resumed from", g.Every, Window)
	}
	return nil
}

// Blocks returns the number of blocks that hold n tokens.
func (g Geometry) Blocks(n int) int { return (n + g.Block - 1) / g.Block }

// PerChunk returns the number of blocks between two snapshots.
func (g Geometry) PerChunk() int { return g.Every / g.Block }

// Tail returns the number of blocks that the window can reach back into from a
// multiple of Every.
func (g Geometry) Tail() int { return (Window - 1 + g.Block - 1) / g.Block }

// WindowFirst returns the first block that the query at position n can see
// through the window: it covers position n-(Window-1).
func (g Geometry) WindowFirst(n int) int { return max(0, n-(Window-1)) / g.Block }
