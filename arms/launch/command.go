package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// CommandError says that a program that launchers call, such as podman or sbatch, failed.
type CommandError struct {
	Argv   []string
	Err    error  // of the call: an exit status, or why it could not be made
	Stderr string // the last lines that it printed
}

func (e *CommandError) Error() string {
	what := strings.Join(e.Argv[:min(2, len(e.Argv))], " ")
	if e.Stderr != "" {
		return fmt.Sprintf("%s: %v: %s", what, e.Err, e.Stderr)
	}
	return fmt.Sprintf("%s: %v", what, e.Err)
}

func (e *CommandError) Unwrap() error { return e.Err }

// call runs a program to its end and returns what it printed on its standard output. The
// program is in a process group of its own: an interrupt typed at the terminal is ours to
// deal with, and is not to end the call that undoes what was begun.
func call(ctx context.Context, argv ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out.String(), &CommandError{Argv: argv, Err: err, Stderr: lastLines(errs.String(), 3)}
	}
	return out.String(), nil
}

// lastLines joins the last n lines of s that are not blank.
func lastLines(s string, n int) string {
	var kept []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], " | ")
}

// notFound says whether a call failed since there is no such program.
func notFound(err error) bool { return errors.Is(err, exec.ErrNotFound) }
