package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvladder/scoring"
)

const demoHealthyLadder = "../../arms/ladders/demo-healthy.yaml"

// family lists live processes whose environment or command line names mark.
func family(t *testing.T, mark string) (out []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil {
			continue
		}
		st, _ := os.ReadFile(filepath.Join(d, "stat"))
		if i := strings.LastIndexByte(string(st), ')'); i >= 0 && strings.HasPrefix(string(st)[i+1:], " Z") {
			continue
		}
		if strings.Contains(string(b), mark) {
			out = append(out, filepath.Base(d)+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// waitGone waits until no process of the family is left.
func waitGone(t *testing.T, mark string) {
	t.Helper()
	var left []string
	for range 100 {
		if left = family(t, mark); len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("5 s after the kill these are still alive:\n%s", strings.Join(left, "\n"))
}

// comparable drops what a second run may differ in: process ids, times, the receipt.
func comparableResult(t *testing.T, out string) scoring.Result {
	t.Helper()
	var r scoring.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.Receipt = ""
	for i := range r.Arms {
		r.Arms[i].Incarnations = nil
		r.Arms[i].Lifetime = nil
	}
	return r
}

// kills is how often the climb is killed; KVLADDER_KILLS sets another count.
func kills(t *testing.T) int {
	if s := os.Getenv("KVLADDER_KILLS"); s != "" {
		var n int
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 4
}

// A climb that is killed without warning leaves no process behind and goes on with --resume
// to the same verdict, the same failed requests and the same statistics.
func TestKillAndResume(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := kvladder(t, "run", "--json", "--out", filepath.Join(dir, "whole"), demoHealthyLadder)
	if code != 0 {
		t.Fatalf("uninterrupted: exit %d\n%s", code, errs)
	}
	want := comparableResult(t, out)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for i := range kills(t) {
		run := filepath.Join(dir, fmt.Sprintf("killed-%d", i))
		cmd := exec.Command(program, "run", "--json", "--out", run, demoHealthyLadder)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(50+rng.IntN(3500)) * time.Millisecond
		timer := time.AfterFunc(after, func() { cmd.Process.Signal(syscall.SIGKILL) })
		err := cmd.Wait()
		timer.Stop()
		waitGone(t, program)
		if err == nil {
			continue // it was done before the kill came
		}
		args := []string{"run", "--json", "--resume", "--out", run, demoHealthyLadder}
		if _, err := os.Stat(filepath.Join(run, "receipt.json")); err == nil {
			args = []string{"score", "--json", run}
		}
		code, out, errs := kvladder(t, args...)
		if code != 0 {
			t.Fatalf("killed after %s, resumed: exit %d\n%s%s", after, code, errs, lastWords(run))
		}
		if diff := cmp.Diff(want, comparableResult(t, out)); diff != "" {
			t.Errorf("killed after %s: the resumed result differs (-uninterrupted +resumed):\n%s", after, diff)
		}
		if code, out, _ := kvladder(t, "verify", run); code != 0 {
			t.Errorf("killed after %s: the resumed receipt does not verify:\n%s", after, out)
		}
	}
	// what has no ledger says nothing of what was there first
	whole := filepath.Join(dir, "whole")
	if code, out, errs := kvladder(t, "score", "--json", whole); code != 0 || errs != "" || !strings.Contains(out, `"order": "O1"`) {
		t.Errorf("score: exit %d %q", code, errs)
	}
	if err := os.Remove(filepath.Join(whole, "ledger.jsonl")); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := kvladder(t, "score", "--json", whole); code != 0 || !strings.Contains(errs, "no ledger.jsonl") || !strings.Contains(out, `"order": "O0"`) {
		t.Errorf("score without a ledger: exit %d %q", code, errs)
	}
}

// lastWords are what a transcript says of deaths, and the end of every log. A file that cannot
// be read says so here, and does not hide why they are asked for.
func lastWords(run string) string {
	var out strings.Builder
	b, err := os.ReadFile(filepath.Join(run, "transcript.jsonl"))
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, `"name":"death"`) {
			out.WriteString(line)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(run, "logs", "*")) // the pattern is well formed
	for _, l := range logs {
		b, err := os.ReadFile(l)
		fmt.Fprintf(&out, "%s: %s\n", filepath.Base(l), b[max(0, len(b)-600):])
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}

// An interrupt ends the climb and its processes, and says how to go on.
func TestInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		run := filepath.Join(t.TempDir(), "run")
		var errs strings.Builder
		cmd := exec.Command(program, "run", "--out", run, demoHealthyLadder)
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		cmd.Process.Signal(sig)
		err := cmd.Wait()
		waitGone(t, program)
		if err == nil {
			t.Fatalf("%v: the climb was over before the signal came", sig)
		}
		if code := exitCode(err); code != 3 || !strings.Contains(errs.String(), "--resume") {
			t.Errorf("%v: exit %d, want 3 and a word on --resume:\n%s", sig, code, errs.String())
		}
		if _, err := os.Stat(filepath.Join(run, "receipt.json")); err == nil {
			t.Errorf("%v: an interrupted climb sealed a receipt", sig)
		}
	}
}
