package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// bystanders: two thirds are targets, documents of their own as in mixed, each with a prime.
// Every fourth target is followed by a bystander that shares its first two units and a rest,
// and every fourth by one of R/2..R-1 tokens, which no cache can give anything: the damage
// of a write in the wrong place shows in them. Each prompt lists the values that only its
// document holds, so that a value in the wrong reply names its owner.
func bystanders(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.bound < 48 {
		return nil, fmt.Errorf("a boundary of %d tokens leaves no room below it: 48 are needed", d.bound)
	}
	d.private = true
	n := d.spec.N
	targets := max(1, n*2/3)
	r := stream(d.spec.Seed, "bystanders")
	asks := deck(r, targets, []int{20, 25, 15, 40}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	add := func(role prompts.Role, document string, p *page, x *needle, local, prime int) {
		q := d.prompt(fmt.Sprintf("r%02d", len(out)+1), document, p, x, local, prime)
		q.Role = role
		out = append(out, q)
	}
	for i := 0; len(out) < n; i++ {
		name := fmt.Sprintf("d%02d", i+1)
		rd := stream(d.spec.Seed, "bystanders "+name)
		local := d.unit * rd.within(1, 2)
		cut := 2*d.unit + rd.within(1, d.unit/2)
		p, err := d.document(ctx, rd, d.mixedLength(rd, 1), local, cut)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, asks[i%len(asks)], local)
		if err != nil {
			return nil, err
		}
		add(prompts.Target, name, p, x, local, local+rd.within(1, 15))
		if len(out) == n {
			break
		}
		switch i % 4 {
		case 1:
			b, err := p.branch(ctx, rd, d.mixedLength(rd, 1), cut, map[int]bool{})
			if err != nil {
				return nil, err
			}
			if err := b.scatter(ctx); err != nil {
				return nil, err
			}
			if x, err = b.answer(ctx, keyLocal, local); err != nil {
				return nil, err
			}
			add(prompts.Bystander, name, b, x, local, 0)
		case 3:
			kind := "KT"[i/4%2]
			s, err := d.page(ctx, rd, rd.within(d.bound/2, d.bound-1), true)
			if err != nil {
				return nil, err
			}
			if err := s.plant(ctx, kind, 0, s.to); err != nil {
				return nil, fmt.Errorf("%d tokens: %w for a needle", s.n, err)
			}
			if x, err = s.pick(kind, 0, s.to); err != nil {
				return nil, err
			}
			if err := s.write(ctx, x); err != nil {
				return nil, err
			}
			add(prompts.Bystander, name+"s", s, x, 0, 0)
		}
	}
	return out, nil
}
