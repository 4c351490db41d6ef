package audit

import (
	"fmt"
	"regexp"
)

var testWithoutCounts = Lint{
	Code:  "TEST_WITHOUT_COUNTS",
	Title: "a p-value without the integers that it came from",
	Explain: `A p-value is arithmetic over counts: of a paired test b and c, of a table its four cells, of
a screen k, n and m. Without them nobody can compute it again, see which test it was, or
tell one side from two. The same data give Fisher's exact test 0.0115 and McNemar's 0.0078.

Ask for the integers, the name of the test, and its side.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			if v.Kind != Number || v.Num < 0 || v.Num > 1 || !testNames.MatchString(v.Key) || v.under(settings...) {
				return
			}
			if v.Parent == nil || v.Parent.Kind != Object {
				return
			}
			n := 0
			for _, x := range v.around() {
				if _, ok := x.integer(); ok && !testNames.MatchString(x.Key) {
					n++
				}
				if x.Kind == List && len(x.Items) >= 2 {
					n += len(integers(x))
				}
			}
			if n < 2 {
				out = append(out, at(f, v, fmt.Sprintf("%s is %v and the counts that it came from are not beside it", v.Key, v.Num)))
			}
		})
		return out
	},
	Fires:  map[string]string{"stats.json": `{"comparison": {"test": "fisher", "p_value": 0.0115}}`},
	Silent: map[string]string{"stats.json": `{"comparison": {"test": "fisher", "p_value": 0.0115, "table": [[0, 38], [7, 31]]}, "mcnemar": {"p": 0.0078125, "b": 0, "c": 7}}`},
}

var testNames = regexp.MustCompile(`(?i)^(p|p_?val(ue)?s?)$|(^|_)p_?val(ue)?($|_)|^p_(fisher|mcnemar|exact|holm|chi2?|exceedance|one_sided|two_sided|adjusted)|^(fisher|mcnemar|wilcoxon|mannwhitney|binomial)_p$`)

// integers are the whole numbers in a list, also those of lists in it.
func integers(v *Value) []int {
	var out []int
	v.each(func(x *Value) {
		if n, ok := x.integer(); ok {
			out = append(out, n)
		}
	})
	return out
}
