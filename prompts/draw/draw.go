// Package draw makes the prompts of a Set: one file for each kind.
//
//  1. A Spec says the kind, how many requests, the seed, where the engine can cut a prompt,
//     and the wire form of the bodies.
//  2. Every text is put together from small pieces, each a word, a mark or a number, and a
//     Tokenizer gives the ids of each piece. So the token position of everything is known,
//     and a prompt has exactly the length that was drawn for it.
//  3. Draw freezes the result. Equal Specs and equal tokenizers give equal bytes.
//
// Nothing is asked of a model here, but for how a first turn goes on: an answer is right
// because the text says so.
//
// All geometry is counted from the end of a prompt of n tokens. An engine must compute at
// least one token, so the deepest boundary that a request can resume from is
//
//	last(n) = floor((n-1)/B) x B
//
// where B is the largest of the engine's block sizes. Asked needles lie where a fault can
// reach them: below last(n), in what can be reused.
package draw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kvladder/prompts"
)

// Spec says what to draw.
type Spec struct {
	Kind      string // one of Kinds
	Name      string // of the Set
	N         int    // requests; 0 is the kind's own number
	Seed      uint64
	Geometry  prompts.Geometry
	Wire      Wire
	MaxTokens int    // tokens asked for in a reply; 0 is the kind's own number
	Cue       string // text after the question, for models that need one: "\nanswer:"
	Note      string
	Licence   string
	File      io.Reader // kind "file": the JSONL that the prompts come from

	// Continue is kind "turns": the n tokens that the model says behind ids, greedily and
	// behind an end of its own too.
	Continue func(ctx context.Context, ids []int, n int) ([]int, error)
}

// Bounds of a draw. A Set of MaxN short requests is a few hundred megabytes; where requests are
// long, MaxDrawn ends the draw before the machine's memory does.
const (
	MaxN      = 100_000
	MaxTokens = 1_000_000 // of a reply
	MaxDrawn  = 512 << 20 // bytes of bodies and of ids as text

	maxUnit = 1 << 17 // tokens that prompts are planned in
)

// Kind is one way to draw a Set.
type Kind struct {
	Name      string
	About     string // one line
	N         int    // requests when none are asked for
	MaxTokens int
	Random    bool // geometry drawn at random from ranges written in the kind's file
	Classes   int  // fewest classes of a Set of N or more requests: a draw with fewer is refused

	draw func(context.Context, *desk) ([]prompts.Prompt, error)
}

var kinds = []Kind{
	{"mixed", "documents of their own and a quarter that share a prefix, each with a prime", 48, 8, true, 32, mixed},
	{"needle", "documents of their own, nothing shared", 48, 8, true, 24, needles},
	{"brief", "the shortest documents of their own that meet cache and store, each with a prime", 48, 8, true, 24, brief},
	{"shared-prefix", "groups of four that share a prefix which ends between boundaries", 48, 8, true, 24, sharedPrefix},
	{"partial-hit", "lengths swept over all residues of the boundary, each with a prime", 48, 8, false, 32, partialHit},
	{"fixed-hit", "equal lengths and equal primes: one geometry, however many requests", 24, 8, false, 1, fixedHit},
	{"t1", "the divergent hit: seed, longer and followers, needles before and after the boundary", 48, 8, true, 32, divergentHit},
	{"t1-private", "as t1, with the values named that only one document holds", 48, 8, true, 32, privateHit},
	{"sub-block", "prompts shorter than one boundary: nothing can be reused", 12, 8, true, 6, subBlock},
	{"prose", "words alone, no needles", 48, 24, true, 24, prose},
	{"bystanders", "documents of their own, and bystanders: some share a prefix with one of them, some are too short to be reused; private values named", 48, 8, true, 32, bystanders},
	{"primed", "documents of their own, each with a prime of all but its end and a question for what that leaves; private values named", 48, 8, true, 32, primed},
	{"turns", "conversations of two turns, the second with what the model said in the first", 48, 8, true, 24, turns},
	{"wide", "documents of their own, each with a prime, no two of one geometry: the kind for --for-rate 0.01", 48, 8, true, 48, wide},
	{"xid-salt", "pairs of equal prompts under two cache salts", 48, 8, true, 20, xidSalt},
	{"xid-image", "pairs of equal prompts under two images (the embedded engine's mm_hash)", 48, 8, true, 20, xidImage},
	{"xid-adapter", "pairs of equal prompts under two model names", 48, 8, true, 20, xidAdapter},
	{"slots", "prose for llama-server, one slot for each prompt, lengths 1 modulo 64", 12, 24, true, 2, slots},
	{"slots-short", "as slots, lengths 1 modulo 16 and no two equal", 12, 8, true, 2, slotsShort},
	{"slots-free", "as slots-short, the slot left to the server or to the client", 12, 8, true, 2, slotsFree},
	{"slots-pairs", "for llama-server, two prompts for each slot, the second without the middle of the first", 24, 8, true, 2, slotPairs},
	{"slots-grow", "for llama-server, three prompts for each slot: a text, the text and more, half of it and another end", 36, 8, true, 2, slotGrow},
	{"plain", "prose for a small real model with a paged cache, each with a prime, no tail of one token", 12, 4, true, 6, plain},
	{"plain-salt", "pairs of equal prose prompts under two cache salts, no tail of one token", 12, 4, true, 4, plainSalt},
	{"file", "prompts and answers read from a JSONL file", 0, 8, false, 0, fromFile},
}

// Kinds lists the kinds, in the order that help shows them.
func Kinds() []Kind { return slices.Clone(kinds) }

// Draw makes and freezes the Set of a Spec. It fails when the kind is unknown, when the
// geometry cannot carry it, when the tokenizer is unfit, or when the drawn lengths fall in
// too few classes for a bound (another seed helps then). It ends with the context's error as
// soon as ctx does.
func Draw(ctx context.Context, tok Tokenizer, s Spec) (*prompts.Set, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == s.Kind })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Name)
		}
		return nil, fmt.Errorf("kind %q is unknown: use one of %s", s.Kind, strings.Join(names, ", "))
	}
	k := kinds[i]
	if s.N == 0 {
		s.N = k.N
	}
	if s.N < 0 || s.N > MaxN {
		return nil, fmt.Errorf("%d requests: ask for 1 to %d", s.N, MaxN)
	}
	if s.MaxTokens == 0 {
		s.MaxTokens = k.MaxTokens
	}
	if s.MaxTokens < 1 || s.MaxTokens > MaxTokens {
		return nil, fmt.Errorf("replies of %d tokens: ask for 1 to %d", s.MaxTokens, MaxTokens)
	}
	if s.Name == "" {
		return nil, errors.New("a set needs a name")
	}
	if err := prompts.CheckName(s.Name); err != nil {
		return nil, fmt.Errorf("name %.80q of the set: %w", s.Name, err)
	}
	path, err := s.Wire.Path()
	if err != nil {
		return nil, err
	}
	if g := s.Geometry; max(g.AttentionBlock, g.RecurrentBlock, g.StoreChunk) > maxUnit {
		return nil, fmt.Errorf("block sizes %d, %d and %d: %d tokens are the most", g.AttentionBlock, g.RecurrentBlock, g.StoreChunk, maxUnit)
	}
	d := newDesk(tok, s)
	if d.unit > maxUnit {
		return nil, fmt.Errorf("boundary %d and store chunk %d meet every %d tokens, and prompts are several times as long: %d are the most", d.bound, s.Geometry.StoreChunk, d.unit, maxUnit)
	}
	ps, err := k.draw(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", s.Kind, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	set, err := prompts.Freeze(prompts.Header{
		Name:      s.Name,
		Kind:      s.Kind,
		Tokenizer: tok.Name(),
		Dialect:   s.Wire.Dialect,
		Path:      path,
		Model:     s.Wire.Model,
		Seed:      s.Seed,
		Random:    k.Random,
		Geometry:  s.Geometry,
		MaxTokens: s.MaxTokens,
		Note:      s.Note,
		Licence:   s.Licence,
	}, ps)
	if err != nil {
		return nil, err
	}
	if err := k.enough(len(ps), set.Classes()); err != nil {
		return nil, fmt.Errorf("kind %s, seed %d: %w", s.Kind, s.Seed, err)
	}
	return set, nil
}

// enough refuses a full Set whose requests fall in too few classes.
func (k Kind) enough(requests, classes int) error {
	if requests >= k.N && classes < k.Classes {
		return fmt.Errorf("%d requests of only %d geometries, %d are needed: try another seed", requests, classes, k.Classes)
	}
	return nil
}
