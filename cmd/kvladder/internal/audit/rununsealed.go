package audit

import (
	"path"
	"strings"
)

var runUnsealed = Lint{
	Code:  "RUN_UNSEALED",
	Title: "a run folder has a plan and a transcript, and no receipt",
	Explain: `plan.json and transcript.jsonl of a climb lie in a folder that was given as a whole, and
receipt.json does not: the climb was interrupted, or it is still on, or somebody left the
receipt out. Whether all arms were climbed cannot be told, and nothing binds what is there
to the plan that was registered.

Whoever has the ladder goes on with kvladder run --resume --out FOLDER LADDER, which seals
the receipt if what is there is whole. Without one, the rows are worth what rows in a text
are worth.`,
	Look: func(e *Evidence) []Finding {
		planned, sealed := map[string]bool{}, map[string]bool{}
		for _, f := range e.Files {
			switch dir, name := placeOf(f); name {
			case "plan.json":
				planned[dir] = f.Root != nil && strings.HasPrefix(f.Root.text("schema"), "kvladder/plan/")
			case "receipt.json":
				sealed[dir] = true
			}
		}
		var out []Finding
		for _, f := range e.Files {
			dir, name := placeOf(f)
			if name == "transcript.jsonl" && !f.Empty && f.Found && planned[dir] && !sealed[dir] {
				out = append(out, Finding{File: f.Name, What: "a climb that is not sealed: there is no receipt.json beside it"})
			}
		}
		return out
	},
	Fires: map[string]string{"run/plan.json": `{"ladder": "mine", "schema": "kvladder/plan/1"}`, "run/transcript.jsonl": `{"kind": "fact"}`},
	Silent: map[string]string{
		"run/plan.json": `{"ladder": "mine", "schema": "kvladder/plan/1"}`, "run/transcript.jsonl": `{"kind": "fact"}`, "run/receipt.json": `{"ladder": "mine"}`,
		"run/agent/plan.json": `{"goal": "write a story"}`, "run/agent/transcript.jsonl": `{"role": "user"}`, // somebody else's
		"one/plan.json": `{"ladder": "mine", "schema": "kvladder/plan/1"}`, "one/transcript.jsonl": `{"kind": "fact"}`, // named singly
	},
}

// placeOf is a file's folder and its name there, packed or not.
func placeOf(f *File) (dir, name string) {
	dir, name = path.Split(path.Clean(strings.TrimSuffix(f.Name, ".gz")))
	return path.Clean(dir), name
}
