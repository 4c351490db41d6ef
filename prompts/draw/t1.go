package draw

import (
	"context"
	"errors"
	"fmt"

	"kvladder/prompts"
)

// follower says which needle a follower of divergentHit asks for.
type follower int

const (
	tagWindow follower = iota // a tag between the last recurrent boundary and the attention hit of the shared prefix
	tagSpan                   // a tag between the local and the store's boundary
	tagBefore                 // a tag before the local boundary
	tagTail                   // a tag in the follower's own tail
	anyKey                    // a key anywhere
)

// t1Group is how many requests share one document: a seed, a longer one, six followers.
const t1Group = 8

// divergentHit: a shared prefix where the attention group's local hit, the recurrent group's
// and the store's are three different lengths. A is the attention block, R the recurrent
// boundary and the store's chunk, lengths are in tokens.
//
// A group is one document of P' tokens and its continuations, in this order:
//
//	seed      shares P1 = kR + d1 with the document, 1 <= d1 < A; length kR + m.
//	          Its only snapshot is the one at kR; it stores the boundaries up to kR.
//	longer    shares all of P' = (k'+1)R - A + d2, 0 <= d2 < A, with the followers; length
//	          (k'+1)R + m. It stores the boundaries up to (k'+1)R, of which those up to k'R
//	          lie in P'; its only snapshot, at (k'+1)R, does not.
//	followers share exactly P' with it and with each other; length (k'+1)R + m.
//
// with (k, k') one of (1,2), (1,3), (2,3), and m up to R-1. So for a follower
//
//	healthy          local kR (the seed's snapshot), external k'R - kR (the store has
//	                 every boundary), computed from k'R on
//	maximum over     local H' = A x floor(P'/A) = (k'+1)R - A, the state of kR,
//	groups           external 0
//
// and a tag whose rows lie in [kR, H') is missing from the state in the second line. Those in
// [k'R, H') are computed by a healthy engine, and by one that loads attention but leaves the
// state at the local length; those in [kR, k'R) are loaded, and the latter engine misses
// them too. Keys ride on attention, tags before kR are in the seed's state, and those in a
// follower's tail are computed by either: these stay right. Once the hit is the minimum over
// groups, all followers read [kR, k'R) from the store, so what the store does to fp8 scales
// then reaches every one of them.
//
// The longer request meets P1 alone in the local cache, A x floor(P1/A) = kR: for it the two
// rules agree.
//
// In a second pass each request finds its own snapshot, at last(n).
//
// The prime of a request is for kR and a few tokens, (k-1)R for a seed.
func divergentHit(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	A, R := d.spec.Geometry.AttentionBlock, d.spec.Geometry.RecurrentBlock
	switch {
	case R < 64 || R-A < 48 || R%max(1, A) != 0 || d.unit != R:
		return nil, fmt.Errorf("needs a recurrent boundary of 64 tokens or more that is the store's chunk too, and attention blocks well below it: got %d, %d and %d",
			R, d.spec.Geometry.StoreChunk, A)
	case d.spec.N%t1Group != 0:
		return nil, fmt.Errorf("%d requests: groups are of %d", d.spec.N, t1Group)
	}
	groups := d.spec.N / t1Group
	r := stream(d.spec.Seed, "t1")
	spans := deck(r, groups, []int{50, 25, 25}, [][2]int{{1, 2}, {1, 3}, {2, 3}})
	asks := deck(r, groups*(t1Group-2), []int{40, 15, 13, 12, 20},
		[]follower{tagWindow, tagSpan, tagBefore, tagTail, anyKey})

	var out []prompts.Prompt
	for g, span := range spans {
		name := fmt.Sprintf("g%02d", g+1)
		rd := stream(d.spec.Seed, "t1 "+name)
		s := story{
			d: d, r: rd, name: name,
			local:  span[0] * R,
			stored: span[1] * R,
			tail:   (span[1] + 1) * R,
			hit:    (span[1]+1)*R - A,
			shared: (span[1]+1)*R - A + rd.below(A),
			seeded: span[0]*R + rd.within(1, A-1),
			used:   map[int]bool{},
		}
		if err := s.write(ctx); err != nil {
			return nil, err
		}
		add := func(p prompts.Prompt, err error) error {
			p.ID = fmt.Sprintf("r%02d", len(out)+1)
			out = append(out, p)
			return err
		}
		if err := add(s.seed(ctx)); err != nil {
			return nil, err
		}
		if err := add(s.follow(ctx, []follower{anyKey, tagBefore}[g%2])); err != nil { // the longer one
			return nil, err
		}
		for range t1Group - 2 {
			if err := add(s.follow(ctx, asks[0])); err != nil {
				return nil, err
			}
			asks = asks[1:]
		}
	}
	return out, nil
}

// privateHit is divergentHit with private values named.
func privateHit(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	d.private = true
	return divergentHit(ctx, d)
}

// story is one group of divergentHit: its document and the positions that matter, in tokens.
type story struct {
	d      *desk
	r      *random
	name   string
	doc    *page
	local  int // kR
	stored int // k'R
	hit    int // H'
	shared int // P'
	seeded int // P1
	tail   int // (k'+1)R
	used   map[int]bool
}

// write makes the document: three tags in the window [k'R, H'), two in [kR, k'R), one and a
// key before kR, a key in [kR, k'R). No fact lies across the place where the seed leaves it.
func (s *story) write(ctx context.Context) error {
	for range 200 {
		p, err := s.d.page(ctx, s.r, s.shared, false)
		if err != nil {
			return err
		}
		p.names('T', t1Tags)
		p.walls = []int{s.seeded}
		err = p.plantAll(ctx,
			want{'T', s.stored, s.hit}, want{'T', s.stored, s.hit}, want{'T', s.stored, s.hit},
			want{'T', s.local, s.stored}, want{'T', s.local, s.stored}, want{'K', s.local, s.stored},
			want{'T', 0, s.local}, want{'K', 0, s.local})
		if errors.Is(err, errNoRoom) {
			continue
		}
		if err != nil {
			return err
		}
		s.doc = p
		return p.write(ctx, nil)
	}
	return fmt.Errorf("no room for the needles of a document of %d tokens", s.shared)
}

// t1Tags is how many tags a group may use: six in the document, one in a tail.
const t1Tags = 7

// seed asks for something before kR.
func (s *story) seed(ctx context.Context) (prompts.Prompt, error) {
	R := s.d.unit
	room, err := s.d.room(ctx)
	if err != nil {
		return prompts.Prompt{}, err
	}
	n := s.local + s.r.within(s.seeded-s.local+splice+room, R-1)
	p, err := s.doc.branch(ctx, s.r, n, s.seeded, map[int]bool{})
	if err != nil {
		return prompts.Prompt{}, err
	}
	x, err := p.pick("KT"[s.r.below(2)], 0, s.local)
	if err != nil {
		return prompts.Prompt{}, err
	}
	if err := p.write(ctx, x); err != nil {
		return prompts.Prompt{}, err
	}
	local := s.local - R
	prime := 0
	if local > 0 {
		prime = local + s.r.within(1, 15)
	}
	return s.d.prompt("", s.name, p, x, local, prime), nil
}

// follow continues the document and asks for what f says.
func (s *story) follow(ctx context.Context, f follower) (prompts.Prompt, error) {
	least, err := s.d.room(ctx)
	if err != nil {
		return prompts.Prompt{}, err
	}
	least += splice
	if f == tagTail {
		least += 16 // and for a fact
	}
	n := s.tail + s.r.within(least, s.d.unit-1)
	p, err := s.doc.branch(ctx, s.r, n, s.shared, s.used)
	if err != nil {
		return prompts.Prompt{}, err
	}
	if f == tagTail {
		p.names('T', t1Tags)
		p.free['T'] = p.free['T'][:0]
		p.free['T'] = append(p.free['T'], s.spare())
		if err := p.plant(ctx, 'T', s.shared, p.to); err != nil {
			return prompts.Prompt{}, err
		}
	}
	var x *needle
	switch f {
	case tagWindow:
		x, err = p.pick('T', s.stored, s.hit)
	case tagSpan:
		x, err = p.pick('T', s.local, s.stored)
	case tagBefore:
		x, err = p.pick('T', 0, s.local)
	case tagTail:
		x, err = p.pick('T', s.shared, n)
	case anyKey:
		x, err = p.pick('K', 0, n)
	}
	if err != nil {
		return prompts.Prompt{}, err
	}
	if err := p.write(ctx, x); err != nil {
		return prompts.Prompt{}, err
	}
	return s.d.prompt("", s.name, p, x, s.local, s.local+s.r.within(1, 15)), nil
}

// spare is the tag that the document does not use.
func (s *story) spare() int {
	taken := map[int]bool{}
	for _, x := range s.doc.needles {
		if x.kind == 'T' {
			taken[x.entity] = true
		}
	}
	e := 0
	for taken[e] {
		e++
	}
	return e
}
