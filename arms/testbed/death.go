package testbed

import (
	"fmt"
	"io"
)

// DeadError is what Serve returns when an engine could not go on.
type DeadError struct{ Cause error }

func (e *DeadError) Error() string { return "engine died: " + e.Cause.Error() }

func (e *DeadError) Unwrap() error { return e.Cause }

// ExitCode is the exit status of the process, as of an engine that dies of an
// uncaught exception.
func (e *DeadError) ExitCode() int { return 1 }

// died returns what an engine calls with its dying breath: it writes the lines
// that vLLM's log ends with, makes /health fail, and lets Serve return.
func (tb *Testbed) died(log io.Writer) func(error) {
	return func(err error) {
		if s, ok := tb.Handler.(interface{ Die() }); ok {
			s.Die()
		}
		fmt.Fprintf(log, "EngineCore encountered a fatal error.\nTraceback (most recent call last):\n%v\n"+
			"EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n", err)
		tb.dead <- &DeadError{Cause: err}
	}
}
