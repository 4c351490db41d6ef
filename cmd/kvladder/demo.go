package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kvladder/cmd/kvladder/internal/show"
	"kvladder/receipts"
	"kvladder/scoring"
)

// newDemoCmd is the main job on the embedded engine, with its own judgement: a healthy cache
// must be cleared and a planted fault found, named and placed.
func newDemoCmd(stdout, stderr io.Writer) *cobra.Command {
	var out, ladders string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "climb a healthy and a damaged ladder on the embedded engine",
		Long: `demo climbs two ladders on the embedded engine: a healthy cache, which must come out
CLEAN_BOUNDED, and one whose store drops the fp8 scales, which must come out
CORRUPTION_ATTRIBUTED under fp8 alone. It verifies both receipts and exits 0 only when
everything is as it must be.`,
		Args: args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			if out == "" {
				if err := os.MkdirAll("runs", 0o755); err != nil {
					return err
				}
				dir, err := os.MkdirTemp("runs", "demo-")
				if err != nil {
					return err
				}
				out = dir
			}
			return demo(cmd.Context(), ladders, out, stdout, stderr)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder for the two run folders (default a new one in runs/)")
	cmd.Flags().StringVar(&ladders, "ladders", filepath.Join("arms", "ladders"), "folder of the ladder files")
	return cmd
}

func demo(ctx context.Context, ladders, out string, stdout, stderr io.Writer) error {
	var wrong []string
	for _, d := range []struct {
		ladder string
		check  func(scoring.Result) []string
	}{{"demo-healthy", demoHealthy}, {"demo-fp8-scales", demoScales}} {
		start := time.Now()
		dir := filepath.Join(out, d.ladder)
		res, err := runRun(ctx, runOptions{Ladder: filepath.Join(ladders, d.ladder+".yaml"), Out: dir}, stderr)
		if err != nil {
			return err
		}
		show.Result(stdout, res)
		rep := receipts.Verify(dir, checker())
		showReport(stdout, dir, rep)
		fmt.Fprintf(stdout, "%s took %s\n\n", d.ladder, time.Since(start).Round(time.Second/10))
		bad := d.check(res)
		if !rep.OK {
			bad = append(bad, "its receipt does not verify")
		}
		for _, b := range bad {
			wrong = append(wrong, d.ladder+": "+b)
		}
	}
	if len(wrong) > 0 {
		return &exitError{Code: 1, Err: fmt.Errorf("demo: not as expected: %s", strings.Join(wrong, "; "))}
	}
	fmt.Fprintln(stdout, "demo: both ladders came out as they must: the healthy cache is cleared with its bounds, the fp8 scale loss is found, named and placed")
	return nil
}

// demoHealthy lists what is wrong with the result of the healthy ladder.
func demoHealthy(r scoring.Result) (bad []string) {
	if r.Exit != 0 {
		bad = append(bad, fmt.Sprintf("exit %d, want 0", r.Exit))
	}
	for _, a := range r.Arms {
		if a.Role == scoring.Judged && (a.Verdict == nil || *a.Verdict != scoring.CleanBounded) {
			bad = append(bad, fmt.Sprintf("%s is %s, want %s", a.Name, show.Verdict(a), scoring.CleanBounded))
		}
	}
	return bad
}

// demoScales lists what is wrong with the result of the ladder whose store drops fp8 scales:
// every arm that reads the store under fp8 must be attributed to the connector and the
// external path under fp8 alone, and its bf16 twin must be clean.
func demoScales(r scoring.Result) (bad []string) {
	if r.Exit != 1 {
		bad = append(bad, fmt.Sprintf("exit %d, want 1", r.Exit))
	}
	for _, a := range r.Arms {
		if a.Role != scoring.Judged {
			continue
		}
		preset, group, _ := strings.Cut(a.Name, "@")
		reads := preset == "WARM" || preset == "RST"
		switch {
		case group == "bf16" || preset == "C1" || preset == "C1-PART":
			if a.Verdict == nil || *a.Verdict != scoring.CleanBounded {
				bad = append(bad, fmt.Sprintf("%s is %s, want %s", a.Name, show.Verdict(a), scoring.CleanBounded))
			}
		case reads:
			if a.Verdict == nil || *a.Verdict != scoring.CorruptionAttributed || a.Variable == nil || !strings.Contains(*a.Variable, "connector") ||
				a.Path == nil || *a.Path != "external" || a.OnlyUnder["kv_cache_dtype"] != "fp8" {
				bad = append(bad, fmt.Sprintf("%s is %s, want %s naming the connector, the external path and kv_cache_dtype fp8", a.Name, show.Verdict(a), scoring.CorruptionAttributed))
			}
		}
	}
	return bad
}
