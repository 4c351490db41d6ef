package launch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/launch"
)

// contained is an image of this test binary, and the launcher that starts it.
func contained(t *testing.T, command string) (armtest.Image, func(grace time.Duration, pins map[string]string) launch.Container) {
	t.Helper()
	_, err := launch.RuntimeVersion(context.Background(), command)
	armtest.Asked(t, command)
	armtest.Need(t, command, err)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	static := filepath.Join(t.TempDir(), "child")
	armtest.Static(t, ".", static, true)
	child := armtest.Child("exit", "0")
	im := armtest.NewImage(t, command, static, filepath.Base(self), child[1:]...)
	return im, func(grace time.Duration, more map[string]string) launch.Container {
		t.Helper()
		pins := map[string]string{"image": im.ID, "container_runtime": command, "container_args": im.Args}
		for k, v := range more {
			pins[k] = v
		}
		l, err := launch.Container{Grace: grace}.With(pins)
		if err != nil {
			t.Fatal(err)
		}
		return l.(launch.Container)
	}
}

// launchesIn is the program that launches a child in a container, passes on what it prints
// and is killed: FOLDER COMMAND IMAGE ARGS child...
func launchesIn(args []string) int {
	l, err := launch.Container{Grace: time.Second}.With(map[string]string{"container_runtime": args[1], "image": args[2], "container_args": args[3]})
	if err == nil {
		var p arms.Process
		if p, err = l.(launch.Container).Labelled(args[0]).Launch(context.Background(), arms.Spec{Argv: armtest.Child(args[4:]...)}, os.Stdout); err == nil {
			<-p.Done()
			return 0
		}
	}
	fmt.Println(err)
	return 1
}

// hostPid finds, among the processes of a container, the one that calls itself pid.
func hostPid(p arms.Process, pid int) int {
	head := p.(interface{ Pid() int }).Pid()
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", head))
	if err != nil {
		return 0
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if ns, err := os.Readlink(filepath.Join(d, "ns/pid")); err != nil || ns != mine {
			continue
		}
		b, _ := os.ReadFile(filepath.Join(d, "status"))
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
				f := strings.Fields(v)
				if f[len(f)-1] == strconv.Itoa(pid) {
					n, _ := strconv.Atoi(filepath.Base(d))
					return n
				}
			}
		}
	}
	return 0
}

func testContainer(t *testing.T, command string) {
	im, with := contained(t, command)
	t.Setenv("LANG", "C.UTF-8")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	armtest.TestLauncher(t, armtest.LauncherCase{
		Launcher: with(time.Minute, nil), Hasty: with(300*time.Millisecond, nil), Host: hostPid, Inherits: []string{"LANG"},
		Foreign: true,
		Absent: func() (arms.Launcher, string) {
			return with(time.Second, map[string]string{"container_program": "/no/such/engine"}), "/no/such/engine"
		},
		Restart: func(t *testing.T, p arms.Process) {
			if out, err := exec.Command(command, "restart", "-t", "5", p.ID()).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		},
		Program: func(folder string, child ...string) *exec.Cmd {
			return exec.Command(self, append([]string{"launches-in", folder, command, im.ID, im.Args}, child...)...)
		},
	})
}

func TestContainerPodman(t *testing.T) { testContainer(t, "podman") }
func TestContainerDocker(t *testing.T) { testContainer(t, "docker") }
