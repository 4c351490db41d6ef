package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A freeze that is interrupted ends at once, in the middle of the largest draw and while it
// waits for standard input, and writes nothing.
func TestFreezeStopsAtOnce(t *testing.T) {
	waiting, _ := io.Pipe()
	for _, flags := range [][]string{{"--n", "100000"}, {"--kind", "file", "--from", "-"}} {
		dir := t.TempDir()
		cmd := newFreezeCmd(io.Discard, io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetIn(waiting)
		cmd.SetArgs(append(flags, "--name", "set", "--out", filepath.Join(dir, "set.jsonl")))
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- cmd.ExecuteContext(ctx) }()
		select {
		case err := <-done:
			var ee *exitError
			if !errors.As(err, &ee) || ee.Code != 3 || !strings.Contains(err.Error(), "nothing was written") {
				t.Errorf("%v: %v", flags, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%v: still drawing", flags)
		}
		cancel()
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v: left behind %v", flags, left)
		}
	}
}
