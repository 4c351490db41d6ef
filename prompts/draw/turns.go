package draw

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kvladder/prompts"
)

// turns: conversations of two turns. The first half of the Set are the first turns, documents
// that the model is to go on with; the second half, in the same order, are the same
// documents with what the model says (Spec.Continue) and a question behind it. Whatever an
// engine keeps while it writes an answer, the second turn finds.
//
// Registered ranges, unit R: the document ends 6..16 tokens before 2R or 3R, the answer goes
// 4..16 tokens beyond it, so that a boundary lies inside of every answer; no two neighbours
// have answers of one length. First turns ask nothing. Second turns ask for a tag, and no
// answer is called right, since a model may have said something of its own on it: two arms
// are compared.
func turns(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	n := d.spec.N
	switch {
	case d.spec.Continue == nil:
		return nil, errors.New("no model to ask how a text goes on")
	case d.spec.Wire.Dialect != "vllm":
		return nil, fmt.Errorf("dialect %s cannot be told to go on behind an end", d.spec.Wire.Dialect)
	case n%2 != 0:
		return nil, fmt.Errorf("%d requests: they come in pairs", n)
	}
	whole := d.spec.Wire
	whole.IgnoreEOS = true
	var first, second []prompts.Prompt
	before := 0
	for i := range n / 2 {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "turns "+name)
		short := r.within(6, 16)
		end := d.unit * r.within(2, 3)
		p, err := d.tagged(ctx, r, end-short)
		if err != nil {
			return nil, err
		}
		if err := p.write(ctx, nil); err != nil {
			return nil, err
		}
		says := before
		for says == before {
			says = short + r.within(4, 16)
		}
		before = says
		a := d.prompt(fmt.Sprintf("r%02d", i+1), name, p, nil, 0, 0)
		a.Body = whole.Body(p.ids, says, nil)
		first = append(first, a)
		x, err := p.pick('T', 0, p.n)
		if err != nil {
			return nil, err
		}
		answer, err := d.spec.Continue(ctx, p.ids, says)
		if err != nil {
			return nil, err
		}
		newline, err := d.of(ctx, "\n")
		if err != nil {
			return nil, err
		}
		ask, err := d.question(ctx, x.kind, x.entity)
		if err != nil {
			return nil, err
		}
		q := *p
		q.ids = append(append(append(append([]int(nil), p.ids...), answer...), newline...), ask...)
		second = append(second, d.prompt(fmt.Sprintf("r%02d", n/2+i+1), name, &q, nil, end, 0))
	}
	return append(first, second...), nil
}

// tagged is a page of n tokens with needles wherever there was room, a tag among them: keys
// go first, and may leave a short page none.
func (d *desk) tagged(ctx context.Context, r *random, n int) (*page, error) {
	for range 100 {
		p, err := d.page(ctx, r, n, false)
		if err != nil {
			return nil, err
		}
		if err := p.scatter(ctx); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.needles, func(x needle) bool { return x.kind == 'T' }) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%d tokens have no room for a tag", n)
}
