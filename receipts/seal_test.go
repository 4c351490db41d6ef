package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kvladder/arms"
	"kvladder/receipts/digest"
	"kvladder/scoring"

	"pgregory.net/rapid"
)

func jsonRaw(b []byte) any { return json.RawMessage(b) }

// The shell line of the package comment.
func TestSidecarIsSha256sum(t *testing.T) {
	sum, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("no sha256sum here")
	}
	set := testSet(2)
	cmd := exec.Command(sum, "-c", "receipt.json.sha256")
	cmd.Dir = sealed(t, testPlan(set), set)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSealOnce(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	dir := sealed(t, plan, set)
	before := must(os.ReadFile(filepath.Join(dir, ReceiptFile)))
	res := must(assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile)))))
	var exists *ExistsError
	if _, err := Seal(dir, plan, res, Options{Tool: Tool{Version: "v0"}}); !errors.As(err, &exists) {
		t.Errorf("sealed twice: %v", err)
	}
	// A crash between receipt and sidecar: the same content finishes it, another does not.
	os.Remove(filepath.Join(dir, ReceiptFile+".sha256"))
	if _, err := Seal(dir, plan, res, Options{Tool: Tool{Version: "v1"}}); !errors.As(err, &exists) {
		t.Errorf("another content: %v", err)
	}
	if _, err := Seal(dir, plan, res, Options{Tool: Tool{Version: "v0"}}); err != nil {
		t.Errorf("the same content: %v", err)
	}
	if !bytes.Equal(before, must(os.ReadFile(filepath.Join(dir, ReceiptFile)))) {
		t.Error("the receipt changed")
	}
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Errorf("%+v", rep)
	}
	entries := must(os.ReadDir(dir))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// Of many sealers one wins, and the sidecar is of its receipt.
func TestSealRace(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	dir := runFolder(t, plan, set)
	res := must(assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile)))))
	var wg sync.WaitGroup
	won := make(chan digest.Digest, 8)
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if d, err := Seal(dir, plan, res, Options{Tool: Tool{Version: fmt.Sprint("v", i)}}); err == nil {
				won <- d
			}
		}()
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d sealers won", len(won))
	}
	if r := must(Open(dir)); r.Digest() != <-won {
		t.Error("the receipt is not the winner's")
	}
}

func TestSealRefuses(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	res := must(assessed(plan, set, nil))
	check := func(what string, change func(dir string)) {
		t.Helper()
		dir := runFolder(t, plan, set)
		change(dir)
		if _, err := Seal(dir, plan, res, Options{}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %q", err, what)
		}
		if _, err := os.Stat(filepath.Join(dir, ReceiptFile)); err == nil {
			t.Error("there is a receipt all the same")
		}
	}
	check("is not the plan that was run", func(dir string) { os.WriteFile(filepath.Join(dir, PlanFile), []byte("{}"), 0o644) })
	check("the plan must be in the folder", func(dir string) { os.Remove(filepath.Join(dir, PlanFile)) })
	check("transcript", func(dir string) { os.Remove(filepath.Join(dir, TranscriptFile)) })
	check("torn", func(dir string) {
		path := filepath.Join(dir, TranscriptFile)
		b := must(os.ReadFile(path))
		os.WriteFile(path, b[:len(b)-5], 0o644)
	})
	check("ledger", func(dir string) { os.WriteFile(filepath.Join(dir, LedgerFile), []byte("{}\n"), 0o644) })
}

func TestOpenUnverified(t *testing.T) {
	set := testSet(2)
	dir := sealed(t, testPlan(set), set)
	path := filepath.Join(dir, ReceiptFile)
	b := must(os.ReadFile(path))
	check := func(content, sidecar []byte, what string, readable bool) {
		t.Helper()
		os.WriteFile(path, content, 0o644)
		os.WriteFile(path+".sha256", sidecar, 0o644)
		_, err := Open(path)
		var u *UnverifiedError
		if !errors.As(err, &u) || !strings.Contains(u.What, what) || (u.Receipt != nil) != readable {
			t.Errorf("error %v (%+v), want %q", err, u, what)
		}
	}
	line := func(b []byte) []byte { return []byte(digest.Of(b).Hex() + "  receipt.json\n") }
	changed := bytes.Replace(b, []byte(`"tiny"`), []byte(`"tinY"`), 1)
	check(changed, line(b), "its digest is", true)
	check(b, []byte("00  receipt.json\n"), "not the line", true)
	check(b, []byte(digest.Of(b).Hex()+"  other.json\n"), "not the line", true)
	check(b, []byte(digest.Of(b).Hex()+"  receipt.json"), "not the line", true)
	spaced := append(bytes.Clone(b), '\n')
	check(spaced, line(spaced), "not canonical", true)
	twice := bytes.Replace(b, []byte(`{"_type":`), []byte(`{"_type":"x","_type":`), 1)
	check(twice, line(twice), "not canonical", true)
	check([]byte("x"), line([]byte("x")), "not canonical", false)

	os.WriteFile(path, []byte("{}"), 0o644)
	os.WriteFile(path+".sha256", line([]byte("{}")), 0o644)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "not a receipt") {
		t.Errorf("another document: %v", err)
	}
	other := must(digest.Canonical(jsonRaw(bytes.Replace(b, []byte(Schema), []byte("kvladder/receipt/9"), 1))))
	os.WriteFile(path, other, 0o644)
	os.WriteFile(path+".sha256", line(other), 0o644)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "this program reads") {
		t.Errorf("another schema: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "was not finished") {
		t.Errorf("a folder without a receipt: %v", err)
	}
}

// What opens reseals to itself.
func TestReseals(t *testing.T) {
	set := testSet(3)
	base := must(Open(sealed(t, testPlan(set), set, "WARM/p1")))
	rapid.Check(t, func(t *rapid.T) {
		r := *base
		text := rapid.String()
		number := rapid.Custom(func(t *rapid.T) *float64 {
			if rapid.Bool().Draw(t, "absent") {
				return nil
			}
			return ptr(rapid.Float64().Draw(t, "number"))
		})
		r.Predicate.Warnings = rapid.SliceOf(text).Draw(t, "warnings")
		r.Predicate.Tool.Version = text.Draw(t, "version")
		arm := r.Predicate.Result.Arms[1]
		arm.D0Mean, arm.KLDMean, arm.PMcNemar = number.Draw(t, "d0"), number.Draw(t, "kld"), number.Draw(t, "p")
		arm.Detectors = rapid.MapOf(text, rapid.IntRange(-1<<53, 1<<53)).Draw(t, "detectors")
		arm.Columns = rapid.MapOf(text, text).Draw(t, "columns")
		arm.Outcomes = rapid.SliceOf(rapid.Custom(func(t *rapid.T) scoring.Outcome {
			return scoring.Outcome{ID: text.Draw(t, "id"), Failed: rapid.Bool().Draw(t, "failed"), D0: number.Draw(t, "d0")}
		})).Draw(t, "outcomes")
		r.Predicate.Result.Arms = []scoring.ArmResult{arm}
		b, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(b, true)
		if err != nil {
			t.Fatal(err)
		}
		if c := must(again.Marshal()); !bytes.Equal(b, c) || !canonicalBytes(b) {
			t.Fatalf("%s\n%s", b, c)
		}
	})
	if b := must(base.Marshal()); !bytes.Equal(b, base.Bytes()) || digest.Of(b) != base.Digest() {
		t.Error("a sealed receipt does not reseal to itself")
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), LedgerFile)
	if _, err := AppendLedger(path, LedgerArmStart, LedgerObject{}); err == nil || !strings.Contains(err.Error(), "first entry") {
		t.Errorf("an arm before the registration: %v", err)
	}
	for _, k := range []string{LedgerPrereg, LedgerArmStart, LedgerArmEnd, LedgerVerdict} {
		if _, err := AppendLedger(path, k, LedgerObject{Plan: digest.Of([]byte("plan")), Arm: "A"}); err != nil {
			t.Fatal(err)
		}
	}
	whole := must(os.ReadFile(path))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	read := func(b ...[]byte) error {
		os.WriteFile(path, bytes.Join(b, nil), 0o644)
		_, err := ReadLedger(path)
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	check := func(what string, b ...[]byte) {
		t.Helper()
		if err := read(b...); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %q", err, what)
		}
	}
	check("seq 1, want 0", lines[1])
	check("seq 2, want 1", lines[0], lines[2])
	check("as the line before", bytes.Replace(lines[0], []byte(`"A"`), []byte(`"B"`), 1), lines[1])
	check("not canonical", bytes.Replace(lines[0], []byte(`":"`), []byte(`": "`), 1))
	check("unknown field", bytes.Replace(lines[0], []byte(`"kind"`), []byte(`"kinds"`), 1))
	check("has no end", whole[:len(whole)-1])
	check(`the first entry is "verdict"`, bytes.Replace(lines[0], []byte(`"prereg"`), []byte(`"verdict"`), 1))
}

// No subject is the digest of nothing: it would be matched by every empty file. Receipts
// from before that was so hold still.
func TestSubjectsAreOfSomething(t *testing.T) {
	set := testSet(2)
	check := func(name string, want any, change func(*arms.Plan)) {
		t.Helper()
		plan := testPlan(set, change)
		d := must(digest.Canonical(want))
		got := subjects(plan)
		if len(got) != 1 || got[0].Name != name || got[0].Digest.Digest() != digest.Of(d) {
			t.Errorf("%+v, want %s of %s", got, name, d)
		}
		dir := sealed(t, plan, set)
		reseal(t, dir, func(r *Receipt) { r.Subject = olderSubjects(plan) })
		if rep := Verify(dir, testChecker); !rep.OK {
			t.Errorf("an older receipt: %+v", rep)
		}
		reseal(t, dir, func(r *Receipt) { r.Subject[0].Digest = digestSet(digest.Of([]byte("other"))) })
		if rep := Verify(dir, testChecker); rep.OK || !blames(rep, "subject") {
			t.Errorf("another subject: %+v", rep)
		}
	}
	check("pin/image", map[string]string{"image": ""}, func(p *arms.Plan) {
		p.Pins["image"] = ""
		for i := range p.Design.Arms {
			p.Design.Arms[i].Pins["image"] = ""
		}
	})
	check("pins", map[string]map[string]string{"C0": {"declared": "a"}, "WARM": {"declared": "b"}}, func(p *arms.Plan) {
		p.Subject, p.Pins = nil, map[string]string{}
		p.Design.Arms[0].Pins, p.Design.Arms[1].Pins = map[string]string{"declared": "a"}, map[string]string{"declared": "b"}
	})
}
