package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	BlockTokens = 16  // positions per block, unless a Geometry says otherwise
	StateEvery  = 64  // positions between snapshots of the recurrent state, likewise
	Window      = 48  // keys a windowed layer sees, the query's own included
	Vocab       = 639 // token ids 0..638
	BOS         = 256 // first token of every sequence
	EOS         = 257 // ends an answer; never produced from text
)

// DType is the storage format of keys and values.
type DType uint8

const (
	BF16 DType = iota // upper half of a float32, two bytes an element
	FP8               // e4m3fn codes, one byte an element, with float32 scales
)

// String returns "bf16" or "fp8".
func (t DType) String() string {
	switch t {
	case BF16:
		return "bf16"
	case FP8:
		return "fp8"
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for _, t := range []DType{BF16, FP8} {
		if s == t.String() {
			return t, nil
		}
	}
	return 0, fmt.Errorf("kv dtype %q is unknown: use bf16 or fp8", s)
}

// Group names a set of layers that share one block table.
type Group uint8

const (
	Attention   Group = iota // layer 1: every earlier key
	WindowGroup              // layers 0 and 3: the last Window keys
	Recurrent                // layer 2: a State, no blocks
)

// String returns "attention", "window" or "recurrent".
func (g Group) String() string {
	switch g {
	case Attention:
		return "attention"
	case WindowGroup:
		return "window"
	case Recurrent:
		return "recurrent"
	}
	return fmt.Sprintf("Group(%d)", uint8(g))
}

// shape is a layer's share of a token: heads of keys and values.
type shape struct{ heads, dk, dv int }

// groupShapes lists the layers of the two groups that have blocks.
var groupShapes = [...][]shape{
	Attention:   {{3, 32, 32}},
	WindowGroup: {{1, 16, 40}, {2, 32, 32}},
}

// Block holds some positions, 16 or another multiple of panelWidth, of one
// group's layers as stored codes: per layer, K as [tokens][heads][dk] and then V
// as [tokens][heads][dv]. bf16 codes are uint16; fp8 codes are one byte, with one float32 scale for the K and one for
// the V of each head and layer. A fresh block has codes 0 and scales 1.
//
// Beside the codes a Block keeps their decoded float32 values, which is what
// the decoder reads. Every method that changes codes or scales decodes anew, so
// the two never disagree: damage to a code or to a scale reaches the arithmetic.
//
// A Block is not safe for concurrent use while somebody writes it.
type Block struct {
	group  Group
	tokens int
	lo, hi int // heads that codes and scales are read and written of; hi 0 is all
	dtype  DType
	wide   []uint16  // codes when bf16
	narrow []uint8   // codes when fp8
	scales []float32 // fp8: per layer, K of each head, then V of each head
	parts  []part
}

// part is one layer's region of a Block.
type part struct {
	shape
	k, v   int       // first code of K and of V
	scale  int       // first scale
	keys   []float32 // decoded K as [tokens/16][heads][dk][16]: the layout of a weight panel
	values []float32 // decoded V as [tokens/16][heads][16][dv]
}

// panel returns the decoded keys [dk][16] and values [16][dv] of one head for
// the i-th sixteen positions of the block.
func (p *part) panel(i, head int) (keys, values []float32) {
	at := (i*p.heads + head) * panelWidth
	return p.keys[at*p.dk:][:panelWidth*p.dk], p.values[at*p.dv:][:panelWidth*p.dv]
}

// NewBlock makes a fresh block of BlockTokens positions. It panics for
// Recurrent, which has a State.
func NewBlock(g Group, dt DType) *Block { return Geometry{}.NewBlock(g, dt) }

// NewBlock makes a fresh block of r.Block positions.
func (r Geometry) NewBlock(g Group, dt DType) *Block {
	tokens := r.Filled().Block
	if g != Attention && g != WindowGroup {
		panic("model: group " + g.String() + " keeps no blocks")
	}
	b := &Block{group: g, tokens: tokens, dtype: dt}
	codes, scales := 0, 0
	for _, s := range groupShapes[g] {
		nk, nv := tokens*s.heads*s.dk, tokens*s.heads*s.dv
		b.parts = append(b.parts, part{
			shape: s, k: codes, v: codes + nk, scale: scales,
			keys: make([]float32, nk), values: make([]float32, nv),
		})
		codes += nk + nv
		scales += 2 * s.heads
	}
	if dt == FP8 {
		b.narrow, b.scales = make([]uint8, codes), make([]float32, scales)
		for i := range b.scales {
			b.scales[i] = 1
		}
	} else {
		b.wide = make([]uint16, codes)
	}
	return b
}

// Group returns the block's group.
func (b *Block) Group() Group { return b.group }

// Tokens returns the number of positions.
func (b *Block) Tokens() int { return b.tokens }

// DType returns the block's storage format.
func (b *Block) DType() DType { return b.dtype }

// Reset makes the block fresh again: codes 0, scales 1.
func (b *Block) Reset() {
	clear(b.wide)
	clear(b.narrow)
	for i := range b.scales {
		b.scales[i] = 1
	}
	for i := range b.parts {
		clear(b.parts[i].keys)
		clear(b.parts[i].values)
	}
}

// AppendCodes appends the codes, bf16 ones little endian, without the scales.
func (b *Block) AppendCodes(dst []byte) []byte {
	for from, to := range b.runs {
		if b.dtype == FP8 {
			dst = append(dst, b.narrow[from:to]...)
			continue
		}
		for _, c := range b.wide[from:to] {
			dst = binary.LittleEndian.AppendUint16(dst, c)
		}
	}
	return dst
}

// Heads returns b seen through a share of its heads, [lo, hi) in each layer, as
// one rank of a tensor split keeps it. Reading and writing codes and scales of
// the share reads and writes those of b.
func (b *Block) Heads(lo, hi int) *Block {
	v := *b
	v.lo, v.hi = lo, hi
	return &v
}

// heads returns the heads of p that b shows.
func (b *Block) heads(p *part) (lo, hi int) {
	if b.hi == 0 {
		return 0, p.heads
	}
	return min(b.lo, p.heads), min(b.hi, p.heads)
}

// runs yields the ranges of codes that b shows, in storage order.
func (b *Block) runs(yield func(from, to int) bool) {
	for i := range b.parts {
		p := &b.parts[i]
		lo, hi := b.heads(p)
		for _, keys := range []bool{true, false} {
			for slot := range b.tokens {
				from, n, _ := p.at(lo, slot, keys)
				if !yield(from, from+n*(hi-lo)) {
					return
				}
			}
		}
	}
}

// shown returns the indices of the scales that b shows, in storage order.
func (b *Block) shown() []int {
	var out []int
	if b.dtype != FP8 {
		return nil
	}
	for i := range b.parts {
		p := &b.parts[i]
		lo, hi := b.heads(p)
		for _, first := range []int{p.scale, p.scale + p.heads} {
			for h := lo; h < hi; h++ {
				out = append(out, first+h)
			}
		}
	}
	return out
}

// SetCodes replaces the codes by what AppendCodes wrote and leaves the scales
// as they are. It fails, changing nothing, if src has another length.
func (b *Block) SetCodes(src []byte) error {
	width := 1
	if b.dtype == BF16 {
		width = 2
	}
	want := 0
	for from, to := range b.runs {
		want += width * (to - from)
	}
	if len(src) != want {
		return fmt.Errorf("%s block of %s: %d bytes of codes, want %d", b.dtype, b.group, len(src), want)
	}
	for from, to := range b.runs {
		if b.dtype == FP8 {
			src = src[copy(b.narrow[from:to], src):]
			continue
		}
		for i := from; i < to; i++ {
			b.wide[i] = binary.LittleEndian.Uint16(src)
			src = src[2:]
		}
	}
	b.decode()
	return nil
}

// AppendScales appends the scales as little-endian float32: per layer the K
// scale of each head, then the V scale of each head. For bf16 there are none.
func (b *Block) AppendScales(dst []byte) []byte {
	for _, i := range b.shown() {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(b.scales[i]))
	}
	return dst
}

// SetScales replaces the scales by what AppendScales wrote and leaves the codes
// as they are. It fails, changing nothing, if src has another length.
func (b *Block) SetScales(src []byte) error {
	shown := b.shown()
	if len(src) != 4*len(shown) {
		return fmt.Errorf("%s block of %s: %d bytes of scales, want %d", b.dtype, b.group, len(src), 4*len(shown))
	}
	for i, at := range shown {
		b.scales[at] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	if b.dtype == FP8 {
		b.decode()
	}
	return nil
}

// CopyFrom makes b hold what o holds, scales included. It panics if the two
// differ in group or format.
func (b *Block) CopyFrom(o *Block) {
	if b.group != o.group || b.dtype != o.dtype || b.tokens != o.tokens {
		panic(fmt.Sprintf("model: copy of a %s block of %s into a %s block of %s", o.dtype, o.group, b.dtype, b.group))
	}
	copy(b.wide, o.wide)
	copy(b.narrow, o.narrow)
	copy(b.scales, o.scales)
	for i := range b.parts {
		copy(b.parts[i].keys, o.parts[i].keys)
		copy(b.parts[i].values, o.parts[i].values)
	}
}

// decode refreshes the decoded values of the whole block.
func (b *Block) decode() {
	for i := range b.parts {
		p := &b.parts[i]
		for h, hi := b.heads(p); h < hi; h++ {
			b.decodeHead(p, h, true)
			b.decodeHead(p, h, false)
		}
	}
}

// decodeHead refreshes the keys or the values of one head of p.
func (b *Block) decodeHead(p *part, h int, keys bool) {
	for slot := range b.tokens {
		b.decodeSlot(p, h, slot, keys)
	}
}

// at locates the keys or the values of one head and slot of p: the first code,
// the number of codes and the index of their scale.
func (p *part) at(h, slot int, keys bool) (code, n, scale int) {
	if keys {
		return p.k + (slot*p.heads+h)*p.dk, p.dk, p.scale + h
	}
	return p.v + (slot*p.heads+h)*p.dv, p.dv, p.scale + p.heads + h
}

// decodeSlot refreshes the keys or the values of one head and slot of p.
func (b *Block) decodeSlot(p *part, h, slot int, keys bool) {
	code, n, scale := p.at(h, slot, keys)
	pk, pv := p.panel(slot/panelWidth, h)
	dst, step := pv[slot%panelWidth*p.dv:], 1
	if keys {
		dst, step = pk[slot%panelWidth:], panelWidth
	}
	if b.dtype == FP8 {
		f := b.scales[scale]
		for i, c := range b.narrow[code : code+n] {
			dst[i*step] = fp8Values[c] * f
		}
		return
	}
	for i, c := range b.wide[code : code+n] {
		dst[i*step] = bf16Decode(c)
	}
}

// put stores the keys k [heads][dk] and values v [heads][dv] of one position in
// slot of layer part. The token in slot 0 fixes the block's fp8 scales.
func (b *Block) put(layer, slot int, k, v []float32) {
	p := &b.parts[layer]
	for h := range p.heads {
		b.putHead(p, h, slot, k[h*p.dk:(h+1)*p.dk], true)
		b.putHead(p, h, slot, v[h*p.dv:(h+1)*p.dv], false)
	}
}

func (b *Block) putHead(p *part, h, slot int, x []float32, keys bool) {
	code, n, scale := p.at(h, slot, keys)
	if b.dtype == BF16 {
		for i, c := 0, b.wide[code:code+n]; i < n; i++ {
			c[i] = bf16Encode(x[i])
		}
		b.decodeSlot(p, h, slot, keys)
		return
	}
	if slot == 0 {
		b.scales[scale] = fp8Scale(x)
	}
	f := b.scales[scale]
	for i, c := 0, b.narrow[code:code+n]; i < n; i++ {
		c[i] = fp8Encode(x[i] / f)
	}
	if slot == 0 { // codes left over in later slots now mean something else
		b.decodeHead(p, h, keys)
		return
	}
	b.decodeSlot(p, h, slot, keys)
}
