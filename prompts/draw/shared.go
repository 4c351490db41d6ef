package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// groupSize is how many requests of shared-prefix share one prefix.
const groupSize = 4

// sharedPrefix: groups of four. The first request of a group is a document of its own; the
// others share its first P = k x R + d tokens and no more, k = 1 or 2 and d in R/4..R-1, so
// that the attention group can reuse more than the recurrent one. Lengths are 3R + m, m up to
// R-1 and with room for a question behind P. Asked are keys, and tags before and behind the boundary k x R, all in the shared
// prefix.
func sharedPrefix(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	type kind int
	const (
		key kind = iota
		tagBefore
		tagBehind
	)
	asks := deck(stream(d.spec.Seed, "shared-prefix"), d.spec.N, []int{40, 35, 25}, []kind{key, tagBefore, tagBehind})
	var (
		out   []prompts.Prompt
		doc   *page
		k, d1 int
		used  map[int]bool
		r     *random
	)
	for i, a := range asks {
		name := fmt.Sprintf("g%02d", i/groupSize+1)
		first := i%groupSize == 0
		if first {
			r = stream(d.spec.Seed, "shared-prefix "+name)
			k, d1, used = r.within(1, 2), r.within(d.unit/4, d.unit-1), map[int]bool{}
		}
		at := k * d.unit
		cut := at + d1
		room, err := d.room(ctx)
		if err != nil {
			return nil, err
		}
		n := d.length(r, 3, max(1, cut+splice+room-3*d.unit))
		var p *page
		if first {
			p, err = d.sharedDocument(ctx, r, n, at, cut)
			doc = p
		} else {
			p, err = doc.branch(ctx, r, n, cut, used)
			if err == nil {
				err = p.scatter(ctx)
			}
		}
		if err != nil {
			return nil, err
		}
		var x *needle
		switch a {
		case key:
			x, err = p.pick('K', 0, cut)
		case tagBefore:
			x, err = p.pick('T', 0, at)
		case tagBehind:
			x, err = p.pick('T', at, cut)
		}
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

// sharedDocument plants a key and a tag before at, and a tag between at and cut.
func (d *desk) sharedDocument(ctx context.Context, r *random, n, at, cut int) (*page, error) {
	for range 100 {
		p, err := d.page(ctx, r, n, true)
		if err != nil {
			return nil, err
		}
		p.walls = []int{cut}
		err = p.plantAll(ctx, want{'T', at, cut}, want{'T', 0, at}, want{'K', 0, at})
		if err == errNoRoom {
			continue
		}
		if err != nil {
			return nil, err
		}
		return p, p.scatter(ctx)
	}
	return nil, fmt.Errorf("%d tokens have no room for a tag behind position %d", cut, at)
}
