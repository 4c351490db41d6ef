package scoring

import (
	"fmt"
	"regexp"
	"strings"

	"kvladder/probes"
)

// noNumber is how servers speak of a number that they could not write: Python's JSON writer
// of an out of range float, others of NaN, infinities or non-finite values.
var noNumber = regexp.MustCompile(`(?i)out[ -]of[ -]range float|non-?finite|not finite|\bnan\b|\binf(inity)?\b`)

// SpeaksOfNonFinite says whether a server's error (HTTP 5xx) complains of its own numbers.
// Such an error is evidence about the computation; any other one says only that the request
// was refused.
func SpeaksOfNonFinite(r *probes.Reply) bool {
	return r.Status >= 500 && (noNumber.MatchString(r.Raw) || noNumber.MatchString(r.Error))
}

// unanswered says why a reply is no answer, "" where it is one: it did not come whole, the
// server refused the request, or the engine ended it before the first token. None of these
// says anything about the text that the request would have got.
func unanswered(r *probes.Reply) string {
	if SpeaksOfNonFinite(r) {
		return ""
	}
	silent := len(r.Tokens) == 0 && strings.TrimSpace(r.Text) == "" && strings.TrimSpace(r.Reasoning) == ""
	switch {
	case r.ErrorKind == "" && r.Error == "" && !r.Truncated && (r.Status == 0 || r.Status == 200):
		if silent && (r.Finish == "abort" || r.Finish == "error") {
			return fmt.Sprintf("the engine ended it before any token: finish reason %q", r.Finish)
		}
		return ""
	case r.Truncated && r.Error == "":
		return "the reply was cut"
	}
	parts := []string{}
	for _, p := range []string{r.ErrorKind, r.Error} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if r.Status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", r.Status))
	}
	return strings.Join(parts, ", ")
}
