package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/cmd/kvladder/internal/show"
	"kvladder/receipts"
)

func newDiffCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B...",
		Short: "two receipts: pins, exercise, counts, statistics, verdict transition; more: the trend",
		Long: `diff compares two receipts of the same question, keyed by arm and request id, in the order of
pins, exercise, counts, statistics and verdict. It refuses receipts whose set or rules differ
and names the keys. Timings are set side by side as medians with the range that covers them
with 95 %, and "~" where the exact rank test finds no difference; they decide nothing.

With more than two receipts it prints the trend of every arm, build by build.

Exit codes: 0 the same, 1 different, 3 not comparable or unreadable.`,
		Example: `  kvladder diff runs/build-a runs/build-b
  kvladder diff runs/build-a runs/build-b runs/build-c`,
		Args: args(cobra.MinimumNArgs(2), "two or more receipts or run folders"),
		RunE: func(cmd *cobra.Command, a []string) error {
			var rs []*receipts.Receipt
			for _, path := range a {
				r, err := openReceipt(path)
				if err != nil {
					return err
				}
				rs = append(rs, r)
			}
			if len(rs) > 2 {
				return printTrend(stdout, a, receipts.Trend(rs...), asJSON)
			}
			rep := receipts.Diff(rs[0], rs[1])
			if asJSON {
				if err := printJSON(stdout, rep); err != nil {
					return err
				}
				return outcome(rep.Exit)
			}
			if !rep.Comparable {
				return fmt.Errorf("%s and %s do not ask the same question: %s", a[0], a[1], rep.Refusal())
			}
			showDiff(stdout, rep)
			return outcome(rep.Exit)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func showDiff(w io.Writer, rep receipts.DiffReport) {
	if len(rep.Changes) == 0 {
		fmt.Fprintf(w, "the same: %s\n", rep.Transition)
	} else {
		fmt.Fprintln(w, rep.Transition)
	}
	for _, name := range receipts.Blocks {
		said := false
		for _, c := range rep.Changes {
			if c.Block != name {
				continue
			}
			if !said {
				fmt.Fprintf(w, "\n%s\n", name)
				said = true
			}
			fmt.Fprintf(w, "  %s: %s → %s\n", c.Path, short(c.Old), short(c.New))
		}
	}
	if len(rep.Timings) > 0 {
		fmt.Fprintln(w)
		var rows [][]string
		for _, t := range rep.Timings {
			p := "too few"
			if t.P != nil {
				p = fmt.Sprintf("p=%.3f", *t.P)
			}
			rows = append(rows, []string{t.Arm, strings.ReplaceAll(t.What, "_", " "), t.Old.String(), t.New.String(), t.Delta(), fmt.Sprintf("(%s n=%d+%d)", p, t.Old.N, t.New.N)})
		}
		show.Table(w, []string{"arm", "timing", "old", "new", "vs old", ""}, rows)
	}
	for _, l := range rep.Lifetimes {
		fmt.Fprintln(w, lifetimeLine(l))
	}
}

// lifetimeLine sets deaths over exposure side by side, with the p-value of no change.
func lifetimeLine(l receipts.LifetimeChange) string {
	return fmt.Sprintf("%s: %d deaths in %.0f %s → %d in %.0f (p=%.4g)", l.Arm, l.Old.Events, l.Old.Exposure, strings.ReplaceAll(l.Clock, "_", " "), l.New.Events, l.New.Exposure, l.P)
}

func printTrend(w io.Writer, paths []string, t receipts.TrendReport, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, t); err != nil {
			return err
		}
		return outcome(t.Exit)
	}
	if !t.Comparable {
		return fmt.Errorf("they do not all ask the same question: %s", t.Refusal())
	}
	header := []string{"arm"}
	for i, p := range paths {
		header = append(header, p)
		var pins []string
		for _, k := range slices.Sorted(maps.Keys(t.Builds[i].Subject)) {
			pins = append(pins, k+"="+t.Builds[i].Subject[k])
		}
		fmt.Fprintf(w, "%s: %s\n", p, strings.Join(pins, ", "))
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, a := range t.Arms {
		row := []string{a.Arm}
		for _, p := range a.Points {
			row = append(row, trendCell(p))
		}
		rows = append(rows, row)
	}
	show.Table(w, header, rows)
	for i, s := range t.Steps {
		fmt.Fprintf(w, "%s → %s: %s\n", paths[i], paths[i+1], s.Transition)
		for _, l := range s.Lifetimes {
			fmt.Fprintf(w, "  %s\n", lifetimeLine(l))
		}
	}
	for _, a := range t.Arms {
		showLifetimes(w, paths, a)
	}
	return outcome(t.Exit)
}

// showLifetimes prints how often an arm's engine died in every build, where it died in one.
func showLifetimes(w io.Writer, paths []string, a receipts.TrendArm) {
	if len(a.ToLast) == 0 {
		return
	}
	var rows [][]string
	for i, p := range a.Points {
		for _, r := range p.Rates {
			clock, least := strings.ReplaceAll(r.Clock, "_", " "), "-"
			if r.AtLeast != nil {
				least = fmt.Sprintf("%.4g %s", *r.AtLeast, clock)
			}
			change := "-"
			for _, c := range a.ToLast {
				if c.Build == i && c.Clock == r.Clock {
					change = fmt.Sprintf("p=%.4g", c.P)
				}
			}
			rows = append(rows, []string{paths[i], fmt.Sprintf("%d in %.4g %s", r.Events, r.Exposure, clock), fmt.Sprintf("%.4g to %.4g", r.Low, r.High), least, change})
		}
	}
	fmt.Fprintf(w, "\n%s, deaths of the engine:\n", a.Arm)
	show.Table(w, []string{"build", "deaths", "rate, 95 %", "lifetime at least", "vs last build"}, rows)
}

// trendCell is one arm in one build: failed of asked, what the store gave, the verdict.
func trendCell(p receipts.TrendPoint) string {
	if p.N == nil || p.Failed == nil {
		return "-"
	}
	s := fmt.Sprintf("%d/%d", *p.Failed, *p.N)
	if p.External != nil {
		s += fmt.Sprintf(" ext %d", *p.External)
	}
	if p.Events != nil && *p.Events > 0 {
		s += fmt.Sprintf(" deaths %d", *p.Events)
	}
	if p.Verdict != "" {
		s += " " + p.Verdict
	}
	return s
}
