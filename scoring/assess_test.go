package scoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

func TestHealthyLadderIsClean(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	r := l.assess()
	for _, name := range []string{"C1", "COLD", "WARM", "RST"} {
		want(t, r, name, CleanBounded, 17, "")
	}
	if r.Exit != ExitClean || r.Verdict != "CLEAN_BOUNDED: C1, COLD, WARM, RST" {
		t.Errorf("%s, exit %d", r.Verdict, r.Exit)
	}
	c1, warm := arm(t, r, "C1"), arm(t, r, "WARM")
	if got := letters(c1); got != "AyByD-E-FnHyKyPyUyVnXy" {
		t.Errorf("C1 %s", got)
	}
	if slices.Contains(c1.Warnings, "logprobs not judged: unequal split") {
		t.Errorf("C1, bitwise equal throughout, warns of its logprobs: %q", c1.Warnings)
	}
	// 1 - 0.05^(1/40), by request and by class.
	if warm.Upper95 == nil || math.Abs(*warm.Upper95-(1-math.Pow(0.05, 1./40))) > 1e-12 || *warm.Upper95Geometry != *warm.Upper95 {
		t.Errorf("bounds %v %v", warm.Upper95, warm.Upper95Geometry)
	}
	if *warm.ExternalTokens != 40*labReuse || *warm.LocalTokens != 0 || *warm.Unaccounted != 0 || *warm.ExpectedExternal != 40*labReuse {
		t.Errorf("split %d %d %d", *warm.ExternalTokens, *warm.LocalTokens, *warm.Unaccounted)
	}
	if *warm.FloorM != 3*40 || *warm.ExceedanceK != 0 || *warm.Identical != 40 || *warm.BitEqual != 40 || *warm.Comparable != 40 || *warm.Exposure != 80 {
		t.Errorf("m %d k %d identical %d bits %d exposure %d", *warm.FloorM, *warm.ExceedanceK, *warm.Identical, *warm.BitEqual, *warm.Exposure)
	}
	if warm.AnswersRight["attention"] != 40 || len(warm.Outcomes) != 40 {
		t.Errorf("answers %v", warm.AnswersRight)
	}
	if c0 := arm(t, r, "C0"); c0.Verdict != nil || c0.Columns["A"] != "y" || c0.LocalTokens == nil {
		t.Errorf("C0 %v %v", c0.Verdict, c0.Columns)
	}
}

// The public thread's unpatched ladder: 7 of 38 fail beside a control that fails none, and
// the connector never supplied a byte.
func TestFailuresOverAPathThatNeverRan(t *testing.T) {
	l := newLab(t, 38, 38)
	l.reply["COLD"] = wrong(7)
	l.write()
	a := want(t, l.assess(), "COLD", CorruptionAttributed, 8, "")
	if *a.Path != "unproven" || *a.Variable != "connector" || a.Columns["E"] != "n" || *a.ArmOnly != 7 || *a.ControlOnly != 0 || a.Failed != 7 {
		t.Errorf("path %s variable %s E %s c %d", *a.Path, *a.Variable, a.Columns["E"], *a.ArmOnly)
	}
	if *a.PMcNemar != 0.0078125 || *a.PMcNemarHolm != 4*0.0078125 {
		t.Errorf("p %v, corrected over four arms %v", *a.PMcNemar, *a.PMcNemarHolm)
	}
}

func TestLoadedGarbageIsAttributedToTheStore(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"], l.reply["RST"] = wrong(40), wrong(40)
	l.write()
	r := l.assess()
	want(t, r, "COLD", CleanBounded, 17, "")
	for _, name := range []string{"WARM", "RST"} {
		a := want(t, r, name, CorruptionAttributed, 7, "")
		if *a.Path != "external" || *a.Variable != "connector" || *a.Kind != "text" {
			t.Errorf("%s: path %s", name, *a.Path)
		}
	}
	if r.Exit != ExitCorrupt || !strings.HasPrefix(r.Verdict, "CORRUPTION_ATTRIBUTED: WARM, RST") {
		t.Errorf("%s, exit %d", r.Verdict, r.Exit)
	}
}

func TestDirtyControl(t *testing.T) {
	l := newLab(t, 40, 40)
	for _, a := range []string{"C0", "C0-b", "C0-split"} {
		l.reply[a] = wrong(8)
	}
	l.write()
	r := l.assess()
	for _, name := range []string{"C1", "COLD", "WARM", "RST"} {
		a := want(t, r, name, ControlDirty, 6, "")
		if !strings.Contains(*a.Reason, "control C0 fails 48 of 240") {
			t.Errorf("%s: %s", name, *a.Reason)
		}
	}
}

func TestCorruptReferenceSpeaksForNobody(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1"] = func(r *probes.Reply, i int) {
		if r.Pass == 2 {
			wrong(10)(r, i)
		}
	}
	l.write()
	r := l.assess()
	a := want(t, r, "C1", CorruptionAttributed, 7, "")
	if *a.Path != "local" || *a.Variable != "prefix-cache" {
		t.Errorf("path %s variable %s", *a.Path, *a.Variable)
	}
	cold := want(t, r, "COLD", ControlDirty, 6, "")
	if !strings.Contains(*cold.Reason, "reference corrupt") {
		t.Error(*cold.Reason)
	}
}

// loud fires on a mark that no control writes.
type loud struct{}

func (loud) Name() string { return "soup" }
func (loud) Inspect(r *probes.Reply, _ prompts.Expectation) Finding {
	f := strings.Contains(r.Text, "####")
	return Finding{Fired: f, Damaged: f}
}
func (loud) Specimen() (*probes.Reply, prompts.Expectation) {
	return &probes.Reply{Decoded: probes.Decoded{Text: "####"}}, prompts.Expectation{}
}

func TestDirtyControlWithDamageOfAnotherKind(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C0"] = wrong(20)
	l.reply["WARM"] = func(r *probes.Reply, i int) { r.Text += "\n####" }
	for i := range l.set.Prompts {
		l.set.Prompts[i].Expect.Needles[0].Match = "ints" // the mark does not make the answer wrong
		l.set.Prompts[i].Expect.Needles[0].Key = "100"
	}
	answer := func(r *probes.Reply) { r.Text = "100=" + r.Text }
	for _, a := range l.design.Arms {
		bend := l.reply[a.Name]
		l.reply[a.Name] = func(r *probes.Reply, i int) {
			if bend != nil {
				bend(r, i)
			}
			answer(r)
		}
	}
	l.write()
	r := Assess(l.input(), l.recs, []Detector{oneBug{}, loud{}})
	a := want(t, r, "WARM", CorruptionUnattributed, 5, "")
	if a.Damaged != 40 || a.Detectors["soup"] != 40 {
		t.Errorf("damaged %d, detectors %v", a.Damaged, a.Detectors)
	}
	want(t, r, "RST", ControlDirty, 6, "")
}

func TestUnstableRequestsLeave(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1-b"] = wrong(1) // p00 fails in a further process of the reference
	l.reply["WARM"] = wrong(1)
	l.write()
	a := want(t, l.assess(), "WARM", CleanBounded, 17, "")
	if !reflect.DeepEqual(a.Unstable, []string{"p00"}) || *a.ArmOnly != 0 || a.Failed != 0 || a.N != 40 || *a.Exercised != 39 {
		t.Errorf("unstable %v c %d failed %d exercised %d", a.Unstable, *a.ArmOnly, a.Failed, *a.Exercised)
	}
}

func TestEngineDiesAndItsRowsAreKept(t *testing.T) {
	l := newLab(t, 40, 40)
	l.stop["WARM"] = 10
	l.write()
	r := l.assess()
	a := want(t, r, "WARM", EngineDied, 2, "DIED")
	if a.N != 10 || *a.Path != "external" || a.DiedAt == nil || *a.Exit != ExitDied || a.Lifetime["events"] != 1 || a.Lifetime["requests"] != 10 {
		t.Errorf("n %d path %s died %v lifetime %v", a.N, *a.Path, a.DiedAt, a.Lifetime)
	}
	if !slices.Contains(a.Warnings, "path planned, not measured") {
		t.Errorf("%q", a.Warnings)
	}
	rst := want(t, r, "RST", InconclusiveUnknown, 0, "chain died")
	if rst.PMcNemarHolm != nil {
		t.Error("an arm that was not run has a corrected p-value")
	}
	// The arm that was not run is in no family: COLD is corrected over three.
	if cold := arm(t, r, "COLD"); *cold.PMcNemar != 1 || r.Exit != ExitDied {
		t.Errorf("exit %d", r.Exit)
	}
}

func TestFamilyLeavesOutWhatWasNotRun(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["COLD"] = wrong(7)
	l.stop["WARM"] = 10
	l.write()
	if a := arm(t, l.assess(), "COLD"); *a.PMcNemarHolm != 3*0.0078125 {
		t.Errorf("corrected p %v, want it over three arms", *a.PMcNemarHolm)
	}
}

func TestRestartBySomebodyElse(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["RST"] = func(name string, v any) any {
		if f, ok := v.(probes.IdentityFact); ok && f.Phase == "after" {
			f.Restarts = ptr(1)
			return f
		}
		return v
	}
	l.write()
	want(t, l.assess(), "RST", EngineDied, 2, "RESTARTED")
}

func TestControlThatDies(t *testing.T) {
	l := newLab(t, 40, 40)
	l.stop["C1-b"] = 5
	l.write()
	r := l.assess()
	a := want(t, r, "WARM", ControlDirty, 6, "")
	if !strings.Contains(*a.Reason, "C1-b died") {
		t.Error(*a.Reason)
	}
	want(t, r, "C1", CleanBounded, 17, "")
}

func TestHarnessError(t *testing.T) {
	drop := func(name string) func(string, any) any {
		return func(n string, v any) any {
			if n == name {
				return nil
			}
			return v
		}
	}
	check := func(what string, bend func(l *lab)) {
		t.Helper()
		l := newLab(t, 40, 40)
		bend(l)
		l.write()
		r := l.assess()
		a := want(t, r, "RST", HarnessError, 3, "")
		if a.Reason == nil {
			t.Errorf("%s: no reason", what)
		}
		want(t, r, "WARM", CleanBounded, 17, "")
	}
	check("no end", func(l *lab) { l.fact["RST"] = drop(probes.FactArmEnd) })
	check("a request lost", func(l *lab) {
		l.reply["RST"] = func(r *probes.Reply, i int) {
			if i == 3 {
				r.ErrorKind, r.Error, r.Status, r.Text, r.Tokens = "transport", "connection reset", 0, "", nil
			}
		}
	})
	check("a step not done", func(l *lab) {
		l.fact["RST"] = func(n string, v any) any {
			if n == probes.FactArmStart {
				raw, _ := json.Marshal(probes.StepFact{Step: "restart"})
				l.emit(probes.Record{Kind: probes.KindFact, Arm: "RST", Chain: "store", Attempt: "store-0", Fact: &probes.Fact{Name: probes.FactStep, Value: raw}})
			}
			return v
		}
	})
	check("no records", func(l *lab) { l.skip["RST"] = true })
}

func TestControlWithAHit(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C0-b"] = func(r *probes.Reply, i int) {
		if i == 2 {
			rise(r, probes.LocalHits, 16)
		}
	}
	l.write()
	a := want(t, l.assess(), "WARM", HarnessError, 3, "")
	if !strings.Contains(*a.Reason, "C0-b") || !strings.Contains(*a.Reason, "16 tokens") {
		t.Error(*a.Reason)
	}
}

func TestNotExercised(t *testing.T) {
	none := func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, 0) }

	l := newLab(t, 40, 40)
	for id := range l.spec("WARM").Expected {
		l.spec("WARM").Expected[id] = Reuse{}
	}
	l.reply["WARM"] = none
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, CannotHit)

	l = newLab(t, 40, 40)
	l.reply["WARM"] = none
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, ReuseLost)

	l = newLab(t, 40, 40) // 35 of 40 must-hit requests hit, 36 would do
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i < 5 {
			none(r, i)
		}
	}
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, ReuseLost)

	l = newLab(t, 40, 1)
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, Trivial)

	l = newLab(t, 40, 40)
	l.mute["WARM"] = true
	l.write()
	a := want(t, l.assess(), "WARM", NotExercised, 13, Unproven)
	if a.ExternalTokens != nil || a.LocalTokens != nil {
		t.Error("an absent counter became a number")
	}

	l = newLab(t, 40, 40) // the reset did nothing: the first request still hits locally
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i == 0 {
			rise(r, probes.LocalHits, 32)
			rise(r, probes.ExternalHits, 32)
		}
	}
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, Unproven)

	l = newLab(t, 40, 40) // the store was not empty when the cold arm began
	l.fact["COLD"] = func(_ string, v any) any {
		if f, ok := v.(probes.StoreFact); ok && f.When == "start" {
			f.Chunks = ptr(3)
			return f
		}
		return v
	}
	l.write()
	want(t, l.assess(), "COLD", NotExercised, 13, Unproven)

	l = newLab(t, 40, 40) // queries of three times the prompts: local hits mean nothing
	l.reply["C1"] = func(r *probes.Reply, _ int) { rise(r, probes.LocalQueries, 3*float64(*r.Usage.Prompt)) }
	l.write()
	a = want(t, l.assess(), "C1", NotExercised, 13, Unproven)
	if a.CountersTrusted == nil || *a.CountersTrusted || len(a.FlaggedIDs) != 40 {
		t.Errorf("trusted %v, %d flagged", a.CountersTrusted, len(a.FlaggedIDs))
	}
}

func TestShortOfPower(t *testing.T) {
	l := newLab(t, 40, 20)
	l.write()
	a := want(t, l.assess(), "WARM", InconclusivePower, 16, "")
	if a.Geometries != 20 || math.Abs(*a.Upper95Geometry-(1-math.Pow(0.05, 1./20))) > 1e-12 {
		t.Errorf("%d classes, bound %v", a.Geometries, *a.Upper95Geometry)
	}
	// A set smaller than n_min lacks power and not a floor.
	l = newLab(t, 12, 12)
	l.write()
	r := l.assess()
	want(t, r, "WARM", InconclusivePower, 16, "")
	want(t, r, "C1", InconclusivePower, 16, "")
}

// nudge moves the logprob of a reply's first token.
func nudge(r *probes.Reply, by float64) {
	r.Tokens = slices.Clone(r.Tokens)
	v := *r.Tokens[0].Logprob + by
	r.Tokens[0].Logprob = &v
	r.Tokens[0].Top = slices.Clone(r.Tokens[0].Top)
	r.Tokens[0].Top[0].Logprob = &v
}

func oneBit(r *probes.Reply, i int) {
	if i == 5 {
		nudge(r, 1e-12)
	}
}

func TestOneUnequalBit(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = oneBit
	l.write()
	r := l.assess()
	a := want(t, r, "WARM", SuspectUnconfirmed, 10, "")
	if !reflect.DeepEqual(Suspects(r), []string{"WARM"}) || a.Columns["B"] != "-" || *a.BitEqual != 39 {
		t.Errorf("suspects %v B %s", Suspects(r), a.Columns["B"])
	}
	l.write("store")
	r = l.assess()
	a = want(t, r, "WARM", CorruptionAttributed, 9, "")
	if *a.Path != "external" || *a.Kind != "bit" || len(Suspects(r)) != 0 || a.Replicates != 1 {
		t.Errorf("path %s suspects %v", *a.Path, Suspects(r))
	}
	// Only the first run has it: it stays a suspicion, with both runs attached.
	n := 0
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i == 5 {
			if n++; n == 1 {
				nudge(r, 1e-12)
			}
		}
	}
	l.write("store")
	r = l.assess()
	want(t, r, "WARM", SuspectUnconfirmed, 10, "")
	if len(Suspects(r)) != 0 {
		t.Errorf("%v still wait for a replicate that was run", Suspects(r))
	}
}

// An engine that answers now and then wrongly, whatever was reused, differs in one request of
// the run and in another one of the replicate: that is what 34 rows may show when 68 of control
// passes show nothing. One request that differs twice, or as many as controls would not have
// hidden, are corruption.
func TestUnequalBitsOfAFlake(t *testing.T) {
	for _, c := range []struct {
		name       string
		run, again []int // requests that differ
		verdict    string
		row        int
	}{
		{"two in the run, one other in the replicate", []int{8, 11}, []int{3}, SuspectUnconfirmed, 10},
		{"one, and one other", []int{10}, []int{3}, SuspectUnconfirmed, 10},
		{"the same one", []int{10}, []int{10}, CorruptionAttributed, 9},
		{"the same one among others", []int{8, 11}, []int{3, 11}, CorruptionAttributed, 9},
		{"five, and five others", []int{0, 1, 2, 3, 4}, []int{5, 6, 7, 8, 9}, CorruptionAttributed, 9},
	} {
		l := newLab(t, 17, 17)
		l.design.Arms = slices.DeleteFunc(l.design.Arms, func(a ArmSpec) bool { return a.Name == "C1-c" })
		asked := 0
		l.reply["WARM"] = func(r *probes.Reply, i int) {
			now := c.run
			if asked >= len(l.set.Prompts) {
				now = c.again
			}
			asked++
			if slices.Contains(now, i) {
				nudge(r, -4)
			}
		}
		l.write("store")
		if asked != 2*len(l.set.Prompts) {
			t.Fatalf("%s: %d requests", c.name, asked)
		}
		r := l.assess()
		if a := arm(t, r, "WARM"); *a.Verdict != c.verdict || *a.Row != c.row {
			t.Errorf("%s: %s by row %d, want %s by row %d; %v", c.name, *a.Verdict, *a.Row, c.verdict, c.row, a.Warnings)
		}
	}
}

// Another split of the prompt is judged bit by bit only where a control with an even
// shorter last chunk shows that splits change nothing.
func TestSplitInvariance(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1"] = func(r *probes.Reply, i int) {
		if r.Pass == 2 {
			oneBit(r, i)
		}
	}
	l.write()
	want(t, l.assess(), "C1", SuspectUnconfirmed, 10, "")

	l.reply["C0-split"] = func(r *probes.Reply, i int) { nudge(r, 1e-9) }
	l.write()
	a := want(t, l.assess(), "C1", CleanBounded, 17, "")
	if a.Columns["B"] != "-" || *a.Comparable != 0 {
		t.Errorf("B %s over %d requests", a.Columns["B"], *a.Comparable)
	}
	if !slices.Contains(a.Warnings, "logprobs not judged: unequal split") {
		t.Errorf("C1 does not say that its logprobs were not judged: %q", a.Warnings)
	}

	l = newLab(t, 40, 40)
	for id := range l.spec("C0-split").LastChunk { // its last chunk is longer than the arm's: it shows nothing
		l.spec("C0-split").LastChunk[id] = 120
	}
	l.write()
	if a := arm(t, l.assess(), "C1"); *a.Comparable >= 40 {
		t.Errorf("%d comparable", *a.Comparable)
	}
}

// noisy gives every arm its own small noise, so that bits say nothing and the floor does.
func (l *lab) noisy(size float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range l.design.Arms {
		bend := l.reply[a.Name]
		l.reply[a.Name] = func(r *probes.Reply, i int) {
			nudge(r, size*rng.NormFloat64())
			if bend != nil {
				bend(r, i)
			}
		}
	}
}

func TestMovedFirstTokens(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = func(r *probes.Reply, i int) { nudge(r, -0.05) }
	l.noisy(1e-5)
	l.write()
	r := l.assess()
	a := want(t, r, "WARM", SuspectUnconfirmed, 10, "")
	if *a.ExceedanceK != 40 || *a.FloorM != 120 || *a.PExceedance > 1e-20 || *a.ProcessRank != "1 of 3" || len(a.FlaggedIDs) != 40 {
		t.Errorf("k %d m %d p %v rank %s flagged %d", *a.ExceedanceK, *a.FloorM, *a.PExceedance, *a.ProcessRank, len(a.FlaggedIDs))
	}
	want(t, r, "RST", CleanBounded, 17, "")
	l.write("store")
	want(t, l.assess(), "WARM", SuspectDivergent, 12, "")
	in := l.input()
	in.TwinClean = map[string]bool{"WARM": true}
	want(t, Assess(in, l.recs, []Detector{oneBug{}}), "WARM", DivergentNumeric, 11, "")
}

// Significant beside the registered reference and not beside the other control processes:
// it is the reference that lies apart, and the arm is not accused.
func TestEveryControlHasToAgree(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = func(r *probes.Reply, i int) { nudge(r, 2.5e-5) }
	l.noisy(1e-5)
	for _, other := range []string{"C1-b", "C1-c"} {
		bend := l.reply[other]
		l.reply[other] = func(r *probes.Reply, i int) { bend(r, i); nudge(r, 1.5e-5) }
	}
	l.write("store")
	a := arm(t, l.assess(), "WARM")
	if a.Columns["D"] == "y" {
		t.Errorf("accused: %v", a.Columns)
	}
}

func TestNoFloor(t *testing.T) {
	l := newLab(t, 40, 40)
	l.skip = map[string]bool{}
	l.design.Arms = slices.DeleteFunc(l.design.Arms, func(a ArmSpec) bool { return a.Role == Floor && a.FloorOf == "C1" })
	l.write()
	a := want(t, l.assess(), "WARM", InconclusiveNoFloor, 14, "")
	if a.FloorM != nil || a.PExceedance != nil {
		t.Error("a floor that is not there has numbers")
	}
}

// texts removes token ids, so that no bit twin can help.
func (l *lab) texts() {
	for _, a := range l.design.Arms {
		bend := l.reply[a.Name]
		l.reply[a.Name] = func(r *probes.Reply, i int) {
			if bend != nil {
				bend(r, i)
			}
			r.Tokens = slices.Clone(r.Tokens)
			for k := range r.Tokens {
				r.Tokens[k].ID, r.Tokens[k].Top = -1, nil
			}
		}
	}
}

func TestFewFailuresAndTheirReplicate(t *testing.T) {
	run := func(n int, replicates ...string) Result {
		l := newLab(t, 40, 40)
		l.reply["WARM"] = wrong(n)
		l.texts()
		l.write(replicates...)
		return l.assess()
	}
	r := run(1)
	want(t, r, "WARM", SuspectUnconfirmed, 10, "")
	if !reflect.DeepEqual(Suspects(r), []string{"WARM"}) {
		t.Errorf("%v", Suspects(r))
	}
	// The same four again: each request counts once, 2^-4 = 0.0625 alone and together.
	want(t, run(4, "store"), "WARM", SuspectUnconfirmed, 10, "")
	// Five: 2^-5 = 0.03125 in the replicate alone.
	want(t, run(5, "store"), "WARM", CorruptionAttributed, 7, "")
	want(t, run(5), "WARM", SuspectUnconfirmed, 10, "")
	// Seven need none: 4 × 2^-7 = 0.03125.
	want(t, run(7), "WARM", CorruptionAttributed, 7, "")
	want(t, run(6), "WARM", SuspectUnconfirmed, 10, "")
}

func TestStoreShortfall(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["WARM"] = func(_ string, v any) any {
		if f, ok := v.(probes.StoreFact); ok && f.When == "start" {
			f.Chunks = ptr(50) // every prompt fills two chunks of 64 or more
			return f
		}
		return v
	}
	l.write()
	a := want(t, l.assess(), "COLD", CorruptionAttributed, 4, "")
	if *a.Kind != storeInvariant || len(a.Invariants) != 1 || *a.Invariants[0].Held || a.Columns["V"] != "y" {
		t.Errorf("kind %s, invariants %v", *a.Kind, a.Invariants)
	}
}

func TestRegisteredInvariants(t *testing.T) {
	with := func(arms map[string]*bool) Result {
		l := newLab(t, 40, 40)
		for name, held := range arms {
			l.fact[name] = func(n string, v any) any {
				if n == probes.FactArmStart {
					raw, _ := json.Marshal(probes.InvariantFact{Name: "no hits across identities", Held: held, Seen: "64 tokens"})
					c := l.spec(name).Chain
					l.emit(probes.Record{Kind: probes.KindFact, Arm: name, Chain: c, Attempt: l.attempt(0, c), Fact: &probes.Fact{Name: probes.FactInvariant, Value: raw}})
				}
				return v
			}
		}
		l.write()
		return l.assess()
	}
	a := want(t, with(map[string]*bool{"RST": ptr(false)}), "RST", CorruptionAttributed, 4, "")
	if *a.Path != "external" || *a.Kind != "no hits across identities" {
		t.Errorf("path %s kind %s", *a.Path, *a.Kind)
	}
	want(t, with(map[string]*bool{"RST": nil}), "RST", InconclusiveUnknown, 15, "V")
	want(t, with(map[string]*bool{"RST": ptr(true)}), "RST", CleanBounded, 17, "")
	want(t, with(map[string]*bool{"RST": ptr(false), "C1": ptr(false), "C0": ptr(false)}), "RST", CleanBounded, 17, "")
}

func TestPins(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["RST"] = func(_ string, v any) any {
		if f, ok := v.(probes.PinsFact); ok {
			f.Read = append(f.Read, probes.PinRead{Name: "block", Asked: "16", Read: ptr("800"), Source: "/metrics", Agrees: ptr(false)})
			return f
		}
		return v
	}
	l.write()
	r := l.assess()
	a := want(t, r, "RST", InvalidPrereg, 1, "")
	if !strings.Contains(*a.Reason, "block") || r.Exit != ExitInvalid {
		t.Errorf("%s, exit %d", *a.Reason, r.Exit)
	}

	l = newLab(t, 40, 40)
	s := l.spec("COLD")
	s.PinsDiffer = append(s.PinsDiffer, Pin{Name: "dtype", Arm: "fp8", Reference: "bf16"})
	l.write()
	want(t, l.assess(), "COLD", InvalidPrereg, 1, "")

	l = newLab(t, 40, 40) // an attached server that does not show a pin
	l.spec("RST").Attached = true
	l.fact["RST"] = func(_ string, v any) any {
		if f, ok := v.(probes.PinsFact); ok {
			f.Read[0].Read, f.Read[0].Agrees = nil, nil
			return f
		}
		return v
	}
	l.write()
	want(t, l.assess(), "RST", InconclusiveUnknown, 15, "P")

	l = newLab(t, 40, 40)
	l.write()
	in := l.input()
	in.PlanDigest = "sha256:another"
	want(t, Assess(in, l.recs, []Detector{oneBug{}}), "RST", InvalidPrereg, 1, "")
}

func TestAbandonedAttemptsAreNotScored(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	good := slices.Clone(l.recs)
	// A first climb of the store's chain that went wrong and was given up.
	l.reply["WARM"] = wrong(40)
	l.write()
	var bad []probes.Record
	for _, r := range l.recs {
		if r.Chain == "store" {
			r.Attempt = "store-first"
			bad = append(bad, r)
		}
	}
	raw, _ := json.Marshal(probes.AbandonedFact{Attempt: "store-first", Why: "resumed"})
	gone := probes.Record{Kind: probes.KindFact, Chain: "store", Attempt: "store-first", Fact: &probes.Fact{Name: probes.FactAbandoned, Value: raw}}
	both := slices.Concat(good[:1], bad, []probes.Record{gone}, good[1:])
	want(t, Assess(l.input(), both, []Detector{oneBug{}}), "WARM", CleanBounded, 17, "")
	// Abandoned later in the file than the climb that stands: the same.
	both = slices.Concat(good, bad, []probes.Record{gone})
	want(t, Assess(l.input(), both, []Detector{oneBug{}}), "WARM", CleanBounded, 17, "")
	// Not abandoned: of two finished climbs the later counts.
	both = slices.Concat(good, bad)
	want(t, Assess(l.input(), both, []Detector{oneBug{}}), "WARM", CorruptionAttributed, 7, "")
	// An unfinished climb never replaces a finished one.
	bad = slices.DeleteFunc(bad, func(r probes.Record) bool { return r.Fact != nil && r.Fact.Name == probes.FactChainEnd })
	both = slices.Concat(good, bad)
	want(t, Assess(l.input(), both, []Detector{oneBug{}}), "WARM", CleanBounded, 17, "")
}

func TestArmTotalsOnly(t *testing.T) {
	run := func(external float64) Result {
		l := newLab(t, 40, 40)
		l.reply["WARM"] = func(r *probes.Reply, i int) {
			without(probes.ExternalHits)(r, i)
			wrong(40)(r, i)
		}
		l.fact["WARM"] = func(n string, v any) any {
			if f, ok := v.(probes.IdentityFact); ok {
				at := 500.0
				if f.Phase == "after" {
					at += external
				}
				l.emit(probes.Record{Kind: probes.KindSample, Arm: "WARM", Chain: "store", Attempt: "store-0",
					Sample: &probes.Sample{Phase: f.Phase, Pass: f.Pass, Values: []probes.Value{{Role: probes.ExternalHits, Series: "x", Value: at}}}})
			}
			return v
		}
		l.write()
		return l.assess()
	}
	a := want(t, run(2560), "WARM", CorruptionAttributed, 8, "")
	if a.Columns["E"] != "-" || *a.ExternalTokens != 2560 || !slices.Contains(a.Warnings, "external tokens are known for the arm only") {
		t.Errorf("E %s external %d %q", a.Columns["E"], *a.ExternalTokens, a.Warnings)
	}
	a = want(t, run(0), "WARM", CorruptionAttributed, 8, "")
	if a.Columns["E"] != "n" || *a.ExternalTokens != 0 {
		t.Errorf("E %s external %d", a.Columns["E"], *a.ExternalTokens)
	}
}

func TestBystanders(t *testing.T) {
	l := newLab(t, 48, 48)
	for i := 40; i < 48; i++ {
		l.set.Prompts[i].Role = prompts.Bystander
	}
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i >= 40 {
			rise(r, probes.ExternalHits, 0)
			wrong(48)(r, i)
		}
	}
	l.write()
	a := want(t, l.assess(), "WARM", CorruptionAttributed, 7, "")
	if *a.Path != "external (bystander)" || a.BystanderN != 8 || a.BystanderFailed != 8 {
		t.Errorf("path %s, bystanders %d of %d", *a.Path, a.BystanderFailed, a.BystanderN)
	}
}

func TestWrongLivenessIsAFailingRow(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["RST"] = func(n string, v any) any {
		if n == probes.FactArmEnd {
			raw, _ := json.Marshal(probes.LivenessFact{Prompt: "2+2", Right: ptr(false), Seen: "5"})
			l.emit(probes.Record{Kind: probes.KindFact, Arm: "RST", Chain: "store", Attempt: "store-0", Fact: &probes.Fact{Name: probes.FactLiveness, Value: raw}})
		}
		return v
	}
	l.write()
	a := want(t, l.assess(), "RST", SuspectUnconfirmed, 10, "")
	if *a.ArmOnly != 1 {
		t.Errorf("c = %d", *a.ArmOnly)
	}
}

func TestBlindDetectorIsTrustedWithNothing(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	r := Assess(l.input(), l.recs, []Detector{oneBug{}, blind{}})
	want(t, r, "WARM", CleanBounded, 17, "") // it would have failed every request
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "blind") {
		t.Errorf("%q", r.Warnings)
	}
}

func TestEmptyBesideAReference(t *testing.T) {
	l := newLab(t, 40, 40)
	for i := range l.set.Prompts {
		l.set.Prompts[i].Expect = prompts.Expectation{Empty: true, Needles: []prompts.Needle{{Key: "K", Answer: "x"}}}
	}
	l.reply["WARM"] = func(r *probes.Reply, i int) { r.Text, r.Tokens = "", nil }
	for i := range l.set.Prompts {
		l.set.Prompts[i].Expect.Needles[0].Answer = "x"
	}
	l.write()
	a := want(t, l.assess(), "WARM", CorruptionAttributed, 7, "")
	if a.Detectors["empty"] != 40 || a.Substantive != 0 {
		t.Errorf("detectors %v, %d substantive", a.Detectors, a.Substantive)
	}
}

func TestOnlyUnder(t *testing.T) {
	group := func(name, g, verdict string) ArmResult {
		return ArmResult{Name: name, Preset: "WARM", Group: &g, Verdict: &verdict, OnlyUnder: map[string]string{}, Outcomes: []Outcome{{ID: "p1"}}}
	}
	s := &scorer{in: Input{Design: Design{Arms: []ArmSpec{
		{Name: "WARM/fp8", Group: "fp8", Pins: map[string]string{"kv-dtype": "fp8", "block": "16"}},
		{Name: "WARM/bf16", Group: "bf16", Pins: map[string]string{"kv-dtype": "bf16", "block": "16"}},
	}}}}
	r := Result{Arms: []ArmResult{group("WARM/fp8", "fp8", CorruptionAttributed), group("WARM/bf16", "bf16", CleanBounded)}}
	s.onlyUnder(&r)
	if !reflect.DeepEqual(r.Arms[0].OnlyUnder, map[string]string{"kv-dtype": "fp8"}) || len(r.Arms[1].OnlyUnder) != 0 {
		t.Errorf("%v %v", r.Arms[0].OnlyUnder, r.Arms[1].OnlyUnder)
	}
	r.Arms[0].OnlyUnder = map[string]string{}
	*r.Arms[1].Verdict = InconclusivePower
	s.onlyUnder(&r)
	if len(r.Arms[0].OnlyUnder) != 0 {
		t.Error("a twin that is not clean makes no contrast")
	}
}

func TestLadderVerdict(t *testing.T) {
	check := func(wantText string, wantExit int, words ...string) {
		t.Helper()
		var arms []ArmResult
		for i, w := range words {
			arms = append(arms, ArmResult{Name: fmt.Sprint("A", i), Verdict: &w, Exit: ptr(Verdict{Word: w}.Exit())})
		}
		if got, exit := ladderVerdict(arms); got != wantText || exit != wantExit {
			t.Errorf("%q exit %d, want %q exit %d", got, exit, wantText, wantExit)
		}
	}
	check("CLEAN_BOUNDED: A0", 0, CleanBounded)
	check("INCONCLUSIVE_POWER: A1; CLEAN_BOUNDED: A0", 2, CleanBounded, InconclusivePower)
	check("HARNESS_ERROR: A0; CONTROL_DIRTY: A1", 3, HarnessError, ControlDirty)
	check("ENGINE_DIED: A1; HARNESS_ERROR: A0", 4, HarnessError, EngineDied)
	check("CORRUPTION_ATTRIBUTED: A0, A2; ENGINE_DIED: A1", 1, CorruptionAttributed, EngineDied, CorruptionAttributed)
	check("INVALID_PREREG: A1; CORRUPTION_ATTRIBUTED: A0", 3, CorruptionAttributed, InvalidPrereg)
	check("no arm was judged", 2)
}

func TestAssessIsAPureFunction(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = wrong(9)
	l.reply["C1-b"] = wrong(2)
	l.noisy(1e-5)
	l.write("store")
	first, err := json.Marshal(l.assess())
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, _ := json.Marshal(l.assess())
		if !bytes.Equal(first, again) {
			t.Fatal("two readings of one transcript differ")
		}
	}
	var doc map[string]any
	if err := json.Unmarshal(first, &doc); err != nil {
		t.Fatal(err)
	}
	for _, a := range doc["arms"].([]any) {
		for _, k := range []string{"schedule_diff", "incarnations", "columns", "only_under", "invariants", "failed_ids", "unstable", "detectors", "answers_right", "flagged_ids", "lifetime", "outcomes", "warnings"} {
			if a.(map[string]any)[k] == nil {
				t.Errorf("%v: %s is null", a.(map[string]any)["name"], k)
			}
		}
	}
}

func TestNothingRecorded(t *testing.T) {
	l := newLab(t, 40, 40)
	r := Assess(l.input(), nil, []Detector{oneBug{}})
	for _, a := range r.Arms {
		if a.Verdict != nil && *a.Exit == ExitClean {
			t.Errorf("%s is clean without a record", a.Name)
		}
	}
	if r.Exit != ExitInvalid {
		t.Errorf("exit %d", r.Exit)
	}
}

// The replicate is paired with a further process of the reference, whose failures make a
// request unstable for the registered run. In the union of both runs that process is a
// reference too: were its failures left out there, only those of the arm would count, and
// two healthy processes that each fail now and then would accuse each other.
func TestUnionCountsBothReferences(t *testing.T) {
	l := newLab(t, 48, 32)
	calls := 0
	between := func(from, to int) func(*probes.Reply, int) {
		return func(r *probes.Reply, i int) {
			if i >= from && i < to {
				wrong(48)(r, i)
			}
		}
	}
	l.reply["WARM"] = func(r *probes.Reply, i int) { // 0 to 2 in the first climb, 3 to 5 in the second
		run := calls / 48
		calls++
		between(3*run, 3*run+3)(r, i)
	}
	l.reply["C1"], l.reply["C1-b"] = between(10, 13), between(13, 16)
	l.write("store")
	a := arm(t, l.assess(), "WARM")
	if calls != 96 || *a.ArmOnly != 3 || a.Columns["F"] != "n" {
		t.Errorf("%d replies, c %d, F %s: 6 against 6 over both runs accuse", calls, *a.ArmOnly, a.Columns["F"])
	}
	// The same arm beside controls that never fail is accused: 6 against 0, p 1/64.
	delete(l.reply, "C1")
	delete(l.reply, "C1-b")
	calls = 0
	l.write("store")
	if a := arm(t, l.assess(), "WARM"); a.Columns["F"] != "y" {
		t.Errorf("F %s: 6 against 0 over both runs", a.Columns["F"])
	}
}
