package audit

import (
	"cmp"
	"slices"
	"strings"
)

// Lint looks for one thing that makes evidence worth less than it seems.
type Lint struct {
	Code    string
	Title   string // one line
	Explain string // what it means, why it matters, what to do
	Look    func(e *Evidence) []Finding
	Fires   map[string]string // files, by name, that make it fire
	Silent  map[string]string // files near to them that must not
}

// Finding is one place where a lint fired.
type Finding struct {
	Code  string `json:"code"`
	File  string `json:"file"`
	Line  int    `json:"line"`  // 1-based; 0 = the file as a whole
	Where string `json:"where"` // path in the document, "" for the file as a whole
	What  string `json:"what"`
}

func at(f *File, v *Value, what string) Finding {
	return Finding{File: f.Name, Line: int(v.Line), Where: v.where(), What: what}
}

// All are the lints, by code.
func All() []Lint {
	return []Lint{
		cleanUnbounded,
		counterZero,
		digestVacuous,
		fileEmpty,
		floorMissing,
		percentWithoutN,
		rowCount,
		runUnsealed,
		testWithoutCounts,
		textVacuous,
		timeOrder,
		unitsDisagree,
		verdictContradicted,
	}
}

// Find gives the lint of a code, in any case of letters.
func Find(code string) (Lint, bool) {
	for _, l := range All() {
		if strings.EqualFold(l.Code, code) {
			return l, true
		}
	}
	return Lint{}, false
}

// Look runs every lint. Findings come in the order of files, lines and codes.
func Look(e *Evidence) []Finding {
	out := []Finding{}
	order := map[string]int{}
	for i, f := range e.Files {
		order[f.Name] = i
	}
	for _, l := range All() {
		for _, f := range l.Look(e) {
			f.Code = l.Code
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code))
	})
	return out
}
