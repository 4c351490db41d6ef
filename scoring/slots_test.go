package scoring

import (
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
)

// step appends a step of an arm to what was written.
func (l *lab) step(arm string, f probes.StepFact) {
	a := l.spec(arm)
	l.tell(probes.Record{Chain: a.Chain, Attempt: l.attempt(0, a.Chain), Arm: a.Name, Incarnation: a.Process + "/0"}, probes.FactStep, f)
}

// A restore that the engine refuses is neither a failure nor a clean cache.
func TestRefusedRestore(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["RST"] = func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, 0) }
	l.write()
	want(t, l.assess(), "RST", NotExercised, 13, ReuseLost) // nobody says why
	l.step("RST", probes.StepFact{Step: "restore", Done: true, Proved: ptr(false), Seen: "restore of slot 0: status 400: no"})
	a := want(t, l.assess(), "RST", NotExercised, 13, Refused)
	if a.Exit == nil || *a.Exit != ExitCannot || a.Reason == nil || !strings.Contains(*a.Reason, "status 400: no") {
		t.Errorf("exit %v, reason %v", a.Exit, a.Reason)
	}
	want(t, l.assess(), "WARM", CleanBounded, 17, "")

	// one refusal among restores that worked changes nothing
	l = newLab(t, 40, 40)
	l.write()
	l.step("RST", probes.StepFact{Step: "restore", Done: true, Proved: ptr(false), Seen: "restore of slot 9: status 400: no"})
	want(t, l.assess(), "RST", CleanBounded, 17, "")
	// and a restore that worked refuses nothing
	l.reply["RST"] = func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, 0) }
	l.write()
	l.step("RST", probes.StepFact{Step: "restore", Done: true})
	want(t, l.assess(), "RST", NotExercised, 13, ReuseLost)
}

// Numbers of an arm that is documented as inexact are shown, and neither accuse nor absolve
// it; a wrong answer is one all the same.
func TestInexactReuse(t *testing.T) {
	moved := func(r *probes.Reply, _ int) {
		r.Tokens = slices.Clone(r.Tokens)
		r.Tokens[0].Logprob = ptr(*r.Tokens[0].Logprob - 0.3)
	}
	for _, c := range []struct {
		inexact string
		bend    func(*probes.Reply, int)
		word    string
		row     int
		sub     string
	}{
		{"", nil, CleanBounded, 17, ""},
		{"", moved, SuspectUnconfirmed, 10, ""},
		{"keys are moved", nil, InconclusiveUnknown, 15, "inexact"},
		{"keys are moved", moved, InconclusiveUnknown, 15, "inexact"},
		{"keys are moved", wrong(20), CorruptionAttributed, 7, ""},
	} {
		l := newLab(t, 40, 40)
		l.spec("WARM").Inexact = c.inexact
		if c.bend != nil {
			l.reply["WARM"] = c.bend
		}
		l.write()
		a := want(t, l.assess(), "WARM", c.word, c.row, c.sub)
		if c.inexact == "" {
			continue
		}
		if a.Columns["B"] != "-" || a.Columns["D"] != "-" || a.D0Max == nil {
			t.Errorf("columns %v, d0 %v", a.Columns, a.D0Max)
		}
		if !slices.ContainsFunc(a.Warnings, func(w string) bool { return strings.Contains(w, c.inexact) }) {
			t.Errorf("nothing says what is inexact: %q", a.Warnings)
		}
	}
}

// Where slots are the ranks, the reply names the one that served.
func TestSlotsAsRanks(t *testing.T) {
	served := func(slot func(i int) int) Result {
		l := newLab(t, 40, 40)
		for _, a := range []string{"C1", "WARM"} {
			l.reply[a] = func(r *probes.Reply, i int) { r.RankAsked, r.Slot = ptr(i%4), ptr(slot(i)) }
		}
		l.write()
		return l.assess()
	}
	a := want(t, served(func(i int) int { return i % 4 }), "WARM", CleanBounded, 17, "")
	if a.Ranks == nil || a.Ranks.Asked != 40 || a.Ranks.Proven != 40 {
		t.Errorf("%+v", a.Ranks)
	}
	a = want(t, served(func(i int) int { return i % 2 }), "WARM", InvalidPrereg, 1, "")
	if a.Ranks == nil || a.Ranks.Proven != 20 || a.Reason == nil || !strings.Contains(*a.Reason, "asked for rank 2 and another one served it") {
		t.Errorf("%+v, %v", a.Ranks, a.Reason)
	}
}

// A slot that the prompt itself names is held against the one that served it.
func TestSlotOfThePrompt(t *testing.T) {
	l := newLab(t, 40, 40)
	for i := range l.set.Prompts {
		l.set.Prompts[i].Slot = ptr(i)
	}
	l.reply["WARM"] = func(r *probes.Reply, i int) { r.Slot = ptr(i % 32) }
	l.reply["RST"] = func(r *probes.Reply, i int) { r.Slot = ptr(i) }
	l.write()
	a := want(t, l.assess(), "WARM", InvalidPrereg, 1, "")
	if a.Reason == nil || *a.Reason != "request p32 asked for slot 32 and slot 0 served it" {
		t.Errorf("%v", a.Reason)
	}
	want(t, l.assess(), "RST", CleanBounded, 17, "")
}

// llama-server names a reply after the file that it serves: a schedule that launches another
// model changes the name from one process to the next, and no process may change it.
func TestScheduleWithAnotherModel(t *testing.T) {
	name := func(diff, first, later string) Result {
		l := newLab(t, 40, 40)
		l.set.Dialect = "llamacpp"
		if diff != "" {
			l.spec("RST").ScheduleDiff = []string{diff}
		}
		l.reply["RST"] = func(r *probes.Reply, i int) {
			if r.Model = first; i >= 20 {
				r.Model = later
			}
		}
		l.write()
		if diff != "" { // the second half comes from a second process
			n := 0
			for i := range l.recs {
				if l.recs[i].Arm == "RST" && l.recs[i].Reply != nil {
					if n++; n > 20 && !strings.Contains(diff, "same process") {
						l.recs[i].Incarnation += ".2"
					}
				}
			}
		}
		return l.assess()
	}
	want(t, name("launch model=other.gguf", "other.gguf", "m.gguf"), "RST", CleanBounded, 17, "")
	want(t, name("launch ctx=512", "other.gguf", "m.gguf"), "RST", InvalidPrereg, 1, "")
	want(t, name("launch same process model=other.gguf", "other.gguf", "m.gguf"), "RST", InvalidPrereg, 1, "")
}
