package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/cmd/kvladder/internal/audit"
)

// explained is the JSON document of `kvladder explain`.
type explained struct {
	Code    string            `json:"code"`
	Title   string            `json:"title"`
	Explain string            `json:"explain"`
	Fires   map[string]string `json:"fires"`  // evidence in which it is found, by name of the file
	Silent  map[string]string `json:"silent"` // evidence near to it in which it is not
}

func newExplainCmd(stdout, _ io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "what a code of audit means, with evidence in which it is found",
		Long: `explain says what a finding of kvladder audit means, why it matters and what to do about
it, and shows evidence in which it is found and evidence near to it in which it is not.
Without a code it lists them all.`,
		Example: `  kvladder explain DIGEST_VACUOUS`,
		Args:    args(cobra.MaximumNArgs(1), "one code"),
		RunE: func(cmd *cobra.Command, a []string) error {
			lints := audit.All()
			if len(a) == 1 {
				l, ok := audit.Find(a[0])
				if !ok {
					var codes []string
					for _, l := range lints {
						codes = append(codes, l.Code)
					}
					return fmt.Errorf("there is no code %q: the codes are %s", a[0], strings.Join(codes, ", "))
				}
				lints = []audit.Lint{l}
			}
			if asJSON {
				out := []explained{}
				for _, l := range lints {
					out = append(out, explained{l.Code, l.Title, l.Explain, l.Fires, l.Silent})
				}
				if len(a) == 1 {
					return printJSON(stdout, out[0])
				}
				return printJSON(stdout, out)
			}
			if len(a) == 0 {
				for _, l := range lints {
					fmt.Fprintf(stdout, "%-22s %s\n", l.Code, l.Title)
				}
				return nil
			}
			l := lints[0]
			fmt.Fprintf(stdout, "%s: %s\n\n%s\n", l.Code, l.Title, l.Explain)
			showSpecimen(stdout, "It is found in:", l.Fires)
			showSpecimen(stdout, "It is not found in:", l.Silent)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func showSpecimen(w io.Writer, title string, files map[string]string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(w, "  %s\n", name)
		for _, line := range strings.Split(strings.TrimRight(files[name], "\n"), "\n") {
			fmt.Fprintf(w, "    %s\n", strings.TrimSpace(line))
		}
	}
}
