package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// ask says where the asked needle of a request lies, against the span that its prime
// leaves in the local cache and the last boundary.
type ask int

const (
	keyLocal    ask = iota // a key within the local span
	keyExternal            // a key between the local span and the last boundary
	tagLocal
	tagExternal
)

// document begins a text of its own: a key and a tag within the first local tokens, a key
// and a tag between there and the last boundary, and the other names wherever there is
// room. walls are where later texts will be cut from it.
func (d *desk) document(ctx context.Context, r *random, n, local int, walls ...int) (*page, error) {
	for range 100 {
		p, err := d.page(ctx, r, n, true)
		if err != nil {
			return nil, err
		}
		p.walls = walls
		err = p.plantAll(ctx,
			want{'T', 0, local}, want{'T', local, d.last(n)},
			want{'K', 0, local}, want{'K', local, d.last(n)})
		if err == errNoRoom {
			continue
		}
		if err != nil {
			return nil, err
		}
		return p, p.scatter(ctx)
	}
	return nil, fmt.Errorf("%d tokens have no room for four needles, two of them in the first %d", n, local)
}

// want is a needle of a kind with its rows in [lo, hi).
type want struct {
	kind   byte
	lo, hi int
}

func (p *page) plantAll(ctx context.Context, ws ...want) error {
	for _, w := range ws {
		if err := p.plant(ctx, w.kind, w.lo, w.hi); err != nil {
			return err
		}
	}
	return nil
}

// answer picks the needle that an ask means and writes the page with its question.
func (p *page) answer(ctx context.Context, a ask, local int) (*needle, error) {
	last := p.d.last(p.n)
	var x *needle
	var err error
	switch a {
	case keyLocal:
		x, err = p.pick('K', 0, local)
	case keyExternal:
		x, err = p.pick('K', local, last)
	case tagLocal:
		x, err = p.pick('T', 0, local)
	case tagExternal:
		x, err = p.pick('T', local, last)
	}
	if err != nil {
		return nil, err
	}
	return x, p.write(ctx, x)
}

// mixed: three quarters of the requests have a document of their own; each further one
// shares its first two units and a rest with one of them, right after it, and so meets the
// store, or the attention group's part of the local cache, already on a first pass.
//
// Registered ranges, unit R: length k x R + m with k = 3 (seven in eight) or 4 and m in
// 1..R-1; local span R or 2R, the prime being 1..15 tokens longer; shared prefix 2R + d with
// d in 1..R/2. A pair shares its local span, since the first one's prime is in the local
// cache when the second one's is sent.
func mixed(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	n := d.spec.N
	sharers := n / 4
	r := stream(d.spec.Seed, "mixed")
	own := deck(r, n-sharers, []int{20, 25, 15, 40}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	shared := deck(r, sharers, []int{25, 75}, []ask{keyLocal, tagLocal})
	has := make([]bool, n-sharers) // documents that a second request shares
	for i := range sharers {
		has[i] = true
	}
	shuffle(r, has)

	var out []prompts.Prompt
	add := func(document string, p *page, x *needle, local, prime int) {
		out = append(out, d.prompt(fmt.Sprintf("r%02d", len(out)+1), document, p, x, local, prime))
	}
	for i := range own {
		name := fmt.Sprintf("d%02d", i+1)
		rd := stream(d.spec.Seed, "mixed "+name)
		local := d.unit * rd.within(1, 2)
		cut := 2*d.unit + rd.within(1, d.unit/2)
		p, err := d.document(ctx, rd, d.mixedLength(rd, 1), local, cut)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, own[i], local)
		if err != nil {
			return nil, err
		}
		add(name, p, x, local, local+rd.within(1, 15))
		if !has[i] {
			continue
		}
		b, err := p.branch(ctx, rd, d.mixedLength(rd, 1), cut, map[int]bool{})
		if err != nil {
			return nil, err
		}
		if err := b.scatter(ctx); err != nil {
			return nil, err
		}
		if x, err = b.answer(ctx, shared[0], local); err != nil {
			return nil, err
		}
		shared = shared[1:]
		add(name, b, x, local, local+rd.within(1, 15))
	}
	return out, nil
}

func (d *desk) mixedLength(r *random, lo int) int {
	k := 3
	if r.below(8) == 0 {
		k = 4
	}
	return d.length(r, k, lo)
}
