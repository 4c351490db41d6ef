package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/climb"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts"
	"kvladder/scoring"
)

// newChainCmd returns the harness of one chain, which a launcher that starts processes on
// other machines starts there. People have no use for it, so help does not list it.
func newChainCmd(stderr io.Writer) *cobra.Command {
	var round int
	var at string
	cmd := &cobra.Command{
		Use:    "chain FOLDER CHAIN",
		Short:  "climb one chain of a ladder's run folder, in a folder of its own inside it",
		Hidden: true,
		Args:   args(cobra.ExactArgs(2), "a run folder and the name of a chain"),
		RunE: func(cmd *cobra.Command, a []string) error {
			folder, chain := a[0], a[1]
			plan, d, err := readPlan(filepath.Join(folder, "plan.json"))
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(plan.Chains, func(c arms.Chain) bool { return c.Name == chain }) {
				return fmt.Errorf("plan %s has no chain %q", d.Short(), chain)
			}
			set, err := prompts.Open(filepath.Join(folder, "set", plan.Set.Name+".jsonl"))
			if err != nil {
				return err
			}
			if set.Digest != plan.Set.Digest {
				return fmt.Errorf("run folder %s: its set is %s, the plan is bound to %s", folder, set.Digest.Short(), plan.Set.Digest.Short())
			}
			engine, err := findEngine(plan.Engine)
			if err != nil {
				return err
			}
			self, err := selfPath()
			if err != nil {
				return err
			}
			launcher, err := findLauncher(plan.Launcher, self)
			if err != nil {
				return err
			}
			far, ok := launcher.(arms.Elsewhere)
			if !ok {
				return fmt.Errorf("launcher %s climbs its chains itself: kvladder run --only %s", plan.Launcher, chain)
			}
			var beacon *receipts.Beacon
			if at != "" {
				if beacon, err = receipts.ParseBeacon(at); err != nil {
					return err
				}
			}
			cache, err := cacheDir()
			if err != nil {
				return err
			}
			own, err := climb.OpenFolder(climb.ChainFolder(folder, chain, round), plan, set, true)
			if err != nil {
				return err
			}
			defer own.Close()
			c := &climb.Climb{Plan: plan, Set: set, Engine: engine, Launcher: launcher, Beside: far.Beside(), Folder: own, Tool: "kvladder " + toolVersion(),
				Self: self, Cache: cache, Only: chain, Round: round, Beacon: beacon, APIKey: os.Getenv("KVLADDER_API_KEY"),
				Progress: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
				Assess:   func([]probes.Record) scoring.Result { return scoring.Result{} }, Detectors: detectors(plan.Design.Rule)}
			_, err = c.Run(cmd.Context())
			return err
		},
	}
	cmd.Flags().IntVar(&round, "run", 0, "0 for the registered run, N for the N-th replicate")
	cmd.Flags().StringVar(&at, "beacon", "", "`ROUND:SIGNATURE` of the beacon that the ladder's ledger holds")
	return cmd
}
