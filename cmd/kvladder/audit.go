package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/cmd/kvladder/internal/audit"
	"kvladder/scoring"
)

// audited is the JSON document of `kvladder audit`.
type audited struct {
	Schema   string          `json:"schema"`
	Exit     int             `json:"exit"`
	Files    []auditedFile   `json:"files"`
	Counts   map[string]int  `json:"counts"` // findings by code
	Findings []audit.Finding `json:"findings"`
}

type auditedFile struct {
	Name      string   `json:"name"`
	Documents int      `json:"documents"` // 0 in a file of counters and in an empty one
	Notes     []string `json:"notes"`     // what had to be overlooked to read it
}

func newAuditCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	long := `audit reads evidence that anybody published and says what in it proves nothing. It takes
JSON and JSONL as they are found: documents one after another, NaN and quotes as Python
prints them, prose around them, gzip, empty files; beside them the text of an engine's
counters, named *metrics-ARM-pre.txt and *metrics-ARM-post.txt. Of a folder it takes every
file that is named like one of these. All files of one call are one piece of evidence.

A finding is no verdict on a server: it says which sentence of the evidence cannot be
relied on. Exit codes: 0 nothing found, 1 something found, 3 a file cannot be read.

Codes, each with more to it in kvladder explain CODE:
`
	for _, l := range audit.All() {
		long += fmt.Sprintf("  %-22s %s\n", l.Code, l.Title)
	}
	cmd := &cobra.Command{
		Use:   "audit PATH...",
		Short: "what in the evidence of others proves nothing",
		Long:  long,
		Example: `  kvladder audit receipt.json
  kvladder audit published-ladder/`,
		Args: args(cobra.MinimumNArgs(1), "files or folders of evidence"),
		RunE: func(cmd *cobra.Command, a []string) error {
			e, err := audit.Open(a)
			if err != nil {
				return err
			}
			return showAudit(e, asJSON, stdout, stderr)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// mostShown bounds how many findings of one code in one file a person is shown.
const mostShown = 8

func showAudit(e *audit.Evidence, asJSON bool, stdout, stderr io.Writer) error {
	v := audited{Schema: "kvladder/audit/1", Counts: map[string]int{}, Findings: audit.Look(e), Files: []auditedFile{}}
	for _, f := range e.Files {
		v.Files = append(v.Files, auditedFile{f.Name, f.Docs, append([]string{}, f.Notes...)})
		for _, n := range f.Notes {
			fmt.Fprintf(stderr, "warning: %s: %s\n", f.Name, n)
		}
	}
	for _, f := range v.Findings {
		v.Counts[f.Code]++
	}
	cut := []string{}
	for _, f := range e.Files {
		if f.Cut {
			cut = append(cut, f.Name)
		}
	}
	switch {
	case len(v.Findings) > 0:
		v.Exit = scoring.ExitCorrupt
	case len(cut) > 0:
		v.Exit = scoring.ExitInvalid
	}
	if asJSON {
		if err := printJSON(stdout, v); err != nil {
			return err
		}
		return outcome(v.Exit)
	}
	type key struct{ file, code string }
	shown, all := map[key]int{}, map[key]int{}
	for _, f := range v.Findings {
		all[key{f.File, f.Code}]++
	}
	for _, f := range v.Findings {
		k := key{f.File, f.Code}
		shown[k]++
		switch {
		case shown[k] <= mostShown:
			place := f.File
			if f.Line > 0 {
				place += fmt.Sprintf(":%d", f.Line)
			}
			if f.Where != "" && f.Where != "$" {
				place += " " + f.Where
			}
			fmt.Fprintf(stdout, "%s  %s: %s\n", f.Code, place, oneLine(f.What))
		case shown[k] == mostShown+1:
			fmt.Fprintf(stdout, "%s  %s: and %d more like these; --json lists them\n", f.Code, f.File, all[k]-mostShown)
		}
	}
	var parts []string
	for _, c := range slices.Sorted(maps.Keys(v.Counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", c, v.Counts[c]))
	}
	if len(parts) == 0 {
		if len(cut) > 0 {
			return fmt.Errorf("nothing was found, but %s ends within a value and was not read whole: get an unbroken copy", strings.Join(cut, ", "))
		}
		fmt.Fprintf(stdout, "nothing found in %d files by %d lints: that nothing is wrong is not said\n", len(e.Files), len(audit.All()))
		return nil
	}
	fmt.Fprintf(stdout, "\n%d findings in %d files: %s\n", len(v.Findings), len(e.Files), strings.Join(parts, ", "))
	fmt.Fprintf(stderr, "hint: kvladder explain %s\n", v.Findings[0].Code)
	return outcome(v.Exit)
}

// oneLine keeps what evidence holds from drawing on the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
