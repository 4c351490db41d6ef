package audit

var fileEmpty = Lint{
	Code:  "FILE_EMPTY",
	Title: "a file of the evidence has nothing in it",
	Explain: `The file is there, has a name and perhaps a digest, and holds nothing (or white space alone).
An endpoint that did not answer and a copy that broke off leave such files. Whoever lists
the folder takes it for evidence.

Fetch it again; if it was empty when it was made, what it was to show is not known.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, f := range e.Files {
			if f.Empty {
				out = append(out, Finding{File: f.Name, What: "the file is empty"})
			}
		}
		return out
	},
	Fires:  map[string]string{"metrics-post.txt": "\n"},
	Silent: map[string]string{"rows.json": "[]"},
}
