package receipts

import (
	"fmt"
	"slices"

	"kvladder/arms"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// Outcomes of a gate.
const (
	NotComparable    = "NOT_COMPARABLE"
	RefutedWorse     = "REFUTED_WORSE"
	RefutedSame      = "REFUTED_SAME"
	GateCannotTell   = "CANNOT_TELL"
	ImprovedNotClean = "IMPROVED_NOT_CLEAN"
	Confirmed        = "CONFIRMED"
)

// RegimeChanged flags an exercise counter that was 0 and is not, or the other way round:
// the patch then changed which path runs, not only how well it runs.
const RegimeChanged = "REGIME_CHANGED"

// gateOrder is from the worst outcome to the best.
var gateOrder = []string{NotComparable, RefutedWorse, RefutedSame, GateCannotTell, ImprovedNotClean, Confirmed}

// GateReport is what a patch came to.
type GateReport struct {
	Outcome     string       `json:"outcome"`
	Flags       []Flag       `json:"flags"`
	Exit        int          `json:"exit"`
	Predictions []Prediction `json:"predictions"`
	Arms        []GateArm    `json:"arms"`
	Reasons     []string     `json:"reasons"`
	Reverted    *Reverted    `json:"reverted,omitempty"` // the fix taken out again, where a receipt of that was given
	Policy      *PolicyUse   `json:"policy,omitempty"`

	Lifetimes []LifetimeChange `json:"lifetimes,omitempty"` // of arms in which an engine died; they decide nothing here
}

// Reverted is what the ladder came to with the fix taken out of the patched build: it must
// be red, or the fix is not what made the patched build clean.
type Reverted struct {
	Red     bool     `json:"red"`
	Arms    []string `json:"arms"` // those that are red, of the judged ones
	Verdict string   `json:"verdict"`
	Exit    int      `json:"exit"`
}

// Flag is something worth saying that decides nothing.
type Flag struct {
	Name    string `json:"name"`
	Arm     string `json:"arm"`
	Counter string `json:"counter"`
	Base    int    `json:"base"`
	Patched int    `json:"patched"`
}

// GateArm is one judged arm of a gate.
type GateArm struct {
	Arm     string  `json:"arm"`
	Outcome string  `json:"outcome"`
	Exit    int     `json:"exit"`
	Pairs   int     `json:"pairs"` // requests stable in both
	B       int     `json:"b"`     // failed in the base only
	C       int     `json:"c"`     // failed in the patched only
	PWorse  float64 `json:"p_worse_holm"`
	PBetter float64 `json:"p_better_holm"`
	Held    bool    `json:"held"` // every prediction for it
}

// Gate decides whether a patch did what the patched ladder's plan predicts of it.
//
// Both receipts must answer the same question: same Set, rules and schedule, and every pin
// outside the ladder's subject equal. Judged are the arms with a prediction, or, where there
// is none at all, every judged arm with the prediction that it fails no more often than in
// the base. Per arm, the requests stable in both are paired by id and a request that was
// never answered counts as failed (a crash is not an improvement); exact one-sided McNemar
// tests, each direction a Holm family over the judged arms at the registered level, say
// whether the patched arm is worse or better. The first that applies:
//
//	NOT_COMPARABLE      another question, or the arm exits 3 in either          exit 3
//	REFUTED_WORSE       significantly worse                                     exit 1
//	CANNOT_TELL         the patched arm exits 2 and is not significantly better exit 2
//	IMPROVED_NOT_CLEAN  significantly better, and not CLEAN_BOUNDED             exit 1 where the arm exits 1 or 4, else 2
//	REFUTED_SAME        it exits 1 or 4 and is not better, or it is clean and   exit 1
//	                    a prediction does not hold
//	CONFIRMED           CLEAN_BOUNDED and every prediction holds                exit 0
//
// The gate's outcome is its worst arm's, and its exit the worst exit (3, 1, 2, 0).
// CONFIRMED needs every judged arm of the patched ladder clean, predicted or not.
//
// A prediction for an arm or a member that does not exist is an error; its report exits 3.
func Gate(base, patched *Receipt) (GateReport, error) {
	rep := GateReport{Outcome: NotComparable, Exit: scoring.ExitInvalid, Flags: []Flag{}, Predictions: []Prediction{}, Arms: []GateArm{}, Reasons: []string{}}
	if len(base.Bytes()) > 0 && base.Digest() == patched.Digest() {
		rep.Reasons = append(rep.Reasons, "base and patched are one receipt: nothing was patched")
		return rep, nil
	}
	was, err := base.Governing()
	if err != nil {
		return rep, fmt.Errorf("base: %w", err)
	}
	plan, err := patched.Governing()
	if err != nil {
		return rep, fmt.Errorf("patched: %w", err)
	}
	rep.Reasons = append(rep.Reasons, unlikePlans(&was, &plan)...)
	predict := plan.Predict
	judged, err := judgedArms(&plan.Design, predict)
	if err != nil {
		return rep, err
	}
	rep.Flags = append(rep.Flags, regimes(base, patched, judged)...)
	if len(rep.Reasons) > 0 {
		return rep, nil
	}
	rep.Lifetimes = lifetimeChanges(base, patched)
	if len(judged) == 0 {
		rep.Reasons = append(rep.Reasons, "the patched ladder has no judged arm")
		return rep, nil
	}

	var pairs []pairing
	for _, name := range judged {
		p := pair(base, patched, name)
		pairs = append(pairs, p)
		preds, err := p.predictions(predict)
		if err != nil {
			return rep, err
		}
		rep.Predictions = append(rep.Predictions, preds...)
	}
	alpha := plan.Design.Rule.Alpha.Failures
	var worse, better []float64
	for _, p := range pairs {
		worse = append(worse, compare.McNemar(p.b, p.c).OneSided)
		better = append(better, compare.McNemar(p.c, p.b).OneSided)
	}
	worse, better = compare.Holm(worse), compare.Holm(better)

	rep.Outcome, rep.Exit = Confirmed, scoring.ExitClean
	for i, p := range pairs {
		a := GateArm{Arm: p.name, Pairs: p.n, B: p.b, C: p.c, PWorse: worse[i], PBetter: better[i], Held: true}
		for _, pr := range rep.Predictions {
			if pr.Arm == p.name && !pr.Held {
				a.Held = false
			}
		}
		var why string
		a.Outcome, a.Exit, why = p.decide(worse[i] <= alpha, better[i] <= alpha, a.Held)
		rep.Arms = append(rep.Arms, a)
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("arm %s: %s", p.name, why))
		if slices.Index(gateOrder, a.Outcome) < slices.Index(gateOrder, rep.Outcome) {
			rep.Outcome = a.Outcome
		}
		rep.Exit = worstExit(rep.Exit, a.Exit)
	}
	if rep.Outcome == Confirmed {
		rep.others(patched, judged)
	}
	return rep, nil
}

// GateReverted is Gate with a third receipt, of the patched build with the fix taken out
// again. It must ask the same question, and an arm that is clean in the patched build must
// be red in it: exit 1 or 4, and more failures than in the patched build, significantly so.
// Otherwise what is CONFIRMED is not the fix, and the outcome is CANNOT_TELL.
func GateReverted(base, patched, reverted *Receipt) (GateReport, error) {
	rep, err := Gate(base, patched)
	if err != nil || rep.Outcome == NotComparable {
		return rep, err
	}
	x, err := reverted.Governing()
	if err != nil {
		return rep, fmt.Errorf("reverted: %w", err)
	}
	y, err := patched.Governing()
	if err != nil {
		return rep, fmt.Errorf("patched: %w", err)
	}
	if what := unlikePlans(&x, &y); len(what) > 0 {
		rep.Outcome, rep.Exit = NotComparable, scoring.ExitInvalid
		for i := range what {
			what[i] = "the reverted build: " + what[i]
		}
		rep.Reasons = append(what, rep.Reasons...)
		return rep, nil
	}
	out := &Reverted{Arms: []string{}, Verdict: reverted.Predicate.Result.Verdict, Exit: reverted.Predicate.Result.Exit}
	var ps []pairing
	var p []float64
	for _, a := range rep.Arms {
		q := pair(reverted, patched, a.Arm)
		ps = append(ps, q)
		// b: failed with the fix taken out, and not with it.
		p = append(p, compare.McNemar(q.c, q.b).OneSided)
	}
	p = compare.Holm(p)
	for i, q := range ps {
		if q.base == nil || q.patched == nil {
			continue
		}
		exit := exitOf(q.base)
		if (exit == scoring.ExitCorrupt || exit == scoring.ExitDied) && p[i] <= y.Design.Rule.Alpha.Failures {
			out.Arms = append(out.Arms, q.name)
		}
	}
	out.Red = len(out.Arms) > 0
	rep.Reverted = out
	if !out.Red && rep.Outcome == Confirmed {
		rep.Outcome, rep.Exit = GateCannotTell, worstExit(rep.Exit, scoring.ExitCannot)
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("with the fix reverted no judged arm is red (the ladder is %s): what was confirmed does not depend on the fix", orNone(out.Verdict)))
	}
	return rep, nil
}

// others lowers CONFIRMED where an arm that no prediction names is not clean.
func (rep *GateReport) others(patched *Receipt, judged []string) {
	for _, spec := range patched.Predicate.Plan.Design.Arms {
		if spec.Role != scoring.Judged || slices.Contains(judged, spec.Name) {
			continue
		}
		a, ok := patched.Arm(spec.Name)
		if ok && a.Verdict != nil && *a.Verdict == scoring.CleanBounded {
			continue
		}
		rep.Outcome = GateCannotTell
		exit, said := scoring.ExitCannot, "was not run"
		if ok && a.Verdict != nil {
			said = "is " + orNone(*a.Verdict)
		}
		if ok && a.Exit != nil && (*a.Exit == scoring.ExitCorrupt || *a.Exit == scoring.ExitDied) {
			exit = scoring.ExitCorrupt
		}
		rep.Exit = worstExit(rep.Exit, exit)
		rep.Reasons = append(rep.Reasons, fmt.Sprintf("arm %s: no prediction names it, and it %s", spec.Name, said))
	}
}

func worstExit(a, b int) int {
	rank := map[int]int{scoring.ExitClean: 0, scoring.ExitCannot: 1, scoring.ExitCorrupt: 2, scoring.ExitInvalid: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// judgedArms checks the predictions and names the arms that the gate judges, in plan order.
func judgedArms(design *scoring.Design, predict map[string]map[string]any) ([]string, error) {
	for _, arm := range sortedKeys(predict) {
		if _, ok := design.ByName(arm); !ok {
			return nil, fmt.Errorf("prediction for arm %q: the ladder has no such arm", arm)
		}
		for _, member := range sortedKeys(predict[arm]) {
			if _, err := scoring.ParsePrediction(member, predict[arm][member]); err != nil {
				return nil, fmt.Errorf("arm %s: %w", arm, err)
			}
		}
	}
	var out []string
	for _, a := range design.Arms {
		if _, predicted := predict[a.Name]; predicted || len(predict) == 0 && a.Role == scoring.Judged {
			out = append(out, a.Name)
		}
	}
	return out, nil
}

// unlikePlans says what makes two ladders different questions, by key.
func unlikePlans(a, b *arms.Plan) []string {
	var out []string
	differs := func(path string, x, y any) {
		out = append(out, fmt.Sprintf("%s differs: %s, patched %s", path, brief(x), brief(y)))
	}
	if a.Set.Digest != b.Set.Digest {
		differs("set", a.Set.Digest, b.Set.Digest)
	}
	leaves("rules", a.Design.Rule, b.Design.Rule, differs)
	if !sameSet(a.Subject, b.Subject) {
		differs("subject", a.Subject, b.Subject)
	}
	outside := func(name string) bool { return !slices.Contains(a.Subject, name) || !slices.Contains(b.Subject, name) }
	if a.Engine != b.Engine && outside("engine") {
		differs("engine", a.Engine, b.Engine)
	}
	if a.Launcher != b.Launcher && outside("launcher") {
		differs("launcher", a.Launcher, b.Launcher)
	}
	leaves("replay", a.Replay, b.Replay, differs)
	leaves("chains", chainsByName(a), chainsByName(b), differs)
	compareMaps(a.Pins, b.Pins, func(k string, x, y any) {
		if outside(k) {
			differs("pins."+k, x, y)
		}
	})
	for _, name := range armNames(specNames(a), specNames(b)) {
		x, okx := a.Design.ByName(name)
		y, oky := b.Design.ByName(name)
		if !okx || !oky {
			differs("arms["+name+"]", presence(okx), presence(oky))
			continue
		}
		leaves("arms["+name+"].schedule", scheduleOf(*x), scheduleOf(*y), differs)
		compareMaps(x.Pins, y.Pins, func(k string, v, w any) {
			if outside(k) {
				differs("arms["+name+"].pins."+k, v, w)
			}
		})
	}
	return out
}

// pairing is one arm in both ladders.
type pairing struct {
	name          string
	base, patched *scoring.ArmResult // nil = the arm was not run
	n, b, c       int
	baseFailed    int
	failed        int
}

func pair(base, patched *Receipt, name string) pairing {
	p := pairing{name: name}
	p.base, _ = base.Arm(name)
	p.patched, _ = patched.Arm(name)
	if p.base == nil || p.patched == nil {
		return p
	}
	xs, ys := stable(p.base), stable(p.patched)
	unasked(p.base, xs, ys)
	unasked(p.patched, ys, xs)
	for _, failed := range xs {
		if failed {
			p.baseFailed++
		}
	}
	for _, failed := range ys {
		if failed {
			p.failed++
		}
	}
	for id, x := range xs {
		y, ok := ys[id]
		if !ok {
			continue
		}
		p.n++
		switch {
		case x && !y:
			p.b++
		case y && !x:
			p.c++
		}
	}
	return p
}

// stable maps the stable requests of an arm to whether they failed; one without an answer
// failed. An arm whose chain had died before it asked nothing, so it says nothing.
func stable(a *scoring.ArmResult) map[string]bool {
	m := map[string]bool{}
	if a.Sub != nil && *a.Sub == "chain died" {
		return m
	}
	for _, o := range a.Outcomes {
		if !o.Unstable {
			m[o.ID] = o.Failed || !o.Answered
		}
	}
	return m
}

// unasked counts as failed what an arm never came to ask, because its engine died first and
// the other arm asked it.
func unasked(a *scoring.ArmResult, mine, other map[string]bool) {
	if exitOf(a) != scoring.ExitDied {
		return
	}
	have := map[string]bool{}
	for _, o := range a.Outcomes {
		have[o.ID] = true
	}
	for id := range other {
		if !have[id] {
			mine[id] = true
		}
	}
}

// predictions measures what the ladder predicts of this arm; `failed` is counted as the
// gate counts it.
func (p *pairing) predictions(predict map[string]map[string]any) ([]Prediction, error) {
	if p.base == nil || p.patched == nil {
		return nil, nil
	}
	stated := predict[p.name]
	if len(predict) == 0 {
		stated = map[string]any{"failed": fmt.Sprintf("<=%d", p.baseFailed)}
	}
	out := []Prediction{}
	for _, member := range sortedKeys(stated) {
		pr, err := scoring.ParsePrediction(member, stated[member])
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", p.name, err)
		}
		measured := pr.Measured(p.patched)
		if member == "failed" && len(p.patched.Outcomes) > 0 {
			measured = float64(p.failed)
		}
		out = append(out, Prediction{Arm: p.name, Member: member, Predicted: stated[member], Measured: measured, Held: pr.Holds(measured)})
	}
	return out, nil
}

// decide applies the table above, in its order.
func (p *pairing) decide(worse, better, held bool) (outcome string, exit int, why string) {
	switch {
	case p.base == nil || p.patched == nil:
		return NotComparable, scoring.ExitInvalid, "it was not run in both ladders"
	case exitOf(p.base) == scoring.ExitInvalid || exitOf(p.patched) == scoring.ExitInvalid:
		return NotComparable, scoring.ExitInvalid, fmt.Sprintf("it is invalid in the base (%s) or in the patched ladder (%s)", wordOf(p.base), wordOf(p.patched))
	case worse:
		return RefutedWorse, scoring.ExitCorrupt, fmt.Sprintf("%d requests fail that did not, %d no longer do", p.c, p.b)
	}
	got := exitOf(p.patched)
	bad := got == scoring.ExitCorrupt || got == scoring.ExitDied
	switch {
	case got == scoring.ExitCannot && !better:
		return GateCannotTell, scoring.ExitCannot, fmt.Sprintf("the patched arm is %s", wordOf(p.patched))
	case better && got != scoring.ExitClean:
		exit := scoring.ExitCannot
		if bad {
			exit = scoring.ExitCorrupt
		}
		return ImprovedNotClean, exit, fmt.Sprintf("%d requests no longer fail, and the patched arm is %s", p.b, wordOf(p.patched))
	case bad:
		return RefutedSame, scoring.ExitCorrupt, fmt.Sprintf("the patched arm is %s and not significantly better (%d of %d requests no longer fail, %d newly do)", wordOf(p.patched), p.b, p.n, p.c)
	case !held:
		return RefutedSame, scoring.ExitCorrupt, "it is clean, and a prediction does not hold"
	}
	return Confirmed, scoring.ExitClean, fmt.Sprintf("%s and every prediction holds", wordOf(p.patched))
}

// exitOf is the arm's exit. A control has no verdict of its own, and what is wrong with it
// is said by the arms that depend on it: it exits 0 here.
func exitOf(a *scoring.ArmResult) int {
	if a.Exit != nil {
		return *a.Exit
	}
	if a.Role == scoring.Judged {
		return scoring.ExitCannot
	}
	return scoring.ExitClean
}

func wordOf(a *scoring.ArmResult) string {
	if a.Verdict == nil {
		if a.Role != scoring.Judged {
			return "a control"
		}
		return orNone("")
	}
	return orNone(*a.Verdict)
}

// regimes finds the exercise counters that came to life or died.
func regimes(base, patched *Receipt, judged []string) []Flag {
	var out []Flag
	for _, name := range judged {
		x, okx := base.Arm(name)
		y, oky := patched.Arm(name)
		if !okx || !oky {
			continue
		}
		for _, c := range []struct {
			name          string
			base, patched *int
		}{
			{"local_tokens", x.LocalTokens, y.LocalTokens},
			{"external_tokens", x.ExternalTokens, y.ExternalTokens},
		} {
			if c.base != nil && c.patched != nil && (*c.base == 0) != (*c.patched == 0) {
				out = append(out, Flag{Name: RegimeChanged, Arm: name, Counter: c.name, Base: *c.base, Patched: *c.patched})
			}
		}
	}
	return out
}
