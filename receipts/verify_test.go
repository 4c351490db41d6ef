package receipts

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

func TestVerifyHolds(t *testing.T) {
	set := testSet(4)
	dir := sealed(t, testPlan(set), set)
	for _, path := range []string{dir, filepath.Join(dir, ReceiptFile)} {
		rep := Verify(path, testChecker)
		if !rep.OK || rep.Exit != 0 || rep.Order != O1 || len(rep.Warnings) != 0 {
			t.Errorf("%s: %+v", path, rep)
		}
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Subject) != 1 || r.Subject[0].Name != "pin/image" || r.Subject[0].Digest.Digest() != digest.Of([]byte("build-1")) {
		t.Errorf("subject %+v", r.Subject)
	}
	if n := len(r.Predicate.PinsRead); n != 2 {
		t.Errorf("%d pins read, want one in each of two arms", n)
	}
	if got := r.Predicate.Predictions; len(got) != 3 || !got[0].Held || !got[1].Held || !got[2].Held {
		t.Errorf("predictions %+v", got)
	}
}

// A receipt alone, far from its folder, still re-runs its tests and names what it lacks.
func TestVerifyAlone(t *testing.T) {
	set := testSet(4)
	dir := sealed(t, testPlan(set), set)
	alone := t.TempDir()
	for _, n := range []string{ReceiptFile, ReceiptFile + ".sha256"} {
		if err := os.WriteFile(filepath.Join(alone, n), must(os.ReadFile(filepath.Join(dir, n))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rep := Verify(filepath.Join(alone, ReceiptFile), testChecker)
	if !rep.OK || !strings.Contains(strings.Join(rep.Warnings, "\n"), "not here and not checked: transcript.jsonl") {
		t.Errorf("%+v", rep)
	}
	// A folder, on the other hand, must be whole.
	rep = Verify(alone, testChecker)
	if rep.OK || rep.Exit != 1 {
		t.Errorf("a folder without its evidence: %+v", rep)
	}
}

// Every byte of everything that is covered, changed one at a time: verify fails and names
// the file. The receipt itself is left to TestTamperMatrix.
func TestTamper(t *testing.T) {
	set := testSet(1)
	dir := sealed(t, testPlan(set), set)
	files := []string{ReceiptFile, ReceiptFile + ".sha256"}
	for _, e := range must(Walk(dir)) {
		files = append(files, e.Name)
	}
	if len(files) < 9 {
		t.Fatalf("only %v", files)
	}
	r := must(Open(dir))
	for _, name := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		whole := must(os.ReadFile(path))
		owner := strings.TrimSuffix(name, ".sha256")
		if owner != ReceiptFile {
			owner = name
		}
		put := func(b []byte) {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		check := func(b []byte, what string) {
			put(b)
			if rep := Verify(dir, testChecker); rep.OK || rep.Exit != 1 || !blames(rep, owner) {
				t.Fatalf("%s, %s: %+v", name, what, rep)
			}
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, was := range whole {
			if name == ReceiptFile && i%97 != 0 {
				continue // TestTamperMatrix flips each of its bits
			}
			at := func(b byte) {
				if _, err := f.WriteAt([]byte{b}, int64(i)); err != nil {
					t.Fatal(err)
				}
			}
			at(was ^ 1<<(i%8))
			// Reading a sound receipt is most of the work: where the change is elsewhere, do it for some.
			var rep Report
			if owner == ReceiptFile || i%97 == 0 {
				rep = Verify(dir, testChecker)
			} else {
				checkEvidence(&rep, dir, r)
				rep = rep.close()
			}
			if rep.OK || rep.Exit != 1 || !blames(rep, owner) {
				t.Fatalf("%s, byte %d changed: %+v", name, i, rep)
			}
			at(was)
		}
		f.Close()
		check(append(bytes.Clone(whole), '\n'), "a byte more")
		if len(whole) > 0 {
			check(whole[:len(whole)-1], "a byte less")
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Fatalf("after all was put back: %+v", rep)
	}
}

func blames(rep Report, file string) bool {
	for _, p := range rep.Problems {
		if p.Path == file {
			return true
		}
	}
	return false
}

func TestVerifyFilesMoreAndLess(t *testing.T) {
	set := testSet(1)
	dir := sealed(t, testPlan(set), set)
	expect := func(path, what string) {
		t.Helper()
		rep := Verify(dir, testChecker)
		for _, p := range rep.Problems {
			if p.Path == path && strings.Contains(p.What, what) {
				return
			}
		}
		t.Errorf("want %q about %s: %+v", what, path, rep)
	}
	extra := filepath.Join(dir, LogDir, "new.log")
	os.WriteFile(extra, []byte("x"), 0o644)
	expect("logs/new.log", "does not list")
	os.Remove(extra)
	os.WriteFile(filepath.Join(dir, "report.html"), []byte("another report"), 0o644)
	os.WriteFile(filepath.Join(dir, "other.lock"), []byte("x"), 0o644)
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Errorf("reports and locks are not covered: %+v", rep)
	}
	gone := filepath.Join(dir, LogDir, "warm.log")
	kept := must(os.ReadFile(gone))
	os.Remove(gone)
	expect("logs/warm.log", "missing")
	os.WriteFile(gone, kept, 0o644)
	if err := os.Symlink(gone, filepath.Join(dir, LogDir, "link.log")); err == nil {
		expect(dir, "not a regular file")
		os.Remove(filepath.Join(dir, LogDir, "link.log"))
	}
	os.Remove(filepath.Join(dir, ReceiptFile+".sha256"))
	expect(ReceiptFile, "no receipt.json.sha256")
	os.Remove(filepath.Join(dir, ReceiptFile))
	if rep := Verify(dir, testChecker); rep.Exit != 3 {
		t.Errorf("no receipt: %+v", rep)
	}
}

// reseal seals a folder whose evidence is consistent in itself, around a receipt that lies:
// digests alone cannot find that, only doing the work again.
func reseal(t *testing.T, dir string, change func(r *Receipt)) {
	t.Helper()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	if r.Predicate.Evidence, err = Walk(dir); err != nil {
		t.Fatal(err)
	}
	b := must(r.Marshal())
	if err := os.WriteFile(filepath.Join(dir, ReceiptFile), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ReceiptFile+".sha256"), []byte(digest.Of(b).Hex()+"  receipt.json\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyRecomputes(t *testing.T) {
	set := testSet(4)
	warm := func(r *Receipt) *scoring.ArmResult { return &r.Predicate.Result.Arms[1] }
	check := func(path, what string, change func(r *Receipt)) {
		t.Helper()
		dir := sealed(t, testPlan(set), set, "WARM/p2")
		reseal(t, dir, change)
		rep := Verify(dir, testChecker)
		for _, p := range rep.Problems {
			if strings.HasPrefix(p.Path, path) && strings.Contains(p.What, what) {
				if rep.Exit != 1 {
					t.Errorf("exit %d", rep.Exit)
				}
				return
			}
		}
		t.Errorf("want %q about %s: %+v", what, path, rep)
	}
	check("predicate.result", "arms[WARM].damaged is 2, recomputed 0", func(r *Receipt) { warm(r).Damaged = 2 })
	check("predicate.result.arms[WARM].failed", "it is 0, the outcomes show 1", func(r *Receipt) { warm(r).Failed = 0 })
	check("predicate.result.arms[WARM].failed_ids", "the outcomes show [p2]", func(r *Receipt) { warm(r).FailedIDs = nil })
	check("predicate.result.arms[WARM].n", "it is 5", func(r *Receipt) { warm(r).N = 5 })
	check("predicate.result.arms[WARM].p_mcnemar", "b = 0 and c = 1 give 0.5", func(r *Receipt) { warm(r).PMcNemar = ptr(0.25) })
	check("predicate.result.arms[WARM].p_mcnemar", "without its integers", func(r *Receipt) { warm(r).ArmOnly = nil })
	check("predicate.result.arms[WARM].p_mcnemar_holm", "Holm over 1 arms gives 0.5", func(r *Receipt) { warm(r).PMcNemarHolm = ptr(1.0) })
	check("predicate.result.arms[WARM].arm_only", "negative", func(r *Receipt) { warm(r).ArmOnly = ptr(-1) })
	check("predicate.result.arms[WARM].p_exceedance", "no count of values", func(r *Receipt) { warm(r).PExceedance = ptr(0.001) })
	check("predicate.result.arms[WARM].exceedance_k", "cannot be", func(r *Receipt) { warm(r).ExceedanceK = ptr(9) })
	check("predicate.result.arms[WARM].exit", "exits 2", func(r *Receipt) { warm(r).Exit = ptr(0) })
	check("predicate.result.exit", "the worst arm exits 2", func(r *Receipt) { r.Predicate.Result.Exit = 0 })
	check("predicate.result.arms[WARM].verdict", "row 10 gives SUSPECT_UNCONFIRMED", func(r *Receipt) { warm(r).Verdict = ptr(scoring.CleanBounded) })
	check("predicate.result.arms[WARM].verdict", "clean with arm-only failures", func(r *Receipt) { warm(r).Verdict = ptr(scoring.CleanBounded) })
	check("predicate.result.arms[WARM].row", "row 17 needs column F = n", func(r *Receipt) {
		warm(r).Verdict, warm(r).Row, warm(r).Columns["F"] = ptr(scoring.CleanBounded), ptr(17), "-"
	})
	check("predicate.result.arms[WARM].row", "stop at row 6", func(r *Receipt) { warm(r).Columns["K"] = "n" })
	check("predicate.result.arms[WARM].columns", "no request shows a token", func(r *Receipt) {
		for i := range warm(r).Outcomes {
			warm(r).Outcomes[i].External = ptr(0)
		}
	})
	check("predicate.result.arms[WARM].upper95", "a share of nothing", func(r *Receipt) { warm(r).Exercised = ptr(0) })
	check("predicate.result.arms[WARM].upper95", "9 requests are exercised of 4", func(r *Receipt) { warm(r).Exercised = ptr(9) })
	check("predicate.result.arms[WARM].upper95_geometry", "a share of nothing", func(r *Receipt) { warm(r).Geometries = 0 })
	check("predicate.result.arms[WARM].verdict", "clean without a bound", func(r *Receipt) { warm(r).Verdict, warm(r).Upper95 = ptr(scoring.CleanBounded), nil })
	check("predicate.result.arms[WARM].verdict", "over the registered", func(r *Receipt) { warm(r).Verdict, warm(r).PMax = ptr(scoring.CleanBounded), 0.1 })
	check("predicate.result.arms[WARM].verdict", "imported rows cannot be clean", func(r *Receipt) {
		warm(r).Verdict, r.Predicate.Plan.Design.Imported = ptr(scoring.CleanBounded), true
	})
	check("predicate.result.arms[WARM].columns", "2 pins differ", func(r *Receipt) {
		r.Predicate.Plan.Design.Arms[1].PinsDiffer = make([]scoring.Pin, 2)
	})
	check("predicate.result.arms[WARM].outcomes", "no detector fired", func(r *Receipt) { warm(r).Outcomes[1].Fired = nil })
	check("predicate.result.arms[WARM].outcomes", "is there twice", func(r *Receipt) { warm(r).Outcomes[1].ID = "p1" })
	check("predicate.result.arms[WARM].prefix_mean", "past the fork", func(r *Receipt) { warm(r).PrefixMean = ptr(0.5) })
	check("predicate.result.arms[COLD]", "no such arm", func(r *Receipt) { warm(r).Name = "COLD" })
	check("predicate.plan", "the registration is", func(r *Receipt) { r.Predicate.Plan.Question = "another?" })
	check("predicate.prereg.set", "the plan's set is", func(r *Receipt) { r.Predicate.Prereg.Set = digest.Of([]byte("x")) })
	check("predicate.tests", "recomputed 0.5", func(r *Receipt) { r.Predicate.Tests[0].P = ptr(0.1) })
	check("predicate.exercise", "external", func(r *Receipt) { r.Predicate.Exercise[0].External = ptr(99) })
	check("predicate.floors", "failed", func(r *Receipt) { r.Predicate.Floors[0].Failed = 3 })
	check("predicate.predictions", "held", func(r *Receipt) { r.Predicate.Predictions[1].Held = true })
	check("predicate.not_claimed", "anything else", func(r *Receipt) { r.Predicate.NotClaimed = []string{} })
	check("predicate.claims[0]", "names no evidence", func(r *Receipt) { r.Predicate.Claims[0].Status = "measured" })
	check("predicate.pins_read", "read otherwise", func(r *Receipt) { r.Predicate.PinsRead[0].Read = ptr("other") })
	check("predicate.order", "the folder shows", func(r *Receipt) { r.Predicate.Order.Level, r.Predicate.Result.Order = O0, O0 })
	check("subject", "does not begin with", func(r *Receipt) { r.Subject[0].Name = "pin/other" })
}

// What the evidence itself says wrong, sealed as it stands.
func TestVerifyRecords(t *testing.T) {
	set := testSet(4)
	rewritten := func(change func(recs []probes.Record) []probes.Record) string {
		t.Helper()
		dir := sealed(t, testPlan(set), set)
		path := filepath.Join(dir, TranscriptFile)
		recs := change(must(readTranscript(path)))
		os.Remove(path)
		w := must(probes.OpenWriter(path))
		for _, r := range recs {
			if err := w.Append(r); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		reseal(t, dir, func(r *Receipt) {
			res := must(assessed(r.Predicate.Plan, set, must(readTranscript(path))))
			res.Plan, res.Set, res.Order = r.Predicate.Result.Plan, r.Predicate.Result.Set, r.Predicate.Result.Order
			s := must(statementOf(r.Predicate.Plan, res, must(readTranscript(path))))
			s.Predicate.Order, s.Predicate.Tool, s.raw = r.Predicate.Order, r.Predicate.Tool, r.raw
			*r = *s
		})
		return dir
	}
	check := func(what string, change func(recs []probes.Record) []probes.Record) {
		t.Helper()
		rep := Verify(rewritten(change), testChecker)
		for _, p := range rep.Problems {
			if strings.HasPrefix(p.Path, TranscriptFile) && strings.Contains(p.What, what) {
				return
			}
		}
		t.Errorf("want %q: %+v", what, rep)
	}
	reply := func(recs []probes.Record, n int) *probes.Reply {
		for i := range recs {
			if recs[i].Kind == probes.KindReply {
				if n == 0 {
					return recs[i].Reply
				}
				n--
			}
		}
		return nil
	}
	edit := func(f func(r *probes.Reply)) func(recs []probes.Record) []probes.Record {
		return func(recs []probes.Record) []probes.Record { f(reply(recs, 5)); return recs }
	}
	check(`decode otherwise: text is "wrong", recomputed "right"`, edit(func(r *probes.Reply) { r.Text = "wrong" }))
	// What was climbed in vain is told: nobody may go on until a failure is gone, and be silent of it.
	dir := rewritten(func(recs []probes.Record) []probes.Record {
		i := slices.IndexFunc(recs, func(r probes.Record) bool { return r.Kind == probes.KindReply })
		vain, fact := recs[i], recs[i]
		vain.Attempt, fact.Kind, fact.Reply = "vain", probes.KindFact, nil
		fact.Fact = &probes.Fact{Name: probes.FactAbandoned, Source: "resume", Value: must(json.Marshal(probes.AbandonedFact{Attempt: "vain", Why: "killed"}))}
		return slices.Insert(recs, i, vain, fact)
	})
	if rep := Verify(dir, testChecker); !slices.ContainsFunc(rep.Warnings, func(w string) bool {
		return strings.Contains(w, "1 climbs of chains were abandoned and climbed again; their 1 replies")
	}) {
		t.Errorf("an attempt in vain: %+v", rep)
	}
	check("decode otherwise: slot", edit(func(r *probes.Reply) { r.Slot = ptr(4) }))
	check("the bytes received have the digest", edit(func(r *probes.Reply) { r.Raw = `{"text":"wrong"}`; r.Text = "wrong" }))
	check("no byte was received", edit(func(r *probes.Reply) { r.SetRaw(nil) }))
	check("do not decode", edit(func(r *probes.Reply) { r.SetRaw([]byte("{")) }))
	check("not base64", edit(func(r *probes.Reply) { r.RawBase64 = true }))
	check("the frozen body is", edit(func(r *probes.Reply) { r.Sent = digest.Of([]byte("x")) }))
	check("pins nothing in bodies", edit(func(r *probes.Reply) { r.SentBody = "{}"; r.Sent = digest.Of([]byte("{}")) }))
	check("not the one whose digest was sent", edit(func(r *probes.Reply) { r.SentBody = "{}" }))
	check("the prompt has none", edit(func(r *probes.Reply) { r.Prime = true }))
	check("no such prompt", edit(func(r *probes.Reply) { r.Prompt = "p9" }))
	check("its request id is", edit(func(r *probes.Reply) { r.RequestID = "x" }))
	check("pass 2 of 1", edit(func(r *probes.Reply) { r.Pass = 2 }))
	check("the same request as in line", edit(func(r *probes.Reply) { r.Prompt = "p1" }))
	check("3 replies for 4 requests", func(recs []probes.Record) []probes.Record { return recs[:len(recs)-1] })
	check("does not have", func(recs []probes.Record) []probes.Record { recs[len(recs)-1].Arm = "X"; return recs })
	check("said to be complete and has no reply", func(recs []probes.Record) []probes.Record { return recs[:len(recs)-4] })
	check("does not name the plan", func(recs []probes.Record) []probes.Record { return recs[1:] })
	check("the counters were read as nothing", func(recs []probes.Record) []probes.Record {
		recs[2].Sample.Digest = digest.OfNothing
		return recs
	})
	check("neither in the record nor among the objects", func(recs []probes.Record) []probes.Record {
		recs[2].Sample.Digest = digest.Of([]byte("elsewhere"))
		return recs
	})
	check("another digest than the record says", func(recs []probes.Record) []probes.Record {
		recs[2].Sample.Raw = "hits 4\n"
		return recs
	})
	check("the registered replicate is missing", edit(func(r *probes.Reply) { r.SetRaw([]byte(`{"text":"wrong"}`)); r.Text = "wrong" }))
}

// A forced arm names the tokens of its reply in the body, and no other arm does.
func TestSentTrace(t *testing.T) {
	set := testSet(1)
	r := &Receipt{Predicate: Predicate{Plan: testPlan(set, func(p *arms.Plan) {
		p.Design.Arms = append(p.Design.Arms, scoring.ArmSpec{Name: "WARM-forced", Role: scoring.Forced})
	})}}
	frozen := set.Prompts[0].Body
	body := strings.TrimSuffix(frozen, "}") + `,"trace_decode_token_ids":[1,2]}`
	sent := func(arm string, body string) string {
		return checkSent(arm, &probes.Reply{SentBody: body, Sent: digest.Of([]byte(body))}, &set.Prompts[0], r)
	}
	if what := sent("WARM-forced", body); what != "" {
		t.Error(what)
	}
	if what := sent("C1", body); what == "" {
		t.Error("a judged arm was told its reply")
	}
	if what := sent("WARM-forced", strings.Replace(body, `"prompt":[1`, `"prompt":[9`, 1)); what == "" {
		t.Error("a forced arm was asked something else")
	}
}

// A rank pinned in the body changes that member and nothing else.
func TestSentBody(t *testing.T) {
	set := testSet(1)
	r := &Receipt{Predicate: Predicate{Plan: testPlan(set, func(p *arms.Plan) { p.Replay.RankBy, p.Replay.RankField = "body", "rank" })}}
	check := func(body, want string) {
		t.Helper()
		got := checkSent("A", &probes.Reply{SentBody: body, Sent: digest.Of([]byte(body))}, &set.Prompts[0], r)
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	check(`{"prompt":[1,2,0],"rank":3}`, "")
	check(`{"prompt":[1,2,0]}`, "")
	check(`{"prompt":[1,2,1],"rank":3}`, `the body differs from the frozen one in more than ["rank"]`)
	check(`{"prompt":[1,2,0],"rank":3,"seed":1}`, `the body differs from the frozen one in more than ["rank"]`)
	check(`[]`, `the body differs from the frozen one in more than ["rank"]`)
}

func TestEmptyRequiredEvidence(t *testing.T) {
	set := testSet(2)
	dir := sealed(t, testPlan(set), set)
	os.WriteFile(filepath.Join(dir, SetDir, "note.txt"), nil, 0o644)
	reseal(t, dir, func(*Receipt) {})
	rep := Verify(dir, testChecker)
	if rep.OK || !blames(rep, "set/note.txt") {
		t.Errorf("%+v", rep)
	}
}

func TestUnknownMemberFailsVerifyAndOpens(t *testing.T) {
	set := testSet(2)
	dir := sealed(t, testPlan(set), set)
	path := filepath.Join(dir, ReceiptFile)
	b := must(os.ReadFile(path))
	b = bytes.Replace(b, []byte(`"warnings":[`), []byte(`"vouched":true,"warnings":[`), 1)
	b = must(digest.Canonical(jsonRaw(b)))
	os.WriteFile(path, b, 0o644)
	os.WriteFile(path+".sha256", []byte(digest.Of(b).Hex()+"  receipt.json\n"), 0o644)
	if _, err := Open(dir); err != nil {
		t.Errorf("open: %v", err)
	}
	if rep := Verify(dir, testChecker); rep.OK || rep.Exit != 3 {
		t.Errorf("%+v", rep)
	}
}

func TestOrder(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	dir := runFolder(t, plan, set)
	os.Remove(filepath.Join(dir, LedgerFile))
	recs := must(readTranscript(filepath.Join(dir, TranscriptFile)))
	res := must(assessed(plan, set, recs))
	if _, err := Seal(dir, plan, res, Options{}); err != nil {
		t.Fatal(err)
	}
	if rep := Verify(dir, testChecker); !rep.OK || rep.Order != O0 {
		t.Errorf("without a ledger: %+v", rep)
	}
	imported := testPlan(set, func(p *arms.Plan) { p.Design.Imported = true })
	if o := orderOf(imported.Design.Imported, nil, nil, "", ""); o.Level != O0 {
		t.Errorf("imported: %+v", o)
	}
}

func TestSignature(t *testing.T) {
	// The encoding's published example, and its digest.
	pae := PAE("http://example.com/HelloWorld", []byte("hello world"))
	if string(pae) != "DSSEv1 29 http://example.com/HelloWorld 11 hello world" ||
		digest.Of(pae).Hex() != "217751fac2c4f14edb2c9297fbc34abcb016ba88e74757e875ec4ac16fb6b6a1" {
		t.Fatalf("PAE %q", pae)
	}
	set := testSet(2)
	dir := sealed(t, testPlan(set), set)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	r := must(Open(dir))
	if err := Sign(r, key); err != nil {
		t.Fatal(err)
	}
	var exists *ExistsError
	if err := Sign(r, other); !errors.As(err, &exists) {
		t.Errorf("signed twice: %v", err)
	}
	c := testChecker
	if rep := Verify(dir, c); !rep.OK || len(rep.Warnings) != 1 {
		t.Errorf("without a key: %+v", rep)
	}
	c.Keys = []Key{{"alice", key.Public().(ed25519.PublicKey)}, {"bob", other.Public().(ed25519.PublicKey)}}
	if rep := Verify(dir, c); !rep.OK || len(rep.SignedBy) != 1 || rep.SignedBy[0] != "alice" {
		t.Errorf("with the key: %+v", rep)
	}
	// Every byte of the envelope but the key's name, which is a hint.
	path := filepath.Join(dir, SignatureFile)
	b := must(os.ReadFile(path))
	c.Keys = c.Keys[:1]
	hint := bytes.Index(b, []byte(`"keyid":"`))
	for i := 0; i < len(b); i += 31 {
		if i >= hint && i < hint+len(`"keyid":"`)+16 {
			continue
		}
		changed := bytes.Clone(b)
		changed[i] ^= 2
		os.WriteFile(path, changed, 0o644)
		var rep Report
		if checkSignature(&rep, dir, r.Bytes(), c.Keys); len(rep.Problems) == 0 {
			t.Fatalf("byte %d of the signature changed from %q to %q and nobody minds", i, b[i], changed[i])
		}
	}
	os.WriteFile(path, b, 0o644)
	c.Keys = []Key{{"bob", other.Public().(ed25519.PublicKey)}}
	if rep := Verify(dir, c); rep.OK || !blames(rep, SignatureFile) {
		t.Errorf("with another's key: %+v", rep)
	}
}

// Seats of a Holm family that came to no p-value are explained; an adjusted value that no
// number of seats gives is not.
func TestRecheckHolm(t *testing.T) {
	check := func(adjusted float64, judged int, holds bool) {
		t.Helper()
		var rep Report
		recheckHolm(&rep, []float64{0.0078125}, []*scoring.ArmResult{{Name: "A", PMcNemarHolm: ptr(adjusted)}}, judged)
		if (len(rep.Problems) == 0) != holds {
			t.Errorf("%v over %d arms: %+v", adjusted, judged, rep.Problems)
		}
	}
	check(0.0078125, 3, true)
	check(0.0234375, 3, true) // 3 x 2^-7
	check(0.0234375, 2, false)
	check(0.001, 3, false)
}

// The order of independent chains is the plan's digest's, not somebody's choice.
func TestChainOrderIsDerived(t *testing.T) {
	set := testSet(2)
	with := func(names ...string) arms.Plan {
		return testPlan(set, func(p *arms.Plan) {
			p.Chains = nil
			for _, n := range names {
				p.Chains = append(p.Chains, arms.Chain{Name: n})
			}
		})
	}
	_, pb, _ := ptr(with("control", "main", "other")).Digest()
	derived, _, err := chainOrder(pb)
	if err != nil || len(derived) != 3 {
		t.Fatalf("%v %v", derived, err)
	}
	attached := with(derived...)
	attached.Design.Arms[0].Attached = true
	if rep := Verify(sealed(t, attached, set), testChecker); !rep.OK {
		t.Errorf("in the derived order: %+v", rep)
	}
	chosen := with(derived[1], derived[0], derived[2])
	if rep := Verify(sealed(t, chosen, set), testChecker); rep.OK || !blames(rep, "predicate.plan.chains") {
		t.Errorf("in a chosen order: %+v", rep)
	}
}

// The slot of a reply is read since later than the first receipts: a record that does not
// hold it is as good as it was; that one may hold no other is among TestVerifyRecords.
func TestVerifyReadsMoreThanItDid(t *testing.T) {
	set := testSet(4)
	dir := sealed(t, testPlan(set), set)
	c := testChecker
	c.Decode = func(dialect string, r *probes.Reply) (probes.Decoded, error) {
		got, err := testDecode(dialect, r)
		got.Slot = ptr(3)
		return got, err
	}
	if rep := Verify(dir, c); !rep.OK {
		t.Errorf("records from before: %+v", rep.Problems)
	}
}

// What this user may not read refutes nothing; what does not hold beside it does.
func TestUnreadableIsNotRefuted(t *testing.T) {
	denied := fmt.Errorf("transcript: %w", fs.ErrPermission)
	var r Report
	r.add("transcript.jsonl", "%v", denied)
	if got := r.close(); got.OK || got.Exit != scoring.ExitInvalid {
		t.Errorf("unreadable alone: exit %d", got.Exit)
	}
	r = Report{}
	r.add("transcript.jsonl", "%v", denied)
	r.add("plan.json", "another digest")
	if got := r.close(); got.Exit != scoring.ExitCorrupt {
		t.Errorf("refuted beside it: exit %d", got.Exit)
	}
}
