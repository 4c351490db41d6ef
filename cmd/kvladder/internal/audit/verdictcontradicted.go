package audit

import (
	"fmt"
	"regexp"
)

var verdictContradicted = Lint{
	Code:  "VERDICT_CONTRADICTED",
	Title: "a verdict that its own rows or counters contradict",
	Explain: `The document says that something passed, and it holds rows that failed or a counter of
failures above 0; or it says that something failed and none did; or its count of failures is
not that of its rows. One of the two is wrong. A verdict that is written apart from the rows
(before them, by hand, over a part of them) goes wrong like this.

Believe the rows and judge them again (kvladder import), or ask which of the two was meant.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			if v.Kind != Object {
				return
			}
			for _, x := range v.Items {
				passed, ok := verdictOf(x)
				if !ok {
					continue
				}
				bad, counted := v.failures(x)
				switch {
				case passed && bad != "":
					out = append(out, at(f, x, fmt.Sprintf("%s says that it passed, and %s", x.Key, bad)))
				case !passed && bad == "" && counted && !v.otherwise():
					out = append(out, at(f, x, fmt.Sprintf("%s says that it failed, and no row and no counter does", x.Key)))
				}
			}
		})
		for _, t := range e.tables() {
			failed, flagged := 0, 0
			for _, r := range t.rows {
				if bad, ok := rowFailed(r); ok {
					flagged++
					if bad {
						failed++
					}
				}
			}
			for _, c := range t.counts() {
				if n, ok := c.integer(); ok && flagged == len(t.rows) && failedNames.MatchString(c.Key) && n != failed {
					out = append(out, at(t.file, c, fmt.Sprintf("%s says %d and %d of %d rows are marked as failed", c.Key, n, failed, len(t.rows))))
				}
			}
		}
		return out
	},
	Fires: map[string]string{
		"gate.json":   `{"verdict": "PASS", "rows": [{"id": "r1", "failed": false}, {"id": "r2", "failed": true}]}`,
		"counts.json": `{"passed": true, "summary": {"mismatches": 3}}`,
		"fail.json":   `{"status": "FAILED", "rows": [{"id": "r1", "ok": true}], "failures": 0}`,
		"number.json": `{"summary": {"failed_requests": 5}, "rows": [{"id": "r1", "failed": false}, {"id": "r2", "failed": true}]}`,
	},
	Silent: map[string]string{
		"bits.json":   `{"verdict": "CORRUPT", "failed": 0, "rows": [{"id": "r1", "failed": false, "bit_equal": false, "identical": false}]}`,
		"died.json":   `{"verdict": "FAIL", "failures": 0, "died_at": "r7"}`,
		"gate.json":   `{"verdict": "FAIL", "rows": [{"id": "r1", "failed": false}, {"id": "r2", "failed": true}]}`,
		"counts.json": `{"passed": true, "summary": {"mismatches": 0, "failed_requests": 0}}`,
		"http.json":   `{"status": "ok", "rows": [{"id": "r1", "status": "ok", "failed": false}]}`,
	},
}

var (
	passWords   = regexp.MustCompile(`(?i)^(pass(ed)?|ok|success(ful)?|green|identical|match(es)?|clean.*|no[ _-]?corruption.*)$`)
	failWords   = regexp.MustCompile(`(?i)^(fail(ed|ure)?|corrupt(ed|ion)?.*|mismatch|red)$`)
	passNames   = regexp.MustCompile(`(?i)^(all_)?(pass|passed|ok|success|identical|match|matches|clean)$|_(passed|ok)$`)
	sameNames   = regexp.MustCompile(`(?i)^(identical|match|matches|clean|same|equal|bit_equal|held|holds)$`)
	deathNames  = regexp.MustCompile(`(?i)^(died|died_at|crash(ed)?|crashes|deaths|restarts|exception|timed_out)$`)
	failedNames = regexp.MustCompile(`(?i)^(failed|failures|n_failed|num_failed|failed_(requests|rows|count)|failure_count)$`)
	badNames    = regexp.MustCompile(`(?i)^(failed|failures|mismatch(es)?|mismatched|corrupt(ed|ions)?|wrong|wrong_answers|divergent|violations)$|^(n|num)_(failed|mismatch(es)?|corrupt(ed)?|wrong)$|^(failed|corrupted|mismatched|wrong)_(requests|rows|count)$|_(failures|mismatches)$`)
)

// verdictOf reads a member that says whether something passed.
func verdictOf(v *Value) (passed, ok bool) {
	switch {
	case v.Kind == Bool && passNames.MatchString(v.Key):
		// That two texts are not identical is no failure yet.
		return v.Bool, v.Bool || !sameNames.MatchString(v.Key)
	case v.Kind == Text && verdictNames.MatchString(v.Key) && passWords.MatchString(v.Text):
		return true, true
	case v.Kind == Text && verdictNames.MatchString(v.Key) && failWords.MatchString(v.Text):
		return false, true
	}
	return false, false
}

// failures says what in an object failed beside a verdict; counted is false where nothing
// there could.
func (v *Value) failures(verdict *Value) (bad string, counted bool) {
	look := func(o *Value) {
		for _, x := range o.Items {
			if n, ok := x.integer(); ok && badNames.MatchString(x.Key) {
				counted = true
				if n > 0 && bad == "" {
					bad = fmt.Sprintf("%s is %d", x.Key, n)
				}
			}
			if x != verdict && x.Kind == Bool && x.Key == "failed" {
				counted = true
				if x.Bool && bad == "" {
					bad = "failed is true"
				}
			}
		}
	}
	look(v)
	for _, x := range v.Items {
		if x.Kind == Object {
			look(x)
		}
		failed, flagged := 0, 0
		rows := x.rows()
		for _, r := range rows {
			if f, ok := rowFailed(r); ok {
				flagged++
				if f {
					failed++
				}
			}
		}
		counted = counted || flagged > 0
		if failed > 0 && bad == "" {
			bad = fmt.Sprintf("%d of %d rows in %s failed", failed, len(rows), x.Key)
		}
	}
	return bad, counted
}

// otherwise says whether something else than a failed row stands behind a verdict of an
// object: texts or bits that differ, an invariant that did not hold, an engine that died.
func (v *Value) otherwise() bool {
	found := false
	v.each(func(x *Value) {
		switch {
		case x.Kind == Bool && (sameNames.MatchString(x.Key) && !x.Bool || deathNames.MatchString(x.Key) && x.Bool):
			found = true
		case deathNames.MatchString(x.Key) && (x.Kind == Text && x.Text != "" || x.Kind == Number && x.Num > 0):
			found = true
		}
	})
	return found
}

// rowFailed reads what a row says about itself.
func rowFailed(r *Value) (failed, ok bool) {
	for _, x := range r.Items {
		if x.Kind == Bool && (x.Key == "failed" || x.Key == "corrupted") {
			return x.Bool, true
		}
	}
	for _, x := range r.Items {
		if passed, is := verdictOf(x); is {
			return !passed, true
		}
	}
	return false, false
}
