package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// The two identities of a pair.
var identities = [2]string{"tenant-a", "tenant-b"}

// xidSalt: every document twice, word for word, under two cache salts. xidAdapter: likewise
// under two model names, the served one and the served one with an adapter behind a colon.
// xidImage: under the digests of two images.
//
// The first of a pair (r01x) asks under the second identity; its prime is the whole prompt
// under the first, which is what the cache must not give it. The second of the pair (r01)
// asks under the first identity, and there the cache must give something: a cache that is
// off passes no pair. Registered ranges, unit R: length kR + m with k 3 or 4, m in 1..R-1.
func xidSalt(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	a, b := d.spec.Wire, d.spec.Wire
	a.Salt, b.Salt = identities[0], identities[1]
	return pairs(ctx, d, a, b, a.Salt, b.Salt)
}

func xidAdapter(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	a, b := d.spec.Wire, d.spec.Wire
	b.Model += ":" + identities[1]
	return pairs(ctx, d, a, b, "", identities[1])
}

func xidImage(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	a, b := d.spec.Wire, d.spec.Wire
	a.Image, b.Image = "image-a", "image-b"
	return pairs(ctx, d, a, b, a.Image, b.Image)
}

// pairs draws documents and freezes each under both wires; nameA and nameB are what Salt says
// of them.
func pairs(ctx context.Context, d *desk, a, b Wire, nameA, nameB string) ([]prompts.Prompt, error) {
	if d.spec.Wire.Dialect != "vllm" {
		return nil, fmt.Errorf("dialect %s has no identities", d.spec.Wire.Dialect)
	}
	if d.spec.N%2 != 0 {
		return nil, fmt.Errorf("%d requests: they come in pairs", d.spec.N)
	}
	asks := deck(stream(d.spec.Seed, "xid"), d.spec.N/2, []int{25, 25, 25, 25}, []ask{keyLocal, keyExternal, tagLocal, tagExternal})
	var out []prompts.Prompt
	for i, q := range asks {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "xid "+name)
		p, err := d.document(ctx, r, d.length(r, r.within(3, 4), 1), d.unit)
		if err != nil {
			return nil, err
		}
		x, err := p.answer(ctx, q, d.unit)
		if err != nil {
			return nil, err
		}
		same := d.prompt(fmt.Sprintf("r%02d", i+1), name, p, x, 0, 0)
		cross := same
		same.Salt, same.Body = nameA, a.Body(p.ids, d.spec.MaxTokens, nil)
		cross.ID, cross.Salt, cross.Body = same.ID+"x", nameB, b.Body(p.ids, d.spec.MaxTokens, nil)
		cross.Prime = &prompts.Prime{Tokens: len(p.ids), Body: same.Body}
		out = append(out, cross, same)
	}
	return out, nil
}
