package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is written once is there whole or not at all, and every refusal names a next step.
func TestWriteNew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.json")
	for _, b := range []string{"one", "one"} {
		if err := writeNew(path, []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	for to, want := range map[string]string{
		path:                          "it exists and differs, and is never written over; choose another name",
		filepath.Join(dir, "no", "x"): "make the folder first",
		"/dev/null":                   "choose another name",
		filepath.Join(path, "under"):  "choose a place in a folder that can be written",
		"/proc/kvladder-plan.json":    "; ",
	} {
		if err := writeNew(to, []byte("other")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	for err, want := range map[error]string{syscall.ENOSPC: "free some space", syscall.EROFS: "can be written", syscall.EACCES: "can be written"} {
		if got := writeRemedy(fmt.Errorf("write: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestReadPlanNamesANextStep(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"nosuch.json", bad, t.TempDir()} {
		if _, _, err := readPlan(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "kvladder plan --write") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
