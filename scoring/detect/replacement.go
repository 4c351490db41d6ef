package detect

import (
	"fmt"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Replacement fires on AtLeast or more U+FFFD in the text: bytes that were no text in any
// script, so the expectation does not matter.
type Replacement struct{ AtLeast int }

func (Replacement) Name() string { return "replacement" }

func (d Replacement) Inspect(r *probes.Reply, _ prompts.Expectation) scoring.Finding {
	if !judged(r) {
		return scoring.Finding{}
	}
	n := strings.Count(said(r), "\uFFFD")
	f := scoring.Finding{Value: value(float64(n))}
	if d.AtLeast > 0 && n >= d.AtLeast {
		f.Fired, f.Damaged = true, true
		f.Detail = fmt.Sprintf("%d replacement characters", n)
	}
	return f
}

func (d Replacement) Specimen() (*probes.Reply, prompts.Expectation) {
	return text("cipher" + many("\uFFFD", max(1, d.AtLeast))), english
}
