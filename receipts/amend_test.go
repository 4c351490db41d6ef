package receipts

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/receipts/digest"
	"kvladder/scoring"

	"pgregory.net/rapid"
)

// rechain writes entries as a ledger that holds together.
func rechain(t *testing.T, path string, es []LedgerEntry) {
	t.Helper()
	var out []byte
	var prev digest.Digest
	for i, e := range es {
		e.Seq, e.Prev = int64(i), prev
		line := append(must(digest.Canonical(e)), '\n')
		prev = digest.Of(line)
		out = append(out, line...)
	}
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// amendedRun is an unsealed run in which six of six requests fail under WARM, amended when
// the first n entries of its ledger (registration, C0, WARM) stood.
func amendedRun(t *testing.T, n int, change func(*arms.Plan)) (string, arms.Plan, Amendment, error) {
	t.Helper()
	set := testSet(6)
	plan := testPlan(set, func(p *arms.Plan) { p.Design.Rule.Replicates = 0 })
	dir := runFolder(t, plan, set, "WARM/p1", "WARM/p2", "WARM/p3", "WARM/p4", "WARM/p5", "WARM/p6")
	path := filepath.Join(dir, LedgerFile)
	all := must(ReadLedger(path))
	rechain(t, path, all[:n])
	a, err := Amend(dir, testPlan(set, func(p *arms.Plan) { p.Design.Rule.Replicates = 0; change(p) }), "we read the thread again")
	for _, e := range all[n:] {
		if _, err := AppendLedger(path, e.Kind, e.Object); err != nil {
			t.Fatal(err)
		}
	}
	return dir, plan, a, err
}

func sealAmended(t *testing.T, dir string, plan arms.Plan) *Receipt {
	t.Helper()
	if _, err := Seal(dir, plan, scoring.Result{}, Options{Assess: testAssess}); err != nil {
		t.Fatal(err)
	}
	return must(Open(dir))
}

func strictAlpha(p *arms.Plan) { p.Design.Rule.Alpha.Failures = 0.001 }

func predictSix(p *arms.Plan) { p.Predict = map[string]map[string]any{"WARM": {"failed": 6}} }

func TestAmendBeforeAnyArm(t *testing.T) {
	dir, plan, a, err := amendedRun(t, 1, func(p *arms.Plan) { strictAlpha(p); predictSix(p) })
	if err != nil || a.Class != ClassA || a.Entry != 1 {
		t.Fatalf("%+v %v", a, err)
	}
	r := sealAmended(t, dir, plan)
	p := &r.Predicate
	if p.Result.Verdict != scoring.SuspectUnconfirmed || p.Registered == nil || p.Registered.Verdict != scoring.CorruptionAttributed || p.Exploratory != nil {
		t.Errorf("result %s, as registered %+v, exploratory %+v", p.Result.Verdict, p.Registered, p.Exploratory)
	}
	if len(p.Predictions) != 1 || !p.Predictions[0].Held {
		t.Errorf("the amended prediction does not count: %+v", p.Predictions)
	}
	if pd, _, _ := plan.Digest(); p.Prereg.Plan != pd || !rawEqual(p.Plan, plan) {
		t.Error("the registration was changed")
	}
	if rep := Verify(dir, testChecker); !rep.OK || rep.Order != O1 {
		t.Errorf("%+v", rep)
	}
}

func TestAmendAfterControls(t *testing.T) {
	for what, change := range map[string]func(*arms.Plan){
		"/design/rule/alpha/failures": strictAlpha,
		"/design/rule/ngram":          func(p *arms.Plan) { p.Design.Rule.NGram = 0.9 },
		"/design/rule/p_max":          func(p *arms.Plan) { p.Design.Rule.PMax = 1 },
		"/design/rule/verdict_table":  func(p *arms.Plan) { p.Design.Rule.Table = "mine" },
	} {
		dir, _, _, err := amendedRun(t, 2, change)
		if err == nil || !strings.Contains(err.Error(), what+" decides a verdict") {
			t.Errorf("%s: %v", what, err)
		}
		if slices.ContainsFunc(must(ReadLedger(filepath.Join(dir, LedgerFile))), func(e LedgerEntry) bool { return e.Kind == LedgerAmendment }) {
			t.Errorf("%s: refused, and in the ledger", what)
		}
	}
	dir, plan, a, err := amendedRun(t, 2, predictSix)
	if err != nil || a.Class != ClassB {
		t.Fatalf("%+v %v", a, err)
	}
	r := sealAmended(t, dir, plan)
	if r.Predicate.Registered == nil || r.Predicate.Result.Verdict != scoring.CorruptionAttributed || len(r.Predicate.Predictions) != 1 {
		t.Errorf("%+v", r.Predicate.Predictions)
	}
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Errorf("%+v", rep)
	}
}

// Whatever an amendment after the data says, the verdict is the registered one.
func TestAmendAfterTreatment(t *testing.T) {
	dir, plan, a, err := amendedRun(t, 3, func(p *arms.Plan) { strictAlpha(p); predictSix(p) })
	if err != nil || a.Class != ClassC {
		t.Fatalf("%+v %v", a, err)
	}
	r := sealAmended(t, dir, plan)
	p := &r.Predicate
	if p.Result.Verdict != scoring.CorruptionAttributed || p.Result.Exit != 1 {
		t.Errorf("an amendment of class C improved the verdict: %s", p.Result.Verdict)
	}
	if p.Exploratory == nil || p.Exploratory.Verdict != scoring.SuspectUnconfirmed || p.Exploratory.Exit != 2 || p.Exploratory.Amendments[0] != a.Entry || p.Registered != nil {
		t.Errorf("exploratory %+v, registered %+v", p.Exploratory, p.Registered)
	}
	if len(p.Predictions) != 3 {
		t.Errorf("predictions made after the data count: %+v", p.Predictions)
	}
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Errorf("%+v", rep)
	}
	check := func(path, what string, change func(r *Receipt)) {
		t.Helper()
		dir, plan, _, _ := amendedRun(t, 3, strictAlpha)
		sealAmended(t, dir, plan)
		reseal(t, dir, change)
		rep := Verify(dir, testChecker)
		if !slices.ContainsFunc(rep.Problems, func(p Problem) bool {
			return strings.HasPrefix(p.Path, path) && strings.Contains(p.What, what)
		}) {
			t.Errorf("want %q about %s: %+v", what, path, rep.Problems)
		}
	}
	check("predicate.result", "another result", func(r *Receipt) {
		g := must(amendedPlan(must(r.planBytes()), r.Predicate.Amendments, ClassC))
		set := testSet(6)
		res := must(assessed(g, set, must(readTranscript(filepath.Join(filepath.Dir(r.Path()), TranscriptFile)))))
		res.Plan, res.Set, res.Order = r.Predicate.Result.Plan, r.Predicate.Result.Set, r.Predicate.Result.Order
		r.Predicate.Result = res
	})
	check("predicate.amendments", "the ledger gives", func(r *Receipt) { r.Predicate.Amendments[0].Class = ClassA })
	check("predicate.amendments", "the ledger gives", func(r *Receipt) { r.Predicate.Amendments, r.Predicate.Exploratory = nil, nil })
	check("predicate.exploratory", "come together", func(r *Receipt) { r.Predicate.Exploratory = nil })
	check("predicate.exploratory", "the transcript gives", func(r *Receipt) { r.Predicate.Exploratory.Exit = 0 })
}

// The class is the entry's place: a date before the arm's changes nothing.
func TestClassIsNotADate(t *testing.T) {
	dir, plan, _, err := amendedRun(t, 3, strictAlpha)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, LedgerFile)
	es := must(ReadLedger(path))
	i := slices.IndexFunc(es, func(e LedgerEntry) bool { return e.Kind == LedgerAmendment })
	es[i].UTC = must(time.Parse(time.RFC3339Nano, es[0].UTC)).Add(-30 * time.Minute).Format(time.RFC3339Nano)
	rechain(t, path, es)
	if r := sealAmended(t, dir, plan); r.Predicate.Amendments[0].Class != ClassC {
		t.Errorf("class %s by its date", r.Predicate.Amendments[0].Class)
	}
	es[i].UTC = must(time.Parse(time.RFC3339Nano, es[0].UTC)).Add(-3 * time.Hour).Format(time.RFC3339Nano)
	rechain(t, path, es)
	if _, err := ReadLedger(path); err == nil || !strings.Contains(err.Error(), "before the entry that it follows") {
		t.Errorf("dated three hours back: %v", err)
	}
}

func TestAmendRefuses(t *testing.T) {
	check := func(want string, change func(*arms.Plan)) {
		t.Helper()
		if _, _, _, err := amendedRun(t, 1, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	check("/pins/model is part of what is run", func(p *arms.Plan) { p.Pins["model"] = "m2" })
	check("is part of what is run", func(p *arms.Plan) { p.Design.Arms[1].Passes = 2 })
	check("/design/rule/replicates is part of what is run", func(p *arms.Plan) { p.Design.Rule.Replicates = 3 })
	check("there is nothing to amend", func(p *arms.Plan) {})
	set := testSet(2)
	dir := sealed(t, testPlan(set), set)
	if _, err := Amend(dir, testPlan(set, predictSix), "late"); err == nil || !strings.Contains(err.Error(), "it is sealed") {
		t.Errorf("a sealed folder: %v", err)
	}
	dir = runFolder(t, testPlan(set), set)
	if _, err := Amend(dir, testPlan(set, predictSix), " "); err == nil || !strings.Contains(err.Error(), "needs a reason") {
		t.Errorf("no reason: %v", err)
	}
	a := must(Amend(dir, testPlan(set, predictSix), "once"))
	b := must(Amend(dir, testPlan(set), "and back"))
	if b.Entry != a.Entry+1 || b.Plan != must(ReadLedger(filepath.Join(dir, LedgerFile)))[0].Object.Plan {
		t.Errorf("amended back: %+v", b)
	}
	// A document that somebody changed, or that is gone.
	path := filepath.Join(dir, filepath.FromSlash(ObjectDir), a.Object.Hex())
	doc := must(os.ReadFile(path))
	os.WriteFile(path, bytes.Replace(doc, []byte("once"), []byte("ONCE"), 1), 0o644)
	if _, err := Seal(dir, testPlan(set), scoring.Result{}, Options{Assess: testAssess}); err == nil || !strings.Contains(err.Error(), "with that digest") {
		t.Errorf("a changed document: %v", err)
	}
	os.Remove(path)
	if _, err := Amend(dir, testPlan(set, predictSix), "again"); err == nil || !strings.Contains(err.Error(), "not among the objects") {
		t.Errorf("a lost document: %v", err)
	}
	os.WriteFile(path, doc, 0o644)
	if _, err := Seal(dir, testPlan(set), scoring.Result{}, Options{}); err == nil || !strings.Contains(err.Error(), "nothing is there to judge") {
		t.Errorf("sealed without an assessor: %v", err)
	}
}

// After the data a claim can be taken back and another asserted; none becomes measured.
func TestClaimsAfterTheData(t *testing.T) {
	dir, plan, _, err := amendedRun(t, 3, func(p *arms.Plan) {
		p.Claims = []arms.Claim{{Text: "it works", Status: ClaimWithdrawn}, {Text: "the tail block is garbage", Status: ClaimMeasured, Evidence: []digest.Digest{digest.Of([]byte("x"))}, Supersedes: "it works"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	got := sealAmended(t, dir, plan).Predicate.Claims
	if len(got) != 2 || got[0].Status != ClaimWithdrawn || got[1].Status != ClaimAsserted || got[1].Supersedes != "it works" {
		t.Errorf("%+v", got)
	}
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Errorf("%+v", rep)
	}
}

func TestLintClaims(t *testing.T) {
	check := func(want string, cs ...arms.Claim) {
		t.Helper()
		var rep Report
		lintClaims(&rep, cs)
		if (want == "") != (len(rep.Problems) == 0) || want != "" && !strings.Contains(rep.Problems[0].What, want) {
			t.Errorf("%+v, want %q", rep.Problems, want)
		}
	}
	d := []digest.Digest{digest.Of([]byte("x"))}
	a := arms.Claim{Text: "a", Status: ClaimAsserted}
	check("", a, arms.Claim{Text: "b", Status: ClaimMeasured, Evidence: d})
	check("", arms.Claim{Text: "a", Status: ClaimRefuted, Evidence: d}, arms.Claim{Text: "b", Status: ClaimAsserted, Supersedes: "a"})
	check("a refuted claim names no evidence", arms.Claim{Text: "a", Status: ClaimRefuted})
	check(`its status is "proven"`, arms.Claim{Text: "a", Status: "proven"})
	check("which nobody claims", arms.Claim{Text: "b", Status: ClaimAsserted, Supersedes: "a"})
	check("supersedes itself", arms.Claim{Text: "a", Status: ClaimWithdrawn, Supersedes: "a"})
	check("still stands as asserted", a, arms.Claim{Text: "b", Status: ClaimAsserted, Supersedes: "a"})
	check("there twice", a, a)
	w := arms.Claim{Text: "a", Status: ClaimWithdrawn}
	check("supersedes the same claim", w, arms.Claim{Text: "b", Status: ClaimAsserted, Supersedes: "a"}, arms.Claim{Text: "c", Status: ClaimAsserted, Supersedes: "a"})
}

func TestEdits(t *testing.T) {
	var a, b any
	for text, into := range map[string]*any{
		`{"a":{"b/c":1,"d~e":[1,2]},"gone":true,"list":[1],"null":null,"same":"x"}`:  &a,
		`{"a":{"b/c":2,"d~e":[1,3]},"list":[1,2],"new":{"x":1},"null":0,"same":"x"}`: &b,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	es := edits("", a, b)
	var paths []string
	for _, e := range es {
		paths = append(paths, e.Op+" "+e.Path)
	}
	if want := []string{"replace /a/b~1c", "replace /a/d~0e/1", "remove /gone", "replace /list", "add /new", "replace /null"}; !slices.Equal(paths, want) {
		t.Errorf("%v", paths)
	}
	// Through JSON, as they are kept.
	var kept []Edit
	if err := json.Unmarshal(must(json.Marshal(es)), &kept); err != nil {
		t.Fatal(err)
	}
	got, err := apply(must(tree(a)), kept)
	if err != nil || full(got) != full(b) {
		t.Errorf("%s %v", full(got), err)
	}
	for _, e := range []Edit{{Op: "replace", Path: "/a/b~1c", Old: 7.0, Value: 1.0}, {Op: "add", Path: "/same", Value: 1.0}, {Op: "remove", Path: "/none"},
		{Op: "remove", Path: "/same", Old: "y"}, {Op: "replace", Path: "/list/7", Value: 1.0}, {Op: "replace", Path: "/same/x", Value: 1.0}} {
		if _, err := apply(must(tree(a)), []Edit{e}); err == nil {
			t.Errorf("%+v was applied", e)
		}
	}
}

// What the edits make of one document is the other, whatever the two are.
func TestEditsGiveTheOther(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		scalar := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.IntRange(0, 3), func(n int) any { return float64(n) }), rapid.Map(rapid.SampledFrom([]string{"", "a", "~/"}), func(s string) any { return s }))
		if depth == 0 {
			return scalar
		}
		return rapid.OneOf(scalar,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"", "a", "b/", "~1", "0"}), value(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := value(3).Draw(t, "a"), value(3).Draw(t, "b")
		var kept []Edit
		if err := json.Unmarshal(must(json.Marshal(edits("", a, b))), &kept); err != nil {
			t.Fatal(err)
		}
		got, err := apply(must(tree(a)), kept)
		if err != nil || full(got) != full(b) {
			t.Fatalf("%s + %s gives %s (%v), want %s", full(a), full(kept), full(got), err, full(b))
		}
	})
}
