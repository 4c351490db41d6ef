package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts"
)

func newShowCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show RECEIPT",
		Short: "print a receipt for people, or its result as JSON",
		Example: `  kvladder show runs/demo-healthy-0123456789ab
  kvladder show --json receipt.json`,
		Args: args(cobra.ExactArgs(1), "one receipt or run folder"),
		RunE: func(cmd *cobra.Command, a []string) error {
			r, err := openReceipt(a[0])
			if err != nil {
				return err
			}
			return printResult(stdout, r.Result(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// openReceipt opens a receipt or a run folder; an unreadable or tampered one is exit 3.
func openReceipt(path string) (*receipts.Receipt, error) { return receipts.Open(path) }

func newScoreCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "score DIR",
		Short: "score a run folder again from its transcript, without any server",
		Long: `score reads plan, set and transcript of a run folder and scores them again. It writes
nothing: a sealed receipt stays as it is, and verify says whether the two agree.`,
		Example: `  kvladder score runs/demo-healthy-0123456789ab`,
		Args:    args(cobra.ExactArgs(1), "one run folder"),
		RunE: func(cmd *cobra.Command, a []string) error {
			p, s, recs, err := readFolder(a[0])
			if err != nil {
				return err
			}
			res, err := assess(p, s, recs)
			if err != nil {
				return err
			}
			if err := printResult(stdout, res, asJSON); err != nil {
				return err
			}
			return outcome(res.Exit)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// readFolder reads what scoring needs from a run folder.
func readFolder(dir string) (*arms.Plan, *prompts.Set, []probes.Record, error) {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, nil, nil, fmt.Errorf("%s is not a run folder; kvladder run makes one", dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run folder %s has no readable plan.json: %w", dir, err)
	}
	var p arms.Plan
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, "plan.json"), err)
	}
	s, err := prompts.Open(filepath.Join(dir, "set", p.Set.Name+".jsonl"))
	if err != nil {
		return nil, nil, nil, err
	}
	if s.Digest != p.Set.Digest {
		return nil, nil, nil, fmt.Errorf("set %s has digest %s, the plan registers %s", s.File, s.Digest.Short(), p.Set.Digest.Short())
	}
	recs, err := probes.ReadAll(filepath.Join(dir, "transcript.jsonl"))
	if err != nil {
		return nil, nil, nil, err
	}
	return &p, s, recs, nil
}
