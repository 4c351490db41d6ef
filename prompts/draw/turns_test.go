package draw

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every second turn is its first turn, what the model said, and a question; a boundary lies
// inside of the answer.
func TestTurnsGoOn(t *testing.T) {
	s := spec("turns", 3)
	asked := 0
	s.Continue = func(_ context.Context, ids []int, n int) ([]int, error) {
		asked++
		return slices.Repeat([]int{7}, n), nil
	}
	set := mustDraw(t, newSplitter(), s)
	half := len(set.Prompts) / 2
	if asked != half {
		t.Fatalf("the model was asked %d times for %d conversations", asked, half)
	}
	lengths := map[string]bool{}
	for i := range half {
		a, b := set.Prompts[i], set.Prompts[half+i]
		n := len(a.Tokens)
		says := 0
		for n+says < len(b.Tokens) && b.Tokens[n+says] == 7 {
			says++
		}
		every := s.Geometry.Boundary()
		switch {
		case !slices.Equal(a.Tokens, b.Tokens[:n]):
			t.Errorf("%s does not begin as %s", b.ID, a.ID)
		case n/every == (n+says-1)/every:
			t.Errorf("%s: no boundary in the answer to %d tokens, which has %d", a.ID, n, says)
		case !strings.Contains(a.Body, fmt.Sprintf(`"max_tokens":%d,`, says)) || !strings.Contains(a.Body, `"ignore_eos":true`):
			t.Errorf("%s asks for another answer than the %d tokens that %s holds", a.ID, says, b.ID)
		case strings.Contains(b.Body, "ignore_eos"):
			t.Errorf("%s goes on behind its end", b.ID)
		}
		lengths[fmt.Sprint(says)] = true
	}
	if len(lengths) < 3 {
		t.Errorf("answers of %d lengths", len(lengths))
	}
	s.Continue = nil
	if _, err := Draw(context.Background(), newSplitter(), s); err == nil || !strings.Contains(err.Error(), "no model to ask") {
		t.Errorf("without a model: %v", err)
	}
}

// Every seed draws: a short page that keys have filled is drawn again, until it has a tag.
func TestTurnsOfManySeeds(t *testing.T) {
	for seed := range uint64(20) {
		s := spec("turns", seed)
		s.Continue = func(_ context.Context, _ []int, n int) ([]int, error) { return make([]int, n), nil }
		tok := newSplitter()
		set, err := Draw(context.Background(), tok, s)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		for _, p := range set.Prompts[len(set.Prompts)/2:] {
			text := tok.decode(p.Tokens)
			name := text[len(text)-len("T00 ?") : len(text)-2]
			if !strings.Contains(text, "note: tag "+name+" is ") {
				t.Errorf("seed %d, %s asks for %q, which its text does not hold", seed, p.ID, name)
			}
		}
	}
}

// Every question is for what the prime leaves, and every value is named.
func TestPrimedAsksForThePrefix(t *testing.T) {
	set := mustDraw(t, newSplitter(), spec("primed", 3))
	for _, p := range set.Prompts {
		x := p.Expect.Needles[0]
		if p.Prime == nil || x.Rides != "attention" || x.End > p.Class.Local || p.Prime.Tokens <= p.Class.Local {
			t.Errorf("%s: needle to %d, local %d, prime %+v", p.ID, x.End, p.Class.Local, p.Prime)
		}
		if !slices.Contains(p.Codewords, x.Answer) {
			t.Errorf("%s does not name %s", p.ID, x.Answer)
		}
	}
}
