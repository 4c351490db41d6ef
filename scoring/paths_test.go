package scoring

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

// addArm appends a judged arm to the store's chain.
func (l *lab) addArm(a ArmSpec, expected Reuse) {
	a.Role, a.Passes, a.Judge, a.Connector, a.Chain = Judged, 1, 1, true, "store"
	a.Pin = Pin{Name: "connector", Arm: "disk", Reference: "none"}
	a.PinsDiffer = []Pin{a.Pin}
	a.Expected = map[string]Reuse{}
	for i := range l.set.Prompts {
		a.Expected[l.set.Prompts[i].ID] = expected
	}
	l.design.Arms = append(l.design.Arms, a)
}

// mixed makes every reply of the arm take local and external tokens.
func mixed(local, external int) func(*probes.Reply, int) {
	return func(r *probes.Reply, _ int) {
		rise(r, probes.LocalHits, float64(local))
		rise(r, probes.ExternalHits, float64(external))
	}
}

func TestPartialHits(t *testing.T) {
	run := func(bend func(*probes.Reply, int)) Result {
		l := newLab(t, 40, 40)
		l.addArm(ArmSpec{Name: "PART", Preset: "PART", Process: "s2", Reference: "C1", ReferencePass: 2, Path: "mixed", Exercise: "PART"}, Reuse{32, 32})
		l.reply["PART"] = bend
		l.write()
		return l.assess()
	}
	a := want(t, run(mixed(32, 32)), "PART", CleanBounded, 17, "")
	if *a.LocalTokens != 1280 || *a.ExternalTokens != 1280 || a.Lifetime["partial_hits"] != 40 {
		t.Errorf("local %d external %d lifetime %v", *a.LocalTokens, *a.ExternalTokens, a.Lifetime)
	}
	// Eight evaluations whose local share is always 0 cannot fail: nothing partial ran.
	want(t, run(mixed(0, 64)), "PART", NotExercised, 13, ReuseLost)
	want(t, run(without(probes.LocalHits)), "PART", NotExercised, 13, ReuseLost) // external 0 alone settles it
	want(t, run(func(r *probes.Reply, i int) { mixed(0, 32)(r, i); without(probes.LocalHits)(r, i) }), "PART", NotExercised, 13, Unproven)
	a = want(t, run(func(r *probes.Reply, i int) { mixed(32, 32)(r, i); wrong(9)(r, i) }), "PART", CorruptionAttributed, 7, "")
	if *a.Path != "mixed" {
		t.Error(*a.Path)
	}
	a = want(t, run(func(r *probes.Reply, i int) { mixed(0, 64)(r, i); wrong(9)(r, i) }), "PART", CorruptionAttributed, 8, "")
	if *a.Path != "unproven" {
		t.Error(*a.Path)
	}
}

func TestReplayAsItIs(t *testing.T) {
	l := newLab(t, 40, 40)
	l.addArm(ArmSpec{Name: "REPLAY", Preset: "REPLAY", Process: "s2", Reference: "C1", ReferencePass: 2, Path: "external", Exercise: "REPLAY"}, Reuse{Local: labReuse})
	l.reply["REPLAY"] = mixed(labReuse, 0)
	l.write()
	want(t, l.assess(), "REPLAY", CleanBounded, 17, "")
	l.reply["REPLAY"] = mixed(0, 0)
	l.write()
	want(t, l.assess(), "REPLAY", NotExercised, 13, ReuseLost)
}

// An arm of one's own, with no rule of a preset: its registered path has to have carried.
func TestCustomArm(t *testing.T) {
	run := func(path string, expected Reuse, bend func(*probes.Reply, int)) Result {
		l := newLab(t, 40, 40)
		l.addArm(ArmSpec{Name: "MINE", Preset: "custom", Process: "s2", Reference: "C1", ReferencePass: 2, Path: path, Exercise: "none"}, expected)
		l.reply["MINE"] = bend
		l.write()
		return l.assess()
	}
	want(t, run("external", Reuse{External: 64}, mixed(0, 64)), "MINE", CleanBounded, 17, "")
	want(t, run("mixed", Reuse{32, 32}, mixed(32, 32)), "MINE", CleanBounded, 17, "")
	want(t, run("local", Reuse{Local: 64}, mixed(64, 0)), "MINE", CleanBounded, 17, "")
	want(t, run("", Reuse{Local: 64}, mixed(64, 0)), "MINE", CleanBounded, 17, "")
	want(t, run("external", Reuse{External: 64}, mixed(64, 0)), "MINE", NotExercised, 13, ReuseLost)
	want(t, run("", Reuse{Local: 64}, mixed(0, 0)), "MINE", NotExercised, 13, ReuseLost)
	a := want(t, run("", Reuse{Local: 64}, func(r *probes.Reply, i int) { mixed(64, 0)(r, i); wrong(9)(r, i) }), "MINE", CorruptionAttributed, 7, "")
	if *a.Path != "unproven" { // no path was registered, so none can be named
		t.Error(*a.Path)
	}
}

// What a cold arm stored, from each place that may know it.
func TestColdStores(t *testing.T) {
	run := func(bend func(*probes.Reply, int), store func(probes.StoreFact) probes.StoreFact, stored *float64, role string) Result {
		l := newLab(t, 40, 40)
		l.reply["COLD"] = bend
		l.fact["WARM"] = func(n string, v any) any {
			if n == probes.FactDrain {
				return nil // no invariant in the way
			}
			return v
		}
		l.fact["COLD"] = func(_ string, v any) any {
			switch f := v.(type) {
			case probes.StoreFact:
				return store(f)
			case probes.IdentityFact:
				if stored == nil {
					break
				}
				at := 7.0
				if f.Phase == "after" {
					at += *stored
				}
				l.emit(probes.Record{Kind: probes.KindSample, Arm: "COLD", Chain: "store", Attempt: "store-0",
					Sample: &probes.Sample{Phase: f.Phase, Pass: f.Pass, Values: []probes.Value{{Role: role, Series: "s", Rank: "0", Value: at}, {Role: role, Series: "s", Rank: "1", Value: at}}}})
			}
			return v
		}
		l.write()
		return l.assess()
	}
	same := func(f probes.StoreFact) probes.StoreFact { return f }
	noChunks := func(f probes.StoreFact) probes.StoreFact { f.Chunks = nil; return f }
	justEmpty := func(f probes.StoreFact) probes.StoreFact {
		f.Chunks, f.Files = nil, nil
		if f.When == "start" {
			f.Bytes = ptr(int64(0))
		}
		return f
	}
	mute := without(probes.StoredChunks)
	want(t, run(nil, same, nil, ""), "COLD", CleanBounded, 17, "")
	a := want(t, run(mute, noChunks, nil, ""), "COLD", CleanBounded, 17, "")
	if !slices.ContainsFunc(a.Warnings, func(w string) bool { return strings.HasPrefix(w, "stored chunks per request from the prompt's length") }) {
		t.Errorf("%q", a.Warnings)
	}
	want(t, run(mute, justEmpty, ptr(40.0), probes.StoredChunks), "COLD", CleanBounded, 17, "")
	want(t, run(mute, justEmpty, ptr(4096.0), probes.StoredBytes), "COLD", CleanBounded, 17, "")
	want(t, run(mute, justEmpty, nil, ""), "COLD", NotExercised, 13, Unproven)
	want(t, run(mute, justEmpty, ptr(0.0), probes.StoredChunks), "COLD", NotExercised, 13, ReuseLost)
	want(t, run(nil, func(f probes.StoreFact) probes.StoreFact { return probes.StoreFact{When: f.When} }, nil, ""), "COLD", NotExercised, 13, Unproven)
	// Stored by half of the requests, as their counters say: 20 classes are too few.
	half := func(r *probes.Reply, i int) {
		if i%2 == 0 {
			rise(r, probes.StoredChunks, 0)
		}
	}
	a = want(t, run(half, justEmpty, nil, ""), "COLD", InconclusivePower, 16, "")
	if *a.Exercised != 20 {
		t.Errorf("%d exercised", *a.Exercised)
	}
}

func TestPathAtDeathAsMeasured(t *testing.T) {
	l := newLab(t, 40, 40)
	l.stop["WARM"] = 10
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i == 9 { // the request that was out when the engine died: counters were read, no reply came
			r.Status, r.ErrorKind, r.Error, r.Text, r.Tokens = 0, "transport", "EOF", "", nil
			rise(r, probes.ExternalHits, 0)
		}
	}
	l.fact["WARM"] = func(_ string, v any) any {
		if f, ok := v.(probes.DeathFact); ok {
			f.Prompt = "p09"
			return f
		}
		return v
	}
	l.write()
	a := want(t, l.assess(), "WARM", EngineDied, 2, "DIED")
	if *a.Path != "unproven" || slices.Contains(a.Warnings, "path planned, not measured") {
		t.Errorf("path %s %q", *a.Path, a.Warnings)
	}
	bend := l.reply["WARM"]
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		bend(r, i)
		if i == 9 {
			rise(r, probes.ExternalHits, 64)
		}
	}
	l.write()
	if a := arm(t, l.assess(), "WARM"); *a.Path != "external" {
		t.Error(*a.Path)
	}
}

// A death that no arm is named for belongs to the arm that was running in its chain.
func TestDeathOfAChain(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	var recs []probes.Record
	raw, _ := json.Marshal(probes.StoppedFact{ID: "pid-s2", Exit: ptr(137)})
	n := 0
	for _, r := range l.recs {
		if r.Arm == "RST" && r.Reply != nil {
			if n++; n == 30 {
				recs = append(recs, probes.Record{Kind: probes.KindFact, Chain: "store", Attempt: "store-0", Fact: &probes.Fact{Name: probes.FactStopped, Value: raw}})
			}
		}
		recs = append(recs, r)
	}
	want(t, Assess(l.input(), recs, []Detector{oneBug{}}), "RST", EngineDied, 2, "DIED")
	// Between two arms it is nobody's death.
	recs = append(slices.Clone(l.recs), probes.Record{Kind: probes.KindFact, Chain: "store", Attempt: "store-0", Fact: &probes.Fact{Name: probes.FactStopped, Value: raw}})
	want(t, Assess(l.input(), recs, []Detector{oneBug{}}), "RST", CleanBounded, 17, "")
}

// Fluent text that leaves the reference where the reference was sure, more than control
// processes ever do: first tokens say nothing, the margins of the flips do.
func TestFlipMarginsMoved(t *testing.T) {
	flip := func(r *probes.Reply, sure float64) { // another second token, so much likelier than the reference's
		r.Tokens = slices.Clone(r.Tokens)
		r.Tokens[1] = probes.Token{ID: 9, Text: " ", Logprob: ptr(-0.002), Top: []probes.Candidate{{ID: 9, Logprob: ptr(-0.002)}, {ID: 3, Logprob: ptr(-0.002 - sure)}}}
	}
	l := newLab(t, 40, 40)
	near := func(r *probes.Reply, i int) {
		if i < 6 {
			flip(r, 0.01) // a near-tie on one side is a near-tie
		}
	}
	l.reply["C1-b"] = near
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i >= 6 {
			flip(r, 5)
		}
	}
	l.noisy(1e-5)
	l.write()
	a := want(t, l.assess(), "WARM", SuspectUnconfirmed, 10, "")
	if a.HardFlips == nil || *a.HardFlips != 34 || a.Failed != 0 || *a.Forks != 34 {
		t.Errorf("hard flips %v forks %d failed %d", a.HardFlips, *a.Forks, a.Failed)
	}
	l.write("store")
	a = want(t, l.assess(), "WARM", SuspectDivergent, 12, "")
	if a.Columns["D"] != "n" {
		t.Errorf("D %s", a.Columns["D"])
	}
	// Near-ties in the arm are what near-ties in the controls are.
	l = newLab(t, 40, 40)
	l.reply["C1-b"], l.reply["WARM"] = near, near
	l.noisy(1e-5)
	l.write()
	want(t, l.assess(), "WARM", CleanBounded, 17, "")
}

func TestWhatIsRecordedTwiceOrNotAsked(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	for i := range l.recs {
		if r := l.recs[i]; r.Arm == "RST" && r.Reply != nil && r.Reply.Prompt == "p03" {
			again, other, prime := *r.Reply, *r.Reply, *r.Reply
			again.Text = "oops"
			other.Prompt = "p99"
			prime.Prime, prime.Text = true, "oops"
			for _, more := range []*probes.Reply{&again, &other, &prime} {
				x := r
				x.Reply = more
				l.recs = slices.Insert(l.recs, i+1, x)
			}
			break
		}
	}
	a := want(t, l.assess(), "RST", CleanBounded, 17, "")
	all := strings.Join(a.Warnings, "; ")
	if !strings.Contains(all, "request p03 was recorded twice") || !strings.Contains(all, "request p99 is not in the set") {
		t.Error(all)
	}
}

// A damaged record file never makes a panic or a clean arm.
func TestFactsThatCannotBeRead(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	for i := range l.recs {
		if f := l.recs[i].Fact; f != nil && len(f.Value) > 0 {
			l.recs[i].Fact = &probes.Fact{Name: f.Name, Value: json.RawMessage(`[1`)}
		}
	}
	r := l.assess()
	if r.Exit == ExitClean || len(r.Warnings) == 0 {
		t.Errorf("exit %d, %d warnings", r.Exit, len(r.Warnings))
	}
}

func TestNoSet(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	in := l.input()
	in.Set = nil
	if r := Assess(in, l.recs, []Detector{oneBug{}}); r.Exit == ExitClean {
		t.Error("clean without a set")
	}
}

func TestDamagedExpectationsNeverPass(t *testing.T) {
	for _, n := range []prompts.Needle{{Key: "A1", Match: "ints", Answer: ""}, {Key: "A1", Match: "ints", Answer: "x"}, {Match: "regexp", Answer: "."}} {
		if AnswerRight(n, "A1=\n") {
			t.Errorf("%+v passes", n)
		}
	}
}
