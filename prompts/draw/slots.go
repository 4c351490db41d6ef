package draw

import (
	"context"
	"fmt"
	"strings"

	"kvladder/prompts"
)

// ubatch is the batch that a llama-server under test prefills in (-ub 64).
const ubatch = 64

// slots: one prompt for each slot of a llama-server, with the slot's number in the body.
//
// Lengths are 64 b + 1 with b in 5..9. A full hit evaluates one token, the last; a server that
// prefills in batches of 64 evaluates that token in a batch of its own too, so that both
// arithmetics are the same and equal logprobs can be asked for.
//
// The text is an instruction and a report in plain sentences; nothing is to be found in it,
// since the smallest models find nothing. What the tokenizer puts before a text, a
// beginning-of-sequence token as a rule, is written into the ids: the server adds none to
// ids.
func slots(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.spec.Wire.Dialect != "llamacpp" {
		return nil, fmt.Errorf("dialect %q has no slots: use llamacpp", d.spec.Wire.Dialect)
	}
	var out []prompts.Prompt
	for i := range d.spec.N {
		if err := d.goOn(ctx); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("d%02d", i+1)
		r := stream(d.spec.Seed, "slots "+name)
		blocks := r.within(5, 9)
		n := ubatch*blocks + 1
		ids, err := d.sentences(ctx, r, n)
		if err != nil {
			return nil, err
		}
		slot := i
		out = append(out, prompts.Prompt{
			ID:       fmt.Sprintf("r%02d", i+1),
			Role:     prompts.Target,
			Document: name,
			Class: prompts.Class{
				Label:     fmt.Sprintf("m%d/l%d/e0", n%d.bound, n-1),
				LengthMod: n % d.bound,
				Local:     n - 1,
			},
			Tokens: ids,
			Body:   d.spec.Wire.Body(ids, d.spec.MaxTokens, &slot),
			Slot:   &slot,
		})
		d.made(&out[i])
	}
	return out, nil
}

// sentences are n ids of an instruction and a report in plain sentences.
func (d *desk) sentences(ctx context.Context, r *random, n int) ([]int, error) {
	text := instructions[r.below(len(instructions))]
	var ids []int
	for len(ids) < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for range 24 {
			text += " " + sentence(r)
		}
		var err error
		if ids, err = d.tok.Encode(ctx, text); err != nil {
			return nil, err
		}
		if len(text) > 1<<20 {
			return nil, fmt.Errorf("tokenizer %s makes only %d tokens of %d bytes", d.tok.Name(), len(ids), len(text))
		}
	}
	return ids[:n:n], nil
}

var instructions = []string{
	"Read the report of the harbor office and go on with it in the same plain style.\n\n",
	"Below is a page of a village diary. Write the next lines of the page.\n\n",
	"The notes of the night watch follow. Add what the watch would write next.\n\n",
	"Continue the letter. Keep to short sentences and to what a traveller could see.\n\n",
}

// sentence is one of a small grammar: time, subject, verb, object and place.
func sentence(r *random) string {
	pick := func(s []string) string { return s[r.below(len(s))] }
	s := pick(subjects) + " " + pick(verbs) + " " + pick(objects)
	if r.below(3) > 0 {
		s += " " + pick(places)
	}
	if r.below(3) == 0 {
		s = pick(times) + ", " + s
	}
	if r.below(4) == 0 {
		s += ", and " + pick(subjects) + " " + pick(verbs) + " " + pick(objects)
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

var (
	times    = []string{"in the morning", "before noon", "after the rain", "at dusk", "two days later", "by lamplight", "when the tide turned", "that winter"}
	subjects = []string{"the ferryman", "a young clerk", "the miller", "her brother", "the old captain", "a stranger in a grey coat", "the baker's wife", "one of the carpenters", "the keeper of the lighthouse", "a boy with a lantern", "the schoolteacher", "our neighbour"}
	verbs    = []string{"counted", "carried away", "mended", "forgot", "painted", "sold", "found", "weighed", "described", "returned", "hid", "asked about"}
	objects  = []string{"the broken oars", "a sack of barley", "three sealed letters", "the brass bell", "a map of the coast", "the last of the apples", "a coil of rope", "the key to the granary", "some copper coins", "a ledger with missing pages", "the wet sails", "two wooden chairs"}
	places   = []string{"near the bridge", "behind the chapel", "on the east quay", "under the chestnut tree", "at the edge of the marsh", "in the cold kitchen", "beside the mill pond", "along the upper road", "in front of the customs house", "between the boats"}
)
