package climb

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/receipts"
	"kvladder/receipts/digest"
)

// Rounds of quicknet, as drand's HTTP API gives them.
var (
	round1000   = &receipts.Beacon{Chain: receipts.QuicknetChain, Round: 1000, Signature: "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"}
	round657413 = &receipts.Beacon{Chain: receipts.QuicknetChain, Round: 657413, Signature: "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"}
)

// The beacon is entered once, before any arm; a climb that goes on takes the ledger's.
func TestCarry(t *testing.T) {
	plan := digest.Of([]byte("plan"))
	fresh := func(kinds ...string) *Folder {
		f := &Folder{Path: t.TempDir()}
		for _, kind := range kinds {
			o := receipts.LedgerObject{Plan: plan}
			if kind == receipts.LedgerBeacon {
				o.Beacon = round1000
			}
			if _, err := receipts.AppendLedger(f.Ledger(), kind, o); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	prereg, beacon, start := receipts.LedgerPrereg, receipts.LedgerBeacon, receipts.LedgerArmStart
	for _, c := range []struct {
		kinds []string
		given *receipts.Beacon
		ids   digest.Digest
		lines int
		want  string
	}{
		{[]string{prereg}, nil, plan, 1, ""},
		{[]string{prereg}, round1000, round1000.IDs(plan), 2, ""},
		{[]string{prereg, beacon}, nil, round1000.IDs(plan), 2, ""},
		{[]string{prereg, beacon, start}, nil, round1000.IDs(plan), 3, ""},
		{[]string{prereg, beacon, start}, round1000, round1000.IDs(plan), 3, ""},
		{[]string{prereg, beacon}, round657413, "", 2, "holds round 1000 of the beacon, --beacon gives round 657413"},
		{[]string{prereg, start}, nil, plan, 2, ""},
		{[]string{prereg, start}, round1000, "", 2, "run without a beacon"},
		{[]string{prereg, start, beacon}, nil, "", 3, "came after an arm had started"},
	} {
		f := fresh(c.kinds...)
		climb := &Climb{Folder: f, Beacon: c.given, digest: string(plan)}
		err := climb.carry()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, given %v: %v, want %q", c.kinds, c.given, err, c.want)
		}
		if climb.ids != string(c.ids) {
			t.Errorf("%v, given %v: ids of %s, want %s", c.kinds, c.given, climb.ids, c.ids)
		}
		if es, err := receipts.ReadLedger(f.Ledger()); err != nil || len(es) != c.lines || es[0].Kind != prereg {
			t.Errorf("%v, given %v: %v, %+v", c.kinds, c.given, err, es)
		}
	}
}

// A climb that was killed before its transcript began leaves a registration and a beacon.
func TestTornBeacon(t *testing.T) {
	f := &Folder{Path: t.TempDir()}
	add := func(kind string, o receipts.LedgerObject) {
		if _, err := receipts.AppendLedger(f.Ledger(), kind, o); err != nil {
			t.Fatal(err)
		}
	}
	add(receipts.LedgerPrereg, receipts.LedgerObject{})
	add(receipts.LedgerBeacon, receipts.LedgerObject{Beacon: round1000})
	if what := f.torn(false); what != "" {
		t.Error(what)
	}
	add(receipts.LedgerArmStart, receipts.LedgerObject{Arm: "C0"})
	if what := f.torn(false); !strings.Contains(what, "transcript.jsonl is gone") {
		t.Errorf("%q", what)
	}
}

// far launches harnesses elsewhere, and they end at once.
type far struct {
	once
	specs []arms.Spec
}

func (*far) Beside() arms.Launcher { return &once{} }

func (f *far) Launch(ctx context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	f.specs = append(f.specs, spec)
	return f.once.Launch(ctx, spec, log)
}

// The harness of a chain that is climbed elsewhere is told the beacon.
func TestBeaconElsewhere(t *testing.T) {
	for _, b := range []*receipts.Beacon{nil, round1000} {
		f := &far{once: once{ended: true}}
		c := &Climb{Folder: &Folder{Path: t.TempDir()}, Plan: &arms.Plan{}, Self: "kvladder", Beacon: b}
		if err := os.MkdirAll(filepath.Join(c.Folder.Path, "logs"), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = c.await(t.Context(), f, job{chain: arms.Chain{Name: "main", Arms: []string{"WARM"}}}, "main#0.1") // nothing was climbed
		if len(f.specs) != 1 {
			t.Fatalf("%d launches", len(f.specs))
		}
		argv := f.specs[0].Argv
		i := slices.Index(argv, "--beacon")
		if b == nil && i >= 0 || b != nil && (i < 0 || i+1 >= len(argv)) {
			t.Fatalf("%v", argv)
		}
		if b != nil {
			if got, err := receipts.ParseBeacon(argv[i+1]); err != nil || *got != *b {
				t.Errorf("%v: %v", argv, err)
			}
		}
	}
}
