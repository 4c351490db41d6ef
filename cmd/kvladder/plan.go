package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/show"
	"kvladder/receipts/digest"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

type planOptions struct {
	Ladder string
	By     string
	Write  string
	Rate   float64
	JSON   bool
}

// planView is the JSON document of `kvladder plan`.
type planView struct {
	Digest   digest.Digest  `json:"digest"`
	Ladder   string         `json:"ladder"`
	Set      arms.PlanSet   `json:"set"`
	Arms     []planArm      `json:"arms"`
	Chains   []arms.Chain   `json:"chains"`
	Cost     planCost       `json:"cost"`
	Problems []arms.Problem `json:"problems"`

	Thresholds *scoring.Thresholds `json:"thresholds"` // formulas over the floor
	Endings    []string            `json:"endings"`    // how soaks may end before their length
}

type planArm struct {
	Name      string       `json:"name"`
	Role      string       `json:"role"`
	Reference *string      `json:"reference"`
	Pin       *scoring.Pin `json:"pin"`
	Expected  planExpected `json:"expected"`
	SeesRate  *float64     `json:"sees_rate"`   // smallest true defect rate that the paired test shows with 95 % power
	SeesRate8 *float64     `json:"sees_rate80"` // and with 80 %
	Power     *planPower   `json:"power"`
	Tests     []arms.Power `json:"tests"`      // what each test that carries a verdict can see, in geometries
	Bound     *float64     `json:"best_bound"` // class bound of a run without any failure
	Problems  []string     `json:"problems"`
}

// planPower is the chance that the registered run alone accuses an arm that corrupts each
// request with chance Rate beside a reference that fails nowhere.
type planPower struct {
	Rate  float64 `json:"rate"`
	Power float64 `json:"power"`
}

type planExpected struct {
	Local    int                      `json:"local"`    // tokens, all requests
	External int                      `json:"external"` //
	Hits     int                      `json:"hits"`     // requests with any reuse
	Requests map[string]scoring.Reuse `json:"requests"`
}

type planCost struct {
	Processes    int `json:"processes"`
	Requests     int `json:"requests"`
	PromptTokens int `json:"prompt_tokens"` // sent, reuse not subtracted
	Computed     int `json:"computed_tokens"`
}

func newPlanCmd(stdout, stderr io.Writer) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan LADDER",
		Short: "resolve and lint a ladder, print its digest; starts nothing",
		Long: `plan resolves a ladder file into a plan: every arm with the one pin that differs from its
reference, the reuse that geometry predicts for each request, the defect rate the run can
see, its cost, and the problems found. The digest printed is the pre-registration: write it
down with --write, and run refuses a ladder that no longer resolves to it.`,
		Example: `  kvladder plan arms/ladders/demo-healthy.yaml
  kvladder plan --write plan.json arms/ladders/demo-healthy.yaml`,
		Args: args(cobra.ExactArgs(1), "one ladder file"),
		RunE: func(cmd *cobra.Command, a []string) error {
			o.Ladder = a[0]
			return planRun(o, stdout, stderr)
		},
	}
	cmd.Flags().Float64Var(&o.Rate, "rate", 7./38, "true defect `RATE` that the power is printed for")
	cmd.Flags().StringVar(&o.By, "launcher", "", "plan for this launcher instead of the ladder's: "+names(launchers))
	cmd.Flags().StringVar(&o.Write, "write", "", "write the plan to this `FILE`, for run --plan FILE")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print one JSON document")
	return cmd
}

func planRun(o planOptions, stdout, stderr io.Writer) error {
	if !(o.Rate > 0 && o.Rate <= 1) {
		return fmt.Errorf("--rate %v: want a share over 0 and up to 1, such as 0.05", o.Rate)
	}
	r, err := resolve(o.Ladder, o.By)
	if err != nil {
		return err
	}
	d, b, err := r.plan.Digest()
	if err != nil {
		return err
	}
	v := viewPlan(r, d, o.Rate)
	if o.JSON {
		if err := printJSON(stdout, v); err != nil {
			return err
		}
	} else {
		showPlan(stdout, v)
	}
	if err := r.plan.Refusal(); err != nil {
		return err
	}
	if o.Write != "" {
		if err := writeNew(o.Write, b); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "registered %s in %s\n", d, o.Write)
	}
	return nil
}

// writeNew writes a file that must not be there yet; the same bytes again are welcome. It is
// written whole under another name first, so that a full disk leaves nothing of it.
func writeNew(path string, b []byte) error {
	if err := writeOnce(path, b); err != nil {
		return fmt.Errorf("%s cannot be written: %w; %s", path, err, writeRemedy(err))
	}
	return nil
}

var errDiffers = errors.New("it exists and differs, and is never written over")

func writeOnce(path string, b []byte) error {
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().IsRegular() && fi.Size() == int64(len(b)) {
			if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
				return nil
			}
		}
		return errDiffers
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".kvladder-*.part")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writeRemedy says what to do about a file that could not be written.
func writeRemedy(err error) string {
	switch {
	case errors.Is(err, errDiffers):
		return "choose another name"
	case errors.Is(err, os.ErrNotExist):
		return "make the folder first, or choose another"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "free some space and try again"
	}
	return "choose a place in a folder that can be written"
}

func viewPlan(r *resolved, d digest.Digest, rate float64) planView {
	p := r.plan
	v := planView{Digest: d, Ladder: p.Ladder, Set: p.Set, Problems: p.Problems, Chains: p.Chains, Thresholds: p.Design.Rule.Thresholds, Endings: p.Endings()}
	length := map[string]int{}
	for _, q := range r.set.Prompts {
		length[q.ID] = len(q.Tokens)
	}
	for i := range p.Design.Arms {
		a := &p.Design.Arms[i]
		pa := planArm{Name: a.Name, Role: a.Role, Problems: []string{}, Expected: planExpected{Requests: a.Expected}}
		if pa.Expected.Requests == nil {
			pa.Expected.Requests = map[string]scoring.Reuse{}
		}
		for _, x := range a.Expected {
			pa.Expected.Local += x.Local
			pa.Expected.External += x.External
			if x.Local+x.External > 0 {
				pa.Expected.Hits++
			}
		}
		if a.Role == scoring.Forced {
			pa.Reference = &a.Reference
		}
		if a.Role == scoring.Judged {
			pa.Reference, pa.Pin = &a.Reference, &a.Pin
			pa.SeesRate = p.SeesRate(p.Set.Requests, 0.95)
			pa.SeesRate8 = p.SeesRate(p.Set.Requests, 0.80)
			pa.Power = &planPower{rate, compare.PowerAtLeast(p.Set.Requests, rate, p.NeedArmOnly())}
			pa.Tests = p.Power(a, r.set)
			pa.Bound = compare.Upper95(0, p.Set.Classes)
		}
		for _, q := range p.Problems {
			if q.Arm == a.Name {
				pa.Problems = append(pa.Problems, q.Code+": "+q.What)
			}
		}
		v.Arms = append(v.Arms, pa)
		for _, n := range length {
			v.Cost.PromptTokens += n * a.Passes
		}
		v.Cost.Computed -= pa.Expected.Local + pa.Expected.External
		v.Cost.Requests += p.Set.Requests * a.Passes
		if strings.HasSuffix(a.Preset, "PART") {
			for _, q := range r.set.Prompts {
				if q.Prime != nil {
					v.Cost.Requests++
					v.Cost.PromptTokens += q.Prime.Tokens
				}
			}
		}
	}
	v.Cost.Computed += v.Cost.PromptTokens
	for _, ch := range p.Chains {
		for _, st := range ch.Steps {
			if st.Do == "launch" {
				v.Cost.Processes++
			}
		}
	}
	return v
}

func showPlan(w io.Writer, v planView) {
	fmt.Fprintf(w, "ladder   %s\nplan     %s\nset      %s %s: %d requests, %d geometry classes\n\n", v.Ladder, v.Digest, v.Set.Name, v.Set.Digest, v.Set.Requests, v.Set.Classes)
	rows := [][]string{}
	for _, a := range v.Arms {
		ref, pin := "-", "-"
		if a.Reference != nil {
			ref = *a.Reference
		}
		if a.Pin != nil {
			pin = fmt.Sprintf("%s: %s → %s", a.Pin.Name, a.Pin.Reference, a.Pin.Arm)
		}
		rows = append(rows, []string{a.Name, a.Role, ref, pin, fmt.Sprint(a.Expected.Local), fmt.Sprint(a.Expected.External), fmt.Sprintf("%d/%d", a.Expected.Hits, v.Set.Requests)})
	}
	show.Table(w, []string{"arm", "role", "reference", "differing pin", "local", "external", "hits"}, rows)
	fmt.Fprintf(w, "\nexpected local and external are prompt tokens of the judged pass, from geometry\ncost     %d processes, %d requests, %d prompt tokens sent, about %d computed\n", v.Cost.Processes, v.Cost.Requests, v.Cost.PromptTokens, v.Cost.Computed)
	showPower(w, v)
	for _, a := range v.Arms {
		if a.Power != nil { // the same for every judged arm
			fmt.Fprintf(w, "power    %.3f to accuse an arm that corrupts %.3f of the requests, in the registered run alone\n", a.Power.Power, a.Power.Rate)
			break
		}
	}
	if t := v.Thresholds; t != nil {
		fmt.Fprintf(w, "floors   d0_gate = %s, d0_flag = %s, near_tie = %s; P is between control processes\n", t.D0Gate, t.D0Flag, t.NearTie)
	}
	for _, e := range v.Endings {
		fmt.Fprintf(w, "soak     %s\n", e)
	}
	for _, q := range v.Problems {
		kind := "problem"
		if q.Fatal {
			kind = "refused"
		}
		fmt.Fprintf(w, "%s  %s: %s\n", kind, q.Code, q.What)
	}
}

// showPower is what each test of each judged arm can see; arms for which it is the same have
// one row. What to change is said once for each different answer.
func showPower(w io.Writer, v planView) {
	type key struct{ test, n, g, needs, sees95, sees80, change string }
	var order []key
	names := map[key][]string{}
	num := func(x *float64) string {
		if x == nil {
			return "none"
		}
		return fmt.Sprintf("%.3f", *x)
	}
	for _, a := range v.Arms {
		for _, t := range a.Tests {
			needs := fmt.Sprint(t.Needs)
			if t.Needs == 0 {
				needs = "-"
			}
			k := key{t.Test, fmt.Sprint(t.N), fmt.Sprint(t.Geometries), needs, num(t.Sees95), num(t.Sees80), t.Change}
			if names[k] == nil {
				order = append(order, k)
			}
			names[k] = append(names[k], a.Name)
		}
	}
	if len(order) == 0 {
		return
	}
	rows := [][]string{}
	for _, k := range order {
		rows = append(rows, []string{strings.Join(names[k], ", "), k.test, k.n, k.g, k.needs, k.sees95, k.sees80})
	}
	fmt.Fprintln(w)
	show.Table(w, []string{"arms", "test", "n", "geometries", "needs", "sees 95 %", "80 %"}, rows)
	fmt.Fprintln(w, "\nsees: the smallest share of struck geometries that the registered run shows with that power")
	for _, k := range order {
		if k.change != "" {
			fmt.Fprintf(w, "to see less, %s (%s): %s\n", k.test, strings.Join(names[k], ", "), k.change)
		}
	}
}

// maxPlan is the most bytes of a plan, 256 MiB.
const maxPlan = 256 << 20

// readPlan reads a registered plan.
func readPlan(path string) (*arms.Plan, digest.Digest, error) {
	const next = "kvladder plan --write FILE LADDER registers a plan"
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("plan %s: no such file; %s", path, next)
	}
	if err != nil {
		return nil, "", fmt.Errorf("plan %s: %w; %s", path, err, next)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPlan+1))
	if err == nil && len(b) > maxPlan {
		err = fmt.Errorf("it has more than %d bytes", maxPlan)
	}
	if err != nil {
		return nil, "", fmt.Errorf("plan %s: %w; %s", path, err, next)
	}
	var p arms.Plan
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, "", fmt.Errorf("plan %s is none: %w; %s", path, err, next)
	}
	return &p, digest.Of(b), nil
}
