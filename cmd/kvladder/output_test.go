package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kvladder/scoring"
)

// full is a standard output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What people read is as good a result as a document for programs: a verb whose report did
// not get out has not done its work.
func TestOutputIsLost(t *testing.T) {
	for _, args := range [][]string{{"doctor"}, {"explain"}, {"--help"}, {"init", "--help"}} {
		var stderr strings.Builder
		if code := run(context.Background(), args, strings.NewReader(""), full{}, &stderr); code != scoring.ExitInvalid || !strings.Contains(stderr.String(), syscall.ENOSPC.Error()) {
			t.Errorf("%v: exit %d, %q", args, code, &stderr)
		}
	}
}

// A command that fails beneath a verb has an exit code of its own, which is not the verb's:
// 1 would say that a cache is corrupt.
func TestExitCodeIsTheVerbsOwn(t *testing.T) {
	failed := exec.Command("sh", "-c", "exit 1").Run()
	var ee *exec.ExitError
	if !errors.As(failed, &ee) {
		t.Fatal(failed)
	}
	for want, err := range map[int]error{
		scoring.ExitInvalid: fmt.Errorf("sbatch: %w", failed),
		7:                   fmt.Errorf("held: %w", heldStatus(7)),
	} {
		var stderr strings.Builder
		if code := codeOf(context.Background(), err, &stderr); code != want {
			t.Errorf("%v: exit %d, want %d", err, code, want)
		}
		if want == scoring.ExitInvalid && !strings.Contains(stderr.String(), "sbatch") {
			t.Errorf("%v: stderr %q", err, &stderr)
		}
	}
}
