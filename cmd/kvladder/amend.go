package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newAmendCmd(stdout, stderr io.Writer) *cobra.Command {
	var file, why string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "amend RUNDIR --file LADDER --why TEXT",
		Short: "write down a change of plan beside the registration",
		Long: `amend resolves a changed ladder, compares it with the plan as it stands in a run folder, and
enters the difference in the ledger with the reason for it. The registration stays.

What an amendment may do follows from its place in the ledger, not from a date:
  class A, before any arm began: it governs, and the analysis as registered is kept beside it
  class B, after controls or floors began: it governs, and may not touch what decides a verdict
  class C, after a judged arm began: its analysis is exploratory and improves no verdict

What is run (set, pins, arms, schedule) is never amended: register it anew.`,
		Example: `  kvladder amend runs/mine --file mine.yaml --why "the prediction was misread"`,
		Args:    args(cobra.ExactArgs(1), "one run folder"),
		RunE: func(cmd *cobra.Command, a []string) error {
			if file == "" || why == "" {
				return errors.New("amend needs --file and --why; kvladder amend --help shows an example")
			}
			r, err := resolve(file)
			if err != nil {
				return err
			}
			am, err := receipts.Amend(a[0], *r.plan, why)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(stdout, am)
			}
			fmt.Fprintf(stdout, "amendment of class %s, ledger entry %d, plan %s\n", am.Class, am.Entry, am.Plan.Short())
			for _, e := range am.Edits {
				if e.Path != "/source" {
					fmt.Fprintf(stdout, "  %s %s: %s → %s\n", e.Op, e.Path, short(e.Old), short(e.Value))
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "the changed `LADDER`")
	f.StringVar(&why, "why", "", "the reason, in a sentence")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
