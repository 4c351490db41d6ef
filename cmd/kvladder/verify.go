package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newVerifyCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON, schema bool
	var keys, witnesses []string
	cmd := &cobra.Command{
		Use:   "verify PATH...",
		Short: "re-hash every object and run every test again from the rows",
		Long: `verify trusts nothing that it can recompute: it hashes every file of a run folder, decodes
every kept reply again, scores the transcript again, and compares with what was sealed. A
receipt alone is checked as far as a receipt alone can be.

It prints the level of order that holds: O0, nothing shows that the plan came first; O1, the
data depend on the plan; O2, a trusted witness had seen the registration at a given time; O3,
the data are not earlier than the round of a public beacon (run --beacon); O4, both, and the
witness had seen the registration before that round. A beacon that fails, or that came after
an arm had started, does not hold.
With --key a receipt that none of the keys has signed does not hold.

Exit codes: 0 holds, 1 does not hold, 3 cannot be read.`,
		Example: `  kvladder verify runs/demo-healthy-0123456789ab
  kvladder verify --key alice.key.pub runs/demo-healthy-0123456789ab
  kvladder verify --schema`,
		RunE: func(cmd *cobra.Command, a []string) error {
			if schema {
				_, err := stdout.Write(receipts.SchemaJSON)
				return err
			}
			if len(a) == 0 {
				return args(cobra.MinimumNArgs(1), "receipts or run folders")(cmd, a)
			}
			c := checker()
			for _, s := range keys {
				k, err := receipts.ParseKey(s)
				if err != nil {
					return err
				}
				c.Keys = append(c.Keys, k)
			}
			for _, s := range witnesses {
				k, err := receipts.ParseWitness(s)
				if err != nil {
					return err
				}
				c.Witnesses = append(c.Witnesses, k)
			}
			all := receipts.Report{OK: true, SignedBy: []string{}, Problems: []receipts.Problem{}, Warnings: []string{}}
			for _, path := range a {
				rep := receipts.Verify(path, c)
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
	cmd.Flags().StringArrayVar(&keys, "key", nil, "public `KEY`, or a file that holds one, whose signature is asked for (repeatable)")
	cmd.Flags().StringArrayVar(&witnesses, "witness", nil, "cosigner `KEY` of a witness whose clock is trusted, or a file that holds one (repeatable)")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of receipts and check nothing")
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
	for _, s := range rep.SignedBy {
		all.SignedBy = append(all.SignedBy, path+": "+s)
	}
	all.Witnessed = append(all.Witnessed, rep.Witnessed...)
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
	fmt.Fprintf(w, "%s: %s", path, word)
	if rep.Order != "" && rep.Exit != 3 {
		fmt.Fprintf(w, ", order %s", rep.Order)
	}
	if len(rep.SignedBy) > 0 {
		fmt.Fprintf(w, ", signed by %s", strings.Join(rep.SignedBy, ", "))
	}
	fmt.Fprintln(w)
	for _, s := range rep.Witnessed {
		fmt.Fprintf(w, "  %s had seen the first %d entries of the ledger at %s\n", s.By, s.Size, s.UTC)
	}
	if b := rep.Beacon; b != nil {
		fmt.Fprintf(w, "  the data are not earlier than %s, when round %d of drand's quicknet was published\n", b.UTC, b.Round)
	}
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
