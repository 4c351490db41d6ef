package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"kvladder/arms/launch"
)

// heldStatus is the exit status of the command that `kvladder hold` ran, when not zero.
// It becomes the exit status of hold, without a message.
type heldStatus int

func (s heldStatus) Error() string {
	return fmt.Sprintf("the held command ended with exit status %d", int(s))
}

// ExitCode is the exit status that the program is to end with.
func (s heldStatus) ExitCode() int { return int(s) }

// newHoldCmd returns the guardian that the local launcher puts above every process it
// starts. People have no use for it, so help does not list it.
func newHoldCmd() *cobra.Command {
	var report bool
	cmd := &cobra.Command{
		Use:    "hold [--report] -- COMMAND [ARG...]",
		Short:  "run a command and let nothing of it outlive the standard input",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			var status io.Writer
			if report {
				status = launch.Report()
			}
			if code := launch.Hold(argv, os.Stdin, os.Stdout, os.Stderr, status); code != 0 {
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				return heldStatus(code)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&report, "report", false, "write pid and exit status to descriptor 3, one JSON line each")
	return cmd
}
