package receipts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/receipts/digest"
)

// matrix is one signed run folder that is damaged in one way at a time, and what its
// verifier must say of each.
type matrix struct {
	t      *testing.T
	plan   arms.Plan
	proto  string // the sound folder
	c      Checker
	counts map[string]int
}

// fresh is a copy of the sound folder.
func (m *matrix) fresh() string {
	m.t.Helper()
	dir := m.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(m.proto)); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// refused asks that a damaged folder does not hold, for the reason wanted.
func (m *matrix) refused(kind, what, dir, path, want string, c Checker) {
	m.t.Helper()
	m.counts[kind]++
	rep := Verify(dir, c)
	if rep.OK || rep.Exit == 0 {
		m.t.Errorf("%s, %s: ACCEPTED", kind, what)
		return
	}
	if !slices.ContainsFunc(rep.Problems, func(p Problem) bool { return strings.HasPrefix(p.Path, path) && strings.Contains(p.What, want) }) {
		m.t.Errorf("%s, %s: refused without %q about %s: %+v", kind, what, want, path, rep.Problems)
	}
}

// TestTamperMatrix damages a signed folder in every way of the list, as somebody who edits
// in passing and as somebody who puts every digest right again afterwards. None is accepted.
func TestTamperMatrix(t *testing.T) {
	set := testSet(2)
	m := &matrix{t: t, plan: testPlan(set), c: testChecker, counts: map[string]int{}}
	alice, mallory := testKey(t, "alice"), testKey(t, "mallory")
	m.proto = runFolder(t, m.plan, set)
	if err := Checkpoint(m.proto, alice); err != nil {
		t.Fatal(err)
	}
	seal := func(dir string, plan arms.Plan) {
		t.Helper()
		for _, f := range []string{ReceiptFile, ReceiptFile + ".sha256"} {
			os.Remove(filepath.Join(dir, f))
		}
		res, err := assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Seal(dir, plan, res, Options{Assess: testAssess}); err != nil {
			t.Fatal(err)
		}
	}
	seal(m.proto, m.plan)
	if err := alice.Sign(must(Open(m.proto))); err != nil {
		t.Fatal(err)
	}
	keyed := m.c
	keyed.Keys = []Key{alice.Public()}
	if rep := Verify(m.proto, keyed); !rep.OK || len(rep.Warnings) > 0 {
		t.Fatalf("the sound folder: %+v", rep)
	}

	// Each bit of the receipt.
	dir := m.fresh()
	receipt := must(os.ReadFile(filepath.Join(dir, ReceiptFile)))
	f := must(os.OpenFile(filepath.Join(dir, ReceiptFile), os.O_WRONLY, 0))
	defer f.Close()
	side := filepath.Join(dir, ReceiptFile+".sha256")
	sidecar := must(os.ReadFile(side))
	stride := 8*41 + 1 // of the bits that are followed by a new sidecar: those are parsed, which takes longer
	for bit := range 8 * len(receipt) {
		at := int64(bit / 8)
		b := receipt[at] ^ 1<<(bit%8)
		f.WriteAt([]byte{b}, at)
		m.refused("a bit of the receipt", fmt.Sprint("bit ", bit), dir, ReceiptFile, "its digest is", m.c)
		if bit%stride == 0 {
			changed := bytes.Clone(receipt)
			changed[at] = b
			os.WriteFile(side, []byte(digest.Of(changed).Hex()+"  "+ReceiptFile+"\n"), 0o644)
			m.refused("a bit of the receipt, and its digest", fmt.Sprint("bit ", bit), dir, "", "", keyed)
			os.WriteFile(side, sidecar, 0o644)
		}
		f.WriteAt(receipt[at:at+1], at)
	}

	// Lines of transcript and ledger.
	for _, name := range []string{TranscriptFile, LedgerFile} {
		lines := bytes.SplitAfter(must(os.ReadFile(filepath.Join(m.proto, name))), []byte("\n"))
		lines = lines[:len(lines)-1]
		for i := range lines {
			for how, edited := range map[string][][]byte{
				"drop":   slices.Delete(slices.Clone(lines), i, i+1),
				"repeat": slices.Insert(slices.Clone(lines), i, lines[i]),
				"swap":   swapped(lines, i, (i+1)%len(lines)),
			} {
				whole := bytes.Join(edited, nil)
				dir := m.fresh()
				os.WriteFile(filepath.Join(dir, name), whole, 0o644)
				what := fmt.Sprintf("%s line %d", how, i+1)
				m.refused("a line of "+name, what, dir, name, "it was changed", m.c)
				if how == "drop" && i == len(lines)-1 {
					// The last line is named by no other: what was cut off is missed elsewhere.
					reseal(t, dir, func(*Receipt) {})
					m.refused("a line of "+name+", and the receipt", what, dir, "", "", m.c)
					continue
				}
				want := "seq"
				if name == LedgerFile && i == 0 && how != "repeat" {
					want = ""
				}
				reseal(t, dir, func(*Receipt) {})
				m.refused("a line of "+name+", and the receipt", what, dir, name, want, m.c)
			}
		}
	}

	// Every file that is covered, emptied; objects also with the receipt put right.
	for _, e := range must(Walk(m.proto)) {
		if e.Empty {
			continue
		}
		dir := m.fresh()
		os.WriteFile(filepath.Join(dir, filepath.FromSlash(e.Name)), nil, 0o644)
		m.refused("a file emptied", e.Name, dir, e.Name, "it was changed", m.c)
		if strings.HasPrefix(e.Name, ObjectDir) {
			reseal(t, dir, func(*Receipt) {})
			m.refused("a file emptied, and the receipt", e.Name, dir, e.Name, "an object is named by its digest", m.c)
		}
	}

	// A threshold, after the controls and after the treatment.
	loose := testPlan(set, func(p *arms.Plan) { p.Design.Rule.Alpha.Failures = 1e-9 })
	for after, want := range map[int]string{2: "may not touch failures, alpha", 3: "is part of what is run"} {
		dir := m.fresh()
		os.Remove(filepath.Join(dir, CheckpointFile))
		path := filepath.Join(dir, LedgerFile)
		es := must(ReadLedger(path))
		edit := Edit{Op: "replace", Path: "/design/rule/alpha/failures", Old: 0.04, Value: 1e-9}
		to, _, _ := loose.Digest()
		if after == 3 {
			// After the treatment thresholds are exploratory; what was run is nobody's to change.
			edit = Edit{Op: "replace", Path: "/pins/model", Old: "m", Value: "m2"}
		}
		doc := amendmentDocument{Schema: AmendmentSchema, Why: "a better threshold", From: es[0].Object.Plan, To: to, Edits: []Edit{edit}}
		object, b, err := digest.OfJSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(dir, filepath.FromSlash(ObjectDir), object.Hex()), b, 0o644)
		rechain(t, path, slices.Insert(es, after, LedgerEntry{Kind: LedgerAmendment, UTC: es[after-1].UTC, Object: LedgerObject{Plan: es[0].Object.Plan, Amendment: object, What: doc.Why}}))
		reseal(t, dir, func(*Receipt) {})
		m.refused("a threshold, by a forged amendment", fmt.Sprint("after entry ", after), dir, LedgerFile, want, m.c)
	}
	// After the treatment it can be written down, as exploratory; it cannot be passed over in
	// the receipt, nor stand there as if it had come before.
	for what, claim := range map[string]func(r *Receipt, a Amendment){
		"not mentioned": func(*Receipt, Amendment) {},
		"as class B": func(r *Receipt, a Amendment) {
			a.Class = ClassB
			r.Predicate.Amendments = []Amendment{a}
			r.Predicate.Registered = &Analysis{Plan: r.Predicate.Prereg.Plan, Amendments: []int64{}, Arms: []ArmVerdict{}}
		},
	} {
		dir := m.fresh()
		os.Remove(filepath.Join(dir, CheckpointFile))
		for _, f := range []string{ReceiptFile, ReceiptFile + ".sha256"} {
			os.Rename(filepath.Join(dir, f), filepath.Join(dir, f+".kept"))
		}
		a, err := Amend(dir, loose, "a better threshold")
		if err != nil || a.Class != ClassC {
			t.Fatalf("%+v %v", a, err)
		}
		for _, f := range []string{ReceiptFile, ReceiptFile + ".sha256"} {
			os.Rename(filepath.Join(dir, f+".kept"), filepath.Join(dir, f))
		}
		reseal(t, dir, func(r *Receipt) { claim(r, a) })
		m.refused("a threshold, after the treatment", what, dir, "predicate.amendments", "the ledger gives", m.c)
	}
	for what, place := range map[string]func(r *Receipt){
		"in the receipt": func(r *Receipt) { r.Predicate.Plan.Design.Rule.Alpha.Failures = 1e-9 },
		"in the receipt and its registration": func(r *Receipt) {
			r.Predicate.Plan = loose
			r.Predicate.Prereg.Plan, _, _ = loose.Digest()
			r.Predicate.Result.Plan = string(r.Predicate.Prereg.Plan)
		},
	} {
		dir := m.fresh()
		reseal(t, dir, place)
		m.refused("a threshold", what, dir, "", "the registration is", m.c)
	}
	dir = m.fresh()
	_, pb, _ := loose.Digest()
	os.WriteFile(filepath.Join(dir, PlanFile), pb, 0o644)
	m.refused("a threshold", "in plan.json", dir, PlanFile, "it was changed", m.c)
	reseal(t, dir, func(r *Receipt) {
		r.Predicate.Plan = loose
		r.Predicate.Prereg.Plan, _, _ = loose.Digest()
		r.Predicate.Result.Plan = string(r.Predicate.Prereg.Plan)
	})
	m.refused("a threshold", "in plan.json, receipt and registration", dir, TranscriptFile, "its first record does not name the plan", m.c)

	// Dates.
	for _, name := range []string{TranscriptFile, LedgerFile} {
		whole := must(os.ReadFile(filepath.Join(m.proto, name)))
		year := []byte(fmt.Sprint(time.Now().UTC().Year(), "-"))
		dir := m.fresh()
		os.WriteFile(filepath.Join(dir, name), bytes.Replace(whole, year, []byte("2019-"), 1), 0o644)
		m.refused("a date", "in "+name, dir, name, "it was changed", m.c)
		reseal(t, dir, func(*Receipt) {})
		m.refused("a date", "in "+name+", and the receipt", dir, name, map[string]string{TranscriptFile: "changed after it was written", LedgerFile: "as the line before"}[name], m.c)
	}
	dir = m.fresh()
	os.Remove(filepath.Join(dir, CheckpointFile))
	es := must(ReadLedger(filepath.Join(dir, LedgerFile)))
	es[len(es)-1].UTC = "2019-01-01T00:00:00Z"
	rechain(t, filepath.Join(dir, LedgerFile), es)
	reseal(t, dir, func(*Receipt) {})
	m.refused("a date", "in the ledger, chain and receipt", dir, LedgerFile, "it is dated", m.c)
	// The dates of the files themselves say nothing, to nobody.
	dir = m.fresh()
	for _, e := range must(Walk(dir)) {
		os.Chtimes(filepath.Join(dir, filepath.FromSlash(e.Name)), time.Unix(0, 0), time.Unix(0, 0))
	}
	if rep := Verify(dir, keyed); !rep.OK || rep.Order != O1 {
		t.Errorf("a file's own date changed what is shown: %+v", rep)
	}

	// Two arms swapped, throughout the transcript, with everything that can be made good.
	dir = m.fresh()
	path := filepath.Join(dir, TranscriptFile)
	recs := must(readTranscript(path))
	os.Remove(path)
	w := must(probes.OpenWriter(path))
	for _, r := range recs {
		r.Arm = map[string]string{"C0": "WARM", "WARM": "C0", "": ""}[r.Arm]
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	m.refused("arms swapped", "in the transcript", dir, TranscriptFile, "it was changed", m.c)
	seal(dir, m.plan)
	m.refused("arms swapped", "in the transcript, sealed anew", dir, TranscriptFile, "its request id is", m.c)
	dir = m.fresh()
	reseal(t, dir, func(r *Receipt) {
		as := r.Predicate.Result.Arms
		as[0].Outcomes, as[1].Outcomes = as[1].Outcomes, as[0].Outcomes
	})
	m.refused("arms swapped", "in the receipt", dir, "predicate.result", "another result", m.c)

	// Another key, or none.
	dir = m.fresh()
	os.Remove(filepath.Join(dir, SignatureFile))
	m.refused("a signature", "taken away", dir, SignatureFile, "is not signed", keyed)
	if err := mallory.Sign(must(Open(dir))); err != nil {
		t.Fatal(err)
	}
	m.refused("a signature", "by another key", dir, SignatureFile, "none of the given keys signed it", keyed)
	dir = m.fresh()
	reseal(t, dir, func(r *Receipt) { r.Predicate.Tool.Version = "v9" })
	m.refused("a signature", "over another receipt", dir, SignatureFile, "it signs other bytes", keyed)
	os.Remove(filepath.Join(dir, CheckpointFile))
	if err := Checkpoint(dir, mallory); err != nil {
		t.Fatal(err)
	}
	reseal(t, dir, func(*Receipt) {})
	m.refused("a signature", "another's on the ledger", dir, CheckpointFile, "none of the given keys signed it", keyed)

	// A run made all over again, by another plan: consistent, and not Alice's.
	dir = runFolder(t, loose, set)
	seal(dir, loose)
	if err := mallory.Sign(must(Open(dir))); err != nil {
		t.Fatal(err)
	}
	m.refused("a full rewrite", "signed by another", dir, SignatureFile, "none of the given keys signed it", keyed)

	total := 0
	for _, kind := range sortedKeys(m.counts) {
		total += m.counts[kind]
		t.Logf("%6d  %s", m.counts[kind], kind)
	}
	t.Logf("%6d damaged folders, none accepted", total)
	if total < 10000 {
		t.Errorf("only %d damaged folders", total)
	}
}

func swapped(lines [][]byte, i, j int) [][]byte {
	out := slices.Clone(lines)
	out[i], out[j] = out[j], out[i]
	return out
}
