package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kvladder/arms/testbed/model"
)

// Tokens is the length of a chunk: one recurrent boundary.
const Tokens = model.StateEvery

// PerChunk is the number of blocks of each group in a chunk.
const PerChunk = Tokens / model.BlockTokens

// Chunk is what the store keeps for Tokens positions: the blocks that hold them
// and the recurrent state after the last of them.
type Chunk struct {
	Attention, Window [PerChunk]*model.Block
	State             *model.State
}

// Codec turns blocks into bytes and back.
type Codec struct {
	// Write appends everything a reader needs to make the block again.
	Write func(dst []byte, b *model.Block) []byte
	// Read makes b what Write was given. src is exactly what Write appended.
	Read func(src []byte, b *model.Block) error
}

// WriteBlock is the healthy Codec.Write: the codes, then the scales.
func WriteBlock(dst []byte, b *model.Block) []byte {
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

// magic opens every chunk. A chunk is the magic and then 2*PerChunk+1 frames,
// each a little-endian uint32 length and that many bytes: the attention blocks,
// the window blocks, the state. It carries no checksum, as the file tiers of
// serving engines carry none: a bit that rots on disk arrives in the model.
const magic = "kvchunk1"

// Encode returns the bytes of c.
func (k Codec) Encode(c *Chunk) []byte {
	buf := []byte(magic)
	frame := func(write func([]byte) []byte) {
		at := len(buf)
		buf = write(append(buf, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	}
	for _, group := range [][PerChunk]*model.Block{c.Attention, c.Window} {
		for _, b := range group {
			frame(func(dst []byte) []byte { return k.Write(dst, b) })
		}
	}
	frame(c.State.AppendBinary)
	return buf
}

// Decode fills the blocks and the state of c, whichever of them are not nil,
// from the bytes of a chunk. On an error some of them may have been written.
func (k Codec) Decode(src []byte, c *Chunk) error {
	rest, ok := cutPrefix(src, magic)
	if !ok {
		return errors.New("not a kv chunk: it does not begin with " + magic)
	}
	frame := func() ([]byte, error) {
		if len(rest) < 4 {
			return nil, errors.New("kv chunk ends early")
		}
		n := int(binary.LittleEndian.Uint32(rest))
		if len(rest)-4 < n {
			return nil, errors.New("kv chunk ends early")
		}
		f := rest[4 : 4+n]
		rest = rest[4+n:]
		return f, nil
	}
	for _, group := range [][PerChunk]*model.Block{c.Attention, c.Window} {
		for _, b := range group {
			f, err := frame()
			if err == nil && b != nil {
				err = k.Read(f, b)
			}
			if err != nil {
				return err
			}
		}
	}
	f, err := frame()
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("kv chunk has %d bytes too many", len(rest))
	}
	if c.State == nil {
		return nil
	}
	return c.State.SetBinary(f)
}

func cutPrefix(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	return b[len(prefix):], true
}
