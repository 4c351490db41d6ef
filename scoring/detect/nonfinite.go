package detect

import (
	"fmt"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// NonFinite fires when a number that must be finite was not: a token whose logprob came as
// null, NaN or an infinity, a corrupted-request counter of the engine that rose, or an
// internal error whose body complains of an out of range float (what Python's JSON writer
// says when logits turned NaN, so the fault is the engine's and not the transport's).
type NonFinite struct{}

func (NonFinite) Name() string { return "nonfinite" }

func (NonFinite) Inspect(r *probes.Reply, _ prompts.Expectation) scoring.Finding {
	for i, t := range r.Tokens {
		if t.NonFinite {
			return scoring.Finding{Fired: true, Value: value(float64(i)), Detail: fmt.Sprintf("the logprob of token %d is not a finite number", i)}
		}
	}
	for _, c := range r.Counters {
		if d, ok := c.Delta(); ok && c.Role == probes.Corrupted && d > 0 {
			return scoring.Finding{Fired: true, Value: value(d), Detail: "the engine counted non-finite values in this request"}
		}
	}
	if scoring.SpeaksOfNonFinite(r) {
		return scoring.Finding{Fired: true, Detail: "the engine could not write its own numbers: out of range float"}
	}
	return scoring.Finding{}
}

func (NonFinite) Specimen() (*probes.Reply, prompts.Expectation) {
	r := text("42")
	r.Tokens = []probes.Token{{ID: 7, Text: "42", NonFinite: true}}
	return r, english
}
