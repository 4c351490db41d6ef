package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newVerifyCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "re-hash every object and run every test again from the rows",
		Long: `verify trusts nothing that it can recompute: it hashes every file of a run folder, decodes
every kept reply again, scores the transcript again, and compares with what was sealed. A
receipt alone is checked as far as a receipt alone can be.

Exit codes: 0 holds, 1 does not hold, 3 cannot be read.`,
		Example: `  kvladder verify runs/demo-healthy-0123456789ab`,
		Args:    args(cobra.MinimumNArgs(1), "receipts or run folders"),
		RunE: func(cmd *cobra.Command, a []string) error {
			all := receipts.Report{OK: true, SignedBy: []string{}, Problems: []receipts.Problem{}, Warnings: []string{}}
			for _, path := range a {
				rep := receipts.Verify(path, checker())
				if len(a) == 1 {
					all = rep
				} else {
					join(&all, path, rep)
				}
				if !asJSON {
					showReport(stdout, path, rep)
				}
			}
			if asJSON {
				if err := printJSON(stdout, all); err != nil {
					return err
				}
			}
			return outcome(all.Exit)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// join adds the report of one of several paths.
func join(all *receipts.Report, path string, rep receipts.Report) {
	all.OK = all.OK && rep.OK
	all.Exit = max(all.Exit, rep.Exit)
	if all.Order == "" || rep.Order < all.Order {
		all.Order = rep.Order
	}
	for _, p := range rep.Problems {
		all.Problems = append(all.Problems, receipts.Problem{Path: filepath.Join(path, p.Path), What: p.What})
	}
	for _, w := range rep.Warnings {
		all.Warnings = append(all.Warnings, path+": "+w)
	}
}

func showReport(w io.Writer, path string, rep receipts.Report) {
	word := "holds"
	if !rep.OK {
		word = "does not hold"
		if rep.Exit == 3 {
			word = "cannot be read"
		}
	}
	fmt.Fprintf(w, "%s: %s, order %s\n", path, word, rep.Order)
	for i, p := range rep.Problems {
		if i == 20 {
			fmt.Fprintf(w, "  and %d more\n", len(rep.Problems)-i)
			break
		}
		fmt.Fprintf(w, "  %s: %s\n", p.Path, p.What)
	}
	for _, s := range rep.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", s)
	}
}
