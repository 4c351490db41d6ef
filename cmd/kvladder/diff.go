package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newDiffCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "two receipts: pins, exercise, counts, statistics, verdict transition",
		Long: `diff compares two receipts of the same question, keyed by arm and request id. It refuses
receipts whose set or rules differ.

Exit codes: 0 the same, 1 different, 3 not comparable or unreadable.`,
		Example: `  kvladder diff runs/build-a runs/build-b`,
		Args:    args(cobra.ExactArgs(2), "two receipts or run folders"),
		RunE: func(cmd *cobra.Command, a []string) error {
			x, err := openReceipt(a[0])
			if err != nil {
				return err
			}
			y, err := openReceipt(a[1])
			if err != nil {
				return err
			}
			rep := receipts.Diff(x, y)
			if asJSON {
				if err := printJSON(stdout, rep); err != nil {
					return err
				}
				return outcome(rep.Exit)
			}
			if !rep.Comparable {
				return fmt.Errorf("%s and %s do not ask the same question: %s", a[0], a[1], rep.Transition)
			}
			fmt.Fprintln(stdout, rep.Transition)
			for _, c := range rep.Changes {
				fmt.Fprintf(stdout, "%-8s %s: %v → %v\n", c.Weight, c.Path, c.Old, c.New)
			}
			return outcome(rep.Exit)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
