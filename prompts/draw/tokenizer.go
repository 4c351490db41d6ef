package draw

import (
	"context"
	"fmt"
)

// Tokenizer gives token ids to text.
type Tokenizer interface {
	// Name is what the Set's header says about it.
	Name() string
	// Encode returns the ids of text as a prompt, with whatever the model wants before
	// it, as a rule one beginning-of-sequence token.
	Encode(ctx context.Context, text string) ([]int, error)
}

// pieces remembers the ids of small texts, without the ids that open a prompt.
type pieces struct {
	tok   Tokenizer
	lead  []int // what opens every prompt
	known map[string][]int
	words []string // filler words of exactly one id
}

// open learns the leading ids, which are what two texts without a common letter have in
// common, and which filler words are one id each.
func (p *pieces) open(ctx context.Context) error {
	if p.known != nil {
		return nil
	}
	a, err := p.tok.Encode(ctx, "0")
	if err != nil {
		return err
	}
	b, err := p.tok.Encode(ctx, "Z")
	if err != nil {
		return err
	}
	n := 0
	for n < min(len(a), len(b))-1 && a[n] == b[n] {
		n++
	}
	p.lead = a[:n:n]
	p.known = map[string][]int{}
	for _, w := range vocabulary {
		ids, err := p.of(ctx, " "+w)
		if err != nil {
			return err
		}
		if len(ids) == 1 {
			p.words = append(p.words, " "+w)
		}
	}
	if len(p.words) < 32 {
		return fmt.Errorf("tokenizer %s: only %d of %d filler words are one token, 32 are needed", p.tok.Name(), len(p.words), len(vocabulary))
	}
	for _, s := range []string{" .", "\n"} {
		if ids, err := p.of(ctx, s); err != nil {
			return err
		} else if len(ids) != 1 {
			return fmt.Errorf("tokenizer %s: %q is %d tokens, it has to be one", p.tok.Name(), s, len(ids))
		}
	}
	return nil
}

// of returns the ids of text standing inside a prompt.
func (p *pieces) of(ctx context.Context, text string) ([]int, error) {
	if ids, ok := p.known[text]; ok {
		return ids, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ids, err := p.tok.Encode(ctx, text)
	if err != nil {
		return nil, err
	}
	for i, id := range p.lead {
		if i >= len(ids) || ids[i] != id {
			return nil, fmt.Errorf("tokenizer %s: %q does not begin as other texts do", p.tok.Name(), text)
		}
	}
	ids = ids[len(p.lead):]
	if len(ids) == 0 {
		return nil, fmt.Errorf("tokenizer %s: %q has no tokens", p.tok.Name(), text)
	}
	p.known[text] = ids
	return ids, nil
}
