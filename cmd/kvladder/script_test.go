package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// program is the real program, built once for all tests: it starts itself again as guardian
// and as embedded engine, which a test binary could not stand in for.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kvladder-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "kvladder")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestScripts runs the stories of testdata/script: one file per verb, each headed by the
// reason that it exists.
func TestScripts(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("ROOT", root)
			e.Setenv("LADDERS", filepath.Join(root, "arms", "ladders"))
			sets := filepath.Join(root, "prompts", "sets")
			e.Setenv("SETS", sets)
			for from, to := range map[string]string{"demo-48.jsonl": "demo.jsonl", "sub-block-12.jsonl": "sub.jsonl", "smollm2-12.jsonl": "slots.jsonl"} {
				for _, end := range []string{"", ".sha256"} {
					b, err := os.ReadFile(filepath.Join(sets, from+end))
					if err != nil {
						return err
					}
					if err := os.WriteFile(filepath.Join(e.WorkDir, to+end), b, 0o644); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    cmdExits,
			"html":     cmdHTML,
			"json":     cmdJSON,
			"oneline":  cmdOneline,
			"stdout2":  cmdStdout2,
			"workflow": cmdWorkflow,
		},
	})
}

// cmdExits runs `exits CODE kvladder ARGS...` and checks the exit code. Its standard output
// and error are kept in the files stdout.txt and stderr.txt.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "kvladder" {
		ts.Fatalf("usage: exits CODE kvladder ARGS...")
	}
	out, err := os.Create(ts.MkAbs("stdout.txt"))
	ts.Check(err)
	defer out.Close()
	errw, err := os.Create(ts.MkAbs("stderr.txt"))
	ts.Check(err)
	defer errw.Close()
	code := 0
	if e := ts.Exec("kvladder", args[2:]...); e != nil {
		code = exitCode(e)
	}
	_, err = out.WriteString(ts.ReadFile("stdout"))
	ts.Check(err)
	_, err = errw.WriteString(ts.ReadFile("stderr"))
	ts.Check(err)
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("kvladder %s: exit %d, want %s\n%s%s", strings.Join(args[2:], " "), code, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// cmdOneline checks that standard error's last line is one error that matches a pattern, and
// the only line that begins with "error:".
func cmdOneline(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: oneline PATTERN")
	}
	lines := strings.Split(strings.TrimRight(ts.ReadFile("stderr.txt"), "\n"), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "error: ") || strings.Count("\n"+strings.Join(lines, "\n"), "\nerror: ") != 1 || strings.HasSuffix(last, ".") {
		ts.Fatalf("want one line that begins with error:, got\n%s", strings.Join(lines, "\n"))
	}
	if ok, err := regexp.MatchString(args[0], last); err != nil || !ok {
		ts.Fatalf("%q does not match %q", last, args[0])
	}
}

// cmdStdout2 checks that what exits has kept of standard output matches a pattern.
func cmdStdout2(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: stdout2 PATTERN")
	}
	ok, err := regexp.MatchString(args[0], ts.ReadFile("stdout.txt"))
	ts.Check(err)
	if ok == neg {
		ts.Fatalf("standard output, pattern %q, negated %v:\n%s", args[0], neg, ts.ReadFile("stdout.txt"))
	}
}

// cmdWorkflow runs `workflow JOB STEP KEY=VALUE...`: the job of the example, which must fail
// in that step; "-" where all steps pass. What it prints is kept in stdout.txt.
func cmdWorkflow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: workflow JOB STEP KEY=VALUE...")
	}
	failed, all, err := job(ts.Getenv("ROOT"), args[0], ts.MkAbs("."), args[2:]...)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("stdout.txt"), []byte(all), 0o644))
	if failed != strings.TrimPrefix(args[1], "-") {
		ts.Fatalf("job %s failed in step %q, want %q:\n%s", args[0], failed, args[1], all)
	}
}

// cmdHTML starts a server that answers everything with a web page, and sets HTML to its URL
// and PORT to its port.
func cmdHTML(ts *testscript.TestScript, neg bool, args []string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>welcome</title><h1>It works</h1>")
	}))
	ts.Defer(srv.Close)
	ts.Setenv("HTML", srv.URL)
	ts.Setenv("PORT", srv.URL[strings.LastIndexByte(srv.URL, ':')+1:])
}

func exitCode(err error) int {
	type coder interface{ ExitCode() int }
	for e := err; e != nil; {
		if c, ok := e.(coder); ok {
			return c.ExitCode()
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			return -1
		}
		e = u.Unwrap()
	}
	return -1
}

// cmdJSON checks one member of the JSON in stdout.txt: `json PATH WANT`, where PATH is a dotted
// path and an element of a list is picked by its name: arms.COLD.verdict.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: json PATH WANT")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout.txt")), &v); err != nil {
		ts.Fatalf("stdout is not one JSON document: %v\n%s", err, ts.ReadFile("stdout.txt"))
	}
	got := fmt.Sprint(lookup(v, strings.Split(args[0], ".")))
	if (got == args[1]) == neg {
		ts.Fatalf("%s is %s, want %s (negated: %v)", args[0], got, args[1], neg)
	}
}

func lookup(v any, path []string) any {
	for _, k := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			v = nil
			for _, e := range x {
				if m, ok := e.(map[string]any); ok && (m["name"] == k || m["id"] == k || m["arm"] == k) {
					v = m
					break
				}
			}
		default:
			return nil
		}
	}
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	if v == nil {
		return "null"
	}
	return v
}

// kvladder runs the program and returns its exit code and what it printed.
func kvladder(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		code = exitCode(err)
	}
	return code, o.String(), e.String()
}
