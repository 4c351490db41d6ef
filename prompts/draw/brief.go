package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// brief: the shortest documents of their own that take a part from the local cache and a part
// from the store, each with a prime. Registered ranges, unit R: length 2R + m with m in
// 1..R-1; local span R, the prime being 1..15 tokens longer.
func brief(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	asks := deck(stream(d.spec.Seed, "brief"), d.spec.N, []int{25, 25, 25, 25}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, a := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "brief "+name)
		p, err := d.document(ctx, r, d.length(r, 2, 1), d.unit)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, a, d.unit)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, d.unit, d.unit+r.within(1, 15)))
	}
	return out, nil
}
