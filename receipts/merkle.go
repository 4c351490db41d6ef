package receipts

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"kvladder/receipts/digest"
)

// CheckpointFile holds a signed checkpoint of the ledger: a note (C2SP signed-note) whose
// text is origin, size and root of the Merkle tree over the ledger's lines (RFC 6962, C2SP
// tlog-checkpoint), each leaf one line with its line feed. It is covered by the receipt.
const CheckpointFile = "ledger.checkpoint"

// CosignedFile holds the same checkpoint, or that of an earlier size, with cosignatures of
// witnesses (C2SP tlog-cosignature, Ed25519): each says that the witness had seen the tree
// at a second of its own clock. It comes after the seal, so that no receipt covers it; what
// it says is bound by the tree, and by the keys that the verifier trusts.
const CosignedFile = "ledger.cosigned"

// Tree is the Merkle tree over the lines of a ledger.
type Tree struct {
	Size   int64
	hashes []tlog.Hash
}

// ReadHashes implements tlog.HashReader.
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x < 0 || x >= int64(len(t.hashes)) {
			return nil, fmt.Errorf("ledger tree: there is no hash %d", x)
		}
		out[i] = t.hashes[x]
	}
	return out, nil
}

// Add appends one leaf.
func (t *Tree) Add(line []byte) error {
	hs, err := tlog.StoredHashes(t.Size, line, t)
	if err != nil {
		return err
	}
	t.hashes = append(t.hashes, hs...)
	t.Size++
	return nil
}

// Root is the root over the first n lines.
func (t *Tree) Root(n int64) (tlog.Hash, error) {
	if n < 0 || n > t.Size {
		return tlog.Hash{}, fmt.Errorf("ledger tree: size %d of %d", n, t.Size)
	}
	return tlog.TreeHash(n, t)
}

// LedgerTree makes the tree of the ledger at path.
func LedgerTree(path string) (*Tree, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer f.Close()
	t := new(Tree)
	r := bufio.NewReader(f)
	for {
		line, err := readLine(r)
		if err == io.EOF && len(line) == 0 {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("ledger %s:%d: the line has no end: %w", path, t.Size+1, err)
		}
		if err := t.Add(line); err != nil {
			return nil, err
		}
	}
}

// LedgerOrigin names the log of one run: its plan is the only thing that the log is about.
func LedgerOrigin(plan digest.Digest) string { return "kvladder/ledger/" + plan.Hex() }

// Checkpoint writes folder/ledger.checkpoint over the ledger as it stands, signed with key,
// once. It has to be there before the seal.
func Checkpoint(folder string, key *PrivateKey) error {
	return checkpoint(folder, CheckpointFile, key)
}

// CheckpointForWitnesses writes the same to folder/ledger.cosigned, once, where witnesses add
// their lines: of a ledger that holds the registration alone, for it to be seen before
// anything is run.
func CheckpointForWitnesses(folder string, key *PrivateKey) error {
	return checkpoint(folder, CosignedFile, key)
}

func checkpoint(folder, name string, key *PrivateKey) error {
	path := filepath.Join(folder, LedgerFile)
	ledger, err := ReadLedger(path)
	if err != nil {
		return err
	}
	if len(ledger) == 0 {
		return fmt.Errorf("ledger %s is empty: there is nothing to sign", path)
	}
	t, err := LedgerTree(path)
	if err != nil {
		return err
	}
	text, err := checkpointText(LedgerOrigin(ledger[0].Object.Plan), t, t.Size)
	if err != nil {
		return err
	}
	b, err := note.Sign(&note.Note{Text: text}, key.signer)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return WriteOnce(filepath.Join(folder, name), b)
}

func checkpointText(origin string, t *Tree, n int64) (string, error) {
	root, err := t.Root(n)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\n%d\n%s\n", origin, n, base64.StdEncoding.EncodeToString(root[:])), nil
}

// checkCheckpoints holds the checkpoints of a folder against its ledger. It returns what
// they show: who signed the ledger's head, and the earliest time at which a trusted witness
// had seen the registration.
func checkCheckpoints(rep *Report, folder string, plan digest.Digest, c Checker) (seen []Sighting) {
	for _, name := range []string{CheckpointFile, CosignedFile} {
		b, err := readFile(filepath.Join(folder, name), mostNote)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			rep.add(name, "%v", err)
			continue
		}
		asked := len(c.Keys) > 0
		if name == CosignedFile {
			asked = len(c.Witnesses) > 0
		}
		s, what := readCheckpoint(b, folder, plan, c, asked)
		if what != "" {
			rep.add(name, "%s", what)
			continue
		}
		if !asked {
			rep.warn("%s is signed, and no key was given to check who signed it", name)
		}
		seen = append(seen, s...)
	}
	return seen
}

// readCheckpoint opens one checkpoint; asked says that one of the keys must have signed it. What is wrong with it comes back as a sentence.
func readCheckpoint(b []byte, folder string, plan digest.Digest, c Checker, asked bool) ([]Sighting, string) {
	var verifiers []note.Verifier
	for _, k := range c.Keys {
		if v, err := note.NewVerifier(k.verifierKey()); err == nil {
			verifiers = append(verifiers, v)
		}
	}
	witnesses := map[string]*witnessVerifier{}
	for _, w := range c.Witnesses {
		v := newWitness(w)
		witnesses[v.Name()] = v
		verifiers = append(verifiers, v)
	}
	n, err := note.Open(b, note.VerifierList(verifiers...))
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		n = unverified.Note
		if asked {
			return nil, "none of the given keys signed it"
		}
	case err != nil:
		return nil, fmt.Sprintf("it is no signed note: %v", err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 4 || lines[0] != LedgerOrigin(plan) {
		return nil, "it is the checkpoint of another log than this plan's ledger"
	}
	var size int64
	if _, err := fmt.Sscanf(lines[1], "%d", &size); err != nil || fmt.Sprint(size) != lines[1] || size < 1 {
		return nil, fmt.Sprintf("its size is %q", lines[1])
	}
	t, err := LedgerTree(filepath.Join(folder, LedgerFile))
	if err != nil {
		return nil, err.Error()
	}
	if size > t.Size {
		return nil, fmt.Sprintf("it is of %d entries, and the ledger holds %d: entries were cut off", size, t.Size)
	}
	want, err := checkpointText(lines[0], t, size)
	if err != nil {
		return nil, err.Error()
	}
	if !strings.HasPrefix(n.Text, want) {
		return nil, fmt.Sprintf("its root is not that of the first %d entries of the ledger", size)
	}
	var out []Sighting
	for _, s := range n.Sigs {
		if w, ok := witnesses[s.Name]; ok && w.KeyHash() == s.Hash {
			out = append(out, Sighting{By: w.key.Name, Size: size, UTC: cosignedAt(s)})
		}
	}
	return out, ""
}
