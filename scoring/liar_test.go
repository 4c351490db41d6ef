package scoring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

// refuse makes a reply one without an answer.
func refuse(r *probes.Reply, status int, kind, what string) {
	r.Status, r.ErrorKind, r.Error, r.Raw = status, kind, what, what
	r.Text, r.Finish, r.Tokens, r.Usage = "", "", nil, probes.Usage{}
}

// fails is the detector of answers that count as nothing: it fires on any reply without text.
type fails struct{}

func (fails) Name() string { return "empty" }
func (fails) Inspect(r *probes.Reply, _ prompts.Expectation) Finding {
	return Finding{Fired: r.Text == ""}
}
func (fails) Specimen() (*probes.Reply, prompts.Expectation) {
	return &probes.Reply{}, prompts.Expectation{}
}

func (l *lab) assessWith(ds ...Detector) Result { return Assess(l.input(), l.recs, ds) }

// said checks that an arm's reason, or a warning where it has none of the kind, says so, and
// that neither repeats the arm's name.
func said(t *testing.T, a ArmResult, parts ...string) {
	t.Helper()
	texts := slices.Clone(a.Warnings)
	if a.Reason != nil {
		texts = append(texts, *a.Reason)
	}
	for _, part := range parts {
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, part) }) {
			t.Errorf("%s: nothing says %q: %q", a.Name, part, texts)
		}
	}
	for _, s := range texts {
		if strings.HasPrefix(s, a.Name+":") {
			t.Errorf("%s: its name is repeated: %q", a.Name, s)
		}
	}
}

// A server that only refuses has computed nothing wrong.
func TestRefusalsAccuseNobody(t *testing.T) {
	for name, c := range map[string]struct {
		every  int
		bend   func(*probes.Reply)
		reason string
	}{
		"every one 500":   {1, func(r *probes.Reply) { refuse(r, 500, "http", "HTTP 500: internal") }, "request p00 (pass 1) was not answered and the engine lived: http, HTTP 500: internal, status 500 (and 39 more)"},
		"every fifth 500": {5, func(r *probes.Reply) { refuse(r, 500, "http", "HTTP 500: internal") }, "request p04 (pass 1) was not answered"},
		"502":             {5, func(r *probes.Reply) { refuse(r, 502, "http", "HTTP 502: gateway") }, "HTTP 502"},
		"abort": {6, func(r *probes.Reply) {
			r.Text, r.Tokens, r.Finish = "", nil, "abort"
		}, `request p05 (pass 1) was not answered and the engine lived: the engine ended it before any token: finish reason "abort" (and 5 more)`},
		"error": {6, func(r *probes.Reply) { r.Text, r.Tokens, r.Finish = "", nil, "error" }, `finish reason "error"`},
		"two choices": {6, func(r *probes.Reply) {
			refuse(r, 200, "decode", "the reply has more than one choice (index 1)")
		}, "more than one choice"},
	} {
		l := newLab(t, 40, 40)
		for _, arm := range []string{"WARM", "RST"} {
			l.reply[arm] = func(r *probes.Reply, i int) {
				if (i+1)%c.every == 0 {
					c.bend(r)
				}
			}
		}
		l.write("store")
		r := l.assessWith(oneBug{}, fails{})
		for _, arm := range []string{"WARM", "RST"} {
			a := want(t, r, arm, HarnessError, 3, "")
			if a.Columns["F"] == "y" || a.Failed != 0 {
				t.Errorf("%s, %s: F is %s with %d failed", name, arm, a.Columns["F"], a.Failed)
			}
			if a.Reason == nil || !strings.Contains(*a.Reason, c.reason) {
				t.Errorf("%s: reason %v", name, *a.Reason)
			}
			said(t, a)
		}
		want(t, r, "C1", CleanBounded, 17, "")
	}
}

// A control that refuses is no control, and its name is said once.
func TestControlThatRefuses(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C0"] = func(r *probes.Reply, i int) { refuse(r, 500, "http", "HTTP 500: internal") }
	l.write()
	a := want(t, l.assess(), "C1", HarnessError, 3, "")
	said(t, a, "control C0: request p00 (pass 1) was not answered")
}

// A refusal of a server that died is a part of its death.
func TestRefusalBeforeADeath(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["RST"] = func(r *probes.Reply, i int) {
		if i == 4 {
			refuse(r, 500, "http", "HTTP 500: EngineDeadError")
		}
	}
	l.stop["RST"] = 5
	l.write()
	want(t, l.assessWith(oneBug{}, fails{}), "RST", EngineDied, 2, "DIED")
}

// An engine that cannot write its own numbers has computed something wrong.
func TestOutOfRangeFloatsStayEvidence(t *testing.T) {
	for _, what := range []string{"Out of range float values are not JSON compliant", "logits hold NaN", "non-finite value in logprobs"} {
		l := newLab(t, 40, 40)
		l.reply["WARM"] = func(r *probes.Reply, i int) {
			if i < 20 {
				refuse(r, 500, "http", "HTTP 500: "+what)
			}
		}
		l.write()
		a := want(t, l.assessWith(oneBug{}, fails{}), "WARM", CorruptionAttributed, 7, "")
		if a.Failed != 20 {
			t.Errorf("%s: %d failed", what, a.Failed)
		}
	}
	for _, what := range []string{"internal error in finance module", "infer timeout"} {
		if SpeaksOfNonFinite(&probes.Reply{Status: 500, Raw: what}) {
			t.Errorf("%q speaks of numbers", what)
		}
	}
}

// Somebody else's rows are judged as far as they go, and what is missing is said.
func TestRefusalsInImportedRows(t *testing.T) {
	l := newLab(t, 40, 40)
	l.design.Imported = true
	l.reply["RST"] = func(r *probes.Reply, i int) {
		if i >= 20 {
			refuse(r, 500, "http", "HTTP 500: internal")
		}
	}
	l.write()
	a := arm(t, l.assessWith(oneBug{}, fails{}), "RST")
	if a.Columns["F"] != "n" || a.Failed != 0 || *a.Exit == ExitCorrupt {
		t.Errorf("%v", a.Columns)
	}
	said(t, a, "20 requests were not answered and are not judged, first p20")
}

// What the harness wrote down under the arm's name does not say it again.
func TestHarnessFailureNamesTheArmOnce(t *testing.T) {
	l := newLab(t, 40, 40)
	l.write()
	l.after("C1", probes.FactHarness, probes.HarnessFact{What: "arm C1: the server lists no models"})
	a := want(t, l.assess(), "C1", HarnessError, 3, "")
	if *a.Reason != "the server lists no models" {
		t.Error(*a.Reason)
	}
}

func (l *lab) named(model string) {
	ps := slices.Clone(l.set.Prompts)
	for i := range ps {
		ps[i].Body = fmt.Sprintf(`{"model":%q}`, model)
	}
	set, err := prompts.Freeze(l.set.Header, ps)
	if err != nil {
		l.t.Fatal(err)
	}
	l.set = set
}

func TestReplyOfAnotherModel(t *testing.T) {
	run := func(dialect, asked string, by func(i int) string) Result {
		l := newLab(t, 40, 40)
		l.set.Dialect = dialect
		if asked != "" {
			l.named(asked)
		}
		l.reply["RST"] = func(r *probes.Reply, i int) { r.Model = by(i) }
		l.write()
		return l.assess()
	}
	late := func(i int) string {
		if i >= 7 {
			return "other"
		}
		return "m"
	}
	a := want(t, run("vllm", "m", late), "RST", InvalidPrereg, 1, "")
	said(t, a, `request p07 (pass 1) asks for model "m" and "other" answered`)
	a = want(t, run("vllm", "", late), "RST", InvalidPrereg, 1, "")
	said(t, a, `request p07 (pass 1) was answered by model "other", the ones before it by "m"`)
	always := func(int) string { return "/models/m.gguf" }
	want(t, run("vllm", "m", always), "RST", InvalidPrereg, 1, "")
	want(t, run("llamacpp", "m", always), "RST", CleanBounded, 17, "") // it names its file, whatever is asked
	want(t, run("llamacpp", "m", late), "RST", InvalidPrereg, 1, "")
	want(t, run("vllm", "m", func(int) string { return "m" }), "RST", CleanBounded, 17, "")
	want(t, run("vllm", "m", func(int) string { return "" }), "RST", CleanBounded, 17, "")
}

func TestServerThatSawOtherTokens(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["RST"] = func(r *probes.Reply, _ int) { r.Usage.Prompt = ptr(*r.Usage.Prompt + 1) }
	l.write()
	r := l.assess()
	said(t, want(t, r, "RST", InvalidPrereg, 1, ""), "the server saw other tokens in all 40 requests: request p00 has 130 prompt tokens and the reply counts 131")
	want(t, r, "WARM", CleanBounded, 17, "")

	l.reply["RST"] = func(r *probes.Reply, i int) {
		if i == 3 {
			r.Usage.Prompt = ptr(12)
		}
	}
	l.write()
	unbelieved(t, l.assess(), "RST", "request p03 has 133 prompt tokens and the reply counts 12", "p03")
}

// unbelieved wants an arm that neither accuses nor clears on the word of its counters.
func unbelieved(t *testing.T, r Result, name, what string, flagged ...string) {
	t.Helper()
	a := want(t, r, name, NotExercised, 13, Unproven)
	if a.CountersTrusted == nil || *a.CountersTrusted || a.Columns["X"] != "-" || a.Columns["E"] != "-" || a.LocalTokens != nil || a.ExternalTokens != nil {
		t.Errorf("%s: trusted %v columns %v local %v external %v", name, a.CountersTrusted, a.Columns, a.LocalTokens, a.ExternalTokens)
	}
	for _, id := range flagged {
		if !slices.Contains(a.FlaggedIDs, id) {
			t.Errorf("%s: %s is not flagged: %v", name, id, a.FlaggedIDs)
		}
	}
	said(t, a, what)
}

func TestCachedTokensAgainstTheCounters(t *testing.T) {
	run := func(cached, local, external int) Result {
		l := newLab(t, 40, 40)
		l.reply["RST"] = func(r *probes.Reply, i int) {
			rise(r, probes.LocalHits, float64(local))
			rise(r, probes.ExternalHits, float64(external))
			if i == 5 {
				r.Usage.Cached = &cached
			}
		}
		l.write()
		return l.assess()
	}
	want(t, run(64, 0, 64), "RST", CleanBounded, 17, "")
	want(t, run(63, 0, 64), "RST", CleanBounded, 17, "") // the last token is computed after all
	unbelieved(t, run(0, 0, 64), "RST", "the reply to p05 counts 0 cached tokens, the counters 0 local and 64 external ones", "p05")
	unbelieved(t, run(64, 64, 64), "RST", "the counters 64 local and 64 external ones", "p05")
	unbelieved(t, run(500, 0, 64), "RST", "the reply to p05 counts 500 cached tokens of a prompt of 135", "p05")
}

// A preemption makes the engine ask and count again.
func TestPreemptedRequestsContradictNothing(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["RST"] = func(r *probes.Reply, i int) {
		if i == 5 {
			r.Usage.Cached = ptr(3)
			r.Counters = append(r.Counters, probes.Counter{Role: probes.Preemptions, Series: "p", Before: ptr(0.0), After: ptr(1.0)})
		}
	}
	l.write()
	want(t, l.assess(), "RST", CleanBounded, 17, "")
}

func TestImpossibleHits(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1"] = func(r *probes.Reply, i int) {
		if r.Pass == 2 {
			rise(r, probes.LocalHits, 2336)
		}
	}
	l.write()
	unbelieved(t, l.assess(), "C1", "request p00: local_hits rose by 2336 and local_queries by 130", "p00", "p39")

	l = newLab(t, 40, 40) // more than the prompt, and no counter of queries
	l.reply["RST"] = func(r *probes.Reply, i int) {
		rise(r, probes.ExternalHits, 4000)
		without(probes.ExternalQueries)(r, i)
	}
	l.write()
	unbelieved(t, l.assess(), "RST", "request p00: external_hits rose by 4000 for a prompt of 130 tokens", "p00")

	l = newLab(t, 40, 40) // known for the pass only
	l.mute["C1"] = true
	l.write()
	l.sampled("C1", 2, map[string]float64{probes.LocalHits: 93440, probes.LocalQueries: 10800})
	unbelieved(t, l.assess(), "C1", "pass 2: local_hits rose by 93440 and local_queries by 10800")
}

// A failing arm is still accused where its counters lie, and the path is not named on their
// word.
func TestLyingCountersProveNoPath(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["RST"] = func(r *probes.Reply, i int) {
		wrong(20)(r, i)
		rise(r, probes.ExternalHits, 4000)
	}
	l.write()
	l.sampled("RST", 1, map[string]float64{probes.ExternalHits: 0}) // nor is it ruled out on their word
	a := want(t, l.assess(), "RST", CorruptionAttributed, 8, "")
	if a.Columns["E"] != "-" || *a.Path != "unproven" {
		t.Errorf("E %s path %s", a.Columns["E"], *a.Path)
	}
}

// What a store holds is seen in the store: counters that lie take nothing from it, and no hit
// is asked of them.
func TestStoreThatIsSeenWithoutCounters(t *testing.T) {
	l := newLab(t, 40, 40)
	for id := range l.spec("COLD").Expected {
		l.spec("COLD").Expected[id] = Reuse{Local: 16}
	}
	l.reply["COLD"] = func(r *probes.Reply, i int) {
		rise(r, probes.LocalHits, 16)
		if i == 3 {
			rise(r, probes.LocalHits, 4000)
		}
	}
	l.write()
	a := arm(t, l.assess(), "COLD")
	if a.Columns["X"] != "y" || a.CountersTrusted == nil || *a.CountersTrusted || !slices.Contains(a.FlaggedIDs, "p03") {
		t.Errorf("X %s trusted %v flagged %v %q", a.Columns["X"], a.CountersTrusted, a.FlaggedIDs, a.Warnings)
	}
	said(t, a, "the counters are not trusted: request p03")
}

// Counters that are no counts give nothing, and what stands in for them is named.
func TestUnreadableCounters(t *testing.T) {
	for name, bend := range map[string]func(*probes.Counter){
		"NaN":      func(c *probes.Counter) { c.Before, c.After = nil, nil },
		"negative": func(c *probes.Counter) { c.Before, c.After = ptr(-100.0), ptr(-36.0) },
		"fell":     func(c *probes.Counter) { c.After = ptr(3.0) },
	} {
		run := func(arm, role, cachedIs string, cached *int) ArmResult {
			l := newLab(t, 40, 40)
			l.spec(arm).CachedIs = cachedIs
			l.reply[arm] = func(r *probes.Reply, i int) {
				if r.Pass == l.spec(arm).Judge {
					r.Usage.Cached = cached
				}
				for k := range r.Counters {
					if r.Counters[k].Role == role {
						bend(&r.Counters[k])
					}
				}
			}
			l.write()
			return find(t, l.assess(), arm)
		}
		a := run("C1", probes.LocalHits, "", nil)
		if a.Columns["X"] != "-" || *a.Sub != Unproven {
			t.Errorf("%s: X %s %s", name, a.Columns["X"], *a.Sub)
		}
		said(t, a, "counter local_hits (local_hits) is no count, or fell, in 40 of 40 requests, first in p00: nothing stands in for it")

		a = run("C1", probes.LocalHits, "local", ptr(labReuse)) // one cache: cached tokens are its own
		if a.Columns["X"] != "y" {
			t.Errorf("%s: X %s %q", name, a.Columns["X"], a.Warnings)
		}
		said(t, a, "counter local_hits (local_hits) is no count, or fell, in 40 of 40 requests, first in p00: the split is from cached tokens, taken as local")

		for _, is := range []string{"external", "local"} { // two sources: cached tokens do not tell them apart
			l := newLab(t, 40, 40)
			l.spec("RST").CachedIs = is
			l.reply["RST"] = func(r *probes.Reply, i int) {
				r.Usage.Cached = ptr(labReuse)
				for k := range r.Counters {
					switch r.Counters[k].Role {
					case probes.LocalHits, probes.ExternalHits:
						bend(&r.Counters[k])
					}
				}
			}
			l.write()
			a = want(t, l.assess(), "RST", NotExercised, 13, Unproven)
			said(t, a, "counter external_hits (external_hits) is no count", "nothing stands in for it")
		}
		a = run("RST", probes.LocalHits, "external", ptr(labReuse)) // the store's own counter tells
		if a.Columns["X"] != "y" {
			t.Errorf("%s: X %s %q", name, a.Columns["X"], a.Warnings)
		}
	}
}

var find = arm

// Totals of samples that hold no counts are no totals.
func TestTotalsOfNoCounts(t *testing.T) {
	sample := func(phase string, v probes.Value) *probes.Sample {
		v.Role, v.Series = probes.LocalHits, "h"
		return &probes.Sample{Phase: phase, Pass: 1, Values: []probes.Value{v}}
	}
	total := func(before, after probes.Value) *float64 {
		return (&armRun{samples: []*probes.Sample{sample("before", before), sample("after", after)}}).total(probes.LocalHits, 1)
	}
	if v := total(probes.Value{Value: 3}, probes.Value{Value: 8}); v == nil || *v != 5 {
		t.Errorf("%v", v)
	}
	for _, bad := range []probes.Value{{Bad: "NaN"}, {Value: -4}} {
		if total(bad, probes.Value{Value: 8}) != nil || total(probes.Value{}, bad) != nil {
			t.Errorf("%+v gives a total", bad)
		}
	}
}

// began gives an arm a sample with the start time of its process.
func (l *lab) began(arm string, incarnation string, start float64) {
	l.emit(probes.Record{Kind: probes.KindSample, Arm: arm, Chain: l.spec(arm).Chain, Attempt: l.attempt(0, l.spec(arm).Chain), Incarnation: incarnation,
		Sample: &probes.Sample{Phase: "before", Pass: 1, Values: []probes.Value{{Role: probes.ProcessStart, Series: "process_start_time_seconds", Value: start}}}})
}

func TestProcessStartThatChanges(t *testing.T) {
	run := func(cold, warm, rst float64) Result {
		l := newLab(t, 40, 40)
		for arm, v := range map[string]float64{"COLD": cold, "WARM": warm, "RST": rst} {
			l.fact[arm] = func(n string, value any) any {
				if n == probes.FactIncarnation {
					l.began(arm, l.spec(arm).Process+"/0", v)
				}
				return value
			}
		}
		l.write()
		return l.assess()
	}
	r := run(100, 100, 1) // RST is another process, and what it says is wrong and does not change
	for _, name := range []string{"COLD", "WARM", "RST"} {
		want(t, r, name, CleanBounded, 17, "")
	}
	r = run(100, 160.5, 1)
	said(t, want(t, r, "WARM", EngineDied, 2, "RESTARTED"), "the process start time that the engine exports went from 100 to 160.5")
	want(t, r, "RST", CleanBounded, 17, "")

	l := newLab(t, 40, 40) // seen by the counters of one request
	l.reply["RST"] = func(r *probes.Reply, i int) {
		after := 100.0
		if i >= 9 {
			after = 200
		}
		r.Counters = append(r.Counters, probes.Counter{Role: probes.ProcessStart, Series: "s", Before: ptr(100.0), After: &after})
	}
	l.write()
	said(t, want(t, l.assess(), "RST", EngineDied, 2, "RESTARTED"), "(request p09 pass 1)")
}

func TestServerThatStatesAnotherName(t *testing.T) {
	run := func(change func(*probes.IdentityFact)) Result {
		l := newLab(t, 40, 40)
		l.fact["RST"] = func(_ string, v any) any {
			if f, ok := v.(probes.IdentityFact); ok {
				f.Model, f.Version = "m", "1.0"
				if f.Phase == "after" {
					change(&f)
				}
				return f
			}
			return v
		}
		l.write()
		return l.assess()
	}
	want(t, run(func(*probes.IdentityFact) {}), "RST", CleanBounded, 17, "")
	want(t, run(func(f *probes.IdentityFact) { f.Version = "" }), "RST", CleanBounded, 17, "") // not stated is not changed
	said(t, want(t, run(func(f *probes.IdentityFact) { f.Version = "1.1" }), "RST", EngineDied, 2, "RESTARTED"), `version that the server states went from "1.0" to "1.1"`)
	said(t, want(t, run(func(f *probes.IdentityFact) { f.Model = "n" }), "RST", EngineDied, 2, "RESTARTED"), `model that the server states went from "m" to "n"`)
}

// What an attached server computes on is not known to be what a launched one does.
func TestBitsOfTwoMachines(t *testing.T) {
	run := func(names ...string) Result {
		l := newLab(t, 40, 40)
		for _, n := range names {
			l.spec(n).Attached = true
		}
		l.reply["WARM"] = oneBit
		l.write("store")
		return l.assess()
	}
	const warning = "bits not judged: arm and reference were not launched alike"
	for _, names := range [][]string{{"COLD", "WARM", "RST"}, {"C0", "C0-b", "C0-split", "C1", "C1-b", "C1-c"}} {
		a := arm(t, run(names...), "WARM")
		if a.Columns["B"] != "-" || *a.Exit == ExitCorrupt {
			t.Errorf("%v: B %s %s", names, a.Columns["B"], *a.Verdict)
		}
		said(t, a, warning)
	}
	a := want(t, run("C0", "C0-b", "C0-split", "C1", "C1-b", "C1-c", "COLD", "WARM", "RST"), "WARM", CorruptionAttributed, 9, "")
	if slices.Contains(a.Warnings, warning) {
		t.Error(a.Warnings)
	}
}

// A corruption without a wrong answer says what it is.
func TestUnequalBitsInWords(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i < 8 {
			r.Tokens = slices.Clone(r.Tokens)
			r.Tokens[1].Logprob = ptr(-0.002 - 0.25*float64(i+1))
		}
	}
	l.write("store")
	a := want(t, l.assess(), "WARM", CorruptionAttributed, 9, "")
	const reason = "no answer is wrong, but 8 of 40 comparable requests differ bitwise from reference C1 in the registered run and 8 of 40 in the replicate, " +
		"where control passes do not differ in a bit; largest |Δ logprob| 2 (before any token differs); they are p00, p01, p02, p03, p04 and 3 more"
	if a.Reason == nil || *a.Reason != reason {
		t.Errorf("%v", *a.Reason)
	}
}
