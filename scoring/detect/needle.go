package detect

import (
	"fmt"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Needle fires when a scored needle's answer is not in the reply. Diagnostic needles
// (Scored false) never fire it.
type Needle struct{}

func (Needle) Name() string { return "needle" }

func (Needle) Inspect(r *probes.Reply, e prompts.Expectation) scoring.Finding {
	if !judged(r) {
		return scoring.Finding{}
	}
	var wrong []string
	for _, n := range e.Needles {
		if n.Scored && !scoring.AnswerRight(n, r.Text) {
			wrong = append(wrong, n.Key)
		}
	}
	if len(wrong) == 0 {
		return scoring.Finding{}
	}
	return scoring.Finding{
		Fired:  true,
		Value:  value(float64(len(wrong))),
		Detail: fmt.Sprintf("wrong: %s", strings.Join(wrong, ", ")),
	}
}

func (Needle) Specimen() (*probes.Reply, prompts.Expectation) {
	return text("A1=70211\n"), prompts.Expectation{Needles: []prompts.Needle{{Key: "A1", Answer: "70212", Match: "field", Scored: true}}}
}
