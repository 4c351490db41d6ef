package scoring

import (
	"fmt"
	"slices"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring/compare"
)

// control is one control configuration with all its processes: counted together.
type control struct {
	name  string
	specs []*ArmSpec
}

// controlsOf are the configurations that vouch for a judged arm: its reference, what that
// is judged against in turn, every other control of its group, and for an arm with a store
// the local cache alone.
func (s *scorer) controlsOf(j *judgement) []control {
	var out []control
	seen := map[string]bool{j.spec.Name: true}
	add := func(spec *ArmSpec) {
		for spec.FloorOf != "" {
			root, ok := s.in.Design.ByName(spec.FloorOf)
			if !ok || root == spec {
				break
			}
			spec = root
		}
		if seen[spec.Name] {
			return
		}
		seen[spec.Name] = true
		out = append(out, control{spec.Name, append([]*ArmSpec{spec}, s.floorsOf(spec.Name)...)})
	}
	for name := j.spec.Reference; name != "" && !seen[name]; {
		spec, ok := s.in.Design.ByName(name)
		if !ok {
			break
		}
		add(spec)
		name = spec.Reference
	}
	for i := range s.in.Design.Arms {
		a := &s.in.Design.Arms[i]
		if a.Group == j.spec.Group && (a.Role == Control || a.Preset == "C1" && a.Role == Judged && j.spec.Connector) {
			add(a)
		}
	}
	return out
}

// columnP: plan and pins intact, here and in every control.
func (s *scorer) columnP(j *judgement, controls []control) {
	if why := s.badFloor(j); why != "" {
		j.cols.P, j.reason = No, why
		return
	}
	if s.in.Design.Imported {
		j.cols.P = Yes
		j.warn("pins are declared and were not read")
		return
	}
	c := Yes
	if p := s.t.plan; p != nil {
		if s.in.PlanDigest != "" && string(p.Plan) != s.in.PlanDigest {
			c = No
			j.reason = "the transcript belongs to another plan"
		}
		if s.in.SetDigest != "" && string(p.Set) != s.in.SetDigest {
			c = No
			j.reason = "the transcript belongs to another set"
		}
	}
	if n := len(j.spec.PinsDiffer); n != 1 {
		c = No
		j.reason = fmt.Sprintf("%d pins differ from the reference, want exactly one", n)
	}
	own, why := s.pinsOf(j.spec, 0)
	c = worst(c, own)
	if own == Unknown && why != "" || own == No && j.reason != "" {
		j.warn("%s", why)
	}
	if own == No && j.reason == "" {
		j.reason = why
	}
	for _, g := range controls {
		for _, spec := range g.specs {
			p, why := s.pinsOf(spec, 0)
			if p == Yes {
				continue
			}
			why = "control " + spec.Name + ": " + why
			if p == No && j.reason == "" {
				j.reason = why
			} else {
				j.warn("%s", why)
			}
			c = worst(c, p)
		}
	}
	j.cols.P = c
}

// pinsOf says whether an arm's pins were read back as asked. A server that was started here
// runs by its command line, so a pin it does not show is a warning; one that was only
// attached may run with anything. A reply of another model, and replies to other tokens,
// show that the server is not set up as asked, whatever its pins say.
func (s *scorer) pinsOf(spec *ArmSpec, run int) (Column, string) {
	a := s.t.arm(run, spec.Name)
	if a == nil {
		return Unknown, "no records, so no pins were read"
	}
	for _, why := range []string{a.elsewhere, a.otherModel, a.otherTokens(s.in.Set)} {
		if why != "" {
			return No, why
		}
	}
	attached := s.attached(spec, run)
	pins := a.pins
	if len(pins) == 0 { // read when the process was launched, in the arm that launched it
		for i := range s.in.Design.Arms {
			o := &s.in.Design.Arms[i]
			other := s.t.arm(run, o.Name)
			if o.Chain != spec.Chain || o.Process != spec.Process || other == nil {
				continue
			}
			if o == spec {
				break
			}
			pins = append(pins, other.pins...)
		}
	}
	if len(pins) == 0 {
		if attached {
			return Unknown, "pins of the attached server could not be read"
		}
		return Yes, ""
	}
	c, why := Yes, ""
	for _, f := range pins {
		for _, p := range f.Read {
			switch {
			case p.Agrees != nil && !*p.Agrees:
				got := "nothing"
				if p.Read != nil {
					got = fmt.Sprintf("%q", *p.Read)
				}
				return No, fmt.Sprintf("pin %s was asked as %q and %s says %s", p.Name, p.Asked, p.Source, got)
			case p.Agrees == nil && attached:
				c, why = Unknown, fmt.Sprintf("pin %s of the attached server could not be read", p.Name)
			}
		}
	}
	return c, why
}

// attached says whether an arm talked to a server that was not started here, by the plan or
// by what the arm that found the process says of it.
func (s *scorer) attached(spec *ArmSpec, run int) bool {
	if spec.Attached {
		return true
	}
	for i := range s.in.Design.Arms {
		o := &s.in.Design.Arms[i]
		if o != spec && (o.Chain != spec.Chain || o.Process != spec.Process) {
			continue
		}
		if a := s.t.arm(run, o.Name); a != nil {
			for _, f := range a.incarnation {
				if f.Attached {
					return true
				}
			}
		}
		if o == spec {
			break
		}
	}
	return false
}

// alive says whether an arm's engine lived through it, with the sub of a death.
func (a *armRun) alive() (c Column, sub, why string) {
	if a == nil {
		return Unknown, "", "no records"
	}
	if len(a.deaths) > 0 {
		d := a.deaths[0].fact
		for _, more := range a.deaths { // the line that names the kind of death counts before a bare end
			if more.fact.Sub != "" && more.fact.Sub != "DIED" {
				d = more.fact
				break
			}
		}
		if d.Sub == "" {
			d.Sub = "DIED"
		}
		return No, d.Sub, d.Seen
	}
	if a.replaced != "" {
		return No, "RESTARTED", a.replaced
	}
	known := false
	first := map[string]probes.IdentityFact{}
	for _, seen := range a.identity {
		f := seen.fact
		if !f.Alive {
			return No, "DIED", fmt.Sprintf("the process did not answer %s pass %d", f.Phase, f.Pass)
		}
		have, ok := first[seen.incarnation]
		if !ok {
			first[seen.incarnation] = f
			continue
		}
		if have.Process != f.Process || have.Start != f.Start {
			return No, "RESTARTED", fmt.Sprintf("process %s started %s became %s started %s", have.Process, have.Start, f.Process, f.Start)
		}
		if have.Restarts != nil && f.Restarts != nil && *have.Restarts != *f.Restarts {
			return No, "RESTARTED", fmt.Sprintf("the restart count went from %d to %d", *have.Restarts, *f.Restarts)
		}
		known = known || f.Process != "" || f.Start != ""
	}
	if !known {
		return Unknown, "", "the engine's identity was not read before and after"
	}
	return Yes, "", ""
}

func (s *scorer) columnA(j *judgement) {
	c, sub, why := j.arm.alive()
	j.cols.A, j.cols.Death = c, sub
	if c == No && j.reason == "" {
		j.reason = why
	}
	if c == Unknown {
		j.warn("alive not known: %s", why)
	}
}

// complete says whether the harness did its part in an arm: up to the arm's end, or up to
// its death.
func (s *scorer) complete(spec *ArmSpec) (Column, string) {
	a := s.t.arm(0, spec.Name)
	if a != nil && len(a.harness) > 0 {
		return No, strings.TrimPrefix(strings.TrimPrefix(a.harness[0], "arm "+spec.Name+": "), spec.Name+": ")
	}
	if a == nil || !a.started {
		return No, "the arm has no records"
	}
	if isC0(spec) {
		for _, w := range a.allRows(s.in.Set) {
			if hit := w.cachedAny(); hit > 0 {
				return No, fmt.Sprintf("a control without reuse took %d tokens of %s from a cache", hit, w.prompt.ID)
			}
		}
	}
	if s.in.Design.Imported {
		return Yes, ""
	}
	dead := len(a.deaths) > 0
	if len(a.badScrapes) > 0 && len(spec.Counters) > 0 && !dead {
		return No, a.badScrapes[0]
	}
	for _, st := range a.steps {
		if !st.Done && !dead {
			return No, fmt.Sprintf("step %s was not done: %s", st.Step, st.Seen)
		}
	}
	if dead {
		return Yes, ""
	}
	if c, _, _ := a.alive(); c == No {
		return Yes, "" // what is missing is missing since the death
	}
	for pass := 1; pass <= max(1, spec.Passes); pass++ {
		if have, want := len(a.passes[pass]), len(s.in.Set.Prompts); have != want && a.owes(pass) {
			if len(a.stops) > 0 {
				return No, fmt.Sprintf("the soak was ended after pass %d, and no registered rule ends it there: pass %d has %d of %d records", a.soakRan(), pass, have, want)
			}
			return No, fmt.Sprintf("pass %d has %d of %d records", pass, have, want)
		}
	}
	if first, n := a.firstUnanswered(s.in.Set); first != nil {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		return No, fmt.Sprintf("request %s (pass %d) was not answered and the engine lived: %s%s", first.prompt.ID, max(1, first.reply.Pass), first.why, more)
	}
	if !a.ended {
		return No, "the arm did not come to its end"
	}
	return Yes, ""
}

// cachedAny is how many prompt tokens any cache gave, 0 when nothing says so.
func (w *row) cachedAny() int {
	n := 0
	for _, v := range []*int{w.local, w.external, w.reply.Usage.Cached, &w.claimed} {
		if v != nil {
			n = max(n, *v)
		}
	}
	return n
}

// firstUnanswered gives the first request without an answer that nothing accounts for, and how
// many there are.
func (a *armRun) firstUnanswered(set *prompts.Set) (first *row, n int) {
	for _, w := range a.allRows(set) {
		if w.answered || a.endedByLoad(w) {
			continue
		}
		if n++; first == nil {
			first = w
		}
	}
	return first, n
}

func (s *scorer) columnH(j *judgement, controls []control) {
	c, why := s.complete(j.spec)
	if first, n := j.arm.firstUnanswered(s.in.Set); n > 0 && s.in.Design.Imported {
		j.warn("%d requests were not answered and are not judged, first %s: %s", n, first.prompt.ID, first.why)
	}
	for _, g := range controls {
		for _, spec := range g.specs {
			h, w := s.complete(spec)
			if h == No && s.t.dead[runChain{0, spec.Chain}] {
				continue // a control that died is column K's
			}
			if h == No && c == Yes {
				why = "control " + spec.Name + ": " + w
			}
			c = worst(c, h)
		}
	}
	j.cols.H = c
	if c == No && j.reason == "" {
		j.reason = why
	}
}

// columnK: each control configuration taken alone fails no more often than chance can
// explain, lives, and the reference is not itself corrupt.
func (s *scorer) columnK(j *judgement, controls []control) {
	c := Unknown
	no := func(format string, args ...any) {
		if c != No {
			j.cols.KReason = fmt.Sprintf(format, args...)
		}
		c = No
	}
	if ref := s.judged[j.spec.Reference]; ref != nil && !s.in.Design.Imported {
		switch {
		case ref.verdict.Exit() == ExitCorrupt:
			no("reference corrupt: %s is %s", ref.spec.Name, ref.verdict.Word)
			j.cols.ReferenceCorrupt = true
		case ref.chainDied:
			no("control %s died", ref.spec.Name)
			j.cols.ControlDied = true
		}
	}
	processes := 0
	for _, g := range controls {
		n, failed := 0, 0
		for _, spec := range g.specs {
			a := s.t.arm(0, spec.Name)
			if a == nil {
				if s.t.dead[runChain{0, spec.Chain}] {
					no("control %s died before it ran", spec.Name)
					j.cols.ControlDied = true
				}
				continue
			}
			if alive, sub, _ := a.alive(); alive == No {
				no("control %s died (%s)", spec.Name, sub)
				j.cols.ControlDied = true
			}
			if len(a.passes) > 0 && g.name == s.rootOf(j.spec.Reference) {
				processes++
			}
			for _, w := range a.allRows(s.in.Set) {
				if !w.answered {
					continue
				}
				n++
				if w.failed {
					failed++
				}
			}
		}
		if n == 0 {
			continue
		}
		if c == Unknown {
			c = Yes
		}
		if low := compare.Lower95(failed, n); low != nil && *low > s.in.Design.Rule.ControlMax {
			no("control %s fails %d of %d request passes", g.name, failed, n)
		} else if failed > 0 {
			j.warn("control %s fails %d of %d request passes", g.name, failed, n)
		}
	}
	if processes == 1 && c != Unknown {
		j.warn("no control process beyond the reference: it was judged on its own rows")
	}
	if c == Unknown {
		j.warn("no control row to judge by")
	}
	j.cols.K = c
	if c == No && j.reason == "" {
		j.reason = j.cols.KReason
	}
	s.leaveOneOut(j)
}

func (s *scorer) rootOf(name string) string {
	if spec, ok := s.in.Design.ByName(name); ok && spec.FloorOf != "" {
		return spec.FloorOf
	}
	return name
}

// leaveOneOut asks of each control process whether it lies outside the others.
func (s *scorer) leaveOneOut(j *judgement) {
	if len(j.readings) == 0 || len(j.readings[0].processes) < 3 {
		return
	}
	r := j.readings[0]
	stable := map[string]bool{}
	for _, p := range r.stable {
		stable[p.arm.prompt.ID] = true
	}
	for _, x := range r.processes {
		var floor, out []float64
		for i, a := range r.processes {
			for _, b := range r.processes[i+1:] {
				d, _ := s.apart(b, r.refPass, a, r.refPass, stable)
				if a == x || b == x {
					out = append(out, d...)
				} else {
					floor = append(floor, d...)
				}
			}
		}
		if e, err := compare.Exceedance(floor, out); err == nil && e.P <= s.in.Design.Rule.Alpha.Divergence {
			j.warn("control process %s differs from the others (exceedance p %.3g): the floor is wider for it", x.spec.Name, e.P)
		}
	}
}

// columnF: McNemar, in the registered run or by the replicates.
func (s *scorer) columnF(j *judgement) {
	if len(j.readings) == 0 || j.readings[0].pMcNemarHolm == nil {
		j.warn("no request could be paired with the reference")
		return
	}
	alpha := s.in.Design.Rule.Alpha.Failures
	r := j.readings[0]
	j.cols.ArmOnly = r.c()
	j.cols.F = columnOf(*r.pMcNemarHolm <= alpha)
	if j.cols.F == No && r.c() >= 1 {
		for _, again := range j.readings[1:] {
			if again.pMcNemarHolm != nil && *again.pMcNemarHolm <= alpha {
				j.cols.F = Yes
				j.reason = "confirmed by the replicate"
			}
		}
		if p, ok := s.union(j.spec.Reference, j.readings); ok && len(j.readings) > 1 && p <= alpha/2 {
			j.cols.F = Yes
			j.reason = "confirmed by the union with the replicate"
		}
	}
	inControls := map[string]bool{}
	for _, g := range s.controlsOf(j) {
		for _, spec := range g.specs {
			for _, w := range s.t.arm(0, spec.Name).allRows(s.in.Set) {
				for _, f := range w.fired {
					inControls[f] = true
				}
			}
		}
	}
	j.cols.ControlsSilent = true
	for _, p := range r.armOnly {
		for _, f := range p.arm.fired {
			if inControls[f] {
				j.cols.ControlsSilent = false
			}
		}
	}
}

// union is McNemar over requests that fail in any of the runs, arm and control alike: a
// request counts once however often it was asked, so that the same few requests failing
// again add nothing. A control process that any of the runs is paired with counts as
// reference and takes no request out: were what fails in it unstable, only failures of the
// arm would be left. For the same reason each run needs a control pass of its own.
func (s *scorer) union(reference string, rs []*reading) (float64, bool) {
	type pass struct {
		a *armRun
		n int
	}
	type both struct{ arm, ref bool }
	all := map[string]both{}
	used := map[pass]bool{}
	paired := map[*armRun]bool{}
	extra := 0
	for _, r := range rs {
		if used[pass{r.ref, r.refPass}] {
			return 0, false
		}
		used[pass{r.ref, r.refPass}], paired[r.ref] = true, true
		extra = max(extra, r.extra)
		for _, p := range r.pairs {
			x := all[p.arm.prompt.ID]
			all[p.arm.prompt.ID] = both{x.arm || p.arm.failed, x.ref || p.ref.failed}
		}
	}
	unstable := map[string]bool{}
	for _, a := range s.processesOf(reference, true) {
		if paired[a] {
			continue
		}
		for _, w := range a.allRows(s.in.Set) {
			if w.failed {
				unstable[w.prompt.ID] = true
			}
		}
	}
	b, c := 0, extra
	for id, x := range all {
		switch {
		case unstable[id]:
		case x.arm && !x.ref:
			c++
		case x.ref && !x.arm:
			b++
		}
	}
	return compare.McNemar(b, c).OneSided, len(all) > 0
}

// columnB: the bit twin. What differs has to differ again in the replicate: in one of the same
// requests, or in so many others that chance would have shown one in the control passes,
// which are equal to one another in every bit. An engine that answers one request in a
// hundred wrongly, whatever was reused, differs in a request of the run and in another one of
// the replicate often enough, in a small ladder more often than in its controls.
func (s *scorer) columnB(j *judgement) {
	if j.spec.Inexact != "" {
		j.cols.Inexact = true
		j.warn("bits and logprobs not judged: the engine documents the reuse as inexact: %s", j.spec.Inexact)
		return
	}
	if len(j.readings) == 0 {
		return
	}
	if ref, ok := s.in.Design.ByName(j.spec.Reference); ok && s.attached(j.spec, 0) != s.attached(ref, 0) {
		j.warn("bits not judged: arm and reference were not launched alike")
		return
	}
	controls, why := s.bitStable(j.spec.Reference)
	if controls == 0 {
		j.warn("bits not judged: %s", why)
		return
	}
	shown := map[string]bool{}
	comparable, equal, differ := s.bits(j, j.readings[0], shown)
	j.comparedBits, j.bitEqual, j.differ = comparable, equal, differ
	if len(differ) > 0 {
		for _, again := range j.readings[1:] {
			n, _, d := s.bits(j, again, shown)
			if len(d) == 0 {
				continue
			}
			same := slices.ContainsFunc(d, func(id string) bool { return slices.Contains(differ, id) })
			bad := len(differ) + len(d)
			p := compare.Fisher(0, controls, bad, comparable+n-bad).OneSided
			if same || p <= s.in.Design.Rule.Alpha.Divergence {
				j.cols.B = No
				j.bitsAgain = fmt.Sprintf("%d of %d", len(d), n)
				return
			}
			j.warn("%d of %d requests differ bitwise in the replicate, none that differs in the run: as many may in %d equal rows of control passes (Fisher p %.2g)", len(d), n, controls, p)
		}
		j.cols.UnequalBit = true
		return
	}
	if comparable >= s.in.Design.Rule.NMin {
		j.cols.B = Yes
	}
}

func (s *scorer) bits(j *judgement, r *reading, shown map[string]bool) (comparable, equal int, differ []string) {
	for _, p := range r.stable {
		if p.bit == nil || !p.sameStart && !s.splitShown(j, r, p) {
			continue
		}
		comparable++
		if *p.bit {
			equal++
		} else {
			differ = append(differ, p.arm.prompt.ID)
		}
	}
	return comparable, equal, differ
}

// bitStable says whether control passes of a configuration with equal splits are bitwise
// equal to one another, so that a single unequal bit means something: how many of their rows
// are equal to another one, or 0 and why.
func (s *scorer) bitStable(reference string) (int, string) {
	type pass struct {
		a *armRun
		n int
	}
	var all []pass
	for _, a := range s.processesOf(reference, false) {
		for n := 1; n <= max(1, a.spec.Passes); n++ {
			if len(a.passes[n]) > 0 {
				all = append(all, pass{a, n})
			}
		}
	}
	rows := map[*row]bool{}
	for i, x := range all {
		for _, y := range all[i+1:] {
			for _, p := range s.pairs(y.a, y.n, x.a, x.n) {
				if !p.sameStart || p.bit == nil {
					continue
				}
				rows[p.arm], rows[p.ref] = true, true
				if !*p.bit {
					return 0, fmt.Sprintf("control passes %s/%d and %s/%d differ in %s", x.a.spec.Name, x.n, y.a.spec.Name, y.n, p.arm.prompt.ID)
				}
			}
		}
	}
	if len(rows) == 0 {
		return 0, "no two control passes with equal splits, token ids and logprobs"
	}
	return len(rows), ""
}

// splitShown says whether another split of this prompt is known to change nothing: a
// control with a smaller prefill budget, whose last computed chunk is no longer than that
// of either arm, is bitwise equal to the control without reuse.
func (s *scorer) splitShown(j *judgement, r *reading, p *pair) bool {
	id := p.arm.prompt.ID
	mine, ok := lastChunk(r.arm.spec, p.arm)
	theirs, ok2 := lastChunk(r.ref.spec, p.ref)
	if !ok || !ok2 {
		return false
	}
	root := j.spec.Reference
	for range len(s.in.Design.Arms) {
		spec, ok := s.in.Design.ByName(root)
		if !ok || spec.Reference == "" {
			break
		}
		root = spec.Reference
	}
	for _, f := range s.floorsOf(root) {
		if !f.Split {
			continue
		}
		its, ok := f.LastChunk[id]
		if ok && its <= min(mine, theirs) && s.splitEqual(f.Name, root) {
			return true
		}
	}
	return false
}

// lastChunk of a row as geometry tells it, where the row did what geometry expects.
func lastChunk(spec *ArmSpec, w *row) (int, bool) {
	chunks, expected := spec.LastChunk, spec.Expected
	if w.reply.Pass == 1 && spec.Judge > 1 {
		chunks, expected = spec.FirstChunk, spec.FirstExpected
	}
	n, ok := chunks[w.prompt.ID]
	if !ok {
		return 0, false
	}
	if got, measured := w.reuse(); measured && !isC0(spec) {
		if want, have := expected[w.prompt.ID]; have && want != got {
			return 0, false
		}
	}
	return n, true
}

// splitEqual says whether a control with another prefill budget is bitwise equal to the one
// without it, over every request.
func (s *scorer) splitEqual(split, root string) bool {
	a, b := s.t.arm(0, split), s.t.arm(0, root)
	if a == nil || b == nil {
		return false
	}
	n := 0
	for pass := 1; pass <= max(1, a.spec.Passes); pass++ {
		for _, p := range s.pairs(a, pass, b, pass) {
			if p.bit == nil || !*p.bit {
				return false
			}
			n++
		}
	}
	return n > 0
}

// columnD: the first token's distribution moved beyond what control processes show, in the
// registered run, against every control process, and again in the replicate's.
func (s *scorer) columnD(j *judgement) {
	if len(j.readings) == 0 || j.spec.Inexact != "" {
		return
	}
	r := j.readings[0]
	alpha := s.in.Design.Rule.Alpha.Divergence
	if r.pExceedance == nil {
		switch {
		case len(r.floorD0) == 0:
			j.warn("logprobs not judged: %s", r.floorWhy)
		case r.startsOK && r.equalN < s.need(len(r.stable)) && len(r.stable) > 0:
			j.cols.UnequalSplit = true
			if j.cols.B != Yes { // equal bits say more than near logprobs would
				j.warn("logprobs not judged: unequal split")
			}
		case !r.startsOK:
			j.warn("logprobs not judged: the split of the prompt into cached and computed tokens is not known")
		default:
			j.warn("logprobs not judged: the replies hold no first-token logprobs")
		}
		return
	}
	again := func(ok func(*reading) bool) bool {
		return slices.ContainsFunc(j.readings[1:], ok)
	}
	if *r.pExceedanceHolm > alpha {
		j.cols.D = No
	} else if r.everyControl && again(func(x *reading) bool {
		return x.pExceedanceHolm != nil && *x.pExceedanceHolm <= alpha && x.everyControl
	}) {
		j.cols.D = Yes
	} else {
		j.cols.Pending = true
		if !r.everyControl {
			j.warn("the exceedance of first-token logprobs is not significant against every control process")
		}
	}
	if r.pMarginHolm != nil && *r.pMarginHolm <= alpha {
		if r.everyMargin && again(func(x *reading) bool {
			return x.pMarginHolm != nil && *x.pMarginHolm <= alpha && x.everyMargin
		}) {
			j.cols.MarginsMoved = true
		} else {
			j.cols.Pending = true
		}
	}
}
