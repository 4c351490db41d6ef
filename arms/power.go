package arms

import (
	"fmt"
	"math"
	"strings"

	"kvladder/prompts"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// Tests that carry a verdict, as power is stated for them.
const (
	TestFailures   = "failures"    // McNemar: what fails in the arm and not in its reference
	TestFirstToken = "first token" // exceedance of d0 over the floor between control processes
	TestBound      = "bound"       // the class bound of a run in which nothing fails
)

// Power is what one test of a judged arm can see in the registered run. What is counted is
// distinct geometries among the requests that can take the arm's path: a defect that strikes a
// share of the geometries strikes every request that is cut alike.
type Power struct {
	Test       string   `json:"test"`
	N          int      `json:"n"`          // requests that geometry lets take the path
	Geometries int      `json:"geometries"` // distinct, of them
	Needs      int      `json:"needs"`      // geometries that have to be struck; 0 = the test is out of reach
	Sees95     *float64 `json:"sees95"`     // smallest struck share that is seen with 95 % power, nil when none is
	Sees80     *float64 `json:"sees80"`     // with 80 %
	Change     string   `json:"change"`     // what to change to see a smaller one
}

// exercisable are the prompts that geometry lets take an arm's path; all where it predicts
// nothing.
func exercisable(a *scoring.ArmSpec, s *prompts.Set) []*prompts.Prompt {
	var out []*prompts.Prompt
	for i := range s.Prompts {
		p := &s.Prompts[i]
		if len(a.Expected) == 0 || takesPath(a, a.Expected[p.ID], p, s.Geometry.StoreChunk) {
			out = append(out, p)
		}
	}
	return out
}

// takesPath says whether a request with this expected reuse exercises the arm.
func takesPath(a *scoring.ArmSpec, x scoring.Reuse, p *prompts.Prompt, chunk int) bool {
	local, ext := x.Local > 0, x.External > 0
	switch a.Exercise {
	case "C1", "REPLAY":
		return local
	case "WARM", "RST":
		return ext
	case "PART":
		return local && ext
	case "COLD": // what COLD does is store
		return chunk == 0 || len(p.Tokens) >= chunk
	case "XID": // where the configuration is the identity, the pass behind the judged one hits
		return a.Identity == "config" || a.Path == "local" && local || a.Path == "external" && ext
	}
	return local || ext
}

// Power states for a judged arm, test by test, what the registered run can see of the Set.
func (p *Plan) Power(a *scoring.ArmSpec, s *prompts.Set) []Power {
	rule, judged := p.Design.Rule, p.family()
	ps := exercisable(a, s)
	labels := map[string]bool{}
	for _, q := range ps {
		labels[q.Class.Label] = true
	}
	n, g := len(ps), len(labels)
	make := func(test string, needs int) Power {
		x := Power{Test: test, N: n, Geometries: g, Needs: needs}
		if needs > 0 {
			x.Sees95, x.Sees80 = compare.SmallestRate(g, needs, 0.95), compare.SmallestRate(g, needs, 0.80)
		}
		return x
	}

	failures := make(TestFailures, p.NeedArmOnly())
	failures.Change = p.larger(failures, judged)
	if one := compare.MinArmOnly(rule.Alpha.Failures); judged > 1 && one < failures.Needs {
		if r := compare.SmallestRate(g, one, 0.95); r != nil {
			failures.Change += fmt.Sprintf("; alone in its ladder the arm needs %d and shows %.3f", one, *r)
		}
	}

	others := 0 // control processes beyond the reference: their pairs are the floor
	for i := range p.Design.Arms {
		if f := &p.Design.Arms[i]; f.FloorOf == a.Reference && !f.Split {
			others++
		}
	}
	pairs := others * (others + 1) / 2
	first := make(TestFirstToken, exceedanceNeeds(g, g*pairs, rule.Alpha.Divergence/float64(judged)))
	switch {
	case pairs == 0:
		first.Change = fmt.Sprintf("there is no floor: a second process of %s is needed, 3 are the default (floors)", a.Reference)
	case first.Needs == 0:
		first.Change = fmt.Sprintf("%d control values cannot make it significant: climb more processes of %s (floors), or judge fewer arms", g*pairs, a.Reference)
	default:
		first.Change = p.larger(first, judged)
		if more := exceedanceNeeds(g, g*(others+1)*(others+2)/2, rule.Alpha.Divergence/float64(judged)); more < first.Needs && more > 0 {
			first.Change += fmt.Sprintf("; one more process of %s brings it to %d", a.Reference, more)
		}
	}

	bound := make(TestBound, 1)
	bound.Change = p.larger(bound, 0)
	return []Power{failures, first, bound}
}

// exceedanceNeeds is the least number of n arm values above all of m floor values that is
// significant at alpha, 0 when not even all of them are.
func exceedanceNeeds(n, m int, alpha float64) int {
	for k := 1; k <= n && m > 0; k++ {
		if compare.ExceedanceP(k, n, m) <= alpha {
			return k
		}
	}
	return 0
}

// larger says how many geometries would show half of what is shown now, and how to freeze them.
func (p *Plan) larger(x Power, judged int) string {
	if x.Sees95 == nil {
		return fmt.Sprintf("%d geometries cannot show %d struck: freeze more of them (--kind wide)", x.Geometries, x.Needs)
	}
	half := *x.Sees95 / 2
	if half < 1e-4 {
		return ""
	}
	rate := math.Floor(half*1000) / 1000
	if rate < 0.001 {
		rate = half
	}
	s := fmt.Sprintf("%d geometries show %.3g", compare.SmallestN(rate, x.Needs, 0.95), rate)
	if x.Test != TestFirstToken { // what freeze sizes a Set for
		s += fmt.Sprintf(": freeze --for-rate %.3g --for-arms %d", rate, judged)
	}
	return s
}

// Endings says of every soak how it may end before its length, one line each.
func (p *Plan) Endings() []string {
	var out []string
	for _, a := range p.Design.Arms {
		if a.Preset != "SOAK" {
			continue
		}
		rounds := a.Passes
		if a.Stop == nil {
			out = append(out, fmt.Sprintf("%s has no stopping rule: it runs its length, %d passes", a.Name, rounds))
			continue
		}
		out = append(out, fmt.Sprintf("%s ends early by its %s alone (p0 %g, p1 %g, alpha %g%s), at the end of a pass: %s", a.Name, a.Stop.Rule, a.Stop.P0, a.Stop.P1, a.Stop.Alpha,
			beta(a.Stop), strings.Join(boundaries(a.Stop), ", ")))
	}
	return out
}

func beta(s *scoring.Stop) string {
	if s.Rule != scoring.StopSPRT {
		return ""
	}
	return fmt.Sprintf(", beta %g", s.Beta)
}

// boundaries are what a rule takes to decide.
func boundaries(s *scoring.Stop) []string {
	st, err := compare.BernoulliSteps(s.P0, s.P1)
	if err != nil {
		return nil
	}
	plural := func(n int, what string) string {
		if n != 1 {
			what += "s"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	if s.Rule == scoring.StopEProcess {
		return []string{"alarms after " + plural(int(math.Ceil(compare.AlarmAt(s.Alpha)/st.Event)), "failure"), "accepts nothing"}
	}
	b, err := compare.NewSPRT(s.Alpha, s.Beta)
	if err != nil {
		return nil
	}
	out := []string{"accepts after " + plural(int(math.Ceil(b.QuietToAccept(st))), "clean request"), "rejects after " + plural(b.EventsToReject(st), "failure")}
	if h0, h1, err := b.SampleNumbers(s.P0, s.P1); err == nil {
		out = append(out, fmt.Sprintf("about %.0f requests where p0 holds and %.0f where p1 does", math.Ceil(h0), math.Ceil(h1)))
	}
	return out
}
