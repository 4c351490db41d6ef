package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/launch"
)

// TestMain lets the test binary be the guardian, as kvladder is, and a program that
// launches something and is then killed.
func TestMain(m *testing.M) {
	armtest.Main(m, map[string]func([]string) int{
		"hold":        hold,
		"launches":    launches,
		"launches-in": launchesIn,
		"submits":     submits,
	})
}

// hold is `hold [--report] -- argv...`.
func hold(args []string) int {
	var status io.Writer
	if args[0] == "--report" {
		status, args = launch.Report(), args[1:]
	}
	return launch.Hold(args[1:], os.Stdin, os.Stdout, os.Stderr, status)
}

// launches starts a child and passes on what it prints, until it is killed.
func launches(args []string) int {
	p, err := (launch.Local{Grace: time.Second}).Launch(context.Background(), arms.Spec{Argv: armtest.Child(args...)}, os.Stdout)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-p.Done()
	return 0
}

func TestLocal(t *testing.T) {
	t.Setenv("LANG", "C.UTF-8")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	armtest.TestLauncher(t, armtest.LauncherCase{
		Launcher: launch.Local{Grace: time.Minute}, Hasty: launch.Local{Grace: 300 * time.Millisecond}, Inherits: []string{"LANG", "PATH"},
		Program: func(_ string, child ...string) *exec.Cmd {
			return exec.Command(self, append([]string{"launches"}, child...)...)
		},
	})
}

// TestNoOrphans ends the launching program in each way that a program can end, and asks
// that nothing of what it launched is left.
func TestNoOrphans(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGABRT} {
		for what, n := range map[string]int{"serve": 1, "stubborn": 1, "family": 3, "daemon": 2} {
			t.Run(fmt.Sprintf("%v/%s", sig, what), func(t *testing.T) {
				t.Parallel()
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				log := new(armtest.Log)
				cmd := exec.Command(self, "launches", what)
				cmd.Stdout = log
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				pids := log.WaitPids(t, n)
				guardian := parent(t, pids[len(pids)-1])
				cmd.Process.Signal(sig)
				cmd.Wait()
				armtest.AllGone(t, append(pids, guardian))
			})
		}
	}
}

// parent is the pid of pid's parent.
func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	t.Fatalf("process %d has no parent", pid)
	return 0
}

// TestGuardianKilled kills the guardian itself: the process is then ended by the kernel
// and by the launcher, and its exit status is not known.
func TestGuardianKilled(t *testing.T) {
	log := new(armtest.Log)
	p, err := (launch.Local{}).Launch(context.Background(), arms.Spec{Argv: armtest.Child("family")}, log)
	if err != nil {
		t.Fatal(err)
	}
	pids := log.WaitPids(t, 3)
	head := pids[2]
	guardian := parent(t, head)
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(guardian) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "kv-hold" {
		t.Errorf("the guardian goes by the name %q, %v", comm, err)
	}
	if strconv.Itoa(head) != p.ID() {
		t.Errorf("id %s, want the process itself, %d", p.ID(), head)
	}
	syscall.Kill(guardian, syscall.SIGKILL)
	<-p.Done()
	armtest.AllGone(t, pids)
	if p.Exit() != nil || p.Err() == nil {
		t.Errorf("exit %v, error %v: want an unknown status and an error", p.Exit(), p.Err())
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestGuardianMissing uses a program that is no guardian.
func TestGuardianMissing(t *testing.T) {
	_, err := (launch.Local{Self: "/bin/true"}).Launch(context.Background(), arms.Spec{Argv: armtest.Child("serve")}, nil)
	if err == nil || !strings.Contains(err.Error(), "guardian") {
		t.Errorf("error %v, want one about the guardian", err)
	}
	_, err = (launch.Local{Self: filepath.Join(t.TempDir(), "absent")}).Launch(context.Background(), arms.Spec{Argv: armtest.Child("serve")}, nil)
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error %v, want one that names the guardian's path", err)
	}
}

// TestGuardianOpensNothing asks that the family has the three standard descriptors and no
// other: a report pipe held by an engine's worker would keep the launcher waiting.
func TestGuardianOpensNothing(t *testing.T) {
	log := new(armtest.Log)
	p, err := (launch.Local{}).Launch(context.Background(), arms.Spec{Argv: []string{"sh", "-c", "ls /proc/self/fd; readlink /proc/self/fd/0"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	// ls opens the folder that it lists: descriptor 3 or the next free one
	if got, want := log.String(), "0\n1\n2\n3\n/dev/null\n"; got != want {
		t.Errorf("descriptors\n%swant\n%s", got, want)
	}
}

func TestMissingFileError(t *testing.T) {
	_, err := (launch.Local{}).Launch(context.Background(), arms.Spec{Argv: []string{t.TempDir()}}, nil)
	var missing *launch.MissingFileError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "folder") {
		t.Errorf("error %v, want a MissingFileError that says that it is a folder", err)
	}
	plain := filepath.Join(t.TempDir(), "engine")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = (launch.Local{}).Launch(context.Background(), arms.Spec{Argv: []string{plain}}, nil)
	if !errors.As(err, &missing) || missing.File != plain || !strings.Contains(err.Error(), "not executable") {
		t.Errorf("error %v, want a MissingFileError that says that %s is not executable", err, plain)
	}
	_, err = (launch.Local{}).Launch(context.Background(), arms.Spec{}, nil)
	if err == nil {
		t.Error("launched nothing")
	}
}

func TestAttach(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	armtest.TestAttached(t, launch.Attach{URL: srv.URL})
	if _, err := http.Get(srv.URL); err != nil {
		t.Errorf("the server was ended: %v", err)
	}
}

func TestFreePort(t *testing.T) {
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("port %d is not free: %v", port, err)
	}
	ln.Close()
}
