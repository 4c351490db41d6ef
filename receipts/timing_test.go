package receipts

import (
	"encoding/json"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/scoring"
)

func ramp(n int, from, step int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = from + int64(i)*step
	}
	return out
}

func TestTimingChanges(t *testing.T) {
	set := testSet(8)
	of := func(us []int64) *Receipt {
		r := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
		r.Predicate.Timings = []Timing{{Arm: "WARM", Pass: 1, FirstToken: us, Total: us}}
		return r
	}
	base := of(ramp(20, 10000, 10))
	d := Diff(base, of(ramp(20, 20000, 10)))
	if d.Exit != 0 || len(d.Timings) != 2 {
		t.Fatalf("%+v", d)
	}
	c := d.Timings[0]
	// Every value of one side is above every value of the other: twice 1/C(40,20).
	if !c.Significant || c.P == nil || !near(*c.P, round12(2/137846528820.0)) || c.Old.N != 20 || c.What != "first_token" {
		t.Errorf("%+v", c)
	}
	if !near(c.Old.Median, 10.095) || c.Delta() != "+99.06%" || c.Old.Low == nil || *c.Old.Low > c.Old.Median || *c.Old.High < c.Old.Median {
		t.Errorf("%+v %s", c.Old, c.Delta())
	}
	if got := c.Old.String(); got != "10.09ms ± 0%" && got != "10.1ms ± 0%" {
		t.Error(got)
	}
	if c := Diff(base, of(ramp(20, 10003, 10))).Timings[0]; c.Significant || c.Delta() != "~" {
		t.Errorf("the same within noise: %+v", c)
	}
	if c := Diff(of(ramp(3, 1, 1)), of(ramp(3, 900, 1))).Timings[0]; c.P != nil || c.Significant || c.Old.Low != nil || !strings.Contains(c.Old.String(), "∞") {
		t.Errorf("three values a side: %+v", c)
	}
	if c := Diff(of(ramp(5000, 1000, 1)), of(ramp(5000, 1000, 1))).Timings[0]; c.Old.N != 64 || c.P == nil || *c.P != 1 {
		t.Errorf("thinned: %+v", c)
	}
	if d := Diff(base, receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})); len(d.Timings) != 0 {
		t.Errorf("a receipt without timings: %+v", d.Timings)
	}
}

// What a transcript shows of time, and what it does not.
func TestTimingsOfTranscript(t *testing.T) {
	set := testSet(1)
	plan := testPlan(set, func(p *arms.Plan) { p.Design.Arms[1].Passes, p.Design.Arms[1].Judge = 2, 2 })
	s := newTimingScan(&plan)
	add := func(attempt string, run, pass int, change func(r *probes.Reply)) {
		r := probes.Record{Kind: probes.KindReply, Arm: "WARM", Attempt: attempt, Run: run,
			Reply: &probes.Reply{Pass: pass, SentAt: 100, FirstByteAt: 150, FirstTokenAt: 160, LastAt: 300}}
		if change != nil {
			change(r.Reply)
		}
		s.record(&r)
	}
	add("a", 0, 2, nil)
	add("a", 0, 2, func(r *probes.Reply) { r.FirstTokenAt = 0 })
	add("a", 0, 1, nil)                                        // not the judged pass
	add("a", 1, 2, nil)                                        // a replicate
	add("a", 0, 2, func(r *probes.Reply) { r.Prime = true })   // no request of the set
	add("a", 0, 2, func(r *probes.Reply) { r.Error = "gone" }) // no reply
	add("a", 0, 2, func(r *probes.Reply) { *r = probes.Reply{Pass: 2} })
	add("dead", 0, 2, nil)
	got := s.timings(map[string]bool{"dead": true})
	if string(must(json.Marshal(got))) != `[{"arm":"WARM","pass":2,"first_token_us":[60,50],"total_us":[200,200]}]` {
		t.Errorf("%s", must(json.Marshal(got)))
	}
}

func TestTrend(t *testing.T) {
	set := testSet(38)
	of := func(image string, failed, deaths, requests int) *Receipt {
		r := receiptOf(t, testPlan(set, func(p *arms.Plan) { setPin(p, "image", image) }), set, map[string]answers{"WARM": {failed: seq(1, failed), external: 16}})
		a, _ := r.Arm("WARM")
		a.Lifetime = map[string]any{"events": deaths, "requests": requests, "partial_hits": 0, "minutes": 1.5}
		return r
	}
	// Four builds of one public report, deaths over requests that load; the last runs clean.
	rs := []*Receipt{of("A", 7, 4, 168), of("B", 7, 3, 60), of("C", 0, 0, 336), of("D", 0, 0, 336)}
	tr := Trend(rs...)
	if !tr.Comparable || tr.Exit != 1 || len(tr.Builds) != 4 || len(tr.Steps) != 3 || len(tr.Arms) != 2 {
		t.Fatalf("%+v", tr)
	}
	if tr.Builds[2].Subject["image"] != "C" || tr.Steps[1].Transition != "CORRUPTION_ATTRIBUTED -> CLEAN_BOUNDED (better)" {
		t.Errorf("%+v %s", tr.Builds[2], tr.Steps[1].Transition)
	}
	warm := tr.Arms[1].Points
	if *warm[0].Failed != 7 || *warm[3].Failed != 0 || *warm[0].Events != 4 || warm[3].Verdict != "CLEAN_BOUNDED" || *warm[1].External != 38*16 {
		t.Errorf("%+v", warm)
	}
	// 0 in 336 against 3 in 60: (60/396)^3 one-sided, nothing as unlikely on the other side.
	l := tr.Steps[1].Lifetimes
	if len(l) != 1 || l[0].Clock != "requests" || !near(l[0].P, 0.00347830926343) || l[0].Ratio == nil || *l[0].Ratio != 0 {
		t.Errorf("%+v", l)
	}
	if len(tr.Steps[2].Lifetimes) != 0 || tr.Steps[2].Exit != 0 {
		t.Errorf("no death on either side: %+v", tr.Steps[2])
	}
	other := receiptOf(t, testPlan(testSet(5)), testSet(5), map[string]answers{"WARM": {external: 16}})
	if tr := Trend(rs[0], rs[1], other); tr.Comparable || tr.Exit != 3 || !strings.HasPrefix(tr.Refusal(), "builds 2 and 3: prereg.set is") {
		t.Errorf("%+v %q", tr.Comparable, tr.Refusal())
	}
	// Partial hits are the clock where both sides have some.
	a, _ := rs[0].Arm("WARM")
	b, _ := rs[1].Arm("WARM")
	a.Lifetime["partial_hits"], b.Lifetime["partial_hits"] = 40.0, 20.0
	if g, err := Gate(rs[0], rs[2]); err != nil || len(g.Lifetimes) != 1 || g.Lifetimes[0].Old.Events != 4 {
		t.Errorf("gate: %+v %v", g.Lifetimes, err)
	}
	if l := Diff(rs[0], rs[1]).Lifetimes; l[0].Clock != "partial_hits" || l[0].Old.Exposure != 40 {
		t.Errorf("%+v", l)
	}
}

func TestDiffNamesItsBlocks(t *testing.T) {
	set := testSet(38)
	a := receiptOf(t, testPlan(set), set, map[string]answers{"WARM": {external: 16}})
	b := receiptOf(t, testPlan(set, build2), set, map[string]answers{"WARM": {failed: seq(1, 7), external: 32}})
	want := map[string]string{"pins.image": BlockPins, "arms[WARM].external_tokens": BlockExercise, "arms[WARM].failed": BlockCounts,
		"arms[WARM].p_mcnemar": BlockStatistics, "arms[WARM].verdict": BlockVerdict, "verdict": BlockVerdict, "prereg.plan": BlockNotes}
	for _, c := range Diff(a, b).Changes {
		if w, ok := want[c.Path]; ok && c.Block == w {
			delete(want, c.Path)
		}
		if c.Block == "" {
			t.Errorf("%s is in no block", c.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found in their blocks: %v", want)
	}
	other := Diff(a, receiptOf(t, testPlan(testSet(5), func(p *arms.Plan) { p.Design.Rule.NMin = 4 }), testSet(5), map[string]answers{"WARM": {external: 16}}))
	if r := other.Refusal(); !strings.Contains(r, "prereg.set is") || !strings.Contains(r, "plan.design.rule.n_min is 3 in one and 4 in the other") {
		t.Errorf("refusal %q", r)
	}
}

// Four builds of one workload: deaths 3, 4, 3 and 0, of the first of which no total time is
// known; the last is the only one with the fix.
func TestTrendOfLifetimes(t *testing.T) {
	set := testSet(2)
	var rs []*Receipt
	for _, l := range []map[string]any{
		{"events": 3, "requests": 900},
		{"events": 4, "requests": 1680, "minutes": 10.0 + 30 + 40 + 88},
		{"events": 3, "requests": 600, "minutes": 60.0},
		{"events": 0, "requests": 3360, "minutes": 336.0},
	} {
		plan := testPlan(set)
		res := resultOf(plan, func(string) []scoring.Outcome { return nil })
		res.Arms[1].Lifetime = l
		rs = append(rs, must(statementOf(plan, res, nil)))
	}
	arm := Trend(rs...).Arms[1]
	rate := func(build int, clock string) *Rate {
		for i, r := range arm.Points[build].Rates {
			if r.Clock == clock {
				return &arm.Points[build].Rates[i]
			}
		}
		return nil
	}
	if rate(0, "minutes") != nil || rate(0, "requests") == nil {
		t.Error("a clock that was not read shows a rate")
	}
	check := func(got, want float64) {
		t.Helper()
		if !near(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	check(rate(1, "minutes").Low, 0.00648729389063)
	check(rate(1, "minutes").High, 0.0609618373536)
	check(rate(2, "minutes").Low, 0.0103112020483)
	check(rate(2, "minutes").High, 0.146121217829)
	check(rate(3, "minutes").High, 0.0109788078991)
	check(*rate(3, "minutes").AtLeast, 112.159555434)
	seen := map[int]float64{}
	for _, c := range arm.ToLast {
		if c.Clock == "minutes" {
			seen[c.Build] = c.P
			if c.Build == 1 {
				check(*c.High, 0.757433429683)
			}
		}
	}
	if len(seen) != 2 {
		t.Fatalf("compared by minutes: %v", seen)
	}
	check(seen[1], 1.0/81)           // (168/504)^4
	check(seen[2], 0.00347830926343) // (60/396)^3
}
