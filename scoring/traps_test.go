package scoring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

// Ten of forty requests carried by the path, as geometry expects: that is too few to say
// that the path was exercised.
func TestTooFewTookThePath(t *testing.T) {
	l := newLab(t, 40, 40)
	few := func(r *probes.Reply, i int) {
		if i >= 10 {
			rise(r, probes.ExternalHits, 0)
		}
	}
	l.reply["WARM"] = few
	for i := range l.set.Prompts {
		if i >= 10 {
			l.spec("WARM").Expected[l.set.Prompts[i].ID] = Reuse{}
		}
	}
	l.write()
	a := want(t, l.assess(), "WARM", NotExercised, 13, Trivial)
	if !strings.Contains(*a.Reason, "only 10 requests") {
		t.Error(*a.Reason)
	}
}

func TestCounterThatStandsStillIsNotTrusted(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1"] = func(r *probes.Reply, _ int) { rise(r, probes.LocalQueries, 0) }
	l.write()
	a := want(t, l.assess(), "C1", NotExercised, 13, Unproven)
	if a.CountersTrusted == nil || *a.CountersTrusted {
		t.Errorf("trusted %v", a.CountersTrusted)
	}
}

// A labelled series that is absent until its first use, and one that fell with a restart,
// give no number at all.
func TestAbsentSeriesIsNotZero(t *testing.T) {
	bend := func(change func(*probes.Counter)) ArmResult {
		l := newLab(t, 40, 40)
		l.reply["WARM"] = func(r *probes.Reply, _ int) {
			for i := range r.Counters {
				if r.Counters[i].Role == probes.ExternalHits {
					change(&r.Counters[i])
				}
			}
		}
		l.write()
		return want(t, l.assess(), "WARM", NotExercised, 13, Unproven)
	}
	for _, a := range []ArmResult{
		bend(func(c *probes.Counter) { c.Before = nil }),
		bend(func(c *probes.Counter) { c.After = nil }),
		bend(func(c *probes.Counter) { c.After = ptr(3.0) }),
	} {
		if a.ExternalTokens != nil || a.ComputedTokens != nil || a.Outcomes[0].External != nil {
			t.Errorf("external %v computed %v", a.ExternalTokens, a.ComputedTokens)
		}
	}
}

func TestRanksAreSummedAndProven(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		r.RankAsked = ptr(i % 2)
		var out []probes.Counter
		for _, c := range r.Counters {
			for rank := range 2 {
				each := c
				each.Rank = string(rune('0' + rank))
				if served := i%2 == rank || i == 7; !served { // request 7 was served by both
					each.After = each.Before
				} else if i == 7 {
					each.After = ptr(*c.Before + (*c.After-*c.Before)/2)
				}
				out = append(out, each)
			}
		}
		r.Counters = out
	}
	l.write()
	a := arm(t, l.assess(), "WARM")
	if a.Ranks == nil || a.Ranks.Asked != 40 || a.Ranks.Proven != 39 || *a.ExternalTokens != 40*labReuse {
		t.Errorf("ranks %v external %d", a.Ranks, *a.ExternalTokens)
	}
}

// Where no counter splits the tokens, the reply's own figure does, and the arm says so.
func TestSplitFromTheReply(t *testing.T) {
	s := &ArmSpec{Preset: "C1", CachedIs: "local"}
	p := &prompts.Prompt{Tokens: make([]int, 100)}
	r := &probes.Reply{Decoded: probes.Decoded{Usage: probes.Usage{Cached: ptr(64), Computed: ptr(30)}}}
	got := splitOf(s, p, r)
	if *got.local != 64 || *got.external != 0 || *got.computed != 30 || *got.unaccounted != 6 || got.weaker == "" {
		t.Errorf("%+v", got)
	}
	s = &ArmSpec{Preset: "RST", CachedIs: "external"}
	got = splitOf(s, p, r)
	if got.local != nil || *got.external != 64 || got.unaccounted != nil {
		t.Errorf("%+v", got)
	}
	s = &ArmSpec{Preset: "COLD", Connector: true} // what the figure means is not known
	got = splitOf(s, p, r)
	if got.local != nil || got.external != nil || *got.computed != 30 {
		t.Errorf("%+v", got)
	}
	r.Usage.Computed = nil
	r.Counters = []probes.Counter{{Role: probes.LocalHits, Before: ptr(0.0), After: ptr(16.0)}}
	got = splitOf(s, p, r)
	if *got.local != 16 || *got.external != 48 || *got.computed != 36 || *got.unaccounted != 0 {
		t.Errorf("%+v", got)
	}
}

// A store is counted once it stands still: a COLD arm that ends while chunks are on their
// way has lost none.
func TestStoreThatIsStillBeingWritten(t *testing.T) {
	run := func(proved *bool, atEnd, atRest int) Result {
		l := newLab(t, 40, 40)
		l.fact["COLD"] = func(_ string, v any) any {
			if f, ok := v.(probes.StoreFact); ok && f.When == "end" {
				f.Chunks = &atEnd
				return f
			}
			return v
		}
		l.fact["WARM"] = func(name string, v any) any {
			if f, ok := v.(probes.StoreFact); ok && f.When == "start" {
				f.Chunks = &atRest
				return f
			}
			if f, ok := v.(probes.StepFact); ok && name == probes.FactDrain {
				f.Proved = proved
				return f
			}
			return v
		}
		l.write()
		return l.assess()
	}
	a := want(t, run(ptr(true), 50, 120), "COLD", CleanBounded, 17, "")
	if len(a.Invariants) != 1 || !*a.Invariants[0].Held {
		t.Errorf("%v", a.Invariants)
	}
	want(t, run(ptr(true), 50, 79), "COLD", CorruptionAttributed, 4, "")
	for _, proved := range []*bool{nil, ptr(false)} {
		a := want(t, run(proved, 50, 50), "COLD", CleanBounded, 17, "")
		if len(a.Invariants) != 0 {
			t.Errorf("%v", a.Invariants)
		}
	}
}

// An arm whose process was launched in another arm of its chain runs under the pins that
// were read there.
func TestPinsOfTheProcessHold(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["COLD"] = func(_ string, v any) any {
		if f, ok := v.(probes.PinsFact); ok {
			f.Read[0].Agrees = ptr(false)
			return f
		}
		return v
	}
	l.write()
	r := l.assess()
	want(t, r, "WARM", InvalidPrereg, 1, "")
	want(t, r, "RST", CleanBounded, 17, "")
}

// Something that could not be read is an error in the fact and no number.
func TestFactWithAnErrorIsNoNumber(t *testing.T) {
	l := newLab(t, 40, 40)
	l.fact["COLD"] = func(_ string, v any) any {
		if f, ok := v.(probes.StoreFact); ok && f.When == "start" {
			l.emit(probes.Record{Kind: probes.KindFact, Arm: "COLD", Chain: "store", Attempt: "store-0", Fact: &probes.Fact{Name: probes.FactStore, Error: "permission denied"}})
			return nil
		}
		return v
	}
	l.write()
	r := l.assess()
	want(t, r, "COLD", NotExercised, 13, Unproven)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "permission denied") {
		t.Errorf("%q", r.Warnings)
	}
}

func TestReplicateUnderOtherPinsIsNone(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = oneBit
	n := 0
	l.fact["COLD"] = func(_ string, v any) any {
		if f, ok := v.(probes.PinsFact); ok {
			if n++; n == 2 {
				f.Read[0].Agrees = ptr(false)
			}
			return f
		}
		return v
	}
	l.write("store")
	r := l.assess()
	want(t, r, "WARM", SuspectUnconfirmed, 10, "")
	if !slices.Contains(Suspects(r), "WARM") {
		t.Error("a climb under other pins counts as the replicate")
	}
}

func TestSuspectsWaitForEveryRegisteredReplicate(t *testing.T) {
	check := func(registered int, want bool, runs ...string) {
		t.Helper()
		l := newLab(t, 40, 40)
		l.design.Rule.Replicates = registered
		l.reply["WARM"] = wrong(1)
		l.texts()
		l.write(runs...)
		if got := slices.Contains(Suspects(l.assess()), "WARM"); got != want {
			t.Errorf("%d registered, %d run: waits %v", registered, len(runs), got)
		}
	}
	check(0, false)
	check(1, true)
	check(1, false, "store")
	check(2, true, "store")
	check(2, false, "store", "store")
}

// A replicate is paired with a control pass that was not used before.
func TestReplicateTakesAFreshControl(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = oneBit
	l.write("store")
	s := &scorer{in: l.input(), pairCache: map[pairKey][]*pair{}, judged: map[string]*judgement{}}
	s.t = gather(&l.design, l.set, l.recs)
	j := &judgement{spec: l.spec("WARM")}
	if a, pass := s.freshControl(j, 1); a.spec.Name != "C1-b" || pass != 2 {
		t.Errorf("%s pass %d", a.spec.Name, pass)
	}
	if a, _ := s.freshControl(j, 2); a.spec.Name != "C1-c" {
		t.Error(a.spec.Name)
	}
	if a, _ := s.freshControl(j, 3); a.spec.Name != "C1" || len(j.warnings) != 1 {
		t.Errorf("%s %q", a.spec.Name, j.warnings)
	}
	l.write("store", "C1") // the reference climbed again in run 2
	s.t = gather(&l.design, l.set, l.recs)
	if a, _ := s.freshControl(j, 2); a.spec.Name != "C1" || a.run != 2 {
		t.Errorf("%s run %d", a.spec.Name, a.run)
	}
}

// First tokens that the arm's top-k does not show are bounded by the last one it does, and
// what vLLM clamps to -9999 is no number.
func TestCensoredFirstTokens(t *testing.T) {
	tok := func(id int, lp float64, top ...probes.Candidate) probes.Token {
		return probes.Token{ID: id, Logprob: &lp, Top: top}
	}
	cand := func(id int, lp float64) probes.Candidate { return probes.Candidate{ID: id, Logprob: &lp} }
	check := func(a, r probes.Token, want *float64, censored bool) {
		t.Helper()
		got, c := firstToken(a, r)
		if (got == nil) != (want == nil) || got != nil && *got != *want || c != censored {
			t.Errorf("%v %v, want %v %v", got, c, want, censored)
		}
	}
	check(tok(1, -0.5), tok(1, -0.25), ptr(0.25), false)
	check(tok(2, -0.5, cand(2, -0.5), cand(1, -2)), tok(1, -0.25), ptr(1.75), false)
	check(tok(2, -0.5, cand(2, -0.5), cand(3, -4)), tok(1, -0.25), ptr(3.75), true)
	check(tok(2, -0.5), tok(1, -0.25), ptr(0.25), true)                                             // only chosen tokens have logprobs
	check(tok(2, -0.5, cand(2, -0.5), cand(3, -4), cand(1, -9999)), tok(1, -0.25), ptr(3.75), true) // clamped: bounded by what is listed before it
	check(tok(2, -0.5, cand(2, -0.5), cand(1, -1e9)), tok(1, -0.25), ptr(0.25), true)
	check(tok(2, -0.5, cand(1, -9999)), tok(1, -0.25), nil, true)
	check(probes.Token{ID: 2, Top: []probes.Candidate{{ID: 2}, {ID: 3}}}, tok(1, -0.25), nil, true) // nothing has a number
	check(tok(1, -9999), tok(1, -0.25), nil, true)
	check(tok(1, -1), probes.Token{ID: 1, NonFinite: true}, nil, true)
}

// A clamped logprob is never averaged, at no position: the pair has a number fewer.
func TestClampedPositionsAreLeftOut(t *testing.T) {
	tok := func(id int, lp float64) probes.Token { return probes.Token{ID: id, Logprob: &lp} }
	row := func(ts ...probes.Token) *row {
		return &row{prompt: &prompts.Prompt{ID: "p"}, reply: &probes.Reply{Decoded: probes.Decoded{Tokens: ts}}}
	}
	p := newPair(row(tok(1, -1), tok(2, -9999), tok(3, -2), probes.Token{ID: 4}), row(tok(1, -1.5), tok(2, -1), tok(3, -2.25), tok(4, -1)), &ArmSpec{}, &ArmSpec{})
	if !p.identical || len(p.prefix) != 2 || p.prefix[0] != 0.5 || p.prefix[1] != 0.25 {
		t.Errorf("identical %v, prefix %v", p.identical, p.prefix)
	}
}

func TestFlipMargin(t *testing.T) {
	lp := func(v float64) *float64 { return &v }
	a := probes.Token{ID: 2, Logprob: lp(-0.5), Top: []probes.Candidate{{ID: 2, Logprob: lp(-0.5)}, {ID: 1, Logprob: lp(-0.75)}}}
	r := probes.Token{ID: 1, Logprob: lp(-0.5), Top: []probes.Candidate{{ID: 1, Logprob: lp(-0.5)}, {ID: 2, Logprob: lp(-1)}}}
	if m := flipMargin(a, r); m == nil || *m != 0.25 { // min(-0.5+1, -0.5+0.75)
		t.Errorf("%v", m)
	}
	a.Top = a.Top[:1]
	if flipMargin(a, r) != nil {
		t.Error("a token that is not visible has a margin")
	}
}

// Scoring is for ladders of any size: ns/record should not grow much with them.
func BenchmarkAssess(b *testing.B) {
	for _, n := range []int{60, 600} {
		b.Run(fmt.Sprintf("%d-requests", n), func(b *testing.B) {
			l := newLab(b, n, n)
			l.write()
			b.ReportAllocs()
			for b.Loop() {
				l.assess()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(l.recs)), "ns/record")
		})
	}
}
