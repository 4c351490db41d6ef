package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kvladder/arms/testbed/model"
)

// Tokens is the length of a chunk under the default geometry: one recurrent
// boundary.
const Tokens = model.StateEvery

// Chunk is what the store keeps for the positions between two recurrent
// boundaries: the blocks that hold them and the state after the last of them.
// A nil block is not kept.
type Chunk struct {
	Attention, Window []*model.Block // as many of one as of the other
	State             *model.State
}

// NewChunk returns a chunk without content of n blocks a group.
func NewChunk(n int) *Chunk {
	return &Chunk{Attention: make([]*model.Block, n), Window: make([]*model.Block, n)}
}

// Shard returns the share of c that rank k of a tensor split over n keeps. The
// heads of the attention group are divided; the windowed layers and the state,
// which have too few, stay whole with rank 0.
func (c *Chunk) Shard(k, n int) *Chunk {
	if n == 1 {
		return c
	}
	s := NewChunk(len(c.Attention))
	for i, b := range c.Attention {
		if b != nil {
			s.Attention[i] = b.Heads(k*attentionHeads/n, (k+1)*attentionHeads/n)
		}
	}
	if k == 0 {
		copy(s.Window, c.Window)
		s.State = c.State
	}
	return s
}

// attentionHeads is the number of key and value heads of the attention group.
const attentionHeads = 3

// Codec turns blocks into bytes and back.
type Codec struct {
	// Write appends everything a reader needs to make the block again. next is
	// the block that lies behind it in memory, or b itself.
	Write func(dst []byte, b, next *model.Block) []byte
	// Read makes b what Write was given. src is exactly what Write appended.
	Read func(src []byte, b *model.Block) error
}

// WriteBlock is the healthy Codec.Write: the codes, then the scales.
func WriteBlock(dst []byte, b, _ *model.Block) []byte {
	return b.AppendScales(b.AppendCodes(dst))
}

// ReadBlock is the healthy Codec.Read.
func ReadBlock(src []byte, b *model.Block) error {
	scales := len(b.AppendScales(nil))
	if len(src) < scales {
		return fmt.Errorf("%s block of %s: %d bytes, want at least %d", b.DType(), b.Group(), len(src), scales)
	}
	cut := len(src) - scales
	if err := b.SetCodes(src[:cut]); err != nil {
		return err
	}
	return b.SetScales(src[cut:])
}

// magic opens every chunk. A chunk is the magic and then, for n blocks a group,
// 2n+1 frames, each a little-endian uint32 length and that many bytes: the
// attention blocks, the window blocks, the state. What is not kept has an empty
// frame. A chunk carries no checksum, as the file tiers of serving engines carry
// none: a bit that rots on disk arrives in the model.
const magic = "kvchunk1"

// Encode returns the bytes of c.
func (k Codec) Encode(c *Chunk) []byte {
	buf := []byte(magic)
	frame := func(write func([]byte) []byte) {
		at := len(buf)
		buf = write(append(buf, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	}
	for _, group := range [][]*model.Block{c.Attention, c.Window} {
		for i, b := range group {
			next := b
			if i+1 < len(group) && group[i+1] != nil {
				next = group[i+1]
			}
			frame(func(dst []byte) []byte {
				if b == nil {
					return dst
				}
				return k.Write(dst, b, next)
			})
		}
	}
	frame(func(dst []byte) []byte {
		if c.State == nil {
			return dst
		}
		return c.State.AppendBinary(dst)
	})
	return buf
}

// Decode fills the blocks and the state of c, whichever of them are not nil,
// from the bytes of a chunk. A block that was not kept is left as it is. On an
// error some of them may have been written.
func (k Codec) Decode(src []byte, c *Chunk) error {
	frames, err := split(src)
	if err != nil {
		return err
	}
	n := len(c.Attention)
	if len(frames) != 2*n+1 {
		return fmt.Errorf("kv chunk has %d frames, want %d", len(frames), 2*n+1)
	}
	for i, b := range append(append([]*model.Block{}, c.Attention...), c.Window...) {
		if b == nil || len(frames[i]) == 0 {
			continue
		}
		if err := k.Read(frames[i], b); err != nil {
			return err
		}
	}
	if c.State == nil {
		return nil
	}
	return c.State.SetBinary(frames[2*n])
}

// Tail returns how many window blocks a chunk keeps, counted from its end. Of a
// chunk that cannot be read it says all of want, and leaves that to Decode.
func Tail(src []byte, want int) int {
	frames, err := split(src)
	if err != nil {
		return want
	}
	n := len(frames) / 2
	kept := 0
	for kept < n && len(frames[2*n-1-kept]) > 0 {
		kept++
	}
	return kept
}

// split returns the frames of a chunk.
func split(src []byte) ([][]byte, error) {
	rest, ok := cutPrefix(src, magic)
	if !ok {
		return nil, errors.New("not a kv chunk: it does not begin with " + magic)
	}
	var frames [][]byte
	for len(rest) > 0 {
		if len(rest) < 4 {
			return nil, errors.New("kv chunk ends early")
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if len(rest)-4 < n {
			return nil, errors.New("kv chunk ends early")
		}
		frames = append(frames, rest[4:4+n])
		rest = rest[4+n:]
	}
	return frames, nil
}

func cutPrefix(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	return b[len(prefix):], true
}
