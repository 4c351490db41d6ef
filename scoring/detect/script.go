package detect

import (
	"fmt"
	"math"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Script fires when more than the share Above of the text's runes lie outside printable
// ASCII, tab, LF, CR and a few typographic runes. The share is rounded to six places
// before it is compared, as the published ladders do. An expectation with script "any" is
// not judged.
type Script struct{ Above float64 }

func (Script) Name() string { return "script" }

func (d Script) Inspect(r *probes.Reply, e prompts.Expectation) scoring.Finding {
	if e.Script == "any" || !judged(r) {
		return scoring.Finding{}
	}
	share := outOfScript(said(r))
	f := scoring.Finding{Value: &share}
	if share > d.Above {
		f.Fired, f.Damaged = true, true
		f.Detail = fmt.Sprintf("%.6f of the runes are out of script", share)
	}
	return f
}

// outOfScript is the share of runes out of script, rounded to six places; 0 for "".
func outOfScript(s string) float64 {
	n, out := 0, 0
	for _, c := range s {
		n++
		if !inScript(c) {
			out++
		}
	}
	if n == 0 {
		return 0
	}
	return math.RoundToEven(float64(out)/float64(n)*1e6) / 1e6
}

func inScript(c rune) bool {
	if c >= 0x20 && c < 0x7f {
		return true
	}
	switch c {
	case '\t', '\n', '\r', 0x2018, 0x2019, 0x201C, 0x201D, 0x2013, 0x2014, 0x2026, 0xB0, 0xE9, 0xA0:
		return true
	}
	return false
}

func (Script) Specimen() (*probes.Reply, prompts.Expectation) {
	return text("the key is \u752b\u4e07\u5c81\u6c38"), english
}
