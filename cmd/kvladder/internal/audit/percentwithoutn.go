package audit

import (
	"fmt"
	"regexp"
)

var percentWithoutN = Lint{
	Code:  "PERCENT_WITHOUT_N",
	Title: "a share without the number that it is a share of",
	Explain: `100 % of 3 and 100 % of 3,000 are different findings, and a hit rate over 12,000 requests of
one geometry is one case. Here a percentage or a rate stands alone: no count beside it says
of how many. No bound can be computed from it, and it cannot be compared with another.

Ask for k and n. From them: none in n requests bounds a rate by 1 - 0.05^(1/n) with 95 %
confidence (Clopper and Pearson, Biometrika 1934).`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			o := v.Parent
			if o == nil || o.Kind != Object || v.under(settings...) || replyNames.MatchString(v.Key) {
				return
			}
			what := ""
			switch v.Kind {
			case Number:
				if shareNames.MatchString(v.Key) && !notShares.MatchString(v.Key) {
					what = fmt.Sprintf("%s is %v and nothing beside it says of how many", v.Key, v.Num)
				}
			case Text:
				if m := percentText.FindString(v.Text); m != "" && len(v.Text) <= 400 && !ofText.MatchString(v.Text) {
					what = fmt.Sprintf("%q says %s and not of how many", v.Key, m)
				}
			}
			if what == "" {
				return
			}
			for _, x := range v.around() {
				if n, ok := x.integer(); ok && n >= 0 && sizeNames.MatchString(x.Key) {
					return
				}
				if x.Kind == Text && ofText.MatchString(x.Text) || x.rows() != nil {
					return
				}
			}
			out = append(out, at(f, v, what))
		})
		return out
	},
	Fires:  map[string]string{"summary.json": `{"hit_rate": 0.98, "note": "answers stayed 100% right"}`},
	Silent: map[string]string{"summary.json": `{"warm": {"hit_rate": 0.98, "queries": 12000}, "note": "right in 100% (38/38)", "thresholds": {"error_rate": 0.05}}`},
}

// settings are members below which numbers are asked for and not measured.
var settings = []string{"threshold", "config", "setting", "args", "param", "sampling", "environ", "limits", "rule", "launch"}

var (
	shareNames  = regexp.MustCompile(`(?i)(^|_)(percent|pct|percentage|rate|rates|accuracy)($|_)`)
	notShares   = regexp.MustCompile(`(?i)(sample|sampling|learning|bit|frame|arrival|request|token|tok)_?rate|per_s(ec)?|_(gt|ge|lt|le|min|max|limit|threshold)$`)
	percentText = regexp.MustCompile(`[0-9](?:[0-9.,]*[0-9])?\s?%`)
	ofText      = regexp.MustCompile(`(?i)[0-9]\s*(/|of|out of)\s*[0-9]|\bn\s*=\s*[0-9]|\b[0-9][0-9,]*\s+(requests|prompts|rows|samples|questions|runs|tokens|cases)`)
	sizeNames   = regexp.MustCompile(`(?i)^(n|k|m|of|N)$|(^|_)(n|num|count|counts|total|queries|hits|requests|samples|trials|rows|tokens|drafts|size|cases|questions|prompts|evaluations)($|_)`)
	replyNames  = regexp.MustCompile(`(?i)(response|prompt|reply|output|expected|completion)(_text)?$|^(text|content|messages?)$`)
)
