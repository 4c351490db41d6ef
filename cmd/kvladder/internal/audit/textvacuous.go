package audit

import (
	"fmt"
	"slices"
	"strings"
)

var textVacuous = Lint{
	Code:  "TEXT_VACUOUS",
	Title: "rows whose replies are all empty",
	Explain: `Every reply in this list of rows is an empty text. Rows like these agree with any reference
that is empty as well, contain no damaged character and repeat nothing: all detectors are
silent and a comparison says "identical". A client that reads the reply from a member that
the server does not fill (reasoning in another member, a changed name) writes such rows.

Look at the bytes that were received. What was concluded from these rows is not shown.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			rows, texts := v.rows(), 0
			for _, r := range rows {
				for _, x := range r.Items {
					if x.Kind != Text || !slices.Contains(replyTexts, strings.ToLower(x.Key)) {
						continue
					}
					if strings.TrimSpace(x.Text) != "" {
						return
					}
					texts++
				}
			}
			if texts > 0 {
				out = append(out, at(f, v, fmt.Sprintf("%d rows hold %d replies and all of them are empty", len(rows), texts)))
			}
		})
		return out
	},
	Fires:  map[string]string{"rows.jsonl": "{\"id\": \"r1\", \"response_text\": \"\"}\n{\"id\": \"r2\", \"response_text\": \" \"}\n"},
	Silent: map[string]string{"rows.jsonl": "{\"id\": \"r1\", \"response_text\": \"\"}\n{\"id\": \"r2\", \"response_text\": \"A1=u\"}\n"},
}

var replyTexts = []string{"response_text", "text", "response", "output", "content", "completion", "reply", "reference_text", "candidate_text", "control_text", "arm_text", "actual", "generated", "generated_text"}
