package scoring

import (
	"fmt"

	"kvladder/scoring/compare"
)

// reading is one pairing of a judged arm with a control pass: the registered one, or that
// of a replicate.
type reading struct {
	arm, ref *armRun
	refPass  int
	pairs    []*pair

	unstable  []string // prompts that fail in another process of the reference's configuration
	armOnly   []*pair  // c, stable
	refOnly   int      // b, stable
	stable    []*pair
	extra     int // a wrong liveness answer is a failing row of its own
	pMcNemar  *float64
	floorD0   []float64
	floorWhy  string // why there is no floor
	armD0     []float64
	equalN    int  // stable pairs whose computing began at the same token
	startsOK  bool // it is known for all where
	processes []*armRun

	pExceedance, pMargin          *float64
	exceedanceK, floorM           *int
	everyControl                  bool // significant too against every control process as reference
	everyMargin                   bool
	pMcNemarHolm, pExceedanceHolm *float64
	pMarginHolm                   *float64
	marginsArm, marginsFloor      []float64
	rank                          string
}

func (s *scorer) newReading(j *judgement, arm, ref *armRun, refPass int) *reading {
	r := &reading{arm: arm, ref: ref, refPass: refPass}
	r.pairs = s.pairs(arm, judgedPass(j.spec), ref, refPass)
	bad := map[string]bool{}
	for _, a := range s.processesOf(j.spec.Reference, true) {
		if a == ref {
			continue
		}
		for _, w := range a.allRows(s.in.Set) {
			if w.failed {
				bad[w.prompt.ID] = true
			}
		}
	}
	for _, p := range r.pairs {
		if bad[p.arm.prompt.ID] {
			r.unstable = append(r.unstable, p.arm.prompt.ID)
			continue
		}
		r.stable = append(r.stable, p)
		switch {
		case p.arm.failed && !p.ref.failed:
			r.armOnly = append(r.armOnly, p)
		case !p.arm.failed && p.ref.failed:
			r.refOnly++
		}
	}
	r.extra = wrongLiveness(arm) - wrongLiveness(ref)
	r.extra = max(0, r.extra)
	if len(r.stable) > 0 {
		r.pMcNemar = ptr(compare.McNemar(r.refOnly, r.c()).OneSided)
	}
	s.divergence(j, r)
	return r
}

// c counts what fails in the arm only.
func (r *reading) c() int { return len(r.armOnly) + r.extra }

func wrongLiveness(a *armRun) int {
	if a == nil {
		return 0
	}
	n := 0
	for _, l := range a.liveness {
		if l.Right != nil && !*l.Right {
			n++
		}
	}
	return n
}

// processesOf are the climbs of a configuration in the registered run: the arm itself and
// its further processes; those with another prefill budget only where split says so.
func (s *scorer) processesOf(name string, split bool) []*armRun {
	var out []*armRun
	if a := s.t.arm(0, name); a != nil {
		out = append(out, a)
	}
	for _, f := range s.floorsOf(name) {
		if a := s.t.arm(0, f.Name); a != nil && (split || !f.Split) {
			out = append(out, a)
		}
	}
	return out
}

// divergence tests whether first tokens, and flips, moved further from the reference than
// control processes move from one another. Only requests whose computing began at the same
// token are compared: another split of the prompt moves numbers without any reuse.
func (s *scorer) divergence(j *judgement, r *reading) {
	r.startsOK = true
	for _, p := range r.stable {
		if !p.startKnown {
			r.startsOK = false
		}
		if !p.sameStart {
			continue
		}
		r.equalN++
		if p.d0 != nil {
			r.armD0 = append(r.armD0, *p.d0)
		}
		if p.margin != nil {
			r.marginsArm = append(r.marginsArm, *p.margin)
		}
	}
	stable := map[string]bool{}
	for _, p := range r.stable {
		stable[p.arm.prompt.ID] = true
	}
	for _, a := range s.processesOf(j.spec.Reference, false) {
		if len(a.passes[r.refPass]) > 0 {
			r.processes = append(r.processes, a)
		}
	}
	for i, a := range r.processes {
		for _, b := range r.processes[i+1:] {
			d, m := s.apart(b, r.refPass, a, r.refPass, stable)
			r.floorD0, r.marginsFloor = append(r.floorD0, d...), append(r.marginsFloor, m...)
		}
	}
	if len(r.floorD0) == 0 {
		r.floorWhy = "no two processes of the reference's configuration with first-token logprobs"
		return
	}
	if r.equalN < s.need(len(r.stable)) || len(r.armD0) == 0 {
		return
	}
	e, err := compare.Exceedance(r.floorD0, r.armD0)
	if err != nil {
		r.floorWhy = err.Error()
		return
	}
	r.pExceedance, r.exceedanceK, r.floorM = &e.P, &e.K, &e.M
	alpha := s.in.Design.Rule.Alpha.Divergence
	r.everyControl, r.everyMargin = true, true
	if len(r.marginsFloor) > 0 && len(r.marginsArm) > 0 {
		if e, err := compare.Exceedance(r.marginsFloor, r.marginsArm); err == nil {
			r.pMargin = &e.P
		}
	}
	for _, c := range r.processes {
		if c == r.ref {
			continue
		}
		d, m := s.apart(r.arm, judgedPass(j.spec), c, r.refPass, stable)
		if e, err := compare.Exceedance(r.floorD0, d); err != nil || e.P > alpha {
			r.everyControl = false
		}
		if e, err := compare.Exceedance(r.marginsFloor, m); err != nil || e.P > alpha {
			r.everyMargin = false
		}
	}
	r.rank = s.processRank(j, r, stable)
}

// need is how many equal splits a test of logprobs asks for. A Set with fewer requests than
// n_min is short of power and not of a floor: it is tested on what it has, and the power
// column says the rest.
func (s *scorer) need(n int) int { return max(1, min(s.in.Design.Rule.NMin, n)) }

// apart gives the d0 values and flip margins between two passes, over stable prompts with
// equal splits.
func (s *scorer) apart(a *armRun, pass int, b *armRun, passB int, stable map[string]bool) (d0, margins []float64) {
	for _, p := range s.pairs(a, pass, b, passB) {
		if !p.sameStart || !stable[p.arm.prompt.ID] {
			continue
		}
		if p.d0 != nil {
			d0 = append(d0, *p.d0)
		}
		if p.margin != nil {
			margins = append(margins, *p.margin)
		}
	}
	return d0, margins
}

// processRank places the arm's mean d0 among those of the control processes, all against
// the reference: "1 of 3" is further away than both others.
func (s *scorer) processRank(j *judgement, r *reading, stable map[string]bool) string {
	mean := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum / float64(len(x))
	}
	if len(r.armD0) == 0 {
		return ""
	}
	mine, rank, of := mean(r.armD0), 1, 1
	for _, c := range r.processes {
		if c == r.ref {
			continue
		}
		d, _ := s.apart(c, r.refPass, r.ref, r.refPass, stable)
		if len(d) == 0 {
			continue
		}
		of++
		if mean(d) >= mine {
			rank++
		}
	}
	return fmt.Sprintf("%d of %d", rank, of)
}
