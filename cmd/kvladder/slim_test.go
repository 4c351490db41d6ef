package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/probes"
	"kvladder/receipts"
)

// What a verifier leaves out of the records is read by nobody: a published ladder, one reply
// of which is a server's complaint of its own numbers, comes to the same without it.
func TestSlimChangesNoResult(t *testing.T) {
	const data = "testdata/published-ladder-4arm"
	dir := filepath.Join(t.TempDir(), "run")
	if code, _, errs := kvladder(t, "import", "--out", dir, "L0="+data+"/arm-L0.json.gz", "L1cold="+data+"/arm-L1cold.json.gz"); code != 1 {
		t.Fatal(errs)
	}
	read := func() []probes.Record {
		_, _, recs, err := readFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range recs {
			if r := recs[i].Reply; r != nil && recs[i].Arm == "L1cold" {
				r.Status, r.Error, r.ErrorKind, r.Decoded = 500, "status 500", "http", probes.Decoded{}
				r.Raw = "ValueError: Out of range float values are not JSON compliant"
				break
			}
		}
		return recs
	}
	p, s, _, err := readFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := assess(p, s, read())
	if err != nil {
		t.Fatal(err)
	}
	recs := read()
	d, _, err := p.Digest()
	if err != nil {
		t.Fatal(err)
	}
	got, err := reassess(receipts.Question{Plan: *p, Registered: d, Set: s}, func(yield func(probes.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	arm, n := armNamed(t, got, "L1cold"), 0
	for _, d := range arm.Detectors {
		n += d
	}
	if n == 0 || arm.Failed != 8 {
		t.Errorf("%d failed, %v: the complaint was not read", arm.Failed, arm.Detectors)
	}
	kept := 0
	for _, r := range recs {
		if r.Reply != nil {
			kept += len(r.Reply.Raw)
		}
	}
	if kept > 200 {
		t.Errorf("%d bytes of replies are held that were compared already", kept)
	}
}

// Scoring holds a forced reply against the tokens that its request named.
func TestSlimKeepsTraces(t *testing.T) {
	forced := probes.Record{Reply: &probes.Reply{Prompt: "a", SentBody: `{"prompt":[1],"trace_decode_token_ids":[5,6]}`}}
	pinned := probes.Record{Reply: &probes.Reply{Prompt: "a", SentBody: `{"prompt":[1],"rank":1}`}}
	s := newSlimmer()
	s.record(&forced)
	s.record(&pinned)
	if got := forced.Reply.Trace(); len(got) != 2 || got[0] != 5 || got[1] != 6 {
		t.Errorf("the trace is gone: %v", got)
	}
	if pinned.Reply.SentBody != "" {
		t.Error("a body that nothing reads is kept")
	}
}
