package audit

import (
	"fmt"
	"regexp"
)

var cleanUnbounded = Lint{
	Code:  "CLEAN_UNBOUNDED",
	Title: "called clean, and nothing says how clean",
	Explain: `No failure in n requests is compatible with a defect that strikes one request in many. What
it excludes is a number: none in 38 leaves up to 7.6 % (one-sided, 95 %), and up to 15.3 %
when the 38 are replays of 18 documents. Here something is called clean and the document
holds no bound, no interval and no confidence.

Compute the bound from n, over distinct geometries as well as over requests.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, f := range e.Files {
			if f.Root == nil {
				continue
			}
			bounded := false
			var clean []*Value
			f.Root.each(func(v *Value) {
				bounded = bounded || v.Key != "" && boundNames.MatchString(v.Key) && v.Kind != Null
				if v.Kind == Text && verdictNames.MatchString(v.Key) && cleanWords.MatchString(v.Text) {
					clean = append(clean, v)
				}
			})
			for _, v := range clean {
				if !bounded {
					out = append(out, at(f, v, fmt.Sprintf("%s is %q and the document holds no bound", v.Key, v.Text)))
				}
			}
		}
		return out
	},
	Fires:  map[string]string{"arm.json": `{"verdict": "CLEAN", "requests": 38, "failed": 0}`},
	Silent: map[string]string{"arm.json": `{"verdict": "CLEAN_BOUNDED", "requests": 38, "failed": 0, "upper95": 0.0758}`},
}

var (
	verdictNames = regexp.MustCompile(`(?i)^(verdict|status|result|outcome|conclusion|overall|gate|finding)$|_(verdict|status|outcome|conclusion)$`)
	cleanWords   = regexp.MustCompile(`(?i)^(clean|no[ _-]?(corruption|defect|divergence)|corruption[ _-]free|healthy|safe)`)
	boundNames   = regexp.MustCompile(`(?i)upper|bound|interval|confidence|(^|_)ci(_|$|9)|p_max|clopper|wilson`)
)
