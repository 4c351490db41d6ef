package receipts

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"kvladder/receipts/digest"
)

// Rounds of quicknet as drand's HTTP API gives them.
const (
	randomness1000   = "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd"
	signature1000    = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
	randomness657413 = "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587"
	signature657413  = "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"
)

func beacon1000() *Beacon {
	return &Beacon{Chain: QuicknetChain, Round: 1000, Signature: signature1000}
}

func beacon657413() *Beacon {
	return &Beacon{Chain: QuicknetChain, Round: 657413, Signature: signature657413}
}

func TestBeaconPublishedRounds(t *testing.T) {
	for _, c := range []struct {
		b               *Beacon
		randomness, utc string
	}{
		{beacon1000(), randomness1000, "2023-08-23T15:59:24Z"},
		{beacon657413(), randomness657413, "2023-09-15T11:00:03Z"},
	} {
		if err := c.b.Check(); err != nil {
			t.Errorf("round %d: %v", c.b.Round, err)
		}
		if got := hex.EncodeToString(c.b.randomness()); got != c.randomness {
			t.Errorf("round %d: randomness %s", c.b.Round, got)
		}
		if got := c.b.Time().Format(time.RFC3339); got != c.utc {
			t.Errorf("round %d: published %s, want %s", c.b.Round, got, c.utc)
		}
		again, err := ParseBeacon(c.b.String())
		if err != nil || *again != *c.b {
			t.Errorf("%v, %v", again, err)
		}
	}
}

func TestBeaconRefuses(t *testing.T) {
	check := func(what string, change func(b *Beacon)) {
		t.Helper()
		b := beacon1000()
		change(b)
		if b.Check() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	raw := must(hex.DecodeString(signature1000))
	for i := range 8 * len(raw) {
		if i%8 != i/8%8 && i > 8 {
			continue // one bit of each byte, and all of the first
		}
		flipped := slices.Clone(raw)
		flipped[i/8] ^= 1 << (i % 8)
		check(fmt.Sprintf("bit %d", i), func(b *Beacon) { b.Signature = hex.EncodeToString(flipped) })
	}
	check("the next round", func(b *Beacon) { b.Round++ })
	check("the round before", func(b *Beacon) { b.Round-- })
	check("round 0", func(b *Beacon) { b.Round = 0 })
	check("a negative round", func(b *Beacon) { b.Round = -1000 })
	check("another round's signature", func(b *Beacon) { b.Signature = signature657413 })
	check("another chain", func(b *Beacon) { b.Chain = strings.Repeat("0", 64) })
	check("no chain", func(b *Beacon) { b.Chain = "" })
	check("infinity", func(b *Beacon) { b.Signature = "c0" + strings.Repeat("0", 94) })
	check("infinity with a sign", func(b *Beacon) { b.Signature = "e0" + strings.Repeat("0", 94) })
	check("nothing", func(b *Beacon) { b.Signature = "" })
	check("capitals", func(b *Beacon) { b.Signature = strings.ToUpper(signature1000) })
	check("one byte less", func(b *Beacon) { b.Signature = signature1000[2:] })
	check("one byte more", func(b *Beacon) { b.Signature += "00" })
	check("uncompressed", func(b *Beacon) { b.Signature = "40" + strings.Repeat("0", 190) })
	for x := range 16 { // small x are on the curve now and then, and never in its subgroup
		check(fmt.Sprintf("x = %d", x), func(b *Beacon) { b.Signature = "80" + strings.Repeat("0", 92) + fmt.Sprintf("%02x", x) })
	}
	for _, bad := range []string{"", "1000", "x:" + signature1000, "1001:" + signature1000} {
		if _, err := ParseBeacon(bad); err == nil {
			t.Errorf("%q is a beacon", bad)
		}
	}
}

func TestReadBeacon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "round.json")
	check := func(content, want string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		b, err := ReadBeacon(path)
		switch {
		case want == "" && (err != nil || *b != *beacon1000()):
			t.Errorf("%s: %v, %v", content, b, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	good := `{"round":1000,"randomness":"` + randomness1000 + `","signature":"` + signature1000 + `"}`
	check(good, "")
	check(good+"\n", "")
	check(strings.Replace(good, "1000", "1001", 1), "not drand quicknet's for round 1001")
	check(strings.Replace(good, randomness1000, randomness657413, 1), "its randomness is not")
	check(strings.Replace(good, signature1000, signature657413, 1), "not drand quicknet's for round 1000")
	check(strings.Replace(good, `"signature"`, `"sign"`, 1), "it lacks")
	check(`{"round":1000,"randomness":"","signature":"`+signature1000+`","previous_signature":"00"}`, "chained network")
	check(strings.Replace(good, "1000", `"1000"`, 1), "not the JSON of a drand round")
	check("", "not the JSON of a drand round")
	check(good+good, "not the JSON of a drand round")
	check(strings.Repeat(" ", mostBeacon)+good, "are the most")
	if _, err := ReadBeacon(path + ".not"); err == nil || !strings.Contains(err.Error(), "curl") {
		t.Error(err)
	}
}

// The derivation is one that a shell can make:
//
//	(printf %s sha256:aa; printf %s fe29…4fdd | xxd -r -p) | sha256sum
func TestBeaconIDs(t *testing.T) {
	var none *Beacon
	if got := none.IDs("sha256:aa"); got != "sha256:aa" {
		t.Error(got)
	}
	if got := beacon1000().IDs("sha256:aa"); got != "sha256:c4e00cc52ef220b7e8b32b39cfe5728e147b3ca737ac91740b84db0446c2cef8" {
		t.Error(got)
	}
}

// relaid writes other entries into a sealed folder's ledger, chains them anew and seals the
// folder again, as somebody does who puts every digest right.
func relaid(t *testing.T, dir string, b *Beacon, change func(es []LedgerEntry) []LedgerEntry) {
	t.Helper()
	path := filepath.Join(dir, LedgerFile)
	es := change(must(ReadLedger(path)))
	var all []byte
	var prev digest.Digest
	utc := make([]string, len(es))
	for i, e := range es {
		utc[i] = e.UTC
	}
	slices.Sort(utc)
	for i, e := range es {
		e.Seq, e.Prev, e.UTC = int64(i), prev, utc[i]
		line := append(must(digest.Canonical(e)), '\n')
		prev = digest.Of(line)
		all = append(all, line...)
	}
	if err := os.WriteFile(path, all, 0o644); err != nil {
		t.Fatal(err)
	}
	plan := es[0].Object.Plan
	reseal(t, dir, func(r *Receipt) {
		r.Predicate.Beacon = b
		r.Predicate.Order = orderOf(false, must(ReadLedger(path)), nil, plan, plan)
	})
}

func TestVerifyBeacon(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	b := beacon1000()
	sound := func(entered, ids *Beacon) string {
		dir := carrying(t, plan, set, entered, ids)
		seal(t, dir, plan, set)
		return dir
	}
	rep := Verify(sound(b, b), testChecker)
	if !rep.OK || rep.Order != O3 || rep.Beacon == nil || *rep.Beacon != (Published{Round: 1000, UTC: "2023-08-23T15:59:24Z"}) {
		t.Errorf("%+v", rep)
	}
	if rep := Verify(sound(nil, nil), testChecker); !rep.OK || rep.Order != O1 || rep.Beacon != nil {
		t.Errorf("without a beacon: %+v", rep)
	}
	refused := func(what, dir, path, want, order string) {
		t.Helper()
		rep := Verify(dir, testChecker)
		if rep.OK || rep.Exit != 1 || rep.Order != order || rep.Beacon != nil {
			t.Errorf("%s: %+v", what, rep)
		}
		if !slices.ContainsFunc(rep.Problems, func(p Problem) bool { return strings.HasPrefix(p.Path, path) && strings.Contains(p.What, want) }) {
			t.Errorf("%s: want %q about %s: %+v", what, want, path, rep.Problems)
		}
	}
	refused("ids of the plan alone", sound(b, nil), TranscriptFile+":", "the plan and the beacon give", O0)
	refused("ids of another round", sound(b, beacon657413()), TranscriptFile+":", "the plan and the beacon give", O0)
	refused("ids of a beacon that nobody entered", sound(nil, b), TranscriptFile+":", "the plan gives", O0)

	is := func(e LedgerEntry) bool { return e.Kind == LedgerBeacon }
	wrong := beacon1000()
	wrong.Signature = signature657413
	for _, c := range []struct {
		what   string
		sealed *Beacon
		want   string
		change func(es []LedgerEntry) []LedgerEntry
	}{
		{"wrong signature", wrong, "the beacon of entry 1 does not hold", func(es []LedgerEntry) []LedgerEntry {
			es[1].Object.Beacon = wrong
			return es
		}},
		{"after an arm had started", b, "came after an arm had started (entry 1)", func(es []LedgerEntry) []LedgerEntry {
			es[1], es[2] = es[2], es[1]
			return es
		}},
		{"last", b, "came after an arm had started", func(es []LedgerEntry) []LedgerEntry {
			i := slices.IndexFunc(es, is)
			return append(slices.Delete(slices.Clone(es), i, i+1), es[i])
		}},
		{"twice", b, "a second beacon", func(es []LedgerEntry) []LedgerEntry { return slices.Insert(es, 2, es[1]) }},
		{"empty", b, "holds none", func(es []LedgerEntry) []LedgerEntry {
			es[1].Object.Beacon = nil
			return es
		}},
		{"another kind", b, `is of kind "deviation" and holds a beacon`, func(es []LedgerEntry) []LedgerEntry {
			es[1].Kind = LedgerDeviation
			return es
		}},
	} {
		dir := sound(b, b)
		if *c.sealed != *b { // the ids follow
			dir = carrying(t, plan, set, b, c.sealed)
			seal(t, dir, plan, set)
		}
		relaid(t, dir, c.sealed, c.change)
		refused(c.what, dir, LedgerFile, c.want, O1)
	}
	dir := sound(b, b)
	relaid(t, dir, nil, func(es []LedgerEntry) []LedgerEntry { return es })
	refused("left out of the receipt", dir, "predicate.beacon", "the ledger gives", O0)
	dir = sound(b, b)
	relaid(t, dir, b, func(es []LedgerEntry) []LedgerEntry { return slices.DeleteFunc(es, is) })
	refused("left out of the ledger", dir, "predicate.beacon", "the ledger gives", O1)

	// A receipt alone says it of the beacon as well.
	dir = sound(b, b)
	reseal(t, dir, func(r *Receipt) { r.Predicate.Beacon.Round++ })
	alone := t.TempDir()
	for _, name := range []string{ReceiptFile, ReceiptFile + ".sha256"} {
		os.WriteFile(filepath.Join(alone, name), must(os.ReadFile(filepath.Join(dir, name))), 0o644)
	}
	refused("a receipt alone", filepath.Join(alone, ReceiptFile), "predicate.beacon", "not drand quicknet's for round 1001", O0)

	// What verify would refuse is not sealed.
	dir = carrying(t, plan, set, nil, b)
	if _, err := AppendLedger(filepath.Join(dir, LedgerFile), LedgerBeacon, LedgerObject{Plan: must1(plan.Digest()), Beacon: b}); err != nil {
		t.Fatal(err)
	}
	res := must(assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile)))))
	if _, err := Seal(dir, plan, res, Options{}); err == nil || !strings.Contains(err.Error(), "came after an arm had started") {
		t.Errorf("a late beacon is sealed: %v", err)
	}
}

func must1[T, U any](v T, _ U, err error) T { return must(v, err) }

// The plan is shown to come before the data where a witness had seen it before the round.
func TestPlanBeforeData(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	b := beacon1000()
	dir := carrying(t, plan, set, b, b)
	seal(t, dir, plan, set)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	c := testChecker
	c.Witnesses = []Key{{Name: "witness.example", Public: key.Public().(ed25519.PublicKey)}}
	tree := must(LedgerTree(filepath.Join(dir, LedgerFile)))
	text := must(checkpointText(LedgerOrigin(must1(plan.Digest())), tree, 1))
	for _, x := range []struct {
		after time.Duration
		want  string
	}{{-time.Hour, O4}, {-time.Second, O4}, {0, O3}, {time.Second, O3}, {24 * time.Hour, O3}} {
		w := &witnessSigner{name: "witness.example", key: key, at: b.Time().Add(x.after)}
		signed := must(note.Sign(&note.Note{Text: text}, testKey(t, "alice").signer, w))
		if err := os.WriteFile(filepath.Join(dir, CosignedFile), signed, 0o644); err != nil {
			t.Fatal(err)
		}
		if rep := Verify(dir, c); !rep.OK || rep.Order != x.want || len(rep.Witnessed) != 1 || rep.Beacon == nil {
			t.Errorf("seen %v after the round: %+v, want %s", x.after, rep, x.want)
		}
	}
	// Nobody who is not trusted counts.
	if rep := Verify(dir, testChecker); !rep.OK || rep.Order != O3 {
		t.Errorf("%+v", rep)
	}
}

// An amendment that governs has to have been seen as well; one of class C decides nothing.
func TestAmendmentBeforeData(t *testing.T) {
	b := beacon1000()
	seen := func(size int64) []Sighting {
		return []Sighting{{By: "w", Size: size, UTC: b.Time().Add(-time.Minute).Format(time.RFC3339)}}
	}
	for _, c := range []struct {
		size  int64
		class string
		want  string
	}{{1, ClassA, O3}, {2, ClassA, O4}, {1, ClassB, O3}, {1, ClassC, O4}} {
		if got := timed(seen(c.size), b, []Amendment{{Class: c.class, Entry: 1}}); got != c.want {
			t.Errorf("%d entries seen, an amendment of class %s as the second: %s, want %s", c.size, c.class, got, c.want)
		}
	}
	if got := timed(seen(1), nil, nil); got != O2 {
		t.Error(got)
	}
	if got := timed(nil, b, nil); got != O3 {
		t.Error(got)
	}
}
