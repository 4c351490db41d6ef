package draw

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// opening is the least filler before the first needle of a page.
const opening = 7

// splice is the least that a branch puts where it leaves its prefix: a word, and the end of
// its line.
const splice = 3

// errNoRoom says that a needle did not fit where it was wanted.
var errNoRoom = errors.New("no room")

// page is a text under construction: a prefix that is there already, needles that have
// their places, and filler between them. It comes out at exactly n tokens.
type page struct {
	d       *desk
	r       *random
	n       int
	from    int   // lines are placed at or behind this position
	to      int   // and end at or before this one
	walls   []int // positions that no line may lie across: texts are cut there
	lines   []line
	needles []needle // all of them, inherited ones too, with their positions in the page
	free    map[byte][]int

	ids  []int
	open bool // inside a sentence
	left int  // words it still gets
}

// How many names of each kind a page draws its needles from. Every page of a Set uses the
// same names with values of its own: a page that reads another's cache then answers with
// the other's value.
const (
	keysPerPage = 6
	tagsPerPage = 5
)

// page begins a text of n tokens. The end is kept for a question when there is to be one.
func (d *desk) page(ctx context.Context, r *random, n int, asked bool) (*page, error) {
	if err := d.goOn(ctx); err != nil {
		return nil, err
	}
	if err := d.pieces.open(ctx); err != nil {
		return nil, err
	}
	p := &page{d: d, r: r, n: n, ids: slices.Clone(d.lead), free: map[byte][]int{}}
	p.from, p.to = len(d.lead)+opening, n
	p.names('K', keysPerPage)
	p.names('T', tagsPerPage)
	if err := p.keepEnd(ctx, asked); err != nil {
		return nil, err
	}
	return p, nil
}

// names gives the page the first n names of a kind, in random order.
func (p *page) names(kind byte, n int) {
	p.free[kind] = nil
	for e := range n {
		p.free[kind] = append(p.free[kind], e)
	}
	shuffle(p.r, p.free[kind])
}

// keepEnd keeps room for the longer of the two questions.
func (p *page) keepEnd(ctx context.Context, asked bool) error {
	if !asked {
		return nil
	}
	room, err := p.d.room(ctx)
	if err != nil {
		return err
	}
	p.to -= room
	if p.to < p.from {
		return fmt.Errorf("%d tokens are too few for a question", p.n)
	}
	return nil
}

// branch begins a text of n tokens that shares exactly the first cut tokens with p, which
// must be written, and with every other branch that used tells of: used holds the ids seen
// at position cut, and gets one more.
func (p *page) branch(ctx context.Context, r *random, n, cut int, used map[int]bool) (*page, error) {
	if err := p.d.goOn(ctx); err != nil {
		return nil, err
	}
	b := &page{d: p.d, r: r, n: n, ids: slices.Clone(p.ids[:cut]), from: cut + splice, to: n, free: map[byte][]int{}}
	taken := map[string]bool{}
	for _, x := range p.needles {
		if x.end <= cut {
			b.needles = append(b.needles, x)
			taken[x.name()] = true
		}
	}
	for _, kind := range []byte{'K', 'T'} {
		b.names(kind, map[byte]int{'K': keysPerPage, 'T': tagsPerPage}[kind])
		b.free[kind] = slices.DeleteFunc(b.free[kind], func(e int) bool {
			x := needle{kind: kind, entity: e}
			return taken[x.name()]
		})
	}
	if cut < len(p.ids) {
		used[p.ids[cut]] = true
	}
	for range 1000 {
		w, err := b.word(ctx)
		if err != nil {
			return nil, err
		}
		if !used[w] {
			used[w] = true
			b.ids = append(b.ids, w)
			b.open, b.left = true, r.within(3, 9)
			return b, b.keepEnd(ctx, true)
		}
	}
	return nil, errors.New("every filler word follows the shared prefix already: ask for fewer requests")
}

// plant places a new needle of kind whose rows, from its name to its end, lie in [lo, hi).
// The place is drawn among all that are free; errNoRoom says there is none.
func (p *page) plant(ctx context.Context, kind byte, lo, hi int) error {
	if len(p.free[kind]) == 0 {
		return errNoRoom
	}
	l, err := p.d.fact(ctx, kind, p.free[kind][0])
	if err != nil {
		return err
	}
	var places []int
	for at := max(p.from, lo-l.needle.offset); at+l.needle.end <= hi && at+len(l.ids) <= p.to; at++ {
		if p.clear(at, at+len(l.ids)) {
			places = append(places, at)
		}
	}
	if len(places) == 0 {
		return errNoRoom
	}
	p.free[kind] = p.free[kind][1:]
	l.at = places[p.r.below(len(places))]
	l.needle.offset += l.at
	l.needle.end += l.at
	p.lines = append(p.lines, l)
	p.needles = append(p.needles, l.needle)
	return nil
}

// clear reports whether a line over [a, b) meets no other line and no wall.
func (p *page) clear(a, b int) bool {
	for _, l := range p.lines {
		if a < l.at+len(l.ids) && l.at < b {
			return false
		}
	}
	for _, w := range p.walls {
		if a < w && w < b {
			return false
		}
	}
	return true
}

// scatter plants all names that are left, wherever there is room.
func (p *page) scatter(ctx context.Context) error {
	for _, kind := range []byte{'K', 'T'} {
		for len(p.free[kind]) > 0 {
			err := p.plant(ctx, kind, 0, p.to)
			if err == errNoRoom {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// pick draws one of the page's needles of kind whose rows lie in [lo, hi).
func (p *page) pick(kind byte, lo, hi int) (*needle, error) {
	var fit []needle
	for _, x := range p.needles {
		if x.kind == kind && x.offset >= lo && x.end <= hi {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("no %c needle in [%d, %d)", kind, lo, hi)
	}
	return &fit[p.r.below(len(fit))], nil
}

// write puts the page into ids, with the question for ask at its end; nil asks nothing.
func (p *page) write(ctx context.Context, ask *needle) error {
	slices.SortFunc(p.lines, func(a, b line) int { return a.at - b.at })
	for _, l := range p.lines {
		if err := p.fill(ctx, l.at); err != nil {
			return err
		}
		p.ids = append(p.ids, l.ids...)
	}
	var tail []int
	if ask != nil {
		var err error
		if tail, err = p.d.question(ctx, ask.kind, ask.entity); err != nil {
			return err
		}
	}
	if err := p.fill(ctx, p.n-len(tail)); err != nil {
		return err
	}
	p.ids = append(p.ids, tail...)
	if len(p.ids) != p.n {
		return fmt.Errorf("text of %d tokens came out at %d: the tokenizer counts some names longer than others", p.n, len(p.ids))
	}
	return nil
}

// fill writes sentences of words up to position to, and ends the last one. One or two
// positions at the start of a line become empty lines.
func (p *page) fill(ctx context.Context, to int) error {
	stop, err := p.d.of(ctx, " .")
	if err != nil {
		return err
	}
	newline, err := p.d.of(ctx, "\n")
	if err != nil {
		return err
	}
	for len(p.ids) < to {
		room := to - len(p.ids)
		switch {
		case !p.open && room <= 2, room == 1:
			p.ids = append(p.ids, newline...)
			p.open = false
		case room == 2, p.open && p.left <= 0 && room > 4:
			p.ids = append(append(p.ids, stop...), newline...)
			p.open = false
		default:
			if !p.open {
				p.open, p.left = true, p.r.within(5, 12)
			}
			w, err := p.word(ctx)
			if err != nil {
				return err
			}
			p.ids = append(p.ids, w)
			p.left--
		}
	}
	return nil
}

// word draws a filler word.
func (p *page) word(ctx context.Context) (int, error) {
	ids, err := p.d.of(ctx, p.d.words[p.r.below(len(p.d.words))])
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}
