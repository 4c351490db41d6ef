package receipts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/receipts/digest"
)

func TestGateReverted(t *testing.T) {
	set := testSet(38)
	of := func(image string, a answers) *Receipt {
		return receiptOf(t, testPlan(set, func(p *arms.Plan) { setPin(p, "image", image) }), set, map[string]answers{"WARM": a})
	}
	clean, bad := answers{external: 16}, answers{failed: seq(1, 9), external: 16}
	check := func(name string, base, patched, reverted *Receipt, outcome string, exit int, red bool, reason string) {
		t.Helper()
		rep, err := GateReverted(base, patched, reverted)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Outcome != outcome || rep.Exit != exit || (rep.Reverted != nil && rep.Reverted.Red) != red || !strings.Contains(strings.Join(rep.Reasons, "\n"), reason) {
			t.Errorf("%s: %s exit %d red %+v %q", name, rep.Outcome, rep.Exit, rep.Reverted, rep.Reasons)
		}
	}
	base, patched := of("1", bad), of("2", clean)
	check("a fix", base, patched, of("2-reverted", bad), Confirmed, 0, true, "")
	check("no fix: it stays green without it", base, patched, of("2-reverted", clean), GateCannotTell, 2, false, "does not depend on the fix")
	check("a suspicion is not red", base, patched, of("2-reverted", answers{failed: seq(1, 3), external: 16}), GateCannotTell, 2, false, "no judged arm is red")
	check("worse stays worse", of("1", clean), of("2", bad), of("2-reverted", bad), RefutedWorse, 1, false, "")
	other := of("2-reverted", bad)
	other.Predicate.Plan.Set.Digest = "sha256:x"
	check("another question", base, patched, other, NotComparable, 3, false, "the reverted build: set differs")
}

func TestPolicy(t *testing.T) {
	set := testSet(38)
	of := func(image string, a answers) *Receipt {
		r := receiptOf(t, testPlan(set, func(p *arms.Plan) { setPin(p, "image", image) }), set, map[string]answers{"WARM": a})
		r.Predicate.Order.Level = O1
		return r
	}
	clean, bad := answers{external: 16}, answers{failed: seq(1, 9), external: 16}
	const head = "schema: kvladder/policy/1\n"
	check := func(name, policy string, base, patched *Receipt, outcome string, exit int, breach string) {
		t.Helper()
		p, err := ParsePolicy([]byte(head + policy))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rep, err := Gate(base, patched)
		if err != nil {
			t.Fatal(err)
		}
		was := rep.Exit
		p.Apply(&rep, base, patched)
		if rep.Outcome != outcome || rep.Exit != exit || rep.Policy.Exit != was || rep.Policy.Digest != digest.Of([]byte(head+policy)) ||
			!strings.Contains(strings.Join(rep.Policy.Breached, "\n"), breach) || (breach == "") != (len(rep.Policy.Breached) == 0) {
			t.Errorf("%s: %s exit %d %+v", name, rep.Outcome, rep.Exit, rep.Policy)
		}
	}
	suspect := answers{failed: seq(1, 3), external: 16}
	check("nothing", "", of("1", bad), of("2", clean), Confirmed, 0, "")
	check("nothing, worse", "", of("1", clean), of("2", bad), RefutedWorse, 1, "")
	check("cannot tell", "", of("1", clean), of("2", suspect), GateCannotTell, 2, "")
	check("cannot tell, tolerated", "tolerate: {outcomes: [CANNOT_TELL]}", of("1", clean), of("2", suspect), GateCannotTell, 0, "")
	check("tolerated in this arm", "tolerate: {arms: {WARM: [CANNOT_TELL]}}", of("1", clean), of("2", suspect), GateCannotTell, 0, "")
	check("tolerated in another arm", "tolerate: {arms: {RST: [CANNOT_TELL]}}", of("1", clean), of("2", suspect), GateCannotTell, 2, "")
	check("worse is never tolerated", "tolerate: {outcomes: [CANNOT_TELL, IMPROVED_NOT_CLEAN]}", of("1", clean), of("2", bad), RefutedWorse, 1, "")
	check("improved, tolerated", "tolerate: {outcomes: [IMPROVED_NOT_CLEAN]}", of("1", answers{failed: seq(1, 20), external: 16}), of("2", suspect), ImprovedNotClean, 0, "")
	check("no new path", "require: {no_flags: [REGIME_CHANGED]}", of("1", answers{failed: seq(1, 9)}), of("2", clean), Confirmed, 1, "REGIME_CHANGED in arm WARM: external_tokens went from 0 to 608")
	check("reverted, not given", "require: {reverted: true}", of("1", bad), of("2", clean), Confirmed, 1, "a receipt of the fix reverted is required")
	imported := of("1", bad)
	imported.Predicate.Order.Level = O0
	check("order", "require: {order: O1}", imported, of("2", clean), Confirmed, 1, "the base receipt says O0")
	amended := of("2", clean)
	amended.Predicate.Amendments = []Amendment{{Entry: 1, Class: ClassC}}
	check("amended", "require: {no_amendments: true}", of("1", bad), amended, Confirmed, 1, "was amended 1 times")
	incomparable := of("2", clean)
	incomparable.Predicate.Plan.Set.Digest = "sha256:x"
	check("another question", "tolerate: {outcomes: [CANNOT_TELL]}", of("1", bad), incomparable, NotComparable, 3, "")

	// An arm that no prediction names, and that is corrupt, is not forgiven as CANNOT_TELL.
	two := func(image string, rst answers) *Receipt {
		r := receiptOf(t, testPlan(set, func(p *arms.Plan) {
			setPin(p, "image", image)
			a := p.Design.Arms[1]
			a.Name = "RST"
			p.Design.Arms = append(p.Design.Arms, a)
		}), set, map[string]answers{"WARM": clean, "RST": rst})
		return r
	}
	check("an arm nobody predicted", "tolerate: {outcomes: [CANNOT_TELL]}", two("1", bad), two("2", bad), GateCannotTell, 1, "")
}

func TestPolicyRefuses(t *testing.T) {
	for policy, want := range map[string]string{
		"":                                       "schema",
		"schema: kvladder/policy/9":              `its schema is "kvladder/policy/9"`,
		"schema: kvladder/policy/1\ntolerat: {}": "unknown field",
		"schema: kvladder/policy/1\ntolerate: {outcomes: [REFUTED_WORSE]}": "cannot be tolerated",
		"schema: kvladder/policy/1\ntolerate: {arms: {A: [REFUTED_SAME]}}": "cannot be tolerated",
		"schema: kvladder/policy/1\nrequire: {no_flags: [REGIME_CHANGE]}":  "there is no flag",
		"schema: kvladder/policy/1\nrequire: {order: O7}":                  `order "O7"`,
		"schema: kvladder/policy/1\nrequire: {reverted: perhaps}":          "",
		"schema: kvladder/policy/1\nschema: kvladder/policy/1":             "",
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		os.WriteFile(path, []byte(policy), 0o644)
		if _, err := ReadPolicy(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", policy, err, want)
		}
	}
}
