package detect

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// NGram5 fires when the share of the text's five-word runs that are repeats is AtLeast or
// more. A text of fewer than Words words is not judged: its value is absent.
type NGram5 struct {
	AtLeast float64
	Words   int
}

func (NGram5) Name() string { return "ngram5" }

func (d NGram5) Inspect(r *probes.Reply, _ prompts.Expectation) scoring.Finding {
	if !judged(r) {
		return scoring.Finding{}
	}
	ratio, ok := repetition(strings.FieldsFunc(said(r), space), d.Words)
	if !ok {
		return scoring.Finding{}
	}
	f := scoring.Finding{Value: &ratio}
	if ratio >= d.AtLeast {
		f.Fired, f.Damaged = true, true
		f.Detail = fmt.Sprintf("%.6f of the five-word runs are repeats", ratio)
	}
	return f
}

// repetition is 1 - distinct/all over the five-word runs, rounded to six places.
func repetition(words []string, least int) (float64, bool) {
	if len(words) < max(5, least) {
		return 0, false
	}
	ids := make(map[string]int32, len(words))
	seen := make(map[[5]int32]struct{}, len(words))
	var run [5]int32
	for i, w := range words {
		id, ok := ids[w]
		if !ok {
			id = int32(len(ids))
			ids[w] = id
		}
		copy(run[:], run[1:])
		run[4] = id
		if i >= 4 {
			seen[run] = struct{}{}
		}
	}
	n := len(words) - 4
	return math.RoundToEven((1-float64(len(seen))/float64(n))*1e6) / 1e6, true
}

func (d NGram5) Specimen() (*probes.Reply, prompts.Expectation) {
	return text(many("so it goes ", 10+d.Words)), english
}

// space splits words like Python's str.split, in which the published figures were made:
// the four information separators part words too.
func space(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }
