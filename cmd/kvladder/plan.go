package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/show"
	"kvladder/receipts/digest"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

type planOptions struct {
	Ladder string
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
	cmd.Flags().StringVar(&o.Write, "write", "", "write the plan to this `FILE`, for run --plan FILE")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print one JSON document")
	return cmd
}

func planRun(o planOptions, stdout, stderr io.Writer) error {
	if !(o.Rate > 0 && o.Rate <= 1) {
		return fmt.Errorf("--rate %v: want a share over 0 and up to 1, such as 0.05", o.Rate)
	}
	r, err := resolve(o.Ladder)
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

// writeNew writes a file that must not be there yet; the same bytes again are welcome.
func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		if old, rerr := os.ReadFile(path); rerr == nil && string(old) == string(b) {
			return nil
		}
		return fmt.Errorf("%s exists and differs: it is never written over; choose another name", path)
	}
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func viewPlan(r *resolved, d digest.Digest, rate float64) planView {
	p := r.plan
	v := planView{Digest: d, Ladder: p.Ladder, Set: p.Set, Problems: p.Problems, Chains: p.Chains}
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
		if a.Role == scoring.Judged {
			pa.Reference, pa.Pin = &a.Reference, &a.Pin
			pa.SeesRate = p.SeesRate(p.Set.Requests, 0.95)
			pa.SeesRate8 = p.SeesRate(p.Set.Requests, 0.80)
			pa.Power = &planPower{rate, compare.PowerAtLeast(p.Set.Requests, rate, p.NeedArmOnly())}
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
		ref, pin, sees := "-", "-", "-"
		if a.Reference != nil {
			ref = *a.Reference
		}
		if a.Pin != nil {
			pin = fmt.Sprintf("%s: %s → %s", a.Pin.Name, a.Pin.Reference, a.Pin.Arm)
		}
		if a.SeesRate != nil && a.SeesRate8 != nil {
			sees = fmt.Sprintf("%.3f / %.3f", *a.SeesRate, *a.SeesRate8)
		}
		rows = append(rows, []string{a.Name, a.Role, ref, pin, fmt.Sprint(a.Expected.Local), fmt.Sprint(a.Expected.External), fmt.Sprintf("%d/%d", a.Expected.Hits, v.Set.Requests), sees})
	}
	show.Table(w, []string{"arm", "role", "reference", "differing pin", "local", "external", "hits", "sees rate 95 % / 80 %"}, rows)
	fmt.Fprintf(w, "\nexpected local and external are prompt tokens of the judged pass, from geometry\ncost     %d processes, %d requests, %d prompt tokens sent, about %d computed\n", v.Cost.Processes, v.Cost.Requests, v.Cost.PromptTokens, v.Cost.Computed)
	for _, a := range v.Arms {
		if a.Power != nil { // the same for every judged arm
			fmt.Fprintf(w, "power    %.3f to accuse an arm that corrupts %.3f of the requests, in the registered run alone\n", a.Power.Power, a.Power.Rate)
			break
		}
	}
	for _, q := range v.Problems {
		kind := "problem"
		if q.Fatal {
			kind = "refused"
		}
		fmt.Fprintf(w, "%s  %s: %s\n", kind, q.Code, q.What)
	}
}

// readPlan reads a registered plan.
func readPlan(path string) (*arms.Plan, digest.Digest, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	var p arms.Plan
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, "", fmt.Errorf("plan %s: %w", path, err)
	}
	return &p, digest.Of(b), nil
}
