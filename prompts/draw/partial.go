package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// partialHit: lengths k x R + m whose rests m step evenly over 1..R-1, each request with a
// prime, so that one request takes a part from the local cache and a part from the store.
// Local spans alternate between R and 2R, and k between 3 and, every fourth time, 4. Most of
// the asked needles lie in the part that comes from the store.
func partialHit(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	asks := deck(stream(d.spec.Seed, "partial-hit"), d.spec.N, []int{10, 30, 10, 50}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, a := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "partial-hit "+name)
		k := 3
		if i%4 == 3 {
			k = 4
		}
		n := k*d.unit + 1 + i*(d.unit-1)/len(asks)
		if n%d.bound == 0 && d.bound > 1 {
			n++
		}
		local := d.unit * (1 + i%2)
		p, err := d.document(ctx, r, n, local)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, a, local)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, local, local+r.within(1, 15)))
	}
	return out, nil
}

// fixedHit: every request has the same length, 4R + R/2 + 1, and leaves the same 2R tokens in
// the local cache. A thousand of them try one case.
func fixedHit(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	asks := deck(stream(d.spec.Seed, "fixed-hit"), d.spec.N, []int{10, 30, 10, 50}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, a := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "fixed-hit "+name)
		local := 2 * d.unit
		p, err := d.document(ctx, r, 4*d.unit+d.unit/2+1, local)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, a, local)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, local, local+8))
	}
	return out, nil
}
