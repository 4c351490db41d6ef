package audit

import (
	"path"
	"strings"
)

var runUnsealed = Lint{
	Code:  "RUN_UNSEALED",
	Title: "a run folder has a transcript and no receipt",
	Explain: `plan.json and transcript.jsonl of a climb lie here and receipt.json does not: it was
interrupted, or it is still on, or somebody left the receipt out. Its arms are not all
climbed for all that anybody can tell, no verdict was ever made of them, and nothing binds
what is there to the plan that was registered.

Whoever has the ladder finishes it with kvladder run --resume --out FOLDER LADDER, which
seals the receipt. Until then the rows are worth no more than rows in a text.`,
	Look: func(e *Evidence) []Finding {
		has := map[string]bool{}
		for _, f := range e.Files {
			has[strings.TrimSuffix(f.Name, ".gz")] = true
		}
		var out []Finding
		for _, f := range e.Files {
			dir, name := path.Split(strings.TrimSuffix(f.Name, ".gz"))
			if name == "transcript.jsonl" && has[dir+"plan.json"] && !has[dir+"receipt.json"] {
				out = append(out, Finding{File: f.Name, What: "a climb that was never sealed: there is no receipt.json beside it"})
			}
		}
		return out
	},
	Fires:  map[string]string{"run/plan.json": `{"ladder": "mine"}`, "run/transcript.jsonl": `{"kind": "fact"}`},
	Silent: map[string]string{"run/plan.json": `{"ladder": "mine"}`, "run/transcript.jsonl": `{"kind": "fact"}`, "run/receipt.json": `{"ladder": "mine"}`},
}
