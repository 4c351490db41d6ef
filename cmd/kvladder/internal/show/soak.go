package show

import (
	"fmt"

	"kvladder/scoring"
)

// soak says how long a soak ran, why it ended, and where its failures began.
func soak(k *scoring.Soak) []string {
	if k == nil {
		return nil
	}
	ran := fmt.Sprintf("soak: %d of %d requests failed in %d of %d passes", k.Failed, k.Requests, k.Ran, k.Passes)
	if k.Sequence != nil {
		ran += fmt.Sprintf("; rate %.4f to %.4f (95 %%, whenever one looks)", k.Sequence.Low, k.Sequence.High)
	}
	out := []string{ran}
	at := func(s *scoring.Spot) string {
		return fmt.Sprintf("request %d (%s, pass %d)", s.Request, s.Prompt, s.Pass)
	}
	switch {
	case k.Rule == nil:
		out = append(out, "soak: no stopping rule is registered: it ran its length")
	case k.Decided == nil:
		out = append(out, fmt.Sprintf("soak: the %s decided nothing: it ran its length", k.Rule.Rule))
	case k.Stopped == nil:
		out = append(out, fmt.Sprintf("soak: the %s says %s at %s", k.Rule.Rule, k.Decision, at(k.Decided)))
	default:
		out = append(out, fmt.Sprintf("soak: the %s says %s at %s, and ended the run after pass %d", k.Rule.Rule, k.Decision, at(k.Decided), *k.Stopped))
	}
	if k.Onset != nil {
		out = append(out, fmt.Sprintf("soak: the failures begin at %s, by the CUSUM's alarm at %s", at(k.Onset), at(k.Alarm)))
	}
	return out
}
