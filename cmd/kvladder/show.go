package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts"
	"kvladder/scoring"
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
			return printReceipt(stdout, r, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// printReceipt prints a receipt's result, and what stands beside it where the plan was
// amended. The result comes first: what is exploratory never takes its place.
func printReceipt(w io.Writer, r *receipts.Receipt, asJSON bool) error {
	p := &r.Predicate
	if asJSON {
		return printJSON(w, struct {
			scoring.Result
			Amendments  []receipts.Amendment  `json:"amendments,omitempty"`
			Registered  *receipts.Analysis    `json:"registered,omitempty"`
			Exploratory *receipts.Analysis    `json:"exploratory,omitempty"`
			Predictions []receipts.Prediction `json:"predictions"`
			Claims      []arms.Claim          `json:"claims"`
			NotClaimed  []string              `json:"not_claimed"`
			Unproven    []string              `json:"unproven"`
		}{r.Result(), p.Amendments, p.Registered, p.Exploratory, p.Predictions, p.Claims, p.NotClaimed, p.Unproven})
	}
	if err := printResult(w, r.Result(), false); err != nil {
		return err
	}
	for _, a := range p.Amendments {
		fmt.Fprintf(w, "amendment of class %s (ledger entry %d): %s\n", a.Class, a.Entry, a.Why)
		for _, e := range a.Edits {
			if e.Path != "/source" {
				fmt.Fprintf(w, "  %s %s: %s → %s\n", e.Op, e.Path, short(e.Old), short(e.Value))
			}
		}
	}
	for _, x := range []struct {
		name string
		*receipts.Analysis
	}{{"as registered", p.Registered}, {"exploratory, deciding nothing", p.Exploratory}} {
		if x.Analysis == nil {
			continue
		}
		fmt.Fprintf(w, "%s, by plan %s: %s, exit %d\n", x.name, x.Plan.Short(), x.Verdict, x.Exit)
	}
	for _, x := range p.Predictions {
		fmt.Fprintln(w, predictionLine(x))
	}
	for _, c := range p.Claims {
		fmt.Fprintf(w, "claim, %s: %s\n", c.Status, c.Text)
		if c.Supersedes != "" {
			fmt.Fprintf(w, "  in place of: %s\n", c.Supersedes)
		}
	}
	for _, s := range p.NotClaimed {
		fmt.Fprintf(w, "not claimed: %s\n", s)
	}
	for _, s := range p.Unproven {
		fmt.Fprintf(w, "unproven: %s\n", s)
	}
	return nil
}

// short is a value on one line, cut to what a line can hold.
func short(v any) string {
	if v == nil {
		return "nothing"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if r := []rune(string(b)); len(r) > 80 {
		return string(r[:77]) + "..."
	}
	return string(b)
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
			if st, err := os.Stat(filepath.Join(a[0], "ledger.jsonl")); !p.Design.Imported && (err != nil || !st.Mode().IsRegular() || st.Size() == 0) {
				res.Order = receipts.O0
				say(stderr, "warning", errors.New("there is no ledger.jsonl: nothing says that the plan was there before the data, or that it was not amended"))
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
	if st, err := os.Stat(filepath.Join(dir, "plan.json")); err == nil && !st.Mode().IsRegular() {
		return nil, nil, nil, fmt.Errorf("%s is no regular file: a run folder holds files only; replace it by its content", filepath.Join(dir, "plan.json"))
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
