package armtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvladder/arms"
)

// Log is a writer that can be read while it is written.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Pids are the processes that have announced themselves in the log, in order.
func (l *Log) Pids() []int {
	var pids []int
	for line := range strings.Lines(l.String()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "pid "); ok {
			if pid, err := strconv.Atoi(v); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// WaitPids waits until n processes have announced themselves.
func (l *Log) WaitPids(t testing.TB, n int) []int {
	t.Helper()
	if !Eventually(func() bool { return len(l.Pids()) >= n }) {
		t.Fatalf("%d processes announced themselves, want %d; log:\n%s", len(l.Pids()), n, l)
	}
	return l.Pids()
}

// Eventually says whether ok came true within a few seconds.
func Eventually(ok func() bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// Gone says whether there is no process pid any more. One that has ended and that nobody
// has waited for yet counts as gone: it holds nothing.
func Gone(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	s := string(b)
	after := strings.TrimSpace(s[strings.LastIndexByte(s, ')')+1:])
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// AllGone fails the test unless every process is gone soon.
func AllGone(t testing.TB, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !Eventually(func() bool { return Gone(pid) }) {
			t.Errorf("process %d is still there", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestLauncher tries a launcher that starts processes on this machine. It comes twice: l
// with a grace period that a child which ends when asked never exceeds, however busy the
// machine, and hasty with a short one, for the children that do not.
func TestLauncher(t *testing.T, l, hasty arms.Launcher) {
	launchWith := func(t *testing.T, l arms.Launcher, spec arms.Spec) (arms.Process, *Log) {
		t.Helper()
		log := new(Log)
		ctx, cancel := context.WithCancel(context.Background())
		p, err := l.Launch(ctx, spec, log)
		cancel() // bounds the launching only
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Stop(context.Background()) })
		return p, log
	}
	launch := func(t *testing.T, spec arms.Spec) (arms.Process, *Log) {
		t.Helper()
		return launchWith(t, l, spec)
	}
	child := func(what ...string) arms.Spec { return arms.Spec{Argv: Child(what...)} }
	wait := func(t *testing.T, p arms.Process) {
		t.Helper()
		select {
		case <-p.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the process has not ended")
		}
	}
	stop := func(t *testing.T, p arms.Process) {
		t.Helper()
		if err := p.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.Done():
		default:
			t.Error("Stop returned before Done was closed")
		}
	}

	t.Run("name", func(t *testing.T) {
		if l.Name() == "" {
			t.Error("the launcher has no name")
		}
	})
	t.Run("lives until it is stopped", func(t *testing.T) {
		p, log := launch(t, child("serve"))
		pid := log.WaitPids(t, 1)[0]
		if p.ID() == "" {
			t.Error("a running process has no id")
		}
		if p.Exit() != nil || p.Err() != nil {
			t.Errorf("exit %v, error %v of a process that runs", p.Exit(), p.Err())
		}
		if r := p.Restarts(); r != nil && *r != 0 {
			t.Errorf("%d restarts of a process that was started once", *r)
		}
		stop(t, p)
		stop(t, p) // repeatable
		AllGone(t, []int{pid})
		if !strings.Contains(log.String(), "bye") {
			t.Errorf("the process was not asked to end before it was killed; log:\n%s", log)
		}
		if x := p.Exit(); x == nil || *x != 0 {
			t.Errorf("exit status %v, want 0", show(x))
		}
		if p.Err() != nil {
			t.Error(p.Err())
		}
	})
	t.Run("start time", func(t *testing.T) {
		before := time.Now().Add(-2 * time.Second) // boot time is known to the second
		p, log := launch(t, child("serve"))
		log.WaitPids(t, 1)
		start, err := time.Parse(time.RFC3339, p.Start())
		if err != nil {
			t.Fatal(err)
		}
		if after := time.Now().Add(2 * time.Second); start.Before(before) || start.After(after) {
			t.Errorf("started at %v, want between %v and %v", start, before, after)
		}
		if again := p.Start(); again != p.Start() {
			t.Error("the start time moved")
		}
		at, id := p.Start(), p.ID()
		stop(t, p)
		if p.Start() != at || p.ID() != id {
			t.Errorf("identity %s %s of an ended process, was %s %s", p.ID(), p.Start(), id, at)
		}
	})
	t.Run("two are told apart", func(t *testing.T) {
		p, _ := launch(t, child("serve"))
		q, _ := launch(t, child("serve"))
		if p.ID() == q.ID() {
			t.Errorf("two processes have the id %s", p.ID())
		}
	})
	t.Run("exit status", func(t *testing.T) {
		for _, want := range []int{0, 1, 7} {
			p, _ := launch(t, child("exit", strconv.Itoa(want)))
			wait(t, p)
			if x := p.Exit(); x == nil || *x != want {
				t.Errorf("exit status %s, want %d", show(x), want)
			}
			if (p.Err() == nil) != (want == 0) {
				t.Errorf("error %v after exit status %d", p.Err(), want)
			}
			stop(t, p)
		}
	})
	t.Run("death by signal", func(t *testing.T) {
		p, _ := launch(t, child("die"))
		wait(t, p)
		if x := p.Exit(); x != nil && *x != 128+9 {
			t.Errorf("exit status %s after SIGKILL, want 137 or none", show(x))
		}
		if p.Err() == nil || !strings.Contains(p.Err().Error(), "kill") {
			t.Errorf("error %v, want one that names the signal", p.Err())
		}
	})
	t.Run("ignores SIGTERM", func(t *testing.T) {
		p, log := launchWith(t, hasty, child("stubborn"))
		pids := log.WaitPids(t, 1)
		stop(t, p)
		AllGone(t, pids)
	})
	t.Run("ends at once when the context is over", func(t *testing.T) {
		p, log := launch(t, child("stubborn"))
		pids := log.WaitPids(t, 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begun := time.Now()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("the grace period was waited for: %v", took)
		}
		AllGone(t, pids)
	})
	t.Run("whole family", func(t *testing.T) {
		p, log := launchWith(t, hasty, child("family"))
		pids := log.WaitPids(t, 3)
		stop(t, p)
		AllGone(t, pids)
	})
	t.Run("process that forked twice and left the group", func(t *testing.T) {
		p, log := launchWith(t, hasty, child("daemon"))
		pids := log.WaitPids(t, 2)
		stop(t, p)
		AllGone(t, pids)
	})
	t.Run("what the process abandons when it ends by itself", func(t *testing.T) {
		p, log := launch(t, child("abandon"))
		wait(t, p)
		pids := log.WaitPids(t, 1)
		AllGone(t, pids)
		if x := p.Exit(); x == nil || *x != 3 {
			t.Errorf("exit status %s, want 3", show(x))
		}
	})
	t.Run("environment", func(t *testing.T) {
		t.Setenv("ARMTEST_NOT_ASKED_FOR", "1")
		t.Setenv("LANG", "C.UTF-8")
		spec := child("env")
		spec.Env = map[string]string{"ARMTEST_ASKED_FOR": "yes", "TZ": "Etc/UTC"}
		p, log := launch(t, spec)
		wait(t, p)
		got := "\n" + log.String()
		for _, want := range []string{"\nARMTEST_ASKED_FOR=yes\n", "\nTZ=Etc/UTC\n", "\nLANG=C.UTF-8\n", "\nPATH="} {
			if !strings.Contains(got, want) {
				t.Errorf("the process lacks %q; it has:%s", strings.TrimSpace(want), got)
			}
		}
		if strings.Contains(got, "ARMTEST_NOT_ASKED_FOR") {
			t.Error("the process has a variable that nobody asked for")
		}
	})
	t.Run("missing file is named", func(t *testing.T) {
		log := new(Log)
		absent := filepath.Join(t.TempDir(), "no-such-model.gguf")
		spec := child("serve")
		spec.Files = []string{absent}
		if p, err := l.Launch(context.Background(), spec, log); err == nil {
			p.Stop(context.Background())
			t.Error("launched without a file that it needs")
		} else if !strings.Contains(err.Error(), absent) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %q, want one that says that %s does not exist", err, absent)
		}
		if log.String() != "" {
			t.Errorf("something was started: %s", log)
		}
	})
	t.Run("missing program is named", func(t *testing.T) {
		for _, name := range []string{"/no/such/engine", "no-such-engine"} {
			p, err := l.Launch(context.Background(), arms.Spec{Argv: []string{name}}, new(Log))
			if err == nil {
				p.Stop(context.Background())
				t.Errorf("launched %s", name)
			} else if !strings.Contains(err.Error(), name) {
				t.Errorf("error %q does not name %s", err, name)
			}
		}
	})
	t.Run("nothing is launched once the context is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p, err := l.Launch(ctx, child("serve"), new(Log))
		if err == nil {
			p.Stop(context.Background())
			t.Error("launched")
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want the context's", err)
		}
	})
}

// TestAttached tries a launcher that takes what somebody else started: url is of a
// server that answers.
func TestAttached(t *testing.T, l arms.Launcher) {
	p, err := l.Launch(context.Background(), arms.Spec{}, new(Log))
	if err != nil {
		t.Fatal(err)
	}
	if l.Name() == "" || p.ID() == "" {
		t.Errorf("launcher %q, process %q: both need a name", l.Name(), p.ID())
	}
	if p.Restarts() != nil {
		t.Errorf("%d restarts of a process that was not started here: want unknown", *p.Restarts())
	}
	select {
	case <-p.Done():
		t.Error("done before it was stopped")
	case <-time.After(20 * time.Millisecond):
	}
	for range 2 {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-p.Done():
	case <-time.After(time.Second):
		t.Error("not done after it was stopped")
	}
	if p.Exit() != nil {
		t.Errorf("exit status %d of a process that was not started here: want unknown", *p.Exit())
	}
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

func show(n *int) string {
	if n == nil {
		return "unknown"
	}
	return strconv.Itoa(*n)
}
