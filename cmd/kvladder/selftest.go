package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kvladder/arms/testbed"
	"kvladder/arms/testbed/fault"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
	"kvladder/cmd/kvladder/internal/selftest"
	"kvladder/cmd/kvladder/internal/show"
	"kvladder/prompts"
	"kvladder/prompts/draw"
	"kvladder/scoring/compare"
)

type selftestOptions struct {
	Faults   []string
	Seed     uint64
	Geometry string
	Parallel int
	Healthy  int
	JSON     bool
}

func newSelftestCmd(stdout, stderr io.Writer) *cobra.Command {
	var o selftestOptions
	cmd := &cobra.Command{
		Use:   "selftest",
		Short: "plant every fault in the embedded engine and say which the ladder caught",
		Long: `selftest is the mutation test of the harness. For each fault of the embedded engine it climbs
the ladder that should see it, once with the fault and once without, and compares every arm
with the table of expectations. A fault is caught when an arm says so, and attributed when
verdict, variable and path of every arm are the table's, in each of the fault's rows. A
healthy ladder or a decoy that is accused is a false alarm. Clients go in lockstep and the engine's
seed is --seed, so that the same seed comes to the same on any machine.

With --healthy N it climbs N small ladders on healthy engines instead, every second one on a
noisy engine, and counts what is accused, with exact bounds.

Exit codes: 0 when everything is as the table says, 1 when not.`,
		Example: `  kvladder selftest
  kvladder selftest --fault F02 --seed 7`,
		Args: args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error { return selftestRun(cmd.Context(), o, stdout, stderr) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Faults, "fault", nil, "only these faults or rows of the table, by id")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the sets that are drawn")
	f.StringVar(&o.Geometry, "geometry", "16,64", "attention block and recurrent boundary of the engine, `A,R` tokens")
	f.IntVar(&o.Parallel, "parallel", 2, "ladders side by side")
	f.IntVar(&o.Healthy, "healthy", 0, "climb this many healthy ladders instead")
	f.BoolVar(&o.JSON, "json", false, "print one JSON document")
	return cmd
}

func selftestRun(ctx context.Context, o selftestOptions, stdout, stderr io.Writer) error {
	switch {
	case o.Healthy < 0:
		return fmt.Errorf("--healthy %d: a number of ladders is wanted, 0 for the faults", o.Healthy)
	case o.Parallel < 1:
		return fmt.Errorf("--parallel %d: at least 1", o.Parallel)
	}
	b, done, err := newBench(o, stderr)
	if err != nil {
		return err
	}
	defer done()
	start := time.Now()
	if o.Healthy > 0 {
		b.Progress = nil
		rep, err := b.Healthy(ctx, o.Healthy, compare.Upper95)
		if err != nil {
			return err
		}
		if o.JSON {
			err = printJSON(stdout, rep)
		} else {
			showHealthy(stdout, rep)
			fmt.Fprintf(stdout, "took %s\n", time.Since(start).Round(time.Second/10))
		}
		if err != nil {
			return err
		}
		return outcome(rep.Exit)
	}
	rep, err := b.Run(ctx, o.Faults)
	if err != nil {
		return err
	}
	if o.JSON {
		if err := printJSON(stdout, rep); err != nil {
			return err
		}
		return outcome(rep.Exit)
	}
	showSelftest(stdout, rep)
	fmt.Fprintf(stdout, "took %s\n", time.Since(start).Round(time.Second/10))
	return outcome(rep.Exit)
}

// newBench wires a selftest; done removes its scratch folder.
func newBench(o selftestOptions, stderr io.Writer) (*selftest.Bench, func(), error) {
	rows, err := selftest.ParseExpected(fault.Expected)
	if err != nil {
		return nil, nil, err
	}
	var g selftest.Geometry
	if _, err := fmt.Sscanf(o.Geometry, "%d,%d", &g.AttentionBlock, &g.RecurrentBlock); err != nil || g.AttentionBlock < 1 || g.RecurrentBlock < g.AttentionBlock {
		return nil, nil, fmt.Errorf("--geometry %s: want A,R in tokens, like 16,64", o.Geometry)
	}
	eng, err := findEngine("testbed")
	if err != nil {
		return nil, nil, err
	}
	self, err := selfPath()
	if err != nil {
		return nil, nil, err
	}
	local, err := findLauncher("local", self)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp(scratchRoot(), "kvladder-selftest-")
	if err != nil {
		return nil, nil, err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // thousands of engines come and go, and little lives long
	}
	b := &selftest.Bench{Rows: rows, Engine: eng, Local: local, Draw: cachedDraw(), Assess: assess, Seed: o.Seed, Geometry: g, Self: self,
		Dir: filepath.Clean(dir), Parallel: o.Parallel,
		Inproc: selftest.Inproc{Main: func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
			return run(ctx, args, strings.NewReader(""), stdout, stderr)
		}},
		Progress: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }}
	return b, func() { os.RemoveAll(dir) }, nil
}

// scratchRoot is where hundreds of ladders may be written and thrown away: a file system in
// memory if there is a roomy one, since a ladder waits for the disk at every arm.
func scratchRoot() string {
	const shm = "/dev/shm"
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") == "" && unix.Statfs(shm, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= 2<<30 && unix.Access(shm, unix.W_OK) == nil {
		return shm
	}
	return "" // the system's
}

// cachedDraw draws each Set once.
func cachedDraw() func(ctx context.Context, sh selftest.Sheet) (*prompts.Set, error) {
	var mu sync.Mutex
	sets := map[selftest.Sheet]*prompts.Set{}
	return func(ctx context.Context, sh selftest.Sheet) (*prompts.Set, error) {
		mu.Lock()
		defer mu.Unlock()
		if s, ok := sets[sh]; ok {
			return s, nil
		}
		var err error
		// a draw whose lengths fall into too few classes is refused: the next seed then serves
		for try := range uint64(20) {
			var s *prompts.Set
			s, err = draw.Draw(ctx, testbedTokenizer{}, draw.Spec{Kind: sh.Kind, Name: sh.Kind, N: sh.N, MaxTokens: sh.Tokens, Seed: sh.Seed + try*1000003,
				Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: sh.Geometry.AttentionBlock, RecurrentBlock: sh.Geometry.RecurrentBlock, StoreChunk: sh.Geometry.RecurrentBlock},
				Wire:     draw.Wire{Dialect: "vllm", Model: testbed.DefaultName}, Continue: continuation(sh.Geometry)})
			if err == nil {
				sets[sh] = s
				return s, nil
			}
		}
		return nil, fmt.Errorf("drawing a %s set with seed %d: %w", sh.Kind, sh.Seed, err)
	}
}

// continuation asks an engine that reuses nothing how a text goes on.
func continuation(g selftest.Geometry) func(ctx context.Context, ids []int, n int) ([]int, error) {
	return func(ctx context.Context, ids []int, n int) ([]int, error) {
		tb, err := testbed.New(testbed.Config{NoPrefixCaching: true, Geometry: model.Geometry{Block: g.AttentionBlock, Every: g.RecurrentBlock}}, io.Discard)
		if err != nil {
			return nil, err
		}
		defer tb.Close()
		events, err := tb.Ranks[0].Submit(ctx, sched.Request{Prompt: ids, MaxTokens: n, IgnoreEOS: true, Logprobs: -1})
		if err != nil {
			return nil, err
		}
		var out []int
		for ev := range events {
			if ev.HasToken {
				out = append(out, ev.Token.ID)
			}
		}
		return out, nil
	}
}

func showSelftest(w io.Writer, rep selftest.Report) {
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "NO"
	}
	var rows [][]string
	for _, f := range rep.Faults {
		for _, c := range f.Rows {
			rows = append(rows, []string{c.ID, yes(c.Caught), yes(c.Attributed), c.Verdict, c.Healthy, fmt.Sprintf("%.1f s", c.Seconds)})
		}
	}
	for _, d := range rep.Decoys {
		verdict := "not accused"
		if d.Accused {
			verdict = "ACCUSED"
		}
		rows = append(rows, []string{d.ID, "-", verdict, d.Verdict, "-", "-"})
	}
	show.Table(w, []string{"row", "caught", "attributed", "verdict of the ladder", "healthy", "took"}, rows)
	differ := func(id string, arms map[string]selftest.Arm) {
		for _, name := range slices.Sorted(maps.Keys(arms)) {
			if a := arms[name]; !a.Agrees {
				fmt.Fprintf(w, "%s %s: expected %s; measured %s\n", id, name, a.Expected, a.Measured)
			}
		}
	}
	for _, f := range rep.Faults {
		for _, c := range f.Rows {
			differ(c.ID, c.Arms)
			differ(c.ID+" healthy", c.HealthyArms)
			if c.Accused {
				fmt.Fprintf(w, "%s: the same ladder without the fault is accused: %s\n", c.ID, c.Healthy)
			}
		}
	}
	for _, d := range rep.Decoys {
		differ(d.ID, d.Arms)
	}
	fmt.Fprintf(w, "seed %d: caught %d of %d, attributed %d of %d, %d of %d decoys not accused, false alarms %d, healthy ladders that say too little %d (exit %d)\n",
		rep.Seed, rep.Caught, len(rep.Faults), rep.Attributed, len(rep.Faults), len(rep.Decoys)-accusedDecoys(rep), len(rep.Decoys), rep.FalseAlarms, rep.Dull, rep.Exit)
}

func showHealthy(w io.Writer, rep selftest.HealthyReport) {
	bound := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%.4f", *p)
	}
	for _, c := range rep.Cases {
		fmt.Fprintf(w, "accused: %s\n", c)
	}
	fmt.Fprintf(w, "exact half: %d of %d ladders accused, rate ≤ %s (95 %%); verdicts %v\n", rep.Accused, rep.Ladders, bound(rep.Upper95), rep.Verdicts)
	fmt.Fprintf(w, "noisy half: %d of %d ladders accused; %d of the %d whose controls held, rate ≤ %s (95 %%); %d of %d with a dirty control; verdicts %v\n",
		rep.AccusedNoisy, rep.Noisy, rep.AccusedSound, rep.NoisySound, bound(rep.Upper95Noisy), rep.ControlDirty, rep.Noisy, rep.VerdictsN)
}

func accusedDecoys(rep selftest.Report) (n int) {
	for _, d := range rep.Decoys {
		if d.Accused {
			n++
		}
	}
	return n
}
