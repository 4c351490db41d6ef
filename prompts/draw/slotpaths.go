package draw

import (
	"context"
	"fmt"
	"slices"

	"kvladder/prompts"
)

// step is what the lengths of these kinds are 1 modulo of: a llama-server that prefills in
// pieces of 16 tokens computes the last token alone, as a full hit does.
const step = 16

// slotsShort: as slots, in lengths of 16 b + 1, no two of them equal: b is 4 and up, n + 1
// values of which n are drawn.
func slotsShort(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	return slotPrompts(ctx, d, true)
}

// slotsFree: as slotsShort, and no slot is named in the body: the server chooses one, or
// whoever sends the request does.
func slotsFree(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	return slotPrompts(ctx, d, false)
}

func slotPrompts(ctx context.Context, d *desk, named bool) ([]prompts.Prompt, error) {
	lengths := make([]int, d.spec.N+1)
	for i := range lengths {
		lengths[i] = step*(4+i) + 1
	}
	shuffle(stream(d.spec.Seed, "lengths"), lengths)
	var out []prompts.Prompt
	for i := range d.spec.N {
		name := fmt.Sprintf("d%02d", i+1)
		ids, err := d.report(ctx, name, lengths[i])
		if err != nil {
			return nil, err
		}
		var slot *int
		if named {
			slot = new(i)
		}
		out = append(out, d.inSlot(len(out), name, ids, len(ids)-1, slot))
	}
	return out, nil
}

// slotPairs: two prompts for each slot. The second is the first without its middle, so that
// what lies behind the middle is in the slot already, at other positions. The beginning that
// both share is 17..49 tokens long, the middle 32..80, the rest 64..256.
func slotPairs(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.spec.N%2 != 0 {
		return nil, fmt.Errorf("%d requests: they come in pairs", d.spec.N)
	}
	var out []prompts.Prompt
	for i := range d.spec.N / 2 {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "pairs "+name)
		head, middle, rest := step*r.within(1, 3)+1, step*r.within(2, 5), step*r.within(4, 16)
		ids, err := d.report(ctx, name, head+middle+rest)
		if err != nil {
			return nil, err
		}
		out = append(out, d.inSlot(len(out), name, ids, head, new(i)))
		out = append(out, d.inSlot(len(out), name, slices.Concat(ids[:head], ids[head+middle:]), head, new(i)))
	}
	return out, nil
}

// slotGrow: three prompts for each slot: a text; the text and more behind it; and the first
// half of the text and another end. The text has 65..257 tokens, what is put behind it 32..96.
func slotGrow(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.spec.N%3 != 0 {
		return nil, fmt.Errorf("%d requests: they come in threes", d.spec.N)
	}
	var out []prompts.Prompt
	for i := range d.spec.N / 3 {
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "grow "+name)
		text, more := step*r.within(4, 16)+1, step*r.within(2, 6)
		half := text / 2
		ids, err := d.report(ctx, name, text+more)
		if err != nil {
			return nil, err
		}
		other, err := d.report(ctx, name+" other", text+more)
		if err != nil {
			return nil, err
		}
		out = append(out, d.inSlot(len(out), name, ids[:text:text], text-1, new(i)))
		out = append(out, d.inSlot(len(out), name, ids, text, new(i)))
		out = append(out, d.inSlot(len(out), name, slices.Concat(ids[:half], other[half:text]), half, new(i)))
	}
	return out, nil
}

// inSlot freezes the ids of one prompt; local is what its slot holds of it when it comes.
func (d *desk) inSlot(i int, document string, ids []int, local int, slot *int) prompts.Prompt {
	p := prompts.Prompt{
		ID: fmt.Sprintf("r%02d", i+1), Role: prompts.Target, Document: document,
		Class:  prompts.Class{Label: fmt.Sprintf("n%d/l%d/e0", len(ids), local), LengthMod: len(ids) % d.bound, Local: local},
		Tokens: ids, Slot: slot, Body: d.spec.Wire.Body(ids, d.spec.MaxTokens, slot),
	}
	d.made(&p)
	return p
}

// report is n ids of an instruction and a report in plain sentences.
func (d *desk) report(ctx context.Context, name string, n int) ([]int, error) {
	if d.spec.Wire.Dialect != "llamacpp" {
		return nil, fmt.Errorf("dialect %q has no slots: use llamacpp", d.spec.Wire.Dialect)
	}
	if err := d.goOn(ctx); err != nil {
		return nil, err
	}
	return d.sentences(ctx, stream(d.spec.Seed, "slots "+name), n)
}
