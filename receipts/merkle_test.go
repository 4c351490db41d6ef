package receipts

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// The eight leaves of the certificate transparency reference tree, and RFC 6962's hashes of
// a leaf and a node.
func TestTreeIsRFC6962(t *testing.T) {
	if h := tlog.RecordHash([]byte("L123456")); hex.EncodeToString(h[:]) != "395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56" {
		t.Errorf("leaf %x", h)
	}
	tree := new(Tree)
	for _, l := range []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"} {
		if err := tree.Add(must(hex.DecodeString(l))); err != nil {
			t.Fatal(err)
		}
	}
	root := must(tree.Root(8))
	if hex.EncodeToString(root[:]) != "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328" {
		t.Errorf("root %x", root)
	}
	first := must(tree.Root(1))
	if hex.EncodeToString(first[:]) != "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d" {
		t.Errorf("root of one leaf %x", first)
	}
	if _, err := tree.Root(9); err == nil {
		t.Error("a root over more leaves than there are")
	}
}

func testKey(t *testing.T, name string) *PrivateKey {
	t.Helper()
	private, _, err := GenerateKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return must(ParsePrivateKey(private))
}

func TestCheckpoint(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	alice, bob := testKey(t, "alice"), testKey(t, "bob")
	dir := runFolder(t, plan, set)
	if err := Checkpoint(dir, alice); err != nil {
		t.Fatal(err)
	}
	if err := Checkpoint(dir, bob); err == nil {
		t.Error("a checkpoint was written over")
	}
	res := must(assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile)))))
	if _, err := Seal(dir, plan, res, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := alice.Sign(must(Open(dir))); err != nil {
		t.Fatal(err)
	}
	c := testChecker
	c.Keys = []Key{alice.Public()}
	if rep := Verify(dir, c); !rep.OK || rep.Order != O1 || len(rep.SignedBy) != 1 || len(rep.Warnings) != 0 {
		t.Errorf("%+v", rep)
	}
	c.Keys = []Key{bob.Public()}
	if rep := Verify(dir, c); rep.OK || !blames(rep, CheckpointFile) || !blames(rep, SignatureFile) {
		t.Errorf("with another's key: %+v", rep)
	}
	// One key under two names is one signer.
	twice := alice.Public()
	twice.Name = "also-alice"
	c.Keys = []Key{alice.Public(), twice}
	if rep := Verify(dir, c); len(rep.SignedBy) != 1 {
		t.Errorf("signed by %v", rep.SignedBy)
	}

	// A checkpoint of another tree or log, properly signed.
	path := filepath.Join(dir, CheckpointFile)
	whole := must(os.ReadFile(path))
	pd, _, _ := plan.Digest()
	c.Keys = []Key{alice.Public()}
	check := func(text, want string) {
		t.Helper()
		b := must(note.Sign(&note.Note{Text: text}, alice.signer))
		if _, what := readCheckpoint(b, dir, pd, c, true); !strings.Contains(what, want) || want == "" && what != "" {
			t.Errorf("%q: %q, want %q", text, what, want)
		}
	}
	tree := must(LedgerTree(filepath.Join(dir, LedgerFile)))
	good := must(checkpointText(LedgerOrigin(pd), tree, tree.Size))
	check(good, "")
	check(must(checkpointText(LedgerOrigin(pd), tree, 1)), "")
	check(strings.Replace(good, fmt.Sprintf("\n%d\n", tree.Size), "\n9\n", 1), "entries were cut off")
	check(strings.Replace(good, fmt.Sprintf("\n%d\n", tree.Size), "\n2\n", 1), "its root is not that of the first 2 entries")
	check(strings.Replace(good, fmt.Sprintf("\n%d\n", tree.Size), "\n03\n", 1), "its size is")
	check("elsewhere\n"+good[strings.IndexByte(good, '\n')+1:], "another log")
	if _, what := readCheckpoint(bytes.Replace(whole, []byte("\n3\n"), []byte("\n2\n"), 1), dir, pd, c, true); !strings.Contains(what, "no signed note") {
		t.Errorf("changed after signing: %q", what)
	}
}

// A witness cosigns the tree at a time of its own clock: the registration is not later.
func TestWitness(t *testing.T) {
	set := testSet(2)
	plan := testPlan(set)
	dir := sealed(t, plan, set)
	pd, _, _ := plan.Digest()
	seed := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	w := &witnessSigner{name: "witness.example", key: seed, at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	tree := must(LedgerTree(filepath.Join(dir, LedgerFile)))
	text := must(checkpointText(LedgerOrigin(pd), tree, 1))
	b := must(note.Sign(&note.Note{Text: text}, testKey(t, "alice").signer, w))
	os.WriteFile(filepath.Join(dir, CosignedFile), b, 0o644)

	vkey := fmt.Sprintf("%s+%08x+%s", w.name, w.KeyHash(), base64.StdEncoding.EncodeToString(append([]byte{cosignatureType}, seed.Public().(ed25519.PublicKey)...)))
	c := testChecker
	c.Witnesses = []Key{must(ParseWitness(vkey))}
	rep := Verify(dir, c)
	if !rep.OK || rep.Order != O2 || len(rep.Witnessed) != 1 || rep.Witnessed[0] != (Sighting{By: "witness.example", Size: 1, UTC: "2026-03-01T12:00:00Z"}) {
		t.Errorf("%+v", rep)
	}
	// Without a witness that is trusted there is no time.
	if rep := Verify(dir, testChecker); !rep.OK || rep.Order != O1 || len(rep.Warnings) != 1 {
		t.Errorf("without a key: %+v", rep)
	}
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32))
	c.Witnesses = []Key{{Name: "witness.example", Public: other.Public().(ed25519.PublicKey)}}
	if rep := Verify(dir, c); rep.OK || rep.Order != O1 || !blames(rep, CosignedFile) {
		t.Errorf("another witness: %+v", rep)
	}
	// A cosignature moved to another second is none.
	late := *w
	late.at = w.at.Add(time.Hour)
	sig := must(w.Sign([]byte(text)))
	sig[7]++
	if newWitness(Key{w.name, seed.Public().(ed25519.PublicKey)}).Verify([]byte(text), sig) {
		t.Error("a cosignature holds at another time")
	}
	if bytes.Equal(must(late.Sign([]byte(text))), must(w.Sign([]byte(text)))) {
		t.Error("the time is not signed")
	}
	for _, bad := range []string{"", "a+b", strings.Replace(vkey, "+", "+0", 1), strings.Replace(vkey, "witness", "Witness", 1)} {
		if _, err := ParseWitness(bad); err == nil {
			t.Errorf("%q is a witness key", bad)
		}
	}
}

func TestKeys(t *testing.T) {
	private, public, err := GenerateKey("example.org/alice")
	if err != nil {
		t.Fatal(err)
	}
	k := must(ParsePrivateKey(private + "\n"))
	if k.Public().String() != public || k.Name != "example.org/alice" {
		t.Errorf("%s, want %s", k.Public(), public)
	}
	if got := must(ParseKey(public)); !got.Public.Equal(k.Public().Public) || got.Name != k.Name {
		t.Errorf("%+v", got)
	}
	path := filepath.Join(t.TempDir(), "k")
	os.WriteFile(path, []byte(private), 0o644)
	if _, err := ReadPrivateKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
	os.Chmod(path, 0o600)
	if _, err := ReadPrivateKey(path); err != nil {
		t.Error(err)
	}
	if _, err := ParseKey(path); err == nil || !strings.Contains(err.Error(), "private half") {
		t.Errorf("the private half as the public: %v", err)
	}
	for _, name := range []string{"", "a b", "a+b"} {
		if _, _, err := GenerateKey(name); err == nil {
			t.Errorf("a key called %q", name)
		}
	}
	for _, bad := range []string{"", "x", public, private[:len(private)-4], strings.Replace(private, "alice", "mallory", 1)} {
		if _, err := ParsePrivateKey(bad); err == nil {
			t.Errorf("%q is a private key", bad)
		}
	}
}
