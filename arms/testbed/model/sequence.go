package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

// State is the recurrent layer's memory of one sequence, [4 heads][32][16].
// It is float32 whatever the DType of the blocks is.
type State [4 * 32 * 16]float32

// stateBytes is the length of a serialised State.
const stateBytes = 4 * len(State{})

// AppendBinary appends the 8192 bytes of the state, little-endian float32.
func (s *State) AppendBinary(dst []byte) []byte {
	for _, x := range s {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// SetBinary replaces the state by what AppendBinary wrote. It fails, changing
// nothing, if src has another length.
func (s *State) SetBinary(src []byte) error {
	if len(src) != stateBytes {
		return fmt.Errorf("recurrent state: %d bytes, want %d", len(src), stateBytes)
	}
	for i := range s {
		s[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	return nil
}

// Sequence is one request's view of its cache. The decoder reads the blocks
// that cover what a query may see, writes the one that covers the position it
// computes, updates State in place and advances Pos; it carries nothing else.
// So a sequence resumes at n, a multiple of StateEvery, from the attention
// blocks of [0, n), the window blocks of [n-Window+1, n), the state after
// position n-1, and Pos = n.
type Sequence struct {
	// Pos is the number of tokens already computed.
	Pos int
	// Attention[i] and Window[i] cover positions [n i, n i+n), n being what
	// Block.Tokens says of all of them, normally 16. A Window entry
	// wholly older than the window may be nil.
	Attention, Window []*Block
	State             *State
	// WholePage makes the attention kernels read every slot of the last block
	// and weigh the slots not yet written by 0, as paged kernels with a mask
	// do. Finite leftovers then change no bit; a NaN or an infinity left over
	// from the block's last owner becomes NaN, since 0 x NaN is NaN.
	WholePage bool
}

// blockTokens is the size of the sequence's blocks.
func (s *Sequence) blockTokens() int {
	if len(s.Attention) == 0 || s.Attention[0] == nil {
		return BlockTokens
	}
	return s.Attention[0].tokens
}
