package scoring

import (
	"fmt"
	"slices"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring/compare"
)

// scorer holds one ladder while it is scored.
type scorer struct {
	in        Input
	t         *transcript
	detectors []Detector // those that fired on their specimen
	pairCache map[pairKey][]*pair
	judged    map[string]*judgement // by arm
	warnings  []string
}

// judgement is everything about one judged arm on the way to its verdict.
type judgement struct {
	spec *ArmSpec
	arm  *armRun // run 0

	chainDied bool
	readings  []*reading // run 0 first, then the replicates that were run
	cols      Columns
	verdict   Verdict
	done      bool
	warnings  []string

	exercised    map[string]bool // stable and unstable target requests that took the path
	exerciseOK   bool            // whether that is known per request
	path         string
	reason       string
	invariants   []Invariant
	differ       []string // comparable requests with an unequal bit in run 0
	bitsAgain    string   // "3 of 40": those of the replicate that confirms them
	comparedBits int
	bitEqual     int
	classes      int
	upper        *float64
	upperClass   *float64
	exercisedN   *int
	trusted      *bool
	stored       *float64 // chunks the arm wrote
	storedFrom   string
}

func (j *judgement) warn(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if !slices.Contains(j.warnings, s) {
		j.warnings = append(j.warnings, s)
	}
}

// Assess scores a ladder from its records: which arm failed what, beside which reference,
// over which path, and what that lets one say. It is a pure function: the same input gives
// the same Result, whoever runs it.
func Assess(in Input, recs []probes.Record, detectors []Detector) Result {
	if in.Set == nil {
		in.Set = &prompts.Set{}
	}
	s := &scorer{in: in, pairCache: map[pairKey][]*pair{}, judged: map[string]*judgement{}}
	for _, d := range detectors {
		r, e := d.Specimen()
		if d.Inspect(r, e).Fired {
			s.detectors = append(s.detectors, d)
		} else {
			s.warnings = append(s.warnings, fmt.Sprintf("detector %s is silent on its own specimen: trusted with nothing", d.Name()))
		}
	}
	s.t = gather(&in.Design, in.Set, recs)
	s.warnings = append(s.warnings, s.t.warnings...)
	s.fillSplits()
	for _, a := range s.t.arms {
		s.contradict(a)
	}
	s.inspect()
	s.rounds()
	for i := range in.Design.Arms {
		spec := &in.Design.Arms[i]
		if spec.Role == Judged {
			s.judged[spec.Name] = &judgement{spec: spec, arm: s.t.arm(0, spec.Name)}
		}
	}
	s.read()
	s.families()
	for i := range in.Design.Arms {
		if j := s.judged[in.Design.Arms[i].Name]; j != nil {
			s.judge(j)
		}
	}
	return s.result()
}

// inspect runs the detectors over every reply, then marks the replies that say nothing
// where the same request of the reference says something.
func (s *scorer) inspect() {
	for _, a := range s.t.arms {
		for _, w := range a.allRows(s.in.Set) {
			w.inspect(s.detectors)
		}
	}
	for key, a := range s.t.arms {
		name := a.spec.Reference
		if name == "" {
			name = a.spec.FloorOf
		}
		for _, w := range a.allRows(s.in.Set) {
			if !w.answered || w.substantive || w.failed {
				continue
			}
			for _, run := range []int{key.run, 0} {
				if ref := s.t.arm(run, name); ref != nil && ref.saysSomething(w.prompt.ID) {
					w.failed = true
					w.fired = append(w.fired, "empty")
					break
				}
			}
		}
	}
}

func (a *armRun) saysSomething(id string) bool {
	for _, rows := range a.passes {
		if r := rows[id]; r != nil && r.substantive {
			return true
		}
	}
	return false
}

// judgedPass of an arm: the registered one, else its last.
func judgedPass(s *ArmSpec) int {
	if s.Judge > 0 {
		return s.Judge
	}
	return max(1, s.Passes)
}

func referencePass(s *ArmSpec) int { return max(1, s.ReferencePass) }

// floorsOf are the further processes of a configuration, in plan order.
func (s *scorer) floorsOf(name string) []*ArmSpec {
	var out []*ArmSpec
	for i := range s.in.Design.Arms {
		if f := &s.in.Design.Arms[i]; f.FloorOf == name && f.Name != name {
			out = append(out, f)
		}
	}
	return out
}

// read pairs every judged arm with its reference, in the registered run and in each
// replicate.
func (s *scorer) read() {
	for i := range s.in.Design.Arms {
		j := s.judged[s.in.Design.Arms[i].Name]
		if j == nil {
			continue
		}
		if j.arm == nil || !j.arm.started {
			j.chainDied = s.t.dead[runChain{0, j.spec.Chain}]
		}
		ref, ok := s.in.Design.ByName(j.spec.Reference)
		if !ok {
			j.warn("reference %q is not an arm of the plan: nothing to pair with", j.spec.Reference)
			continue
		}
		j.readings = append(j.readings, s.newReading(j, j.arm, s.t.arm(0, ref.Name), referencePass(j.spec)))
		for run := 1; run <= s.t.runs; run++ {
			arm := s.t.arm(run, j.spec.Name)
			if arm == nil || len(arm.passes[judgedPass(j.spec)]) == 0 {
				continue
			}
			if p, why := s.pinsOf(j.spec, run); p == No {
				j.warn("the climb of run %d is no replicate: %s", run, why)
				continue
			}
			if c, sub, why := arm.alive(); c == No {
				j.warn("the engine did not live through the climb of run %d (%s): %s", run, sub, why)
			}
			control, pass := s.freshControl(j, run)
			j.readings = append(j.readings, s.newReading(j, arm, control, pass))
		}
	}
}

// freshControl finds a control pass for a replicate that no earlier run was paired with:
// the reference climbed again in that run, else a further process of its configuration,
// else another of its passes.
func (s *scorer) freshControl(j *judgement, run int) (*armRun, int) {
	pass := referencePass(j.spec)
	if a := s.t.arm(run, j.spec.Reference); a != nil && len(a.passes[pass]) > 0 {
		return a, pass
	}
	k := 1
	for _, f := range s.floorsOf(j.spec.Reference) {
		a := s.t.arm(0, f.Name)
		if f.Split || a == nil || len(a.passes[pass]) == 0 {
			continue
		}
		if k == run {
			return a, pass
		}
		k++
	}
	j.warn("replicate %d is paired with the control pass that was used before: there is no fresh one", run)
	return s.t.arm(0, j.spec.Reference), pass
}

// families corrects the two primaries over the judged arms of the ladder, and those of the
// replicates over the replicated arms. An arm without a p-value keeps its seat with 1.
func (s *scorer) families() {
	for n := 0; n <= s.t.runs; n++ {
		for _, twins := range []bool{false, true} { // a twin ladder is a ladder of its own
			s.family(n, twins)
		}
	}
}

func (s *scorer) family(n int, twins bool) {
	var rs []*reading
	for i := range s.in.Design.Arms {
		j := s.judged[s.in.Design.Arms[i].Name]
		if j == nil || j.chainDied || n >= len(j.readings) || n > 0 && !s.waits(j.readings[0]) || (j.spec.TwinOf != "") != twins {
			continue
		}
		rs = append(rs, j.readings[n])
	}
	var failures, divergence []float64
	for _, r := range rs {
		failures = append(failures, orOne(r.pMcNemar))
		divergence = append(divergence, orOne(r.pExceedance))
	}
	for _, r := range rs { // flip margins share the family of d0
		if r.pMargin != nil {
			divergence = append(divergence, *r.pMargin)
		}
	}
	f, d := compare.Holm(failures), compare.Holm(divergence)
	next := len(rs)
	for i, r := range rs {
		if r.pMcNemar != nil {
			r.pMcNemarHolm = &f[i]
		}
		if r.pExceedance != nil {
			r.pExceedanceHolm = &d[i]
		}
		if r.pMargin != nil {
			r.pMarginHolm = &d[next]
			next++
		}
	}
}

// waits says whether the registered run leaves something for a replicate to confirm. The
// other arms of a replicated chain were climbed along with it and ask nothing, so they do
// not thin the replicate's family.
func (s *scorer) waits(r *reading) bool {
	rule := s.in.Design.Rule
	small := func(p *float64, alpha float64) bool { return p != nil && *p <= alpha }
	return r.c() >= 1 && !small(r.pMcNemarHolm, rule.Alpha.Failures) ||
		small(r.pExceedanceHolm, rule.Alpha.Divergence) || small(r.pMarginHolm, rule.Alpha.Divergence)
}

func orOne(p *float64) float64 {
	if p == nil {
		return 1
	}
	return *p
}

// judge fills the columns of an arm and applies the table; references first, since a
// corrupt reference says nothing about what is judged against it.
func (s *scorer) judge(j *judgement) {
	if j.done {
		return
	}
	j.done = true
	if ref := s.judged[j.spec.Reference]; ref != nil {
		s.judge(ref)
	}
	if j.chainDied {
		j.cols.ChainDied = true
		j.verdict = Judge(j.cols)
		j.reason = "the chain died before this arm: it was not run"
		return
	}
	controls := s.controlsOf(j)
	s.columnP(j, controls)
	s.columnA(j)
	s.columnH(j, controls)
	s.columnK(j, controls)
	s.columnF(j)
	s.columnB(j)
	s.columnD(j)
	s.columnX(j)
	s.columnV(j)
	s.columnU(j)
	j.cols.Imported = s.in.Design.Imported
	j.cols.TwinClean = s.twinClean(j)
	s.columnE(j)
	j.verdict = Judge(j.cols)
	s.explain(j)
}

// twinClean says whether the arm's twin in the engine's batch-invariant mode equals its own
// reference bit for bit. Its controls have to be equal to one another first, or B is unknown.
func (s *scorer) twinClean(j *judgement) bool {
	if s.in.TwinClean[j.spec.Name] {
		return true
	}
	for i := range s.in.Design.Arms {
		if t := s.judged[s.in.Design.Arms[i].Name]; t != nil && t != j && t.spec.TwinOf == j.spec.Name {
			s.judge(t)
			if t.cols.B == Yes {
				return true
			}
		}
	}
	return false
}

// isC0 says whether an arm is a control without any reuse.
func isC0(s *ArmSpec) bool { return strings.HasPrefix(s.Preset, "C0") }
