package receipts

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// The tests' ladder: one control C0 and one judged arm WARM over a handful of requests whose
// replies are {"text": ...}. Its assessor is small, and as pure as the real one: what a
// receipt must prove is that it was sealed from what the function gave.

func ptr[T any](v T) *T { return &v }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func testSet(n int) *prompts.Set {
	var ps []prompts.Prompt
	for i := range n {
		ps = append(ps, prompts.Prompt{ID: fmt.Sprintf("p%d", i+1), Role: prompts.Target, Document: "d", Class: prompts.Class{Label: fmt.Sprintf("c%d", i+1)},
			Tokens: []int{1, 2, i}, Body: fmt.Sprintf(`{"prompt":[1,2,%d],"rank":0}`, i)})
	}
	return must(prompts.Freeze(prompts.Header{Name: "tiny", Kind: "file", Dialect: "test", Path: "/v1/completions"}, ps))
}

func testPlan(set *prompts.Set, change ...func(*arms.Plan)) arms.Plan {
	rule := scoring.DefaultRule()
	rule.NMin, rule.GMin, rule.PMax = 3, 3, 0.96
	p := arms.Plan{Schema: arms.PlanSchema, Ladder: "tiny", Question: "does it?", Engine: "test", Launcher: "none",
		Set:     arms.PlanSet{Name: "tiny", Digest: set.Digest, Requests: len(set.Prompts), Classes: set.Classes(), Dialect: "test"},
		Subject: []string{"image"},
		Pins:    map[string]string{"image": "build-1", "model": "m"},
		Chains:  []arms.Chain{{Name: "main", Arms: []string{"WARM"}, Steps: []arms.ChainStep{{Do: "replay", Arm: "WARM", Pass: 1}}}},
		Design: scoring.Design{Ladder: "tiny", Question: "does it?", Rule: rule, Arms: []scoring.ArmSpec{
			{Name: "C0", Preset: "C0", Role: scoring.Control, Chain: "control", Process: "a", Passes: 1, Pins: map[string]string{"image": "build-1", "model": "m", "cache": "off"}},
			{Name: "WARM", Preset: "WARM", Role: scoring.Judged, Chain: "main", Process: "b", Passes: 1, Judge: 1, Connector: true, Reference: "C0", ReferencePass: 1,
				Pin: scoring.Pin{Name: "cache", Arm: "on", Reference: "off"}, PinsDiffer: []scoring.Pin{{Name: "cache", Arm: "on", Reference: "off"}},
				Path: "external", Exercise: "WARM", Pins: map[string]string{"image": "build-1", "model": "m", "cache": "on"}},
		}},
		Predict:    map[string]map[string]any{"WARM": {"failed": 0, "verdict": scoring.CleanBounded, "external_tokens": ">0"}},
		NotClaimed: []string{"anything else"},
		Claims:     []arms.Claim{{Text: "it works", Status: "asserted"}},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func testDecode(_ string, r *probes.Reply) (probes.Decoded, error) {
	b, err := r.Bytes()
	if err != nil {
		return probes.Decoded{}, err
	}
	var d struct{ Text string }
	err = json.Unmarshal(b, &d)
	return probes.Decoded{Text: d.Text}, err
}

func testRequestID(plan digest.Digest, r *probes.Record) string {
	return digest.Of([]byte(string(plan) + r.Arm + r.Reply.Prompt)).Short()
}

// readTranscript reads a whole transcript.
func readTranscript(path string) ([]probes.Record, error) { return probes.ReadAll(path) }

// statementOf is what a receipt says of an unamended plan and records that are at hand.
func statementOf(plan arms.Plan, res scoring.Result, recs []probes.Record) (*Receipt, error) {
	pins, times := newPinScan(), newTimingScan(&plan)
	for i := range recs {
		pins.record(&recs[i])
		times.record(&recs[i])
	}
	return statement(plan, res, pins.read(), times.timings(pins.dead))
}

func testAssess(q Question, recs iter.Seq2[probes.Record, error]) (scoring.Result, error) {
	var all []probes.Record
	for r, err := range recs {
		if err != nil {
			return scoring.Result{}, err
		}
		all = append(all, r)
	}
	return assessed(q.Plan, q.Set, all)
}

func assessed(plan arms.Plan, set *prompts.Set, recs []probes.Record) (scoring.Result, error) {
	texts := map[string]map[string]string{}
	for _, r := range recs {
		if r.Kind == probes.KindReply {
			if texts[r.Arm] == nil {
				texts[r.Arm] = map[string]string{}
			}
			texts[r.Arm][r.Reply.Prompt] = r.Reply.Text
		}
	}
	return resultOf(plan, func(arm string) []scoring.Outcome {
		var out []scoring.Outcome
		for _, p := range set.Prompts {
			text, ok := texts[arm][p.ID]
			o := scoring.Outcome{ID: p.ID, Class: p.Class.Label, Answered: ok, Failed: ok && text != "right", D0: ptr(0.0)}
			if arm == "WARM" {
				o.Local, o.External = ptr(0), ptr(16)
			}
			out = append(out, o)
		}
		return out
	}), nil
}

// resultOf judges outcomes by counts alone: enough for a result that holds together.
func resultOf(plan arms.Plan, outcomes func(arm string) []scoring.Outcome) scoring.Result {
	res := scoring.Result{Schema: scoring.ResultSchema, Ladder: plan.Ladder, Warnings: []string{}}
	failedIn := map[string]map[string]bool{}
	for _, spec := range plan.Design.Arms {
		a := scoring.ArmResult{Name: spec.Name, Preset: spec.Preset, Role: spec.Role, PMax: plan.Design.Rule.PMax,
			FailedIDs: []string{}, Unstable: []string{}, Warnings: []string{}, Detectors: map[string]int{}, Outcomes: outcomes(spec.Name),
			Columns: map[string]string{"P": "y", "A": "y", "H": "y", "K": "y"}}
		failedIn[spec.Name] = map[string]bool{}
		external := 0
		for i, o := range a.Outcomes {
			a.N++
			if o.Answered {
				a.Substantive++
			}
			if o.External != nil {
				external += *o.External
			}
			switch {
			case o.Unstable:
				a.Unstable = append(a.Unstable, o.ID)
			case o.Failed:
				a.Failed++
				a.FailedIDs = append(a.FailedIDs, o.ID)
				a.Detectors["needle"]++
				failedIn[spec.Name][o.ID] = true
			}
			if o.Failed {
				a.Outcomes[i].Fired = []string{"needle"}
			}
		}
		if spec.Role == scoring.Judged {
			judge(&a, plan, failedIn[spec.Reference], failedIn[spec.Name], external)
			if res.Verdict == "" || *a.Exit == scoring.ExitCorrupt {
				res.Verdict, res.Exit = *a.Verdict, *a.Exit
			}
		}
		res.Arms = append(res.Arms, a)
	}
	judged := 0
	for _, a := range res.Arms {
		if a.Role == scoring.Judged {
			judged++
		}
	}
	var p []float64
	for _, a := range res.Arms {
		if a.PMcNemar != nil {
			p = append(p, *a.PMcNemar)
		}
	}
	p = compare.Holm(p)
	for i := range res.Arms {
		if res.Arms[i].PMcNemar != nil {
			res.Arms[i].PMcNemarHolm = ptr(p[0])
			p = p[1:]
		}
	}
	return res
}

func judge(a *scoring.ArmResult, plan arms.Plan, reference, arm map[string]bool, external int) {
	b, c := 0, 0
	for id := range reference {
		if !arm[id] {
			b++
		}
	}
	for id := range arm {
		if !reference[id] {
			c++
		}
	}
	a.ControlOnly, a.ArmOnly = ptr(b), ptr(c)
	a.PMcNemar = ptr(compare.McNemar(b, c).OneSided)
	a.ExceedanceK, a.FloorM, a.PExceedance = ptr(0), ptr(len(a.Outcomes)), ptr(1.0)
	a.ExternalTokens, a.LocalTokens = ptr(external), ptr(0)
	a.Exercised, a.Geometries = ptr(a.N), a.N
	if external == 0 {
		a.Exercised, a.Geometries = ptr(0), 0
	}
	a.Upper95, a.Upper95Geometry = compare.Upper95(a.Failed, *a.Exercised), compare.Upper95(a.Failed, a.Geometries)
	set := func(word string, row int, columns map[string]string) {
		a.Verdict, a.Row, a.Exit = ptr(word), ptr(row), ptr((scoring.Verdict{Word: word}).Exit())
		for k, v := range columns {
			a.Columns[k] = v
		}
	}
	switch {
	case *a.PMcNemar <= plan.Design.Rule.Alpha.Failures && external == 0:
		set(scoring.CorruptionAttributed, 8, map[string]string{"F": "y", "E": "n", "X": "n", "U": "n"})
	case *a.PMcNemar <= plan.Design.Rule.Alpha.Failures:
		set(scoring.CorruptionAttributed, 7, map[string]string{"F": "y", "E": "y", "X": "y", "U": "y"})
	case c > 0:
		set(scoring.SuspectUnconfirmed, 10, map[string]string{"F": "n", "X": "y", "U": "y"})
	case external == 0:
		set(scoring.NotExercised, 13, map[string]string{"F": "n", "X": "n", "U": "n"})
	default:
		set(scoring.CleanBounded, 17, map[string]string{"F": "n", "X": "y", "U": "y", "D": "n", "B": "-"})
	}
}

var testChecker = Checker{Assess: testAssess, Decode: testDecode, RequestID: testRequestID}

// runFolder makes an unsealed run folder. Replies are right but for those that wrong names
// as "ARM/prompt".
func runFolder(t testing.TB, plan arms.Plan, set *prompts.Set, wrong ...string) string {
	t.Helper()
	return carrying(t, plan, set, nil, nil, wrong...)
}

// carrying makes an unsealed run folder whose ledger holds a beacon and whose request ids are
// derived from another, or from the plan alone.
func carrying(t testing.TB, plan arms.Plan, set *prompts.Set, entered, ids *Beacon, wrong ...string) string {
	t.Helper()
	dir := t.TempDir()
	pd, pb, err := plan.Digest()
	write := func(name string, b []byte) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	write(PlanFile, pb)
	if err := set.Write(filepath.Join(dir, SetDir, "tiny.jsonl")); err != nil {
		t.Fatal(err)
	}
	scrape := []byte("hits 3\n")
	write(ObjectDir+"/"+digest.Of(scrape).Hex(), scrape)
	write(LogDir+"/warm.log", []byte("ready\n"))
	write(LogDir+"/empty.log", nil)
	write("report.html", []byte("<p>"))
	write("run.lock", []byte("1"))
	ledger := filepath.Join(dir, LedgerFile)
	entry := func(kind string, o LedgerObject) {
		o.Plan = pd
		if _, err := AppendLedger(ledger, kind, o); err != nil {
			t.Fatal(err)
		}
	}
	entry(LedgerPrereg, LedgerObject{Set: set.Digest})
	if entered != nil {
		entry(LedgerBeacon, LedgerObject{Beacon: entered})
	}
	w, err := probes.OpenWriter(filepath.Join(dir, TranscriptFile))
	if err != nil {
		t.Fatal(err)
	}
	add := func(r probes.Record) {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	fact := func(arm, name string, v any) {
		add(probes.Record{Kind: probes.KindFact, Arm: arm, Fact: &probes.Fact{Name: name, Value: must(json.Marshal(v))}})
	}
	fact("", probes.FactPlan, probes.PlanFact{Plan: pd, Set: set.Digest, Tool: "test"})
	bad := map[string]bool{}
	for _, w := range wrong {
		bad[w] = true
	}
	for _, spec := range plan.Design.Arms {
		entry(LedgerArmStart, LedgerObject{Arm: spec.Name})
		fact(spec.Name, probes.FactPins, probes.PinsFact{Read: []probes.PinRead{{Name: "model", Asked: "m", Read: ptr("m"), Source: "/v1/models", Agrees: ptr(true)}}})
		add(probes.Record{Kind: probes.KindSample, Arm: spec.Name, Sample: &probes.Sample{Phase: "before", Pass: 1, Source: "/metrics", Digest: digest.Of(scrape)}})
		for _, p := range set.Prompts {
			text := "right"
			if bad[spec.Name+"/"+p.ID] {
				text = "wrong"
			}
			r := probes.Record{Kind: probes.KindReply, Arm: spec.Name, Reply: &probes.Reply{Prompt: p.ID, Pass: 1, Path: set.Path,
				Sent: digest.Of([]byte(p.Body)), Status: 200, Decoded: probes.Decoded{Text: text}}}
			r.Reply.SetRaw([]byte(`{"text":"` + text + `"}`))
			r.Reply.RequestID = testRequestID(ids.IDs(pd), &r)
			add(r)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sealed makes a run folder and seals it.
func sealed(t testing.TB, plan arms.Plan, set *prompts.Set, wrong ...string) string {
	t.Helper()
	dir := runFolder(t, plan, set, wrong...)
	seal(t, dir, plan, set)
	return dir
}

func seal(t testing.TB, dir string, plan arms.Plan, set *prompts.Set) {
	t.Helper()
	recs, err := readTranscript(filepath.Join(dir, TranscriptFile))
	if err != nil {
		t.Fatal(err)
	}
	res, err := assessed(plan, set, recs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(dir, plan, res, Options{Tool: Tool{Version: "v0"}}); err != nil {
		t.Fatal(err)
	}
}
