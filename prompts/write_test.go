package prompts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A write that fails leaves neither a Set nor a scrap of one, and once the reason is gone the
// same write works.
func TestWriteIsWholeOrNothing(t *testing.T) {
	s := small(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "small.jsonl")
	if err := os.Mkdir(path+".sha256", 0o755); err != nil { // nothing can be renamed to a folder
		t.Fatal(err)
	}
	if err := s.Write(path); err == nil || !strings.Contains(err.Error(), "freeze it again") && !strings.Contains(err.Error(), "another place") {
		t.Errorf("written over a folder: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.Remove(path + ".sha256"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("beside the set and its sidecar: %v", left)
	}
}

// What a kill between the two renames leaves is completed by writing again.
func TestWriteCompletes(t *testing.T) {
	s := small(t)
	for _, lost := range []string{"", ".sha256"} {
		path := write(t, s)
		if err := os.Remove(path + lost); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err != nil {
			t.Error(err)
		}
	}
}

// A disk that runs full in the middle: a file may grow to 4 KiB and the set is larger.
func TestWriteOnAFullDisk(t *testing.T) {
	if path := os.Getenv("KVLADDER_WRITE_TO"); path != "" {
		fmt.Println(large(t).Write(path))
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "large.jsonl")
	cmd := exec.Command("sh", "-c", `ulimit -f 8 && exec "$0" -test.run '^TestWriteOnAFullDisk$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "KVLADDER_WRITE_TO="+path)
	out, _ := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte("free some space")) {
		t.Errorf("said:\n%s", out)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := large(t).Write(path); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

// large is a set of about 100 KiB.
func large(t *testing.T) *Set {
	t.Helper()
	var ps []Prompt
	for i := range 100 {
		ps = append(ps, Prompt{ID: fmt.Sprint("p", i), Body: strings.Repeat("x", 1000)})
	}
	s, err := Freeze(Header{Name: "large"}, ps)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRemedy(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "free some space", syscall.EDQUOT: "free some space", syscall.EROFS: "can be written",
		syscall.EACCES: "can be written", syscall.ENOTDIR: "another place", syscall.EIO: "freeze it again",
	} {
		if got := remedy(&os.PathError{Op: "write", Path: "x", Err: err}); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// A Set is a regular file of a bounded size: a device never ends, a pipe never begins.
func TestOpenWantsARegularFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/zero", pipe, dir} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	huge := filepath.Join(dir, "huge")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(MaxBytes + 1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := Open(huge); err == nil || !strings.Contains(err.Error(), "the most") {
		t.Errorf("a file of 1 GiB and a byte: %v", err)
	}
	// the sidecar is read no further than it can go
	s := small(t)
	path := filepath.Join(dir, "small.jsonl")
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	os.Remove(path + ".sha256")
	if err := os.Symlink("/dev/zero", path+".sha256"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("/dev/zero was read as a sidecar")
	}
}

// Two digests that begin alike are printed as far as they differ.
func TestDigestsArePrintedUntilTheyDiffer(t *testing.T) {
	s := small(t)
	path := write(t, s)
	hex := []byte(s.Digest.Hex())
	hex[40] ^= 1
	if err := os.WriteFile(path+".sha256", append(hex, "  small.jsonl\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), s.Digest.Hex()[:41]+",") || !strings.Contains(err.Error(), string(hex[:41])) {
		t.Errorf("cannot tell them apart: %v", err)
	}
	for _, c := range [][4]string{
		{"abcdef0123456789", "abcdef0123456789", "abcdef0123456789", "abcdef0123456789"},
		{"0bcdef0123456789", "abcdef0123456789", "0bcdef012345", "abcdef012345"},
		{"abcdef01234567", "abcdef0123456789", "abcdef01234567", "abcdef012345678"},
	} {
		if a, b := apart(c[0], c[1]); a != c[2] || b != c[3] {
			t.Errorf("%s and %s: %s and %s", c[0], c[1], a, b)
		}
	}
}
