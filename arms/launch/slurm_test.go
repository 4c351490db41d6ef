package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/launch"
)

// submits is the program that launches a child as a job, passes on what it prints and is
// killed: FOLDER child...
func submits(args []string) int {
	l := launch.Slurm{Grace: time.Second}.Labelled(args[0])
	p, err := l.Launch(context.Background(), arms.Spec{Argv: armtest.Child(args[1:]...)}, os.Stdout)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-p.Done()
	return 0
}

func scontrol(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("scontrol", args...).CombinedOutput(); err != nil {
		t.Fatalf("scontrol %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// requeue puts a job back into the queue and lets it begin at once, without the delay that
// Slurm would give it.
func requeue(t *testing.T, id string) {
	t.Helper()
	scontrol(t, "requeue", id)
	if !armtest.Eventually(func() bool {
		return exec.Command("scontrol", "update", "jobid="+id, "starttime=now").Run() == nil
	}) {
		t.Fatalf("job %s did not come back into the queue", id)
	}
}

func TestSlurm(t *testing.T) {
	armtest.Asked(t, "slurm")
	c := armtest.NewCluster(t)
	t.Setenv("LANG", "C.UTF-8")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// two children at once are tried: a node for each would take two nodes
	shared := func(grace time.Duration) launch.Slurm {
		l, err := launch.Slurm{Grace: grace}.With(map[string]string{"slurm_args": "--ntasks 1"})
		if err != nil {
			t.Fatal(err)
		}
		return l.(launch.Slurm)
	}
	armtest.TestLauncher(t, armtest.LauncherCase{
		Launcher: shared(time.Minute), Hasty: shared(300 * time.Millisecond), Inherits: []string{"LANG"},
		Restart: func(t *testing.T, p arms.Process) { requeue(t, p.ID()) },
		Program: func(folder string, child ...string) *exec.Cmd {
			return exec.Command(self, append([]string{"submits", folder}, child...)...)
		},
	})
	t.Run("a cancelled job says so", func(t *testing.T) {
		log := new(armtest.Log)
		p, err := shared(time.Second).Launch(context.Background(), arms.Spec{Argv: armtest.Child("serve")}, log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Stop(context.Background()) })
		pids := log.WaitPids(t, 1)
		if out, err := exec.Command("scancel", p.ID()).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		<-p.Done()
		var je *launch.JobError
		if !errors.As(p.Err(), &je) || je.State != "CANCELLED" || je.ID != p.ID() {
			t.Errorf("error %v, want a JobError of the state CANCELLED", p.Err())
		}
		if p.Exit() != nil {
			t.Errorf("exit status %d of a job that was cancelled", *p.Exit())
		}
		armtest.AllGone(t, pids)
	})
	t.Run("the controller goes away", func(t *testing.T) {
		log := new(armtest.Log)
		p, err := shared(time.Second).Launch(context.Background(), arms.Spec{Argv: armtest.Child("serve")}, log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Stop(context.Background()) })
		pids := log.WaitPids(t, 1)
		c.Controller(t, false)
		back := false
		t.Cleanup(func() {
			if !back {
				c.Controller(t, true)
			}
		})
		if !armtest.Eventually(func() bool { return strings.Contains(log.String(), "controller does not answer") }) {
			t.Errorf("nothing is said of a controller that does not answer; log:\n%s", log)
		}
		select {
		case <-p.Done():
			t.Fatalf("a job was given up with its controller: %v", p.Err())
		default:
		}
		// a process that ends meanwhile is seen to, by what it leaves
		exec.Command("kill", fmt.Sprint(pids[0])).Run()
		select {
		case <-p.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the end of the process is not seen without the controller")
		}
		if x := p.Exit(); x == nil || *x != 0 {
			t.Errorf("exit %v, error %v, want 0", x, p.Err())
		}
		// and what is launched meanwhile waits for it
		launched := make(chan error, 1)
		log2 := new(armtest.Log)
		var q arms.Process
		go func() {
			var err error
			q, err = shared(time.Second).Launch(context.Background(), arms.Spec{Argv: armtest.Child("serve")}, log2)
			launched <- err
		}()
		if !armtest.Eventually(func() bool { return strings.Contains(log2.String(), "submitted when it does") }) {
			t.Errorf("nothing is said of a controller that does not answer; log:\n%s", log2)
		}
		c.Controller(t, true)
		back = true
		if err := <-launched; err != nil {
			t.Fatal(err)
		}
		log2.WaitPids(t, 1)
		if err := q.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestSlurmPins(t *testing.T) {
	for _, args := range []string{"--comment x", "-o out", "--export=ALL", `--partition "gpu`} {
		if _, err := (launch.Slurm{}).With(map[string]string{"slurm_args": args}); err == nil || !strings.Contains(err.Error(), "slurm_args") {
			t.Errorf("slurm_args %q: error %v, want one that names the pin", args, err)
		}
	}
}
