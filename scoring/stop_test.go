package scoring

import (
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
)

const soakRounds = 8

// newSoak is a lab of 40 requests with a soak of eight rounds behind a pass that fills the
// store.
func newSoak(t *testing.T, stop *Stop) *lab {
	l := newLab(t, 40, 40)
	a := ArmSpec{Name: "SOAK", Preset: "SOAK", Role: Judged, Passes: 1 + soakRounds, Judge: 1 + soakRounds, Reference: "C1", ReferencePass: 2, Path: "external",
		Exercise: "WARM", Connector: true, Chain: "SOAK", Process: "soak", ScheduleDiff: []string{"drain", "fill", "reset"}, Stop: stop,
		Pin: Pin{Name: "connector", Arm: "disk", Reference: "none"}, Expected: map[string]Reuse{}, LastChunk: map[string]int{}}
	a.PinsDiffer = []Pin{a.Pin}
	for i := range l.set.Prompts {
		p := &l.set.Prompts[i]
		a.Expected[p.ID] = Reuse{External: labReuse}
		a.LastChunk[p.ID] = len(p.Tokens) - labReuse
	}
	l.design.Arms = append(l.design.Arms, a)
	return l
}

// from makes every k-th reply of the soak wrong from the n-th request of its rounds on,
// counted from 0.
func (l *lab) from(n, k int) {
	l.reply["SOAK"] = func(r *probes.Reply, i int) {
		if at := (r.Pass-2)*len(l.set.Prompts) + i; r.Pass > 1 && at >= n && (at-n)%k == 0 {
			wrong(i+1)(r, i)
		}
	}
}

var sprt = Stop{Rule: StopSPRT, P0: 0.001, P1: 0.05, Alpha: 0.05, Beta: 0.05, From: 2}

// 59 clean requests accept (ln(.05/.95)/ln(.95/.999) = 58.5): in the second round, which is
// finished and stands for the last.
func TestSoakEndsByAcceptance(t *testing.T) {
	stop := sprt
	l := newSoak(t, &stop)
	l.last["SOAK"] = 3
	l.write()
	a := want(t, l.assess(), "SOAK", CleanBounded, 17, "")
	k := a.Soak
	if k == nil || k.Decision != StopAccept || k.Decided == nil || *k.Decided != (Spot{59, 3, "p18"}) || k.Stopped == nil || *k.Stopped != 3 || k.Ran != 3 || k.Passes != 9 || k.Requests != 80 || k.Failed != 0 {
		t.Fatalf("soak %+v", k)
	}
	if k.Onset != nil || k.Alarm != nil {
		t.Errorf("an onset without a failure: %+v", k.Onset)
	}
	// 0 of 80, whenever one looks: 1 - (.05/81)^(1/80) = 0.0882.
	if k.Sequence == nil || k.Sequence.Low != 0 || k.Sequence.High < 0.0881 || k.Sequence.High > 0.0883 {
		t.Errorf("sequence %+v", k.Sequence)
	}
	if a.N != 40 || *a.Exercised != 40 {
		t.Errorf("the last round is not judged: n %d, exercised %v", a.N, *a.Exercised)
	}
}

// A fault from the 46th request of the rounds on: rejected there, in the second round; the
// CUSUM says where it began.
func TestSoakEndsByRejection(t *testing.T) {
	stop := sprt
	l := newSoak(t, &stop)
	l.from(45, 1)
	l.last["SOAK"] = 3
	l.write()
	a := want(t, l.assess(), "SOAK", CorruptionAttributed, 7, "")
	k := a.Soak
	if k.Decision != StopReject || k.Decided == nil || k.Stopped == nil || *k.Stopped != 3 || k.Failed != 35 {
		t.Fatalf("soak %+v", k)
	}
	// After 45 clean ones the ratio is -2.26: two failures of +3.91 reach 2.94.
	if k.Decided.Request != 47 {
		t.Errorf("decided at %+v, want request 47", k.Decided)
	}
	if *k.Onset != (Spot{46, 3, "p05"}) || *k.Alarm != (Spot{46, 3, "p05"}) {
		t.Errorf("onset %+v, alarm %+v", k.Onset, k.Alarm)
	}
}

// Every second request fails from the 121st on: an e-process, which accepts nothing, goes on
// until then and raises its alarm soon after.
func TestSoakEndsByEProcess(t *testing.T) {
	l := newSoak(t, &Stop{Rule: StopEProcess, P0: 0.05, P1: 0.30, Alpha: 0.05, From: 2})
	l.from(120, 2)
	l.write() // in full: where the rule decides is asked below
	k := arm(t, l.assess(), "SOAK").Soak
	if k.Decision != StopReject || k.Stopped != nil || k.Ran != 9 {
		t.Fatalf("soak %+v", k)
	}
	// Each clean request takes ln(.7/.95) = -0.31: 120 of them -36.6. A pair of a failure and
	// a pass brings 1.79 - 0.31, so ln 20 = 3 is reached after some 27 pairs.
	if k.Onset == nil || k.Onset.Request != 121 || k.Decided.Request < 121+50 || k.Decided.Request > 121+60 || k.Decided.Pass != 6 {
		t.Errorf("onset %+v, decided %+v", k.Onset, k.Decided)
	}
	a := arm(t, l.assess(), "SOAK")
	if !strings.Contains(strings.Join(a.Warnings, "; "), "the stopping rule decided in pass 6, and the soak went on to pass 9") {
		t.Errorf("%q", a.Warnings)
	}
	l.last["SOAK"] = 6
	l.write()
	if k := want(t, l.assess(), "SOAK", CorruptionAttributed, 7, "").Soak; k.Stopped == nil || *k.Stopped != 6 {
		t.Errorf("soak %+v", k)
	}
}

// A soak stops early by its registered rule alone.
func TestSoakThatStopsWithoutItsRule(t *testing.T) {
	none := newSoak(t, nil)
	none.last["SOAK"] = 3
	none.write()
	a := want(t, none.assess(), "SOAK", HarnessError, 3, "")
	if !strings.Contains(*a.Reason, "ended after pass 3, and no registered rule ends it there") {
		t.Errorf("reason %q", *a.Reason)
	}
	stop := sprt
	early := newSoak(t, &stop)
	early.last["SOAK"] = 2 // 40 clean requests accept nothing
	early.write()
	if k := want(t, early.assess(), "SOAK", HarnessError, 3, "").Soak; k.Decision != StopContinue || k.Stopped != nil {
		t.Errorf("soak %+v", k)
	}
	// Nor later than its rule says: it decides in pass 3, and pass 5 is no end of it.
	late := newSoak(t, &stop)
	late.last["SOAK"] = 5
	late.write()
	if k := want(t, late.assess(), "SOAK", HarnessError, 3, "").Soak; k.Decided.Pass != 3 || k.Stopped != nil {
		t.Errorf("soak %+v", k)
	}
	// Nor in the middle of a round.
	cut := newSoak(t, &stop)
	cut.last["SOAK"] = 3
	cut.write()
	i := slices.IndexFunc(cut.recs, func(r probes.Record) bool {
		return r.Arm == "SOAK" && r.Reply != nil && r.Reply.Pass == 3 && r.Reply.Prompt == "p39"
	})
	cut.recs = slices.Delete(cut.recs, i, i+1)
	want(t, cut.assess(), "SOAK", HarnessError, 3, "")
	// Nor without saying so: records that merely end there were lost.
	silent := newSoak(t, &stop)
	silent.last["SOAK"] = 3
	silent.fact["SOAK"] = func(name string, v any) any {
		if name == probes.FactStop {
			return nil
		}
		return v
	}
	silent.write()
	want(t, silent.assess(), "SOAK", HarnessError, 3, "")
	// And one without a rule runs its length.
	full := newSoak(t, nil)
	full.write()
	if k := want(t, full.assess(), "SOAK", CleanBounded, 17, "").Soak; k.Rule != nil || k.Decision != "" || k.Ran != 9 || k.Requests != 320 || k.Sequence == nil {
		t.Errorf("soak %+v", k)
	}
}

func TestStopCheck(t *testing.T) {
	for _, s := range []Stop{sprt, {Rule: StopEProcess, P0: .01, P1: .1, Alpha: .05}} {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, c := range []struct {
		stop Stop
		want string
	}{
		{Stop{Rule: StopSPRT, P0: .1, P1: .05, Alpha: .05, Beta: .05}, "0 < p0 < p1 < 1"},
		{Stop{Rule: StopSPRT, P0: .01, P1: .05, Alpha: .6, Beta: .5}, "sum below 1"},
		{Stop{Rule: StopEProcess, P0: .01, P1: .05, Alpha: 1}, "between 0 and 1"},
		{Stop{Rule: StopEProcess, P0: .01, P1: .05, Alpha: .05, Beta: .05}, "never accepts"},
		{Stop{Rule: "hunch", P0: .01, P1: .05, Alpha: .05}, "sprt or e-process"},
	} {
		if err := c.stop.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.stop, err, c.want)
		}
		if _, err := NewWatch(c.stop, nil); err == nil {
			t.Errorf("%+v is watched", c.stop)
		}
	}
}

// What the run sees reply by reply and what a verifier makes of the records is the same.
func TestWatchAgreesWithTheRecords(t *testing.T) {
	stop := sprt
	l := newSoak(t, &stop)
	l.from(45, 1)
	l.last["SOAK"] = 3
	l.write()
	w, err := NewWatch(stop, []Detector{oneBug{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.recs {
		if r := l.recs[i].Reply; r != nil && l.recs[i].Arm == "SOAK" {
			p, _ := l.set.ByID(r.Prompt)
			w.Reply(r, p)
		}
	}
	decision, n, ok := w.Decided()
	if k := arm(t, l.assess(), "SOAK").Soak; !ok || decision != k.Decision || n != k.Decided.Request {
		t.Errorf("the run saw %s after %d, the records give %s after %d", decision, n, k.Decision, k.Decided.Request)
	}
}
