// Kvladder climbs evidence ladders for KV-reuse corruption.
//
// A cache that answers fast with the wrong KV returns HTTP 200 and fluent text. Kvladder
// launches pinned serving configurations as arms, replays a frozen set of prompts through
// them, scores what came back against a reference that differs in exactly one pin, and
// seals the whole as a receipt that a stranger can re-check.
//
//	kvladder plan LADDER      what a ladder will do and what it can see; starts nothing
//	kvladder run LADDER       climb it, score it, seal a receipt
//	kvladder verify PATH      re-hash everything and run every test again
//	kvladder diff A B         two receipts
//	kvladder gate --base A --patched B
//
// Exit codes, the same for every verb that judges: 0 clean or same, 1 corrupt, refuted or
// different, 2 cannot tell, 3 the run or its inputs are invalid, 4 the engine died.
//
// Results go to stdout, progress and errors to stderr, in lower case and without a full
// stop: `error: …`, `warning: …`, `hint: …`. With --json a verb prints one JSON document on
// stdout and nothing else.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/scoring"
)

// version is set at build time with -ldflags "-X main.version=…".
var version = "dev"

// exitError carries the exit code of an outcome. With a nil Err there is nothing more to say:
// the verb has printed its result.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// outcome is nil for exit code 0.
func outcome(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{Code: code}
}

// run is the whole program: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	root := newRootCmd(stdin, out, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if lost := out.lost(); lost != nil && (err == nil || !errors.Is(err, lost)) {
		say(stderr, "error", fmt.Errorf("what was to be printed is not whole: %w", lost))
		return scoring.ExitInvalid // whoever reads a cut report must not take its exit code for the whole
	}
	if err == nil {
		return 0
	}
	return codeOf(ctx, err, stderr)
}

// codeOf says what went wrong, and is the exit code of it.
func codeOf(ctx context.Context, err error, stderr io.Writer) int {
	var ee *exitError
	if errors.As(err, &ee) {
		if ee.Err != nil {
			say(stderr, "error", ee.Err)
		}
		return ee.Code
	}
	var held heldStatus // and no other: a command that fails beneath a launcher has an exit code, too
	if errors.As(err, &held) {
		return held.ExitCode()
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "error: interrupted; what was written is whole: kvladder run goes on with --resume")
		return scoring.ExitInvalid
	}
	say(stderr, "error", err)
	return scoring.ExitInvalid
}

func say(w io.Writer, kind string, err error) {
	what := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", " ")
	if most := 4000; len(what) > most { // what it quotes may be a whole file
		what = strings.ToValidUTF8(what[:most/2], "") + " ... " + strings.ToValidUTF8(what[len(what)-most/2:], "")
	}
	fmt.Fprintf(w, "%s: %s\n", kind, what)
}

func newRootCmd(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "kvladder",
		Short: "evidence ladders for KV-reuse corruption",
		Long: `kvladder climbs evidence ladders for KV-reuse corruption: it launches pinned serving
configurations as arms, replays frozen prompts, scores divergence against a reference that
differs in exactly one pin, and seals a receipt that anybody can check again.

Exit codes: 0 clean or same, 1 corrupt, refuted or different, 2 cannot tell,
3 the run or its inputs are invalid, 4 the engine died.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       toolVersion(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown verb %q; kvladder --help lists them", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
	})
	root.AddCommand(verbs(stdout, stderr)...)
	return root
}

// args wraps a positional check, so that a wrong count says what was expected and where to read on.
func args(check cobra.PositionalArgs, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := check(cmd, a); err != nil {
			return fmt.Errorf("%s takes %s, got %d arguments; %s --help shows examples", cmd.CommandPath(), want, len(a), cmd.CommandPath())
		}
		return nil
	}
}

// printJSON writes one indented JSON document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func toolVersion() string {
	if version != "dev" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return version
}
