package draw

import (
	"context"
	"fmt"

	"kvladder/prompts"
)

// needle is a fact planted in a page.
type needle struct {
	kind   byte // 'K': a key, recalled by attention; 'T': a tag, recalled by the recurrent state
	entity int
	value  int
	offset int // token position of the entity's name
	end    int // one past the mark that ends the fact: the last token that carries the answer
}

func (n *needle) name() string { return fmt.Sprintf("%c%02d", n.kind, n.entity) }

// frozen is the needle as the Set keeps it; a model without recurrent state has attention
// alone to carry a tag.
func (n *needle) frozen(g prompts.Geometry) prompts.Needle {
	rides := "attention"
	if n.kind == 'T' && g.RecurrentBlock > 0 {
		rides = "recurrent"
	}
	return prompts.Needle{
		Key: n.name(), Answer: fmt.Sprint(n.value),
		Offset: n.offset, End: n.end, Rides: rides, Scored: true,
	}
}

// line is the text of a needle, as ids. Its needle's offset and end are counted from the
// line's start until the line is placed.
type line struct {
	at     int
	ids    []int
	needle needle
}

// fact writes "fact: key K07 is 4821 .\n", or for a tag "note: tag T03 is 772 .\n".
func (d *desk) fact(ctx context.Context, kind byte, entity int) (line, error) {
	l := line{needle: needle{kind: kind, entity: entity, value: d.values[kind].next()}}
	name := l.needle.name()
	text := []string{"fact:", " key", " " + name, " is", fmt.Sprintf(" %d", l.needle.value), " .", "\n"}
	if kind == 'T' {
		text[0], text[1] = "note:", " tag"
	}
	for i, s := range text {
		ids, err := d.of(ctx, s)
		if err != nil {
			return line{}, err
		}
		if i == 2 {
			l.needle.offset = len(l.ids)
		}
		l.ids = append(l.ids, ids...)
		if i == 5 {
			l.needle.end = len(l.ids)
		}
	}
	return l, nil
}

// question writes "question: key K07 ?" and the cue. The reply begins right behind it.
func (d *desk) question(ctx context.Context, kind byte, entity int) ([]int, error) {
	n := needle{kind: kind, entity: entity}
	text := []string{"question:", " key", " " + n.name(), " ?"}
	if kind == 'T' {
		text[1] = " tag"
	}
	if d.spec.Cue != "" {
		text = append(text, d.spec.Cue)
	}
	var out []int
	for _, s := range text {
		ids, err := d.of(ctx, s)
		if err != nil {
			return nil, err
		}
		out = append(out, ids...)
	}
	return out, nil
}

// room is the length of the longer of the two questions.
func (d *desk) room(ctx context.Context) (int, error) {
	if err := d.open(ctx); err != nil {
		return 0, err
	}
	k, err := d.question(ctx, 'K', 0)
	if err != nil {
		return 0, err
	}
	t, err := d.question(ctx, 'T', 0)
	return max(len(k), len(t)), err
}
