package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newGateCmd(stdout, stderr io.Writer) *cobra.Command {
	var base, patched string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gate --base A --patched B",
		Short: "the patch gate: did the patch do what was predicted?",
		Long: `gate compares the ladder of a base build with the ladder of a patched build, arm by arm on
the same requests, and judges the predictions that the ladder registered.

Outcomes: CONFIRMED (exit 0), REFUTED_WORSE and REFUTED_SAME (1), IMPROVED_NOT_CLEAN (1 or 2),
CANNOT_TELL (2), NOT_COMPARABLE (3). The flag REGIME_CHANGED says that an exercise counter
went from 0 to more, or back: the patch opened or closed a path, whatever it healed.`,
		Example: `  kvladder gate --base runs/base --patched runs/patched`,
		Args:    args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			if base == "" || patched == "" {
				return errors.New("gate needs --base and --patched, each a receipt or a run folder")
			}
			x, err := openReceipt(base)
			if err != nil {
				return err
			}
			y, err := openReceipt(patched)
			if err != nil {
				return err
			}
			out, err := receipts.Gate(x, y)
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(stdout, out); err != nil {
					return err
				}
				return outcome(out.Exit)
			}
			fmt.Fprintln(stdout, out.Outcome)
			for _, r := range out.Reasons {
				fmt.Fprintf(stdout, "  %s\n", r)
			}
			for _, f := range out.Flags {
				fmt.Fprintf(stdout, "%s: %s %v → %v\n", f.Name, f.Counter, f.Base, f.Patched)
			}
			for _, p := range out.Predictions {
				held := "held"
				if !p.Held {
					held = "refuted"
				}
				fmt.Fprintf(stdout, "prediction %s.%s = %v: measured %v, %s\n", p.Arm, p.Member, p.Predicted, p.Measured, held)
			}
			return outcome(out.Exit)
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "receipt of the base build")
	cmd.Flags().StringVar(&patched, "patched", "", "receipt of the patched build")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
