package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newGateCmd(stdout, stderr io.Writer) *cobra.Command {
	var base, patched, reverted, policy string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gate --base A --patched B",
		Short: "the patch gate: did the patch do what was predicted?",
		Long: `gate compares the ladder of a base build with the ladder of a patched build, arm by arm on
the same requests, and judges the predictions that the ladder registered.

Outcomes: CONFIRMED (exit 0), REFUTED_WORSE and REFUTED_SAME (1), IMPROVED_NOT_CLEAN (1 or 2),
CANNOT_TELL (2), NOT_COMPARABLE (3). The flag REGIME_CHANGED says that an exercise counter
went from 0 to more, or back: the patch opened or closed a path, whatever it healed.

With --reverted, a third ladder of the patched build with the fix taken out again, the gate
confirms only a fix whose removal is red. With --policy the exit, never the outcome, follows
what the project tolerates; the policy's digest is part of what is printed.`,
		Example: `  kvladder gate --base runs/base --patched runs/patched
  kvladder gate --base a.json --patched b.json --reverted c.json --policy gate.yaml`,
		Args: args(cobra.NoArgs, "only flags"),
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
			var pol *receipts.Policy
			if policy != "" {
				if pol, err = receipts.ReadPolicy(policy); err != nil {
					return err
				}
			}
			var out receipts.GateReport
			if reverted == "" {
				out, err = receipts.Gate(x, y)
			} else {
				var z *receipts.Receipt
				if z, err = openReceipt(reverted); err != nil {
					return err
				}
				out, err = receipts.GateReverted(x, y, z)
			}
			if err != nil {
				return err
			}
			if pol != nil {
				pol.Apply(&out, x, y)
			}
			if asJSON {
				if err := printJSON(stdout, out); err != nil {
					return err
				}
				return outcome(out.Exit)
			}
			showGate(stdout, out)
			return outcome(out.Exit)
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "receipt of the base build")
	cmd.Flags().StringVar(&patched, "patched", "", "receipt of the patched build")
	cmd.Flags().StringVar(&reverted, "reverted", "", "receipt of the patched build with the fix taken out again")
	cmd.Flags().StringVar(&policy, "policy", "", "what the project tolerates, a YAML `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// predictionLine is one registered prediction and what came of it. What was not measured is
// neither held nor refuted by a number, and does not hold.
func predictionLine(p receipts.Prediction) string {
	switch {
	case p.Held:
		return fmt.Sprintf("prediction %s.%s = %v: measured %v, held", p.Arm, p.Member, p.Predicted, p.Measured)
	case p.Measured == nil:
		return fmt.Sprintf("prediction %s.%s = %v: not measured", p.Arm, p.Member, p.Predicted)
	}
	return fmt.Sprintf("prediction %s.%s = %v: measured %v, refuted", p.Arm, p.Member, p.Predicted, p.Measured)
}

// mostReasons is how many reasons are printed for people; --json holds all of them.
const mostReasons = 8

func showGate(w io.Writer, out receipts.GateReport) {
	fmt.Fprintln(w, out.Outcome)
	reasons, more := out.Reasons, 0
	if out.Outcome == receipts.NotComparable && len(reasons) > mostReasons {
		reasons, more = reasons[:mostReasons], len(reasons)-mostReasons
	}
	for _, r := range reasons {
		fmt.Fprintf(w, "  %s\n", r)
	}
	if more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	for _, f := range out.Flags {
		fmt.Fprintf(w, "%s: arm %s: %s %d → %d\n", f.Name, f.Arm, f.Counter, f.Base, f.Patched)
	}
	for _, p := range out.Predictions {
		fmt.Fprintln(w, predictionLine(p))
	}
	for _, l := range out.Lifetimes {
		fmt.Fprintln(w, lifetimeLine(l))
	}
	if r := out.Reverted; r != nil {
		word := "not red"
		if r.Red {
			word = "red in " + strings.Join(r.Arms, ", ")
		}
		fmt.Fprintf(w, "with the fix reverted: %s, %s\n", r.Verdict, word)
	}
	if p := out.Policy; p != nil {
		fmt.Fprintf(w, "policy %s: exit %d instead of %d\n", p.Digest.Short(), out.Exit, p.Exit)
		for _, arm := range p.Tolerated {
			fmt.Fprintf(w, "  tolerated: arm %s\n", arm)
		}
		for _, b := range p.Breached {
			fmt.Fprintf(w, "  required: %s\n", b)
		}
	}
}
