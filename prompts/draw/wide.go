package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// wide: documents of their own, each with a prime, and no two of them of one geometry: a Set
// of so many requests counts so many classes. The more are asked for, the longer the spans
// that they are drawn from.
//
// Registered ranges, unit R: local span lR and external span eR with l and e in 1..s, length
// (l+e)R + m with m in 1..R-1 and the length no multiple of the boundary; s is the least that
// gives twice as many of these as there are requests. They are dealt in random order, each
// once. The prime is 1..15 tokens longer than the local span.
func wide(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	r := stream(d.spec.Seed, "wide")
	cuts := d.cuts(2 * d.spec.N)
	shuffle(r, cuts)
	asks := deck(r, d.spec.N, []int{10, 30, 10, 50}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, a := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		rd := stream(d.spec.Seed, "wide "+name)
		p, err := d.document(ctx, rd, cuts[i].n, cuts[i].local)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, a, cuts[i].local)
		if err != nil {
			return nil, err
		}
		out = append(out, d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, cuts[i].local, cuts[i].local+rd.within(1, 15)))
	}
	return out, nil
}

// cut is the length of a prompt and what its prime leaves in the local cache.
type cut struct{ n, local int }

// cuts lists at least so many, each of a class of its own.
func (d *desk) cuts(least int) []cut {
	var out []cut
	for s := 1; len(out) < least; s++ {
		out = out[:0]
		seen := map[string]bool{}
		for l := 1; l <= s; l++ {
			for e := 1; e <= s; e++ {
				for m := 1; m < d.unit; m++ {
					c := cut{(l+e)*d.unit + m, l * d.unit}
					if label := d.class(c.n, c.local).Label; (c.n%d.bound != 0 || d.bound == 1) && !seen[label] {
						seen[label] = true
						out = append(out, c)
					}
				}
			}
		}
	}
	return out
}
