package receipts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"kvladder/receipts/digest"
)

// Kinds of ledger entries.
const (
	LedgerPrereg    = "prereg"    // always the first entry: nothing is run before it
	LedgerAmendment = "amendment" // its class is its place, see Amend
	LedgerBeacon    = "beacon"    // once at most, before the first arm-start
	LedgerArmStart  = "arm-start" //
	LedgerArmEnd    = "arm-end"   //
	LedgerDeviation = "deviation" // something was done otherwise than planned
	LedgerVerdict   = "verdict"   //
	LedgerWithdraw  = "withdrawal"
)

// LedgerEntry is one line of ledger.jsonl: canonical JSON (RFC 8785) and a line feed. Seq
// counts from 0, so that it is the leaf's index in a Merkle tree over the lines (RFC 6962).
// Prev is the digest of the whole line before, line feed included, "" on the first:
//
//	sed -n 1p ledger.jsonl | sha256sum          # is prev of line 2
type LedgerEntry struct {
	Seq    int64         `json:"seq"`
	Prev   digest.Digest `json:"prev"`
	Kind   string        `json:"kind"`
	Object LedgerObject  `json:"object"`
	UTC    string        `json:"utc"` // machine-stamped, RFC 3339; it proves nothing, the chain does
}

// LedgerObject is what an entry is about; Plan is in every entry of a run.
type LedgerObject struct {
	Plan       digest.Digest `json:"plan,omitempty"`
	Set        digest.Digest `json:"set,omitempty"`
	Chain      string        `json:"chain,omitempty"`
	Arm        string        `json:"arm,omitempty"`
	Attempt    string        `json:"attempt,omitempty"`
	Run        int           `json:"run,omitempty"`
	Transcript digest.Digest `json:"transcript,omitempty"` // of its last line at that moment
	Result     digest.Digest `json:"result,omitempty"`
	Verdict    string        `json:"verdict,omitempty"`
	What       string        `json:"what,omitempty"`
	Amendment  digest.Digest `json:"amendment,omitempty"` // of an amendment's document, among the objects
	Beacon     *Beacon       `json:"beacon,omitempty"`
}

// AppendLedger adds an entry to the ledger at path, making the file where there is none, and
// syncs it. The ledger that is there is checked first. One process writes a ledger.
func AppendLedger(path, kind string, object LedgerObject) (LedgerEntry, error) {
	old, err := ReadLedger(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return LedgerEntry{}, err
	}
	e := LedgerEntry{Seq: int64(len(old)), Kind: kind, Object: object, UTC: time.Now().UTC().Format(time.RFC3339Nano)}
	if len(old) == 0 && kind != LedgerPrereg {
		return LedgerEntry{}, fmt.Errorf("ledger %s: the first entry must be %q, not %q: register the plan before anything is run", path, LedgerPrereg, kind)
	}
	if len(old) > 0 {
		line, err := digest.Canonical(old[len(old)-1])
		if err != nil {
			return LedgerEntry{}, err
		}
		e.Prev = digest.Of(append(line, '\n'))
	}
	b, err := digest.Canonical(e)
	if err != nil {
		return LedgerEntry{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return LedgerEntry{}, fmt.Errorf("ledger: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return LedgerEntry{}, fmt.Errorf("ledger %s: %w", path, err)
	}
	return e, nil
}

// clockSlack is how far a machine's clock may be set back within a run.
const clockSlack = time.Hour

// ReadLedger reads and checks the ledger at path: each line canonical, in its place, naming
// the line before, the first a registration.
func ReadLedger(path string) ([]LedgerEntry, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer f.Close()
	var out []LedgerEntry
	var prev digest.Digest
	var stamped time.Time
	r := bufio.NewReader(f)
	for {
		line, err := readLine(r)
		at := len(out) + 1
		switch {
		case err == io.EOF && len(line) == 0:
			return out, nil
		case err == io.EOF:
			return nil, fmt.Errorf("ledger %s:%d: the line has no end: %w", path, at, err)
		case err != nil:
			return nil, fmt.Errorf("ledger %s:%d: %w", path, at, err)
		case at > mostEntries:
			return nil, fmt.Errorf("ledger %s: it has more than %d entries", path, mostEntries)
		}
		var e LedgerEntry
		if err := unmarshal(line, &e, true); err != nil {
			return nil, fmt.Errorf("ledger %s:%d: %w", path, at, err)
		}
		b, err := digest.Canonical(e)
		if err != nil {
			return nil, fmt.Errorf("ledger %s:%d: %w", path, at, err)
		}
		switch {
		case !bytes.Equal(append(b, '\n'), line):
			return nil, fmt.Errorf("ledger %s:%d: the line is not canonical", path, at)
		case e.Seq != int64(len(out)):
			return nil, fmt.Errorf("ledger %s:%d: seq %d, want %d", path, at, e.Seq, len(out))
		case e.Prev != prev:
			return nil, fmt.Errorf("ledger %s:%d: it names %s as the line before, which is %s", path, at, e.Prev.Short(), prev.Short())
		case e.Seq == 0 && e.Kind != LedgerPrereg:
			return nil, fmt.Errorf("ledger %s:%d: the first entry is %q, want %q", path, at, e.Kind, LedgerPrereg)
		}
		t, err := time.Parse(time.RFC3339Nano, e.UTC)
		switch {
		case err != nil:
			return nil, fmt.Errorf("ledger %s:%d: its time %q is not one that a machine stamps", path, at, e.UTC)
		case t.Before(stamped.Add(-clockSlack)):
			return nil, fmt.Errorf("ledger %s:%d: it is dated %s, before the entry that it follows (%s)", path, at, e.UTC, stamped.Format(time.RFC3339))
		}
		stamped = t
		prev = digest.Of(line)
		out = append(out, e)
	}
}

// rawEqual compares two values by their canonical bytes.
func rawEqual(a, b any) bool {
	x, err1 := digest.Canonical(a)
	y, err2 := digest.Canonical(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// canonicalBytes reports whether b is its own canonical form.
func canonicalBytes(b []byte) bool {
	if !json.Valid(b) {
		return false
	}
	c, err := digest.Canonical(json.RawMessage(b))
	return err == nil && bytes.Equal(b, c)
}
