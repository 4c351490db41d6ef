package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// needles: documents of their own, no primes. Registered range, unit R: length 3R + m with m
// in 1..R-1. Half of the asked needles are keys, half are tags, all below the last boundary.
func needles(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	asks := deck(stream(d.spec.Seed, "needle"), d.spec.N, []int{25, 25, 25, 25}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, a := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "needle "+name)
		p, err := d.document(ctx, r, d.length(r, 3, 1), d.unit)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, a, d.unit)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, 0, 0))
	}
	return out, nil
}
