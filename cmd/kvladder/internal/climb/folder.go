package climb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"kvladder/arms"
	"kvladder/prompts"
	"kvladder/receipts/digest"
)

// Folder is a run folder: plan.json, set/, transcript.jsonl, logs/, and, once sealed,
// receipt.json. While a climb is on it holds stores/, which is removed at the end.
type Folder struct {
	Path string
	lock *os.File
}

// FolderError says what is wrong with a run folder and what to do about it.
type FolderError struct {
	Path, What, Hint string
}

func (e *FolderError) Error() string {
	s := fmt.Sprintf("run folder %s: %s", e.Path, e.What)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// OpenFolder makes or reopens the run folder of a plan and takes its lock. A folder that
// holds another plan, or a sealed receipt, is refused; so is one with a transcript unless
// resume is set.
func OpenFolder(path string, plan *arms.Plan, set *prompts.Set, resume bool) (*Folder, error) {
	f := &Folder{Path: path}
	fail := func(what, hint string) error { return &FolderError{Path: path, What: what, Hint: hint} }
	for _, d := range []string{"", "set", "logs", "objects/sha256"} {
		if err := os.MkdirAll(filepath.Join(path, d), 0o755); err != nil {
			return nil, fail(reason(err), "choose a writable folder with --out")
		}
	}
	l, err := os.OpenFile(f.at("climb.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fail(reason(err), "choose a writable folder with --out")
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.Close()
		return nil, fail("another kvladder is climbing in it", "wait for it, or choose another folder with --out")
	}
	f.lock = l
	_, pb, err := plan.Digest()
	if err != nil {
		f.Close()
		return nil, err
	}
	if _, err := os.Stat(f.at("receipt.json")); err == nil {
		f.Close()
		return nil, fail("it holds a sealed receipt", "a receipt is never written over: choose another folder with --out")
	}
	for _, name := range []string{"plan.json", "ledger.jsonl", "transcript.jsonl"} {
		if st, err := os.Stat(f.at(name)); err == nil && !st.Mode().IsRegular() { // of a pipe one would wait for ever
			f.Close()
			return nil, fail(name+" is no regular file", "replace it by its content, or choose another folder with --out")
		}
	}
	old, err := os.ReadFile(f.at("plan.json"))
	if what := f.torn(errors.Is(err, os.ErrNotExist)); what != "" {
		f.Close()
		return nil, fail(what, "what is left proves nothing: choose another folder with --out")
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := writeSynced(f.at("plan.json"), pb); err != nil {
			f.Close()
			return nil, fail(reason(err), "free some space, or choose another folder with --out")
		}
	case err != nil:
		f.Close()
		return nil, fail(reason(err), "")
	case digest.Of(old) != digest.Of(pb):
		f.Close()
		return nil, fail(fmt.Sprintf("it holds another plan (%s, this one is %s)", digest.Of(old).Short(), digest.Of(pb).Short()), "choose another folder with --out")
	}
	if st, err := os.Stat(f.Transcript()); err == nil && st.Size() > 0 && !resume {
		f.Close()
		return nil, fail("it holds an unfinished climb of this plan", "continue it with --resume, or choose another folder with --out")
	}
	sp := f.at(filepath.Join("set", set.Name+".jsonl"))
	if err := set.Write(sp); err != nil {
		f.Close()
		return nil, fail(reason(err), "free some space, or choose another folder with --out")
	}
	if err := os.RemoveAll(f.at("stores")); err != nil {
		f.Close()
		return nil, fail(reason(err), "")
	}
	return f, nil
}

func (f *Folder) at(name string) string { return filepath.Join(f.Path, name) }

// Transcript is the path of the transcript.
func (f *Folder) Transcript() string { return f.at("transcript.jsonl") }

// Claim takes the lock of a run folder for as long as it takes to end what was left running
// for it, so that no climb begins meanwhile. ok is false when one is on, or when that cannot
// be told. A folder that is gone has no climb.
func Claim(path string) (release func(), ok bool) {
	if path == "" {
		return func() {}, true
	}
	l, err := os.OpenFile(filepath.Join(path, "climb.lock"), os.O_RDWR, 0)
	if err != nil {
		return func() {}, errors.Is(err, os.ErrNotExist)
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.Close()
		return func() {}, false
	}
	return func() { l.Close() }, true
}

// torn says which part of an earlier climb is missing, "" when none is. A climb writes plan,
// then ledger, then transcript; whatever came later cannot be there without what came before,
// and a ledger that lists arms is of a transcript that had records. Before that it holds a
// registration, and a beacon.
func (f *Folder) torn(noPlan bool) string {
	size := func(path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	transcript, ledger := size(f.Transcript()), size(f.Ledger())
	switch {
	case noPlan && (transcript > 0 || ledger > 0):
		return "it holds a climb whose plan.json is gone"
	case transcript > 0 && ledger == 0:
		return "it holds a transcript whose ledger.jsonl is gone"
	case transcript == 0 && ledger > 0:
		b, err := os.ReadFile(f.Ledger())
		if err != nil || bytes.Count(b, []byte{'\n'}) > 1+bytes.Count(b, []byte(`"kind":"beacon"`)) {
			return "it holds a ledger whose transcript.jsonl is gone"
		}
	}
	return ""
}

// Ledger is the path of the ledger.
func (f *Folder) Ledger() string { return f.at("ledger.jsonl") }

// Close gives the lock back.
func (f *Folder) Close() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// writeSynced writes a new file through a temporary name, so that a crash leaves either
// nothing or the whole file.
func writeSynced(path string, b []byte) error {
	t, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name())
	if _, err = t.Write(b); err == nil {
		err = t.Sync()
	}
	if cerr := t.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(t.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

// reason is the cause of a file error without the path, which the caller names.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Op + " " + filepath.Base(pe.Path) + ": " + pe.Err.Error()
	}
	return err.Error()
}
