package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms/armtest"
	"kvladder/scoring"
)

// sixArms writes a ladder of six arms, and of more, with a launcher and pins.
func sixArms(t *testing.T, launcher, pins string, more ...string) string {
	t.Helper()
	set, err := filepath.Abs("../../prompts/sets/demo-48.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "six.yaml")
	text := "ladder: six\nquestion: does reuse change what the model says?\nengine: testbed\nlauncher: " + launcher + "\nset: " + set +
		"\npins: {" + pins + "}\narms: [" + strings.Join(append([]string{"C0, C1, COLD, REPLAY, WARM, RST"}, more...), ", ") + "]\nfloors: {C0: 3, C1: 3}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameAs is a result without what another launcher may change: the plan's own digest too.
func sameAs(t *testing.T, out string) scoring.Result {
	r := comparableResult(t, out)
	r.Plan = ""
	return r
}

// queue lists the jobs of the cluster: number and state.
func queue(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("squeue", "--noheader", "--format", "%i %T").Output()
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if id, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			jobs[id] = state
		}
	}
	return jobs
}

// inState waits for a job in a state and gives its number.
func inState(t *testing.T, state string) (id string) {
	t.Helper()
	if !armtest.Eventually(func() bool {
		for j, s := range queue(t) {
			if s == state {
				id = j
				return true
			}
		}
		return false
	}) {
		t.Fatalf("no job is %s: %v", state, queue(t))
	}
	return id
}

// startRun starts a climb that goes on while the test does something to it.
func startRun(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *armtest.Log) {
	t.Helper()
	stdout, stderr = new(armtest.Log), new(armtest.Log)
	cmd = exec.Command(program, append([]string{"run", "--json"}, args...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, stdout, stderr
}

// A ladder that is climbed as jobs comes to what it comes to here, whatever happens to jobs
// and to the program that submitted them.
func TestSlurmLadder(t *testing.T) {
	armtest.Asked(t, "slurm")
	cluster := armtest.NewCluster(t)
	dir := t.TempDir() // the run folders: every node of this cluster sees it
	local, slurm := sixArms(t, "local", ""), sixArms(t, "slurm", "")
	code, out, errs := kvladder(t, "run", "--json", "--out", filepath.Join(dir, "local"), local)
	if code != 0 {
		t.Fatalf("local: exit %d\n%s", code, errs)
	}
	want := sameAs(t, out)
	same := func(t *testing.T, folder, out string) {
		t.Helper()
		if diff := cmp.Diff(want, sameAs(t, out)); diff != "" {
			t.Errorf("the result differs (-local +slurm):\n%s", diff)
		}
		if code, out, errs := kvladder(t, "verify", folder); code != 0 {
			t.Errorf("verify: exit %d\n%s%s", code, out, errs)
		}
		for _, gone := range []string{"chains", "jobs", "stores"} {
			if _, err := os.Stat(filepath.Join(folder, gone)); err == nil {
				t.Errorf("the run folder still has %s", gone)
			}
		}
		if q := queue(t); len(q) > 0 {
			t.Errorf("jobs are left: %v", q)
		}
	}
	resume := func(t *testing.T, folder string) {
		t.Helper()
		code, out, errs := kvladder(t, "run", "--json", "--resume", "--out", folder, slurm)
		if code != 0 {
			t.Fatalf("resumed: exit %d\n%s", code, errs)
		}
		same(t, folder, out)
	}

	t.Run("whole", func(t *testing.T) {
		folder := filepath.Join(dir, "whole")
		code, out, errs := kvladder(t, "run", "--json", "--out", folder, slurm)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		same(t, folder, out)
	})
	t.Run("by a flag", func(t *testing.T) {
		code, out, errs := kvladder(t, "plan", "--json", "--launcher", "slurm", local)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, errs)
		}
		var v struct{ Digest string }
		if err := json.Unmarshal([]byte(out), &v); err != nil || v.Digest == "" {
			t.Fatal(err, out)
		}
		if _, here, _ := kvladder(t, "plan", "--json", local); strings.Contains(here, v.Digest) {
			t.Error("another launcher is the same plan")
		}
	})
	t.Run("a job is cancelled", func(t *testing.T) {
		folder := filepath.Join(dir, "cancelled")
		cmd, _, stderr := startRun(t, "--out", folder, slurm)
		id := inState(t, "RUNNING")
		if out, err := exec.Command("scancel", id).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		err := cmd.Wait()
		if code := exitCode(err); err == nil || code != 3 {
			t.Fatalf("exit %d, want 3\n%s", code, stderr)
		}
		if s := stderr.String(); !strings.Contains(s, "slurm job "+id+": CANCELLED") || !strings.Contains(s, "--resume") {
			t.Errorf("want a word on the cancelled job %s and on --resume:\n%s", id, s)
		}
		if _, err := os.Stat(filepath.Join(folder, "receipt.json")); err == nil {
			t.Error("a receipt was sealed without a chain")
		}
		if n := strings.Count(read(t, filepath.Join(folder, "transcript.jsonl")), `"name":"chain-end"`); n == 0 {
			t.Error("the other chains were not climbed")
		}
		resume(t, folder)
	})
	t.Run("a job is put back into the queue", func(t *testing.T) {
		folder := filepath.Join(dir, "requeued")
		cmd, stdout, stderr := startRun(t, "--out", folder, slurm)
		id := inState(t, "RUNNING")
		if !armtest.Eventually(func() bool {
			m, _ := filepath.Glob(filepath.Join(folder, "chains", "*", "logs", "*"))
			return len(m) > 0
		}) {
			t.Fatal("no chain was begun")
		}
		if out, err := exec.Command("scontrol", "requeue", id).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		armtest.Eventually(func() bool { // it would wait two minutes
			exec.Command("scontrol", "update", "jobid="+id, "starttime=now").Run()
			return queue(t)[id] == "RUNNING"
		})
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		same(t, folder, stdout.String())
		if !strings.Contains(read(t, filepath.Join(folder, "transcript.jsonl")), `"name":"abandoned"`) {
			t.Error("nothing says that a chain was begun twice")
		}
	})
	t.Run("the submitting program is killed", func(t *testing.T) {
		folder := filepath.Join(dir, "killed")
		cmd, _, _ := startRun(t, "--out", folder, slurm)
		inState(t, "RUNNING")
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
		inState(t, "RUNNING") // it goes on
		code, out, _ := kvladder(t, "doctor", "--json")
		if code != 0 || !strings.Contains(out, folder) {
			t.Errorf("doctor: exit %d, does not list what was left for %s:\n%s", code, folder, out)
		}
		resume(t, folder)
	})
	t.Run("doctor ends what was left", func(t *testing.T) {
		folder := filepath.Join(dir, "cleaned")
		cmd, _, _ := startRun(t, "--out", folder, slurm)
		inState(t, "RUNNING")
		foreign, err := exec.Command("sbatch", "--parsable", "--hold", "--comment", "of somebody else", "--output", "/dev/null", "--wrap", "sleep 100").Output()
		if err != nil {
			t.Fatal(err)
		}
		other := strings.TrimSpace(string(foreign))
		if code, out, _ := kvladder(t, "doctor", "--clean"); code != 0 || !strings.Contains(out, "in use") {
			t.Errorf("doctor: exit %d, does not say that jobs are in use:\n%s", code, out)
		}
		inState(t, "RUNNING")
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
		if code, out, errs := kvladder(t, "doctor", "--clean"); code != 0 {
			t.Errorf("doctor: exit %d\n%s%s", code, out, errs)
		}
		if q := queue(t); len(q) != 1 || q[other] == "" {
			t.Errorf("in the queue are %v, want the job %s of somebody else alone", q, other)
		}
		exec.Command("scancel", other).Run()
		armtest.Eventually(func() bool { return len(queue(t)) == 0 })
	})
	t.Run("the controller goes away", func(t *testing.T) {
		folder := filepath.Join(dir, "lost")
		cmd, stdout, stderr := startRun(t, "--out", folder, slurm)
		inState(t, "RUNNING")
		cluster.Controller(t, false)
		time.Sleep(3 * time.Second)
		cluster.Controller(t, true)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		same(t, folder, stdout.String())
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
