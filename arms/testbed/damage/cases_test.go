package damage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"kvladder/arms/testbed/model"
)

const (
	block = model.BlockTokens
	every = model.StateEvery
)

// region is what a case damages: positions, for the kinds of needle served from
// the layers it damages.
type region struct {
	kinds    string
	from, to int
	moved    [2]int // positions whose content came back at another place
}

// class is "victim", "moved", "bystander", or "" for a needle half inside.
func (g region) class(n needle) string {
	if !strings.ContainsRune(g.kinds, rune(n.kind)) {
		return "bystander"
	}
	from, to := n.rows()
	switch {
	case g.moved[0] <= from && to <= g.moved[1]:
		return "moved"
	case g.from <= from && to <= g.to:
		return "victim"
	case to <= g.from || g.to <= from:
		return "bystander"
	}
	return ""
}

// scene is what the cases of one prompt are made from.
type scene struct {
	c, other *computed
	end      int // where a healthy resume starts: the last snapshot
	otherEnd int
	local    int // where the local part ends, when part of a hit is external
	key      needle
	keyBlock int // the block of its digits
	next     int // the block beside it
	r        *rand.Rand
}

// damaged is one case: a sequence at its resume point and what is wrong with it.
type damaged struct {
	name string
	seq  *model.Sequence
	region
	small bool // one question a class and kind is enough
}

// newScene computes the prompt p and another one.
func newScene(d *model.Decoder, dt model.DType, p, other prompt, r *rand.Rand) *scene {
	s := &scene{c: compute(d, dt, p), other: compute(d, dt, other), r: r}
	s.end = s.c.last()
	s.otherEnd = min(s.end, s.other.last())
	s.local = every * (1 + r.IntN(s.end/every-1))
	var keys []needle // those with their digits in one block, to be damaged alone
	for _, n := range p.needles {
		if from, to := n.rows(); n.kind == 'K' && to <= s.end && from/block == (to-1)/block {
			keys = append(keys, n)
		}
	}
	s.key = keys[r.IntN(len(keys))]
	s.keyBlock = (s.key.at + 2) / block
	s.next = s.keyBlock + 1
	if (s.keyBlock+2)*block > s.end {
		s.next = s.keyBlock - 1
	}
	return s
}

func (s *scene) healthy() *model.Sequence { return s.c.upto(s.end, s.end) }

// spoiled builds a case that resumes at the last snapshot.
func (s *scene) spoiled(name string, g region, spoil func(*model.Sequence)) damaged {
	q := s.healthy()
	spoil(q)
	return damaged{name: name, seq: q, region: g}
}

// put replaces block i of all three block layers by o's block j, scales included.
func put(q *model.Sequence, i int, o *model.Sequence, j int) {
	own(q.Attention, i).CopyFrom(o.Attention[j])
	own(q.Window, i).CopyFrom(o.Window[j])
}

// blank makes block i of all three block layers fresh.
func blank(q *model.Sequence, i int) {
	own(q.Attention, i).Reset()
	own(q.Window, i).Reset()
}

// rescale sets the scales of the blocks [from, to) to those of like, or to 1.
func rescale(q *model.Sequence, from, to int, like *model.Sequence) {
	for i := from; i < to; i++ {
		scales := [2]*model.Block{model.NewBlock(model.Attention, model.FP8), model.NewBlock(model.WindowGroup, model.FP8)}
		if like != nil {
			scales = [2]*model.Block{like.Attention[i], like.Window[i]}
		}
		must(own(q.Attention, i).SetScales(scales[0].AppendScales(nil)))
		must(own(q.Window, i).SetScales(scales[1].AppendScales(nil)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func clean(*model.Sequence) {}

// structural lists the cases in which something was lost, old or in the wrong place.
func (s *scene) structural() (out []damaged) {
	n, end, local := len(s.c.ids), s.end, s.local
	full := down(n, block)
	add := func(name string, g region, spoil func(*model.Sequence)) {
		out = append(out, s.spoiled(name, g, spoil))
	}
	out = append(out,
		s.spoiled("clean", region{}, clean),
		damaged{name: "F01 attention to the last full block, state of the snapshot before", seq: s.c.upto(full, end), region: region{kinds: "T", from: end, to: full}},
		damaged{name: "F03 attention to ext, state of local", seq: s.c.upto(end, local), region: region{kinds: "T", from: local, to: end}},
		damaged{name: "state one snapshot early", seq: s.c.upto(end, end-every), region: region{kinds: "T", from: end - every, to: end}},
	)
	tags := region{kinds: "T", to: end}
	all := region{kinds: "KTP", to: math.MaxInt}
	foreign := s.otherEnd // the other prompt may be a snapshot shorter
	add("state of another prompt", tags, func(q *model.Sequence) { *q.State = s.other.snaps[s.otherEnd/every] })
	add("state zero (F04)", tags, func(q *model.Sequence) { *q.State = model.State{} })
	if s.c.dt == model.FP8 {
		add("F02 scales lost, all loaded blocks", all, func(q *model.Sequence) { rescale(q, 0, end/block, nil) })
		add("F02 scales lost in [local, ext)", all, func(q *model.Sequence) { rescale(q, local/block, end/block, nil) })
		add("F02 scales left over from another prompt", region{kinds: "KTP", to: foreign}, func(q *model.Sequence) { rescale(q, 0, foreign/block, s.other.seq) })
	}
	ext := end - local
	add("F07 front slice, rest unfilled", region{kinds: "K", to: min(ext, local), moved: [2]int{local, end}}, func(q *model.Sequence) {
		for j := range ext / block {
			put(q, j, s.c.seq, local/block+j)
		}
		for j := max(ext, local) / block; j < end/block; j++ {
			blank(q, j)
		}
	})
	one := region{kinds: "K", from: s.keyBlock * block, to: s.keyBlock*block + block}
	add("one block zeroed", one, func(q *model.Sequence) { blank(q, s.keyBlock) })
	add("one block of another prompt", one, func(q *model.Sequence) {
		put(q, s.keyBlock, s.other.seq, min(s.keyBlock, s.otherEnd/block-1))
	})
	add("one block replaced by its neighbour", one, func(q *model.Sequence) { put(q, s.keyBlock, s.c.seq, s.next) })
	two := region{kinds: "K", from: min(s.keyBlock, s.next) * block, to: (max(s.keyBlock, s.next) + 1) * block}
	add("two blocks swapped", two, func(q *model.Sequence) {
		put(q, s.keyBlock, s.c.seq, s.next)
		put(q, s.next, s.c.seq, s.keyBlock)
	})
	add("all blocks of another prompt", region{kinds: "K", to: foreign}, func(q *model.Sequence) {
		for j := range foreign / block {
			put(q, j, s.other.seq, j)
		}
	})
	return out
}

// windowed lists the cases of a pinPrompt: damage to the window's layers alone.
func (s *scene) windowed() []damaged {
	last := s.end / block
	seen := region{kinds: "P", from: s.end - model.Window, to: s.end}
	return []damaged{
		s.spoiled("clean", region{}, clean),
		s.spoiled("window blocks zeroed", seen, func(q *model.Sequence) {
			for j := last - 3; j < last; j++ {
				own(q.Window, j).Reset()
			}
		}),
		s.spoiled("window blocks of another prompt", seen, func(q *model.Sequence) {
			for j := 1; j <= 3; j++ {
				own(q.Window, last-j).CopyFrom(s.other.seq.Window[s.otherEnd/block-j])
			}
		}),
		s.spoiled("oldest window block zeroed", region{kinds: "P", from: s.end - 48, to: s.end - 32}, func(q *model.Sequence) {
			own(q.Window, last-3).Reset()
		}),
	}
}

// small lists the cases in which numbers are a little wrong.
func (s *scene) small() (out []damaged) {
	add := func(name string, g region, spoil func(*model.Sequence)) {
		c := s.spoiled(name, g, spoil)
		c.small = true
		out = append(out, c)
	}
	tags, keys := region{kinds: "T", to: s.end}, region{kinds: "K", to: s.end}
	one := region{kinds: "K", from: s.keyBlock * block, to: s.keyBlock*block + block}
	factors := []float32{1.0001, 1.002, 1.02, 1.2}
	if s.c.dt == model.BF16 {
		factors = factors[1:] // half a bf16 step is 1/512: a smaller factor is rounded away
	}
	for _, f := range factors {
		add(fmt.Sprintf("L1 K and V x%g, all loaded blocks", f), keys, func(q *model.Sequence) {
			for i := range q.Attention {
				multiply(own(q.Attention, i), f)
			}
		})
	}
	add("L1 K and V x1.02, one block", one, func(q *model.Sequence) { multiply(own(q.Attention, s.keyBlock), 1.02) })
	add("state x1.02", tags, func(q *model.Sequence) {
		for i := range q.State {
			q.State[i] *= 1.02
		}
	})
	add("state + 0.02 noise", tags, func(q *model.Sequence) {
		noise := rand.New(rand.NewPCG(2, 20)) // the same for every prompt
		for i := range q.State {
			q.State[i] += float32(0.02 * math.Sqrt(3) * (2*noise.Float64() - 1)) // unit variance times 0.02
		}
	})
	type bit struct {
		n    int
		name string
	}
	bits := []bit{{0, "mantissa lsb"}, {6, "mantissa msb"}, {7, "exponent lsb"}, {13, "high exponent bit"}, {15, "sign"}}
	if s.c.dt == model.FP8 {
		bits = []bit{{0, "mantissa lsb"}, {2, "mantissa msb"}, {3, "exponent lsb"}, {6, "high exponent bit"}, {7, "sign"}}
	}
	const heads, width = 3, 32 // of layer 1's keys and of its values
	digit := s.key.at + 2      // the first digit
	for _, at := range []struct {
		name string
		code int
	}{
		{"L1 K, head 0, dim 8", digit%block*heads*width + 8},
		{"L1 V, head 0, dim 0", (block + digit%block) * heads * width},
	} {
		for _, b := range bits {
			add("bit of "+at.name+": "+b.name, one, func(q *model.Sequence) { flip(own(q.Attention, digit/block), at.code, b.n) })
		}
	}
	for _, b := range []bit{{0, "mantissa lsb"}, {22, "mantissa msb"}, {23, "exponent lsb"}, {29, "high exponent bit"}, {31, "sign"}} {
		add("bit of state[0][3][5]: "+b.name, tags, func(q *model.Sequence) {
			x := &q.State[3*16+5]
			*x = math.Float32frombits(math.Float32bits(*x) ^ 1<<b.n)
		})
	}
	return out
}

// multiply scales all keys and values of b: by its scales, or in bf16 by its
// codes, rounded to nearest even.
func multiply(b *model.Block, f float32) {
	if b.DType() == model.FP8 {
		sc := b.AppendScales(nil)
		for x := range slices.Chunk(sc, 4) {
			v := math.Float32frombits(binary.LittleEndian.Uint32(x))
			binary.LittleEndian.PutUint32(x, math.Float32bits(v*f))
		}
		must(b.SetScales(sc))
		return
	}
	codes := b.AppendCodes(nil)
	for x := range slices.Chunk(codes, 2) {
		u := math.Float32bits(math.Float32frombits(uint32(binary.LittleEndian.Uint16(x))<<16) * f)
		binary.LittleEndian.PutUint16(x, uint16((u+0x7fff+u>>16&1)>>16))
	}
	must(b.SetCodes(codes))
}

// flip inverts one bit of one code of b.
func flip(b *model.Block, code, bit int) {
	codes := b.AppendCodes(nil)
	if b.DType() == model.BF16 {
		code = 2*code + bit/8
	}
	codes[code] ^= 1 << (bit % 8)
	must(b.SetCodes(codes))
}
