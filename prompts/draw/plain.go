package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// plain: an instruction and a report in plain sentences, as in slots, for an engine with a
// block-hashed cache. The smallest real models find no needles in it: what is compared is what
// they say next.
//
// Registered ranges, unit R: length kR + m with k in 3..5, never 0 or 1 beyond a boundary, so
// that every way to compute a request ends with at least two tokens; a local span of R or 2R,
// the prime being 1..15 tokens longer.
func plain(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	var out []prompts.Prompt
	for i := range d.spec.N {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "plain "+name)
		local := d.unit * r.within(1, 2)
		prime := local + r.within(1, 15)
		p, err := d.plain(ctx, r, fmt.Sprintf("r%02d", i+1), name, local)
		if err != nil {
			return nil, err
		}
		p.Prime = &prompts.Prime{Tokens: prime, Body: d.spec.Wire.Body(p.Tokens[:prime], 1, nil)}
		out = append(out, p)
		d.made(&out[i])
	}
	return out, nil
}

// plainSalt: such prompts twice, in the order and with the primes of xidSalt.
func plainSalt(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.spec.Wire.Dialect != "vllm" {
		return nil, fmt.Errorf("dialect %s has no identities", d.spec.Wire.Dialect)
	}
	if d.spec.N%2 != 0 {
		return nil, fmt.Errorf("%d requests: they come in pairs", d.spec.N)
	}
	a, b := d.spec.Wire, d.spec.Wire
	a.Salt, b.Salt = identities[0], identities[1]
	var out []prompts.Prompt
	for i := range d.spec.N / 2 {
		name := fmt.Sprintf("d%02d", i+1)
		same, err := d.plain(ctx, stream(d.spec.Seed, "plain "+name), fmt.Sprintf("r%02d", i+1), name, 0)
		if err != nil {
			return nil, err
		}
		cross := same
		same.Salt, same.Body = a.Salt, a.Body(same.Tokens, d.spec.MaxTokens, nil)
		cross.ID, cross.Salt, cross.Body = same.ID+"x", b.Salt, b.Body(same.Tokens, d.spec.MaxTokens, nil)
		cross.Prime = &prompts.Prime{Tokens: len(same.Tokens), Body: same.Body}
		out = append(out, cross, same)
		d.made(&cross)
		d.made(&same)
	}
	return out, nil
}

// plain is one prompt of either kind, without a prime.
func (d *desk) plain(ctx context.Context, r *random, id, document string, local int) (prompts.Prompt, error) {
	if err := d.goOn(ctx); err != nil {
		return prompts.Prompt{}, err
	}
	n := d.length(r, r.within(3, 5), 2)
	for d.bound > 2 && n%d.bound < 2 {
		n = d.length(r, r.within(3, 5), 2)
	}
	ids, err := d.sentences(ctx, r, n)
	if err != nil {
		return prompts.Prompt{}, err
	}
	return prompts.Prompt{
		ID: id, Role: prompts.Target, Document: document, Class: d.class(n, local), Tokens: ids,
		Body: d.spec.Wire.Body(ids, d.spec.MaxTokens, nil), Salt: d.spec.Wire.Salt,
	}, nil
}
