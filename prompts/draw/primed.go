package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// primed: documents of their own, each with a prime that leaves all but the last unit in the
// local cache, and a question for a key in what it leaves: whoever writes into a block that
// is held for somebody else shows. The values of a document are private.
//
// Registered ranges, unit R: length kR + m with k 3 or 4 and m in 1..R-1; local span (k-1)R,
// the prime being 1..15 tokens longer.
func primed(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	d.private = true
	var out []prompts.Prompt
	for i := range d.spec.N {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "primed "+name)
		k := r.within(3, 4)
		local := (k - 1) * d.unit
		p, err := d.document(ctx, r, d.length(r, k, 1), local)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, keyLocal, local)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, local, local+r.within(1, 15)))
	}
	return out, nil
}
