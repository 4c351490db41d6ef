package scoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

// lab writes the transcript of a made-up ladder: C0 and C1 with their further processes,
// and a chain COLD, WARM over one process, RST over another. A healthy engine answers every
// request bit for bit alike; each test bends what it needs to.
type lab struct {
	t      testing.TB
	set    *prompts.Set
	design Design

	reply map[string]func(w *probes.Reply, id int)    // by arm: bend a reply
	fact  map[string]func(name string, value any) any // by arm: bend a fact, nil drops it
	stop  map[string]int                              // by arm: the engine dies after so many requests
	mute  map[string]bool                             // arms without counters
	skip  map[string]bool                             // arms with no record at all
	last  map[string]int                              // by arm: a soak is ended after this pass

	recs []probes.Record
	at   int64
}

const labReuse = 64 // tokens that a repeat takes from a cache

// oneBug is a detector good enough for the tests of this package.
type oneBug struct{}

func (oneBug) Name() string { return "needle" }
func (oneBug) Inspect(r *probes.Reply, e prompts.Expectation) Finding {
	for _, n := range e.Needles {
		if n.Scored && r.ErrorKind == "" && !AnswerRight(n, r.Text) {
			return Finding{Fired: true}
		}
	}
	return Finding{}
}
func (oneBug) Specimen() (*probes.Reply, prompts.Expectation) {
	return &probes.Reply{Decoded: probes.Decoded{Text: "1"}}, prompts.Expectation{Needles: []prompts.Needle{{Answer: "2", Scored: true}}}
}

// blind is a detector that does not see its own specimen, though it would see everything else.
type blind struct{ oneBug }

func (blind) Name() string { return "blind" }
func (blind) Inspect(r *probes.Reply, e prompts.Expectation) Finding {
	return Finding{Fired: len(r.Tokens) > 0}
}

func newLab(t testing.TB, n, classes int) *lab {
	l := &lab{t: t, reply: map[string]func(*probes.Reply, int){}, fact: map[string]func(string, any) any{}, stop: map[string]int{}, mute: map[string]bool{}, skip: map[string]bool{}, last: map[string]int{}}
	var ps []prompts.Prompt
	for i := range n {
		tokens := make([]int, 130+i)
		for k := range tokens {
			tokens[k] = 1000*i + k
		}
		ps = append(ps, prompts.Prompt{ID: fmt.Sprintf("p%02d", i), Role: prompts.Target, Document: fmt.Sprint(i), Tokens: tokens, Body: "{}",
			Class:  prompts.Class{Label: fmt.Sprintf("c%02d", i%classes)},
			Expect: prompts.Expectation{Needles: []prompts.Needle{{Key: "K", Answer: fmt.Sprint(100 + i), Scored: true, Rides: "attention", Offset: -1, End: -1}}}})
	}
	set, err := prompts.Freeze(prompts.Header{Name: "lab", Kind: "needle", Dialect: "vllm", Path: "/v1/completions", Random: true,
		Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64}}, ps)
	if err != nil {
		t.Fatal(err)
	}
	l.set = set
	l.design = Design{Ladder: "lab", Rule: DefaultRule()}
	add := func(a ArmSpec) {
		a.Expected, a.LastChunk = map[string]Reuse{}, map[string]int{}
		for i := range set.Prompts {
			id, length := set.Prompts[i].ID, len(set.Prompts[i].Tokens)
			switch a.Preset {
			case "C1":
				a.Expected[id] = Reuse{Local: labReuse}
			case "WARM", "RST":
				a.Expected[id] = Reuse{External: labReuse}
			default:
				a.Expected[id] = Reuse{}
			}
			a.LastChunk[id] = length - a.Expected[id].Local - a.Expected[id].External
			if a.Split {
				a.LastChunk[id] = 1
			}
		}
		if a.Role == Judged {
			a.Pin = Pin{Name: "connector", Arm: "disk", Reference: "none"}
			if a.Name == "C1" {
				a.Pin = Pin{Name: "prefix-cache", Arm: "on", Reference: "off"}
			}
			a.PinsDiffer = []Pin{a.Pin}
		}
		if a.Process == "" {
			a.Process = a.Name
		}
		if a.Chain == "" {
			a.Chain = a.Name
		}
		if a.Exercise == "" {
			a.Exercise = "none"
		}
		l.design.Arms = append(l.design.Arms, a)
	}
	add(ArmSpec{Name: "C0", Preset: "C0", Role: Control, Passes: 2})
	add(ArmSpec{Name: "C0-b", Preset: "C0", Role: Floor, FloorOf: "C0", Passes: 2})
	add(ArmSpec{Name: "C0-split", Preset: "C0-split", Role: Floor, FloorOf: "C0", Split: true, Passes: 2})
	add(ArmSpec{Name: "C1", Preset: "C1", Role: Judged, Passes: 2, Judge: 2, Reference: "C0", ReferencePass: 2, Path: "local", Exercise: "C1"})
	add(ArmSpec{Name: "C1-b", Preset: "C1", Role: Floor, FloorOf: "C1", Passes: 2})
	add(ArmSpec{Name: "C1-c", Preset: "C1", Role: Floor, FloorOf: "C1", Passes: 2})
	add(ArmSpec{Name: "COLD", Preset: "COLD", Role: Judged, Passes: 1, Judge: 1, Reference: "C1", ReferencePass: 1, Path: "external", Exercise: "COLD", Connector: true, Chain: "store", Process: "s1"})
	add(ArmSpec{Name: "WARM", Preset: "WARM", Role: Judged, Passes: 1, Judge: 1, Reference: "C1", ReferencePass: 2, Path: "external", Exercise: "WARM", Connector: true, Chain: "store", Process: "s1"})
	add(ArmSpec{Name: "RST", Preset: "RST", Role: Judged, Passes: 1, Judge: 1, Reference: "C1", ReferencePass: 2, Path: "external", Exercise: "RST", Connector: true, Chain: "store", Process: "s2"})
	return l
}

// spec of an arm, to be bent before the transcript is written.
func (l *lab) spec(name string) *ArmSpec {
	a, ok := l.design.ByName(name)
	if !ok {
		l.t.Fatalf("no arm %s", name)
	}
	return a
}

func (l *lab) emit(r probes.Record) {
	r.Seq = int64(len(l.recs) + 1)
	r.Time = fmt.Sprintf("2026-01-01T00:00:%06.3fZ", float64(l.at)/1e6)
	l.recs = append(l.recs, r)
}

func (l *lab) tell(r probes.Record, name string, value any) {
	if bend := l.fact[r.Arm]; bend != nil && value != nil {
		if value = bend(name, value); value == nil {
			return
		}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Kind, r.Fact = probes.KindFact, &probes.Fact{Name: name, Value: raw}
	l.emit(r)
}

// climb writes one arm; false when its engine died.
func (l *lab) climb(run int, attempt string, a *ArmSpec) bool {
	base := probes.Record{Run: run, Chain: a.Chain, Attempt: attempt, Arm: a.Name, Incarnation: fmt.Sprintf("%s/%d", a.Process, run)}
	l.tell(base, probes.FactArmStart, struct{}{})
	l.tell(base, probes.FactIncarnation, probes.IncarnationFact{ID: "pid-" + a.Process, URL: "http://x", Start: "t0"})
	yes := true
	if a.Name != "WARM" { // its process was launched in another arm, which read the pins
		l.tell(base, probes.FactPins, probes.PinsFact{Read: []probes.PinRead{{Name: "model", Asked: "m", Read: ptr("m"), Source: "/v1/models", Agrees: &yes}}})
	}
	chunks := 0
	if a.Preset == "WARM" || a.Preset == "RST" || a.Preset == "SOAK" {
		chunks = 3 * len(l.set.Prompts)
	}
	if a.Preset == "WARM" || a.Preset == "SOAK" {
		l.tell(base, probes.FactDrain, probes.StepFact{Step: "drain", Done: true, Proved: ptr(true)})
	}
	if a.Connector {
		l.tell(base, probes.FactStore, probes.StoreFact{When: "start", Chunks: ptr(chunks), Files: ptr(chunks)})
	}
	if a.Preset == "WARM" || a.Preset == "SOAK" {
		l.tell(base, probes.FactReset, probes.StepFact{Step: "reset", Done: true})
	}
	sent := 0
	for pass := 1; pass <= a.Passes; pass++ {
		who := probes.IdentityFact{Phase: "before", Pass: pass, Process: "pid-" + a.Process, Start: "t0", Restarts: ptr(0), Alive: true}
		l.tell(base, probes.FactIdentity, who)
		for i := range l.set.Prompts {
			p := &l.set.Prompts[i]
			if n, dies := l.stop[a.Name]; dies && sent >= n {
				l.tell(base, probes.FactDeath, probes.DeathFact{Sub: "DIED", Seen: "AssertionError", Prompt: p.ID, Pass: pass})
				l.tell(base, probes.FactStopped, probes.StoppedFact{ID: "pid-" + a.Process, Exit: ptr(134)})
				return false
			}
			sent++
			l.at += 1000
			r := l.answer(a, pass, i)
			if bend := l.reply[a.Name]; bend != nil {
				bend(r, i)
			}
			rec := base
			rec.Kind, rec.Reply = probes.KindReply, r
			l.emit(rec)
		}
		who.Phase = "after"
		l.tell(base, probes.FactIdentity, who)
		if pass == l.last[a.Name] {
			l.tell(base, probes.FactStop, probes.StopFact{Rule: "sprt", Pass: pass})
			break
		}
	}
	if a.Connector {
		l.tell(base, probes.FactStore, probes.StoreFact{When: "end", Chunks: ptr(3 * len(l.set.Prompts)), Files: ptr(3 * len(l.set.Prompts))})
	}
	l.tell(base, probes.FactArmEnd, probes.ArmEndFact{Sent: sent, Records: sent})
	return true
}

// answer is the healthy reply of prompt i.
func (l *lab) answer(a *ArmSpec, pass, i int) *probes.Reply {
	p := &l.set.Prompts[i]
	local, external, stored := 0, 0, 0
	switch {
	case a.Preset == "C1" && pass == 2:
		local = labReuse
	case a.Preset == "WARM", a.Preset == "RST", a.Preset == "SOAK" && pass > 1:
		external = labReuse
	case a.Preset == "COLD", a.Preset == "SOAK":
		stored = 3
	}
	lp := func(v float64) *float64 { return &v }
	said := p.Expect.Needles[0].Answer
	r := &probes.Reply{Prompt: p.ID, Pass: pass, Path: "/v1/completions", Status: 200, SentAt: l.at, LastAt: l.at + 900}
	r.Text, r.Finish = said, "stop"
	r.Tokens = []probes.Token{
		{ID: 200 + i, Text: said, Logprob: lp(-0.01 - float64(i)/1000), Top: []probes.Candidate{{ID: 200 + i, Logprob: lp(-0.01 - float64(i)/1000)}, {ID: 7, Logprob: lp(-5)}, {ID: 8, Logprob: lp(-6)}}},
		{ID: 3, Text: "", Logprob: lp(-0.002), Top: []probes.Candidate{{ID: 3, Logprob: lp(-0.002)}, {ID: 9, Logprob: lp(-7)}}},
	}
	n := len(p.Tokens)
	r.Usage = probes.Usage{Prompt: &n, Completion: ptr(2)}
	if l.mute[a.Name] {
		return r
	}
	add := func(role string, v int) {
		r.Counters = append(r.Counters, probes.Counter{Role: role, Series: role, Before: lp(1000), After: lp(1000 + float64(v))})
	}
	add(probes.PromptTokens, n)
	add(probes.LocalHits, local)
	if a.Preset == "C1" || a.Connector {
		add(probes.LocalQueries, n)
	}
	if a.Connector {
		add(probes.ExternalQueries, n-local)
		add(probes.ExternalHits, external)
		add(probes.StoredChunks, stored)
	}
	return r
}

// write makes the whole transcript: every chain once for the registered run, those of names
// again for each replicate.
func (l *lab) write(replicates ...string) {
	l.recs = nil
	raw, _ := json.Marshal(probes.PlanFact{Plan: "sha256:plan", Set: l.set.Digest, Tool: "test"})
	l.emit(probes.Record{Kind: probes.KindFact, Fact: &probes.Fact{Name: probes.FactPlan, Value: raw}})
	l.chains(0, func(string) bool { return true })
	for k, chain := range replicates {
		l.chains(k+1, func(c string) bool { return c == chain })
	}
}

func (l *lab) chains(run int, want func(string) bool) {
	dead := map[string]bool{}
	var order []string
	for i := range l.design.Arms {
		a := &l.design.Arms[i]
		if l.skip[a.Name] || !want(a.Chain) || dead[a.Chain] {
			continue
		}
		if !slices.Contains(order, a.Chain) {
			order = append(order, a.Chain)
			l.tell(probes.Record{Run: run, Chain: a.Chain, Attempt: l.attempt(run, a.Chain)}, probes.FactAttempt, probes.AttemptFact{Chain: a.Chain, Run: run})
		}
		dead[a.Chain] = !l.climb(run, l.attempt(run, a.Chain), a)
	}
	for _, c := range order {
		l.tell(probes.Record{Run: run, Chain: c, Attempt: l.attempt(run, c)}, probes.FactChainEnd, nil)
	}
}

func (l *lab) attempt(run int, chain string) string { return fmt.Sprintf("%s-%d", chain, run) }

func (l *lab) input() Input {
	return Input{Design: l.design, Set: l.set, PlanDigest: "sha256:plan", SetDigest: string(l.set.Digest), Order: "O1"}
}

func (l *lab) assess() Result { return Assess(l.input(), l.recs, []Detector{oneBug{}}) }

// arm finds an arm's result.
func arm(t *testing.T, r Result, name string) ArmResult {
	t.Helper()
	for _, a := range r.Arms {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no arm %s in the result", name)
	return ArmResult{}
}

// want checks an arm's word, row and sub, and shows the columns where they differ.
func want(t *testing.T, r Result, name, word string, row int, sub string) ArmResult {
	t.Helper()
	a := arm(t, r, name)
	got, gotRow, gotSub := "", 0, ""
	if a.Verdict != nil {
		got = *a.Verdict
	}
	if a.Row != nil {
		gotRow = *a.Row
	}
	if a.Sub != nil {
		gotSub = *a.Sub
	}
	if got != word || gotRow != row || gotSub != sub {
		reason := ""
		if a.Reason != nil {
			reason = *a.Reason
		}
		t.Errorf("%s: row %d %s %q (%s), want row %d %s %q\ncolumns %v\nwarnings %q", name, gotRow, got, gotSub, reason, row, word, sub, a.Columns, a.Warnings)
	}
	return a
}

// wrong makes the replies of the first n requests of an arm wrong.
func wrong(n int) func(*probes.Reply, int) {
	return func(r *probes.Reply, i int) {
		if i < n {
			r.Text = "oops"
			r.Tokens = slices.Clone(r.Tokens)
			r.Tokens[0].ID, r.Tokens[0].Text = 7, "oops"
			r.Tokens[0].Logprob = ptr(-0.5)
		}
	}
}

// without drops the counters of some roles.
func without(roles ...string) func(*probes.Reply, int) {
	return func(r *probes.Reply, _ int) {
		r.Counters = slices.DeleteFunc(r.Counters, func(c probes.Counter) bool { return slices.Contains(roles, c.Role) })
	}
}

// set gives a counter of the reply another rise.
func rise(r *probes.Reply, role string, v float64) {
	for i := range r.Counters {
		if r.Counters[i].Role == role {
			r.Counters[i].After = ptr(*r.Counters[i].Before + v)
		}
	}
}

func letters(a ArmResult) string {
	s := ""
	for _, k := range slices.Sorted(maps.Keys(a.Columns)) {
		s += k + a.Columns[k]
	}
	return s
}
