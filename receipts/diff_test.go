package receipts

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/scoring"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	set := testSet(38)
	make := func(a answers, change ...func(*arms.Plan)) *Receipt {
		return receiptOf(t, testPlan(set, change...), set, map[string]answers{"WARM": a})
	}
	clean, bad := answers{external: 16}, answers{failed: seq(1, 7), external: 16}
	find := func(d DiffReport, path string) *Change {
		for i := range d.Changes {
			if d.Changes[i].Path == path {
				return &d.Changes[i]
			}
		}
		return nil
	}
	a, b := make(clean), make(bad, build2)

	if d := Diff(a, a); !d.Comparable || d.Exit != 0 || len(d.Changes) != 0 || d.Transition != scoring.CleanBounded {
		t.Errorf("with itself: %+v", d)
	}
	d := Diff(a, b)
	if !d.Comparable || d.Exit != 1 || d.Transition != "CLEAN_BOUNDED -> CORRUPTION_ATTRIBUTED (worse)" {
		t.Errorf("%+v", d)
	}
	if c := find(d, "arms[WARM].failed_ids.gained"); c == nil || !slices.Equal(c.New.([]string), []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7"}) || c.Weight != WeightScore {
		t.Errorf("gained: %+v", c)
	}
	if c := find(Diff(b, a), "arms[WARM].failed_ids.lost"); c == nil || len(c.Old.([]string)) != 7 {
		t.Errorf("lost: %+v", c)
	}
	if got := Diff(b, a).Transition; !strings.HasSuffix(got, "(better)") {
		t.Error(got)
	}
	for path, w := range map[string]Weight{"pins.image": WeightPin, "arms[WARM].failed": WeightScore, "arms[WARM].p_mcnemar": WeightScore,
		"arms[WARM].verdict": WeightVerdict, "arms[WARM].columns.F": WeightVerdict, "verdict": WeightVerdict, "prereg.plan": WeightNote} {
		if c := find(d, path); c == nil || c.Weight != w {
			t.Errorf("%s: %+v, want weight %s", path, c, w)
		}
	}
	// In the order of pins, exercise, counts, statistics, verdicts, notes.
	var at []int
	for _, path := range []string{"pins.image", "arms[WARM].failed", "arms[WARM].p_mcnemar", "arms[WARM].verdict", "verdict", "prereg.plan"} {
		at = append(at, slices.IndexFunc(d.Changes, func(c Change) bool { return c.Path == path }))
	}
	if !slices.IsSorted(at) {
		t.Errorf("order %v", at)
	}

	// A build under test that answers the same is the same answer; any other pin is a difference.
	if d := Diff(a, make(clean, build2)); d.Exit != 0 || find(d, "pins.image") == nil {
		t.Errorf("another build: %+v", d)
	}
	if d := Diff(a, make(clean, func(p *arms.Plan) { setPin(p, "model", "m2") })); d.Exit != 1 || !d.Comparable || find(d, "pins.model") == nil {
		t.Errorf("another model: %+v", d)
	}
	// Unlike questions.
	other := Diff(a, receiptOf(t, testPlan(testSet(5)), testSet(5), map[string]answers{"WARM": clean}))
	if other.Comparable || other.Exit != 3 || len(other.Changes) != 1 || other.Changes[0].Path != "prereg.set" {
		t.Errorf("another set: %+v", other)
	}
	rules := Diff(a, make(clean, func(p *arms.Plan) { p.Design.Rule.NMin = 4 }))
	if rules.Comparable || rules.Exit != 3 || rules.Changes[0].Path != "plan.design.rule.n_min" {
		t.Errorf("other rules: %+v", rules)
	}
}

// Statistics have a tolerance, counts have none.
func TestDiffTolerance(t *testing.T) {
	set := testSet(4)
	check := func(change func(a *scoring.ArmResult), want ...string) {
		t.Helper()
		a := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
		b := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
		x, _ := a.Arm("WARM")
		y, _ := b.Arm("WARM")
		x.D0Mean, y.D0Mean = ptr(0.25), ptr(0.25)
		change(y)
		var got []string
		for _, c := range Diff(a, b).Changes {
			got = append(got, c.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("changes %v, want %v", got, want)
		}
	}
	check(func(a *scoring.ArmResult) { a.D0Mean = ptr(0.25 * (1 + 1e-12)) })
	check(func(a *scoring.ArmResult) { a.D0Mean = ptr(0.25 * (1 + 1e-9)) }, "arms[WARM].d0_mean")
	check(func(a *scoring.ArmResult) { a.D0Mean = nil }, "arms[WARM].d0_mean")
	check(func(a *scoring.ArmResult) { a.N++ }, "arms[WARM].n")
	check(func(a *scoring.ArmResult) { a.Detectors["soup"] = 1 }, "arms[WARM].detectors.soup")
	// By request, wherever it stands in the list.
	check(func(a *scoring.ArmResult) { slices.Reverse(a.Outcomes) })
	check(func(a *scoring.ArmResult) { a.Outcomes[2].External = ptr(0) }, "arms[WARM].outcomes[p3].external")
	check(func(a *scoring.ArmResult) { a.Outcomes[2].ID = "p9" }, "arms[WARM].outcomes[p3]", "arms[WARM].outcomes[p9]")
	check(func(a *scoring.ArmResult) { a.Invariants = []scoring.Invariant{{Name: "leak", Held: ptr(false)}} }, "arms[WARM].invariants[leak]")
	check(func(a *scoring.ArmResult) { a.Incarnations = []scoring.Incarnation{{ID: "pid 7"}} }) // every run has others
	check(func(a *scoring.ArmResult) { a.Warnings = []string{"w"} }, "arms[WARM].warnings")
}

// Every member of an arm's result is in one block or is named among those that are not
// compared, and nothing is listed that an arm does not have.
func TestEveryMemberHasABlock(t *testing.T) {
	all := slices.Clone(notDiffed)
	for _, b := range blocks() {
		all = append(all, b.members...)
	}
	var have []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[scoring.ArmResult]()) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		have = append(have, tag)
	}
	slices.Sort(all)
	slices.Sort(have)
	if d := cmp.Diff(have, all); d != "" {
		t.Error(d)
	}
}

func ExampleDiff() {
	set := testSet(38)
	plan := testPlan(set)
	result := func(failed int) scoring.Result {
		return resultOf(plan, func(arm string) []scoring.Outcome {
			var out []scoring.Outcome
			for i, p := range set.Prompts {
				out = append(out, scoring.Outcome{ID: p.ID, Answered: true, Failed: arm == "WARM" && i < failed, External: ptr(16)})
			}
			return out
		})
	}
	before, _ := statementOf(plan, result(0), nil)
	after, _ := statementOf(plan, result(6), nil)
	d := Diff(before, after)
	fmt.Println(d.Transition)
	for _, c := range d.Changes {
		if c.Path == "arms[WARM].failed_ids.gained" || c.Path == "arms[WARM].p_mcnemar" {
			fmt.Println(c.Weight, c.Path, c.Old, c.New)
		}
	}
	// Output:
	// CLEAN_BOUNDED -> CORRUPTION_ATTRIBUTED (worse)
	// score arms[WARM].failed_ids.gained <nil> [p1 p2 p3 p4 p5 p6]
	// score arms[WARM].p_mcnemar 1 0.015625
}
