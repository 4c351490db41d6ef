package climb

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/prompts"
)

// A folder from which a part of an earlier climb was taken away is refused, and stays as it
// is: what would be written in its place would look like evidence.
func TestTornFolder(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		plan  bool
		want  string
	}{
		{"fresh", nil, false, ""},
		{"killed before the ledger", nil, true, ""},
		{"killed before the transcript", map[string]string{"ledger.jsonl": "one\n"}, true, ""},
		{"whole", map[string]string{"ledger.jsonl": "one\ntwo\n", "transcript.jsonl": "x\n"}, true, ""},
		{"no plan", map[string]string{"ledger.jsonl": "one\n", "transcript.jsonl": "x\n"}, false, "plan.json is gone"},
		{"no ledger", map[string]string{"transcript.jsonl": "x\n"}, true, "ledger.jsonl is gone"},
		{"no transcript", map[string]string{"ledger.jsonl": "one\ntwo\n"}, true, "transcript.jsonl is gone"},
		{"an empty transcript", map[string]string{"ledger.jsonl": "one\ntwo\n", "transcript.jsonl": ""}, true, "transcript.jsonl is gone"},
	} {
		f := &Folder{Path: t.TempDir()}
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(f.Path, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got := f.torn(!c.plan)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A pipe in the place of a file is refused: whoever reads it waits for ever.
func TestFolderOfPipes(t *testing.T) {
	for _, name := range []string{"plan.json", "ledger.jsonl", "transcript.jsonl"} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := OpenFolder(dir, &arms.Plan{}, &prompts.Set{}, true)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), name+" is no regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is waited for", name)
		}
	}
}
