package audit

import (
	"fmt"
	"regexp"
)

var rowCount = Lint{
	Code:  "ROW_COUNT",
	Title: "the number of rows is not the number that is stated",
	Explain: `The document states how many requests there were and holds another number of rows. Either
rows were left out, or the statement was written before the run, or by hand. Every share
and every test that was computed from the stated number is then wrong, and nobody can tell
what the missing rows said.

Ask for all rows, or count again over those that are there.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, t := range e.tables() {
			for _, c := range t.counts() {
				if n, ok := c.integer(); ok && countNames.MatchString(c.Key) && n != len(t.rows) {
					out = append(out, at(t.file, c, fmt.Sprintf("%s says %d and %s holds %d", c.Key, n, t.list.where(), len(t.rows))))
				}
			}
		}
		return out
	},
	Fires:  map[string]string{"arm.json": `{"summary": {"requests": 38}, "rows": [{"id": "r1"}, {"id": "r2"}]}`},
	Silent: map[string]string{"arm.json": `{"summary": {"requests": 2, "failed": 0}, "rows": [{"id": "r1"}, {"id": "r2"}]}`},
}

var countNames = regexp.MustCompile(`(?i)^(n|count|total|requests|samples|cases|(n|num|total|number_of)_(rows|requests|samples|cases|records|results)|(row|request|sample|case|record|result)_count|(rows|requests|samples)_total)$`)
