package receipts

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// tolerance is how far two statistics may lie apart, relative, and be the same: they are
// kept rounded to 12 significant digits.
const tolerance = 1e-10

func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
}

// rowWords are the verdicts that each row of the table can give.
var rowWords = map[int]string{
	1: scoring.InvalidPrereg, 2: scoring.EngineDied, 3: scoring.HarnessError, 4: scoring.CorruptionAttributed,
	5: scoring.CorruptionUnattributed, 6: scoring.ControlDirty, 7: scoring.CorruptionAttributed, 8: scoring.CorruptionAttributed,
	9: scoring.CorruptionAttributed, 10: scoring.SuspectUnconfirmed, 11: scoring.DivergentNumeric, 12: scoring.SuspectDivergent,
	13: scoring.NotExercised, 14: scoring.InconclusiveNoFloor, 15: scoring.InconclusiveUnknown, 16: scoring.InconclusivePower,
	17: scoring.CleanBounded,
}

// recheck runs every test again from the integers and the outcomes that the receipt holds,
// and the parts of the verdict table that its letters decide. It needs no folder.
func recheck(rep *Report, r *Receipt, rule scoring.Rule) {
	res := &r.Predicate.Result
	type family struct { // a twin ladder is a ladder of its own
		p      []float64
		arms   []*scoring.ArmResult
		part   bool // an arm's p-value is not there
		judged int
	}
	var families [2]family
	for i := range res.Arms {
		a := &res.Arms[i]
		fail := func(member, format string, args ...any) {
			rep.add(fmt.Sprintf("predicate.result.arms[%s].%s", a.Name, member), format, args...)
		}
		recount(a, fail)
		if a.ArmOnly != nil && a.ControlOnly != nil {
			b, c := *a.ControlOnly, *a.ArmOnly
			switch {
			case b < 0 || c < 0:
				fail("arm_only", "a count is negative")
			case b > len(a.Outcomes) || c > len(a.Outcomes):
				fail("arm_only", "%d and %d requests cannot have failed on one side only: there are %d outcomes", b, c, len(a.Outcomes))
			case a.PMcNemar != nil:
				if want := compare.McNemar(b, c).OneSided; !near(*a.PMcNemar, want) {
					fail("p_mcnemar", "it is %v, b = %d and c = %d give %v", *a.PMcNemar, b, c, want)
				}
			}
		}
		f := &families[0]
		if spec, ok := r.Predicate.Plan.Design.ByName(a.Name); ok && spec.TwinOf != "" {
			f = &families[1]
		}
		if a.Role == scoring.Judged {
			f.judged++
		}
		if a.Role == scoring.Judged && a.PMcNemarHolm != nil {
			if a.PMcNemar == nil || !(*a.PMcNemar >= 0 && *a.PMcNemar <= 1) {
				f.part = true
			} else {
				f.p, f.arms = append(f.p, *a.PMcNemar), append(f.arms, a)
			}
		}
		recheckExceedance(a, fail)
		recheckVerdict(a, rule, fail)
	}
	for _, f := range families {
		if !f.part {
			recheckHolm(rep, f.p, f.arms, f.judged)
		}
	}
	recheckLadder(rep, res)
}

// recheckHolm corrects p again. An arm of the family that came to no p-value keeps its seat
// with 1, and a receipt does not say which of the arms without one had a seat: any number of
// seats that explains every adjusted value will do.
func recheckHolm(rep *Report, p []float64, arms []*scoring.ArmResult, judged int) {
	var first func()
	for seats := len(p); seats <= judged; seats++ {
		family := slices.Clone(p)
		for len(family) < seats {
			family = append(family, 1)
		}
		explained := true
		for i, want := range compare.Holm(family)[:len(p)] {
			if a := arms[i]; !near(*a.PMcNemarHolm, want) {
				explained = false
				if first == nil {
					first = func() {
						rep.add(fmt.Sprintf("predicate.result.arms[%s].p_mcnemar_holm", a.Name), "it is %v, Holm over %d arms gives %v", *a.PMcNemarHolm, len(p), want)
					}
				}
			}
		}
		if explained {
			return
		}
	}
	if first != nil {
		first()
	}
}

// recount compares the counts of an arm with its outcomes.
func recount(a *scoring.ArmResult, fail func(member, format string, args ...any)) {
	if a.N < 0 || a.Failed < 0 || a.Substantive < 0 || a.Substantive > a.N {
		fail("n", "counts that cannot be: n %d, substantive %d, failed %d", a.N, a.Substantive, a.Failed)
	}
	if len(a.Outcomes) == 0 {
		if a.Failed > 0 || len(a.FailedIDs) > 0 {
			fail("failed", "%d failed and there is no outcome to show it", a.Failed)
		}
		return
	}
	var failed, unstable []string
	seen := map[string]bool{}
	for _, o := range a.Outcomes {
		if seen[o.ID] {
			fail("outcomes", "request %q is there twice", o.ID)
		}
		seen[o.ID] = true
		if o.Unstable {
			unstable = append(unstable, o.ID)
		} else if o.Failed {
			failed = append(failed, o.ID)
		}
		if o.Failed && len(o.Fired) == 0 {
			fail("outcomes", "request %q failed and no detector fired", o.ID)
		}
	}
	if a.N != len(a.Outcomes) {
		fail("n", "it is %d, there are %d outcomes", a.N, len(a.Outcomes))
	}
	if a.Failed != len(failed) {
		fail("failed", "it is %d, the outcomes show %d", a.Failed, len(failed))
	}
	if !sameSet(a.FailedIDs, failed) {
		fail("failed_ids", "they are %v, the outcomes show %v", a.FailedIDs, failed)
	}
	if !sameSet(a.Unstable, unstable) {
		fail("unstable", "they are %v, the outcomes show %v", a.Unstable, unstable)
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// recheckExceedance bounds what it cannot repeat: how many values the arm had is not among
// the integers, but it had one for each outcome with a d0 at most, and p falls as n falls.
func recheckExceedance(a *scoring.ArmResult, fail func(member, format string, args ...any)) {
	if a.PExceedance == nil || a.ExceedanceK == nil || a.FloorM == nil {
		return
	}
	k, m := *a.ExceedanceK, *a.FloorM
	n := 0
	for _, o := range a.Outcomes {
		if o.D0 != nil {
			n++
		}
	}
	if k < 0 || m < 0 || k > n {
		fail("exceedance_k", "k = %d of %d values over a floor of %d cannot be", k, n, m)
		return
	}
	if *a.PExceedance > 0 && *a.PExceedance <= 1 {
		// It rises with the count of values, so that one count can explain it, or two.
		at := k + sort.Search(n-k, func(i int) bool { return lnExceedance(k, k+i, m) >= math.Log(*a.PExceedance)-1e-9 })
		for _, at := range []int{at, at + 1} {
			if at <= n && explains(*a.PExceedance, k, at, m) {
				return
			}
		}
	} else if *a.PExceedance == 0 && k > 0 && lnExceedance(k, n, m) < math.Log(math.SmallestNonzeroFloat64) {
		return // too small for a number
	}
	fail("p_exceedance", "it is %v, and no count of values up to %d gives that for k = %d, m = %d", *a.PExceedance, n, k, m)
}

// lnExceedance is the logarithm of C(n,k)/C(m+n,k).
func lnExceedance(k, n, m int) float64 {
	sum := 0.0
	for i := range k {
		sum += math.Log(float64(n-i) / (float64(m) + float64(n-i)))
	}
	return sum
}

// explains compares p with the screen's: in integers, or by logarithms where k is so large
// that the integers would have millions of digits.
func explains(p float64, k, n, m int) bool {
	if k <= mostExact {
		return near(p, compare.ExceedanceP(k, n, m))
	}
	return math.Abs(math.Log(p)-lnExceedance(k, n, m)) <= 1e-6
}

// recheckVerdict asks that word, exit and row agree with each other and with the letters.
func recheckVerdict(a *scoring.ArmResult, rule scoring.Rule, fail func(member, format string, args ...any)) {
	if a.Verdict == nil {
		if a.Exit != nil || a.Row != nil {
			fail("verdict", "there is none, but an exit or a row")
		}
		return
	}
	word := *a.Verdict
	if want := (scoring.Verdict{Word: word}).Exit(); a.Exit == nil || *a.Exit != want {
		fail("exit", "%s exits %d", orNone(word), want)
	}
	if a.Row == nil {
		return
	}
	row := *a.Row
	if row == 0 {
		if word != scoring.CannotTell && word != scoring.InconclusiveUnknown {
			fail("row", "%s comes from a row of the table", word)
		}
		return
	}
	if rowWords[row] != word {
		fail("verdict", "row %d gives %s, not %s", row, orNone(rowWords[row]), orNone(word))
		return
	}
	c := a.Columns
	// The rows that letters alone decide: an arm may not come to a later one.
	for _, limit := range []struct {
		met bool
		row int
	}{
		{c["P"] == "n", 1}, {c["A"] == "n", 2}, {c["H"] == "n", 3}, {c["K"] == "n", 6}, {c["F"] == "y", 8},
		{c["B"] == "n", 9}, {c["D"] == "y", 12}, {c["X"] != "y", 13}, {c["U"] != "y", 16},
	} {
		if limit.met && row > limit.row {
			fail("row", "the columns %v stop at row %d, not %d", c, limit.row, row)
			return
		}
	}
	need := map[int][]string{1: {"Pn"}, 2: {"An"}, 3: {"Hn"}, 4: {"Vy"}, 5: {"Kn", "Fy"}, 6: {"Kn"}, 7: {"Fy", "Ey"}, 8: {"Fy"}, 9: {"Bn"},
		11: {"Dy"}, 16: {"Xy"}, 17: {"Py", "Ay", "Hy", "Ky", "Fn", "Xy", "Uy"}}
	for _, n := range need[row] {
		if c[n[:1]] != n[1:] {
			fail("row", "row %d needs column %s = %s, it is %q", row, n[:1], n[1:], c[n[:1]])
		}
	}
	if row == 13 && c["X"] == "y" {
		fail("row", "row 13 is for a path that was not exercised, and column X is y")
	}
	if (c["F"] == "y") && a.PMcNemarHolm != nil && *a.PMcNemarHolm > rule.Alpha.Failures && a.ArmOnly != nil && *a.ArmOnly == 0 {
		fail("columns", "F is y with no arm-only failure")
	}
}

// recheckLadder asks that the ladder's exit is the worst of its arms'.
func recheckLadder(rep *Report, res *scoring.Result) {
	rank := map[int]int{scoring.ExitClean: 0, scoring.ExitCannot: 1, scoring.ExitInvalid: 2, scoring.ExitDied: 3, scoring.ExitCorrupt: 4}
	worst := -1
	invalid := false
	for _, a := range res.Arms {
		if a.Exit == nil {
			continue
		}
		if a.Verdict != nil && *a.Verdict == scoring.InvalidPrereg {
			invalid = true
		}
		if worst < 0 || rank[*a.Exit] > rank[worst] {
			worst = *a.Exit
		}
	}
	switch {
	case worst < 0:
		if res.Exit == scoring.ExitClean {
			rep.add("predicate.result.exit", "no arm was judged, and the ladder exits 0")
		}
	case invalid:
		if res.Exit != scoring.ExitInvalid {
			rep.add("predicate.result.exit", "an arm is %s, and the ladder exits %d", scoring.InvalidPrereg, res.Exit)
		}
	case res.Exit != worst:
		rep.add("predicate.result.exit", "it is %d, the worst arm exits %d", res.Exit, worst)
	}
}

func orNone(word string) string {
	if word == "" {
		return "no verdict"
	}
	return word
}
