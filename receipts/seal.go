package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Options are what a seal says beside plan and result; the zero value works.
type Options struct {
	Tool     Tool
	Subjects []Resource // binaries, models, images: judged beside the subject pins
	Warnings []string
	// Assess judges the transcript again by an amended plan; a run that was amended cannot
	// be sealed without it.
	Assess func(q Question, recs iter.Seq2[probes.Record, error]) (scoring.Result, error)
}

// ExistsError says that the folder has a receipt already: it is never written over.
type ExistsError struct{ Path string }

func (e *ExistsError) Error() string {
	return e.Path + " exists: a receipt is never written over; choose another folder"
}

// Seal writes folder/receipt.json and its sidecar and returns the receipt's digest. The
// folder must hold plan.json with the plan's canonical bytes and a transcript that reads.
// Order is decided here, from the ledger and the transcript, whatever the result says.
//
// The receipt is written under another name, synced and linked into place, so that it is
// there as a whole or not at all, and of two sealers one fails with *ExistsError. A crash
// before the sidecar is written is repaired by sealing again with the same content.
func Seal(folder string, plan arms.Plan, result scoring.Result, o Options) (digest.Digest, error) {
	r, err := prepare(folder, plan, result, o)
	if err != nil {
		return "", fmt.Errorf("seal %s: %w", folder, err)
	}
	b, err := r.Marshal()
	if err != nil {
		return "", fmt.Errorf("seal %s: %w", folder, err)
	}
	if len(b) > mostReceipt {
		return "", fmt.Errorf("seal %s: the receipt would have %d bytes, %d are the most: fewer requests or arms make a smaller one", folder, len(b), mostReceipt)
	}
	path := filepath.Join(folder, ReceiptFile)
	if err := WriteOnce(path, b); err != nil {
		var exists *ExistsError
		if !errors.As(err, &exists) {
			return "", err
		}
		old, rerr := os.ReadFile(path)
		if _, serr := os.Stat(path + ".sha256"); rerr != nil || !errors.Is(serr, os.ErrNotExist) || !bytes.Equal(old, b) {
			return "", err
		}
	}
	d := digest.Of(b)
	if err := replaceFile(path+".sha256", []byte(d.Hex()+"  "+ReceiptFile+"\n")); err != nil {
		return "", fmt.Errorf("seal %s: %w", folder, err)
	}
	return d, nil
}

func prepare(folder string, plan arms.Plan, result scoring.Result, o Options) (*Receipt, error) {
	pd, pb, err := plan.Digest()
	if err != nil {
		return nil, err
	}
	have, err := os.ReadFile(filepath.Join(folder, PlanFile))
	if err != nil {
		return nil, fmt.Errorf("the plan must be in the folder before the run: %w", err)
	}
	if !bytes.Equal(have, pb) {
		return nil, fmt.Errorf("%s is not the plan that was run (%s, want %s)", PlanFile, digest.Of(have).Short(), pd.Short())
	}
	seen, err := glance(folder, &plan)
	if err != nil {
		return nil, err
	}
	ledger, lerr := ReadLedger(filepath.Join(folder, LedgerFile))
	if lerr != nil && !errors.Is(lerr, os.ErrNotExist) {
		return nil, lerr
	}
	beacon, err := BeaconOf(ledger)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", LedgerFile, err)
	}
	as, _, problems := readAmendments(folder, ledger, pb, &plan.Design)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %s", LedgerFile, problems[0])
	}
	governing := plan
	var registered, exploratory *Analysis
	if len(as) > 0 {
		if o.Assess == nil {
			return nil, fmt.Errorf("the plan was amended (%d amendments), and nothing is there to judge by them", len(as))
		}
		set := setOf(folder, plan.Set.Digest)
		if set == nil {
			return nil, fmt.Errorf("the folder does not hold the set %s", plan.Set.Digest.Short())
		}
		result, registered, exploratory, err = analyses(pb, as, func(p arms.Plan) (scoring.Result, error) {
			return o.Assess(Question{Plan: p, Registered: pd, Set: set}, records(folder))
		})
		if err != nil {
			return nil, err
		}
		if governing, err = amendedPlan(pb, as, ClassA, ClassB); err != nil {
			return nil, err
		}
	}
	result.Plan, result.Set = string(pd), string(plan.Set.Digest)
	order := orderOf(plan.Design.Imported, ledger, lerr, pd, seen.plan)
	result.Order = order.Level
	r, err := statement(governing, result, seen.pins.read(), seen.times.timings(seen.pins.dead))
	if err != nil {
		return nil, err
	}
	r.Predicate.Plan, r.Predicate.Prereg.Plan = plan, pd
	r.Predicate.Amendments, r.Predicate.Registered, r.Predicate.Exploratory = as, registered, exploratory
	if r.Predicate.Claims, err = claims(governing, pb, as); err != nil {
		return nil, err
	}
	r.Predicate.Order, r.Predicate.Beacon = order, beacon
	for _, s := range o.Subjects {
		if _, err := digest.Parse(string(s.Digest.Digest())); err != nil {
			return nil, fmt.Errorf("subject %q: %w", s.Name, err)
		}
		r.Subject = append(r.Subject, s)
	}
	r.Predicate.Tool = o.Tool
	if r.Predicate.Tool.Name == "" {
		r.Predicate.Tool.Name = "kvladder"
	}
	r.Predicate.Warnings = append(r.Predicate.Warnings, o.Warnings...)
	if r.Predicate.Evidence, err = Walk(folder); err != nil {
		return nil, err
	}
	for _, e := range r.Predicate.Evidence {
		if e.Empty && !e.Required {
			r.Predicate.Warnings = append(r.Predicate.Warnings, e.Name+" is empty: its digest proves nothing")
		}
	}
	return r, nil
}

// WriteOnce puts b at path as a whole or not at all, synced, and never over a file that is
// there (*ExistsError).
func WriteOnce(path string, b []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return &ExistsError{Path: path}
	}
	tmp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	// link(2) fails where the name is taken, which rename(2) would not.
	if err := os.Link(tmp, path); err != nil {
		if errors.Is(err, os.ErrExist) {
			return &ExistsError{Path: path}
		}
		return err
	}
	return syncDir(filepath.Dir(path))
}

func replaceFile(path string, b []byte) error {
	tmp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// writeTemp writes and syncs b beside path: the content must be on the disk before the name
// is. The name ends in .lock, so that one left behind by a crash does not break a folder.
func writeTemp(path string, b []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*.lock")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// UnverifiedError says that a receipt's bytes are not what was sealed. Receipt is what they
// say all the same, nil where they say nothing that can be read: to use it has to be spelled
// out.
type UnverifiedError struct {
	Path    string
	What    string
	Hint    string
	Receipt *Receipt
}

func (e *UnverifiedError) Error() string {
	s := fmt.Sprintf("receipt %s is not verified: %s", e.Path, e.What)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Open reads the receipt at path, a receipt or a run folder. The bytes are checked before
// anything in them is believed: they must have the digest that the sidecar names, and be
// their own canonical form. Otherwise the error is *UnverifiedError; a file that cannot be
// read, or is of another schema, is a plain error.
func Open(path string) (*Receipt, error) {
	file, err := receiptFile(path)
	if err != nil {
		return nil, err
	}
	b, err := readFile(file, mostReceipt)
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	if what, hint := checkSeal(file, b); what != "" {
		r, _ := parse(b, false)
		return nil, &UnverifiedError{Path: file, What: what, Hint: hint, Receipt: r}
	}
	r, err := parse(b, false)
	if err != nil {
		return nil, fmt.Errorf("receipt %s: %w", file, err)
	}
	r.path = file
	return r, nil
}

func receiptFile(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("receipt: %w", err)
	}
	if !st.IsDir() {
		return path, nil
	}
	file := filepath.Join(path, ReceiptFile)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s has no %s: the run was not finished; resume it: %w", path, ReceiptFile, err)
	}
	return file, nil
}

// checkSeal compares raw bytes with the sidecar and with their canonical form.
func checkSeal(file string, b []byte) (what, hint string) {
	side, err := readFile(file+".sha256", mostNote)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("%s.sha256 cannot be read: %v", filepath.Base(file), err), ""
	}
	if err != nil {
		return "there is no " + filepath.Base(file) + ".sha256 beside it",
			"ask for the sidecar, or compare `sha256sum " + filepath.Base(file) + "` with a digest you trust and write it there"
	}
	want, name, ok := strings.Cut(strings.TrimSuffix(string(side), "\n"), "  ")
	names := []string{filepath.Base(file), ReceiptFile}
	if _, err := digest.Parse("sha256:" + want); err != nil || !ok || !slices.Contains(names, name) || !strings.HasSuffix(string(side), "\n") {
		return fmt.Sprintf("%s.sha256 is not the line that sha256sum writes", filepath.Base(file)), ""
	}
	if d := digest.Of(b); d.Hex() != want {
		return fmt.Sprintf("its digest is %s, %s.sha256 says %.12s", d.Short(), filepath.Base(file), want), ""
	}
	if !canonicalBytes(b) {
		return "its bytes are not canonical JSON", ""
	}
	return "", ""
}

// records streams the transcript of a run folder. An error is yielded once, last.
func records(folder string) iter.Seq2[probes.Record, error] {
	return func(yield func(probes.Record, error) bool) {
		path := filepath.Join(folder, TranscriptFile)
		f, err := openFile(path)
		if err != nil {
			yield(probes.Record{}, fmt.Errorf("transcript: %w", err))
			return
		}
		defer f.Close()
		for rec, err := range probes.NewReader(path, f).All() {
			if !yield(rec, err) {
				return
			}
		}
	}
}

// glimpse is what a seal takes from the transcript.
type glimpse struct {
	plan  digest.Digest
	pins  *pinScan
	times *timingScan
}

func glance(folder string, plan *arms.Plan) (*glimpse, error) {
	g := &glimpse{pins: newPinScan(), times: newTimingScan(plan)}
	first := true
	for rec, err := range records(folder) {
		if err != nil {
			return nil, err
		}
		if first {
			g.plan, first = planNamed(&rec), false
		}
		g.pins.record(&rec)
		g.times.record(&rec)
	}
	return g, nil
}

// setOf finds the frozen set of that digest, nil where the folder has none.
func setOf(folder string, d digest.Digest) *prompts.Set {
	files, err := filepath.Glob(filepath.Join(folder, SetDir, "*.jsonl"))
	if err != nil {
		return nil
	}
	for _, f := range files {
		if s, err := prompts.Open(f); err == nil && s.Digest == d {
			return s
		}
	}
	return nil
}

// planNamed is the plan that the transcript's first record names.
func planNamed(rec *probes.Record) digest.Digest {
	if rec.Fact == nil || rec.Fact.Name != probes.FactPlan {
		return ""
	}
	var f probes.PlanFact
	if json.Unmarshal(rec.Fact.Value, &f) != nil {
		return ""
	}
	return f.Plan
}
