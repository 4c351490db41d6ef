package receipts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/prompts"
	"kvladder/scoring"
)

// answers describes an arm: which of its requests fail (by number, from 1), which are
// unstable, how many have no answer at the end, and the external tokens of each.
type answers struct {
	failed, unstable, silent []int
	external                 int
}

func seq(from, to int) []int {
	var out []int
	for i := from; i <= to; i++ {
		out = append(out, i)
	}
	return out
}

// receiptOf is a receipt that was not sealed: gate and diff need no more.
func receiptOf(t *testing.T, plan arms.Plan, set *prompts.Set, by map[string]answers) *Receipt {
	t.Helper()
	res := resultOf(plan, func(arm string) []scoring.Outcome {
		a := by[arm]
		var out []scoring.Outcome
		for i := range set.Prompts {
			o := scoring.Outcome{ID: set.Prompts[i].ID, Class: set.Prompts[i].Class.Label, Answered: !slices.Contains(a.silent, i+1),
				Failed: slices.Contains(a.failed, i+1), Unstable: slices.Contains(a.unstable, i+1), D0: ptr(0.0)}
			if arm != "C0" {
				o.Local, o.External = ptr(0), ptr(a.external)
			}
			out = append(out, o)
		}
		return out
	})
	r, err := statementOf(plan, res, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func build2(p *arms.Plan) { setPin(p, "image", "build-2") }

func setPin(p *arms.Plan, name, value string) {
	p.Pins[name] = value
	for i := range p.Design.Arms {
		p.Design.Arms[i].Pins[name] = value
	}
}

func setVerdict(r *Receipt, arm, word string) {
	a, _ := r.Arm(arm)
	a.Verdict, a.Exit = ptr(word), ptr((scoring.Verdict{Word: word}).Exit())
}

func TestGate(t *testing.T) {
	set := testSet(38)
	check := func(name string, base, patched answers, change func(base, patched *Receipt), outcome string, exit int, reason string) {
		t.Helper()
		b := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": base})
		p := receiptOf(t, testPlan(set, build2), set, map[string]answers{"WARM": patched})
		if change != nil {
			change(b, p)
		}
		rep, err := Gate(b, p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if rep.Outcome != outcome || rep.Exit != exit || !strings.Contains(strings.Join(rep.Reasons, "\n"), reason) {
			t.Errorf("%s: %s exit %d %q, want %s exit %d %q", name, rep.Outcome, rep.Exit, rep.Reasons, outcome, exit, reason)
		}
	}
	bad7, clean := answers{failed: seq(1, 7), external: 16}, answers{external: 16}
	check("a fix", bad7, clean, nil, Confirmed, 0, "CLEAN_BOUNDED and every prediction holds")
	check("clean stays clean", clean, clean, nil, Confirmed, 0, "every prediction holds")
	check("worse", clean, bad7, nil, RefutedWorse, 1, "7 requests fail that did not, 0 no longer do")
	// c = 4 at b = 0 is p = 0.0625: not significant, and SUSPECT exits 2.
	check("four new failures", clean, answers{failed: seq(1, 4), external: 16}, nil, GateCannotTell, 2, "SUSPECT_UNCONFIRMED")
	check("no change", bad7, bad7, nil, RefutedSame, 1, "not significantly better (0 of 38")
	check("better and not clean", answers{failed: seq(1, 20), external: 16}, bad7, nil, ImprovedNotClean, 1, "13 requests no longer fail")
	check("better and cannot tell", answers{failed: seq(1, 20), external: 16}, answers{failed: seq(1, 2), external: 16}, nil, ImprovedNotClean, 2, "18 requests no longer fail")
	check("path lost", clean, answers{}, nil, GateCannotTell, 2, "NOT_EXERCISED")
	check("clean, and a prediction fails", clean, clean, func(_, p *Receipt) {
		p.Predicate.Plan.Predict = map[string]map[string]any{"WARM": {"external_tokens": "<10"}}
	}, RefutedSame, 1, "a prediction does not hold")
	// Requests that a control shows to be unstable prove nothing in either direction.
	check("only unstable ones fail", answers{failed: seq(1, 7), unstable: seq(1, 7), external: 16}, answers{failed: seq(1, 7), unstable: seq(1, 7), external: 16}, nil, Confirmed, 0, "")
	check("unstable in the base only", answers{unstable: seq(1, 7), external: 16}, answers{failed: seq(1, 7), external: 16}, nil, RefutedSame, 1, "0 newly do")
	// A crash is not an improvement.
	died := func(_, p *Receipt) { setVerdict(p, "WARM", scoring.EngineDied) }
	check("a crash for wrong answers", bad7, answers{silent: seq(8, 38), external: 16}, died, RefutedWorse, 1, "31 requests fail that did not, 7 no longer do")
	check("a crash that leaves no rows", bad7, answers{external: 16}, func(_, p *Receipt) {
		died(nil, p)
		p.Predicate.Result.Arms[1].Outcomes = p.Predicate.Result.Arms[1].Outcomes[:7]
	}, RefutedWorse, 1, "31 requests fail that did not, 7 no longer do")
	check("a chain that had died before", bad7, answers{silent: seq(1, 38)}, func(_, p *Receipt) {
		setVerdict(p, "WARM", scoring.InconclusiveUnknown)
		p.Predicate.Result.Arms[1].Sub = ptr("chain died")
	}, GateCannotTell, 2, "INCONCLUSIVE_UNKNOWN")
	check("a crash at the end", bad7, answers{failed: seq(1, 7), silent: seq(38, 38), external: 16}, died, RefutedSame, 1, "ENGINE_DIED")
	check("invalid", clean, clean, func(b, _ *Receipt) { setVerdict(b, "WARM", scoring.HarnessError) }, NotComparable, 3, "HARNESS_ERROR")
	check("not run", clean, clean, func(b, _ *Receipt) { b.Predicate.Result.Arms = b.Predicate.Result.Arms[:1] }, NotComparable, 3, "not run in both")

	design := func(r *Receipt) *scoring.Design { return &r.Predicate.Plan.Design }
	check("another set", clean, clean, func(_, p *Receipt) { p.Predicate.Plan.Set.Digest = "sha256:x" }, NotComparable, 3, "set differs")
	check("other rules", clean, clean, func(_, p *Receipt) { design(p).Rule.Alpha.Failures = 0.5 }, NotComparable, 3, "rules.alpha.failures differs: 0.04, patched 0.5")
	check("a pin outside the subject", clean, clean, func(_, p *Receipt) { setPin(&p.Predicate.Plan, "model", "m2") }, NotComparable, 3, `pins.model differs: "m", patched "m2"`)
	check("a pin that only one arm has", clean, clean, func(_, p *Receipt) { design(p).Arms[1].Pins["dtype"] = "fp8" }, NotComparable, 3, "arms[WARM].pins.dtype differs: null")
	check("a widened subject", clean, clean, func(_, p *Receipt) {
		p.Predicate.Plan.Subject = append(p.Predicate.Plan.Subject, "model")
		setPin(&p.Predicate.Plan, "model", "m2")
	}, NotComparable, 3, "subject differs")
	check("another schedule", clean, clean, func(_, p *Receipt) { design(p).Arms[1].Passes = 2 }, NotComparable, 3, "arms[WARM].schedule.passes differs: 1, patched 2")
	check("another step", clean, clean, func(_, p *Receipt) {
		p.Predicate.Plan.Chains = []arms.Chain{{Name: "main", Arms: []string{"WARM"}, Steps: []arms.ChainStep{{Do: "restart", Arm: "WARM"}}}}
	}, NotComparable, 3, "chains.main.steps differs")
	check("other clients", clean, clean, func(_, p *Receipt) { p.Predicate.Plan.Replay.Concurrency = 4 }, NotComparable, 3, "replay.concurrency differs")
	check("an arm more", clean, clean, func(_, p *Receipt) { design(p).Arms = append(design(p).Arms, scoring.ArmSpec{Name: "RST"}) }, NotComparable, 3, `arms[RST] differs: null`)
}

// Independent chains stand in an order that the plan's own digest decides: another build
// has another order, and the same schedule.
func TestGateForgetsChainOrder(t *testing.T) {
	set := testSet(38)
	chains := []arms.Chain{{Name: "a", Arms: []string{"WARM"}}, {Name: "b", Arms: []string{"C0"}}}
	b := receiptOf(t, testPlan(set, func(p *arms.Plan) { p.Chains = chains }), set, map[string]answers{"WARM": {external: 16}})
	p := receiptOf(t, testPlan(set, build2, func(p *arms.Plan) { p.Chains = []arms.Chain{chains[1], chains[0]} }), set, map[string]answers{"WARM": {external: 16}})
	if rep, err := Gate(b, p); err != nil || rep.Outcome != Confirmed {
		t.Errorf("%+v %v", rep, err)
	}
	if d := Diff(b, p); d.Exit != 0 {
		t.Errorf("%+v", d)
	}
}

// The public report that a patch against wrong answers made them rare to common: 38
// requests, three arms; unpatched 7, 7 and 38 fail with no token loaded from the store,
// patched 37, 38 and 38 fail with tens of thousands loaded. McNemar on COLD: b = 0, c = 30.
func TestGateWorseInAnotherRegime(t *testing.T) {
	set := testSet(38)
	three := func(p *arms.Plan) {
		p.Predict = nil
		warm := p.Design.Arms[1]
		p.Design.Arms = p.Design.Arms[:1]
		for _, n := range []string{"COLD", "WARM", "RST"} {
			a := warm
			a.Name, a.Preset, a.Exercise = n, n, n
			a.Pins = map[string]string{"image": p.Pins["image"], "model": "m", "cache": "on"}
			p.Design.Arms = append(p.Design.Arms, a)
		}
	}
	base := receiptOf(t, testPlan(set, three), set, map[string]answers{"COLD": {failed: seq(1, 7)}, "WARM": {failed: seq(1, 7)}, "RST": {failed: seq(1, 38)}})
	patched := receiptOf(t, testPlan(set, build2, three), set, map[string]answers{
		"COLD": {failed: seq(1, 37), external: 1600}, "WARM": {failed: seq(1, 38), external: 1600}, "RST": {failed: seq(1, 38), external: 1600}})
	rep, err := Gate(base, patched)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Outcome != RefutedWorse || rep.Exit != 1 {
		t.Errorf("%+v", rep)
	}
	// Holm over three: 2^-31 x 3, 2^-30 x 2, 1.
	cold, warm, rst := rep.Arms[0], rep.Arms[1], rep.Arms[2]
	if cold.B != 0 || cold.C != 30 || !near(cold.PWorse, 2*9.3132257461547852e-10) || !near(warm.PWorse, 3*4.6566128730773926e-10) || rst.PWorse != 1 {
		t.Errorf("%+v", rep.Arms)
	}
	if cold.Outcome != RefutedWorse || warm.Outcome != RefutedWorse || rst.Outcome != RefutedSame {
		t.Errorf("%+v", rep.Arms)
	}
	if len(rep.Flags) != 3 || rep.Flags[0] != (Flag{Name: RegimeChanged, Arm: "COLD", Counter: "external_tokens", Base: 0, Patched: 60800}) {
		t.Errorf("flags %+v", rep.Flags)
	}
	// Without `predict:` each arm is predicted to fail no more often than it did.
	if len(rep.Predictions) != 3 || rep.Predictions[0].Predicted != "<=7" || rep.Predictions[0].Measured != 37.0 || rep.Predictions[0].Held || !rep.Predictions[2].Held {
		t.Errorf("predictions %+v", rep.Predictions)
	}
}

// An absent counter is no regime.
func TestRegimeNeedsNumbers(t *testing.T) {
	set := testSet(8)
	b := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
	p := receiptOf(t, testPlan(set, build2), set, map[string]answers{"WARM": {external: 16}})
	a, _ := b.Arm("WARM")
	a.ExternalTokens = nil
	if rep, err := Gate(b, p); err != nil || len(rep.Flags) != 0 {
		t.Errorf("%+v %v", rep.Flags, err)
	}
}

// CONFIRMED asks that arms nobody predicted are clean too.
func TestGateUnpredictedArm(t *testing.T) {
	set := testSet(38)
	two := func(p *arms.Plan) {
		a := p.Design.Arms[1]
		a.Name = "RST"
		p.Design.Arms = append(p.Design.Arms, a)
	}
	check := func(rst answers, outcome string, exit int) {
		t.Helper()
		b := receiptOf(t, testPlan(set, two), set, map[string]answers{"WARM": {external: 16}, "RST": rst})
		p := receiptOf(t, testPlan(set, build2, two), set, map[string]answers{"WARM": {external: 16}, "RST": rst})
		rep, err := Gate(b, p)
		if err != nil || rep.Outcome != outcome || rep.Exit != exit || len(rep.Arms) != 1 {
			t.Errorf("%+v %v, want %s exit %d", rep, err, outcome, exit)
		}
	}
	check(answers{external: 16}, Confirmed, 0)
	check(answers{}, GateCannotTell, 2)
	check(answers{failed: seq(1, 9), external: 16}, GateCannotTell, 1)
}

func TestGateErrors(t *testing.T) {
	set := testSet(4)
	check := func(predict map[string]map[string]any, want string) {
		t.Helper()
		b := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
		p := receiptOf(t, testPlan(set, build2), set, map[string]answers{"WARM": {external: 16}})
		p.Predicate.Plan.Predict = predict
		rep, err := Gate(b, p)
		if err == nil || !strings.Contains(err.Error(), want) || rep.Exit != 3 {
			t.Errorf("%v: exit %d, error %v, want %q", predict, rep.Exit, err, want)
		}
	}
	check(map[string]map[string]any{"COLD": {"failed": 0}}, `prediction for arm "COLD": the ladder has no such arm`)
	check(map[string]map[string]any{"WARM": {"fails": 0}}, `arm WARM: prediction for "fails": an arm has no member`)
	check(map[string]map[string]any{"WARM": {"failed": "few"}}, "is a text and the member is a number")
	if _, err := Predictions(map[string]map[string]any{"X": {"failed": 0}}, scoring.Result{}); err == nil {
		t.Error("a prediction for an arm that was not run holds")
	}
}

// A predicted control is measured and held to its prediction; it has no verdict to be clean by.
func TestGatePredictedControl(t *testing.T) {
	set := testSet(38)
	predict := func(p *arms.Plan) {
		p.Predict = map[string]map[string]any{"C0": {"failed": 0}, "WARM": {"failed": 0}}
	}
	for failed, outcome := range map[int]string{0: Confirmed, 1: RefutedSame} {
		b := receiptOf(t, testPlan(set, predict), set, map[string]answers{"C0": {failed: seq(1, failed)}, "WARM": {external: 16}})
		p := receiptOf(t, testPlan(set, build2, predict), set, map[string]answers{"C0": {failed: seq(1, failed)}, "WARM": {external: 16}})
		if rep, err := Gate(b, p); err != nil || rep.Outcome != outcome {
			t.Errorf("%d failures: %s", failed, fmt.Sprintf("%+v %v", rep, err))
		}
	}
}
