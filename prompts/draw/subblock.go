package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// subBlock: every prompt is shorter than the boundary R, so that nothing of it can be
// reused, whatever the engine does: a verdict about reuse must not come out of it. Lengths
// are drawn from R/2..R-1.
func subBlock(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.bound < 48 {
		return nil, fmt.Errorf("a boundary of %d tokens leaves no room below it: 48 are needed", d.bound)
	}
	asks := deck(stream(d.spec.Seed, "sub-block"), d.spec.N, []int{50, 50}, []byte{'K', 'T'})
	var out []prompts.Prompt
	for i, kind := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "sub-block "+name)
		n := r.within(d.bound/2, d.bound-1)
		p, err := d.page(ctx, r, n, true)
		if err != nil {
			return nil, err
		}
		if err := p.plant(ctx, kind, 0, p.to); err != nil {
			return nil, fmt.Errorf("%d tokens: %w for a needle", n, err)
		}
		x, err := p.pick(kind, 0, p.to)
		if err != nil {
			return nil, err
		}
		if err := p.write(ctx, x); err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, 0, 0))
	}
	return out, nil
}
