package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// prose: sentences of random words and nothing to find in them, for comparing what two arms
// say next. Length 3R + m, m in 1..R-1.
func prose(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	var out []prompts.Prompt
	for i := range d.spec.N {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "prose "+name)
		p, err := d.page(ctx, r, d.length(r, 3, 1), false)
		if err != nil {
			return nil, err
		}
		if err := p.write(ctx, nil); err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, nil, 0, 0))
	}
	return out, nil
}
