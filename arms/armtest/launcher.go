package armtest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/probes"
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
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
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

// LauncherCase is what TestLauncher has to be told of a launcher.
type LauncherCase struct {
	// Launcher gives a child a grace period that one which ends when asked never exceeds,
	// however busy the machine; Hasty a short one, for the children that do not.
	Launcher, Hasty arms.Launcher
	// Host translates what a process takes for a pid into the number that it has here, while
	// both live; nil = they are the same, 0 = there is no such process.
	Host func(p arms.Process, pid int) int
	// Inherits are variables of this program that a process must have too.
	Inherits []string
	// Foreign says that the program is looked up elsewhere than among the files here. Absent
	// then launches one that is not there, and says what it is called.
	Foreign bool
	Absent  func() (arms.Launcher, string)
	// Restart starts a running process again behind the launcher's back; nil = nobody can.
	Restart func(t *testing.T, p arms.Process)
	// Program is a program that launches a child for a run folder, passes on what it prints,
	// and is killed; nil = not tried.
	Program func(folder string, child ...string) *exec.Cmd
}

// TestLauncher tries what every launcher that starts processes must keep to, with real ones.
func TestLauncher(t *testing.T, c LauncherCase) {
	l, hasty := c.Launcher, c.Hasty
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
	// pids waits for n processes to announce themselves and gives their numbers here.
	pids := func(t *testing.T, p arms.Process, log *Log, n int) []int {
		t.Helper()
		said := log.WaitPids(t, n)
		if c.Host == nil {
			return said
		}
		var here []int
		for _, pid := range said {
			if h := c.Host(p, pid); h != 0 {
				here = append(here, h)
			}
		}
		return here
	}
	wait := func(t *testing.T, p arms.Process) {
		t.Helper()
		select {
		case <-p.Done():
		case <-time.After(60 * time.Second):
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
		here := pids(t, p, log, 1)
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
		AllGone(t, here)
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
		p, log := launch(t, child("serve"))
		syscall.Kill(pids(t, p, log, 1)[0], syscall.SIGKILL)
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
		here := pids(t, p, log, 1)
		stop(t, p)
		AllGone(t, here)
	})
	t.Run("ends at once when the context is over", func(t *testing.T) {
		p, log := launch(t, child("stubborn"))
		here := pids(t, p, log, 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begun := time.Now()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("the grace period was waited for: %v", took)
		}
		AllGone(t, here)
	})
	t.Run("whole family", func(t *testing.T) {
		p, log := launchWith(t, hasty, child("family"))
		here := pids(t, p, log, 3)
		stop(t, p)
		AllGone(t, here)
	})
	t.Run("process that forked twice and left the group", func(t *testing.T) {
		p, log := launchWith(t, hasty, child("daemon"))
		here := pids(t, p, log, 2)
		stop(t, p)
		AllGone(t, here)
	})
	t.Run("what the process abandons when it ends by itself", func(t *testing.T) {
		p, log := launch(t, child("abandon"))
		wait(t, p)
		if said := log.WaitPids(t, 1); c.Host == nil { // elsewhere the number says nothing any more
			AllGone(t, said)
		}
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
		for _, want := range append([]string{"\nARMTEST_ASKED_FOR=yes\n", "\nTZ=Etc/UTC\n", "\nPATH="}, inherited(c.Inherits)...) {
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
		try := func(l arms.Launcher, name string) {
			p, err := l.Launch(context.Background(), arms.Spec{Argv: []string{name}}, new(Log))
			if err == nil {
				p.Stop(context.Background())
				t.Errorf("launched %s", name)
			} else if !strings.Contains(err.Error(), name) {
				t.Errorf("error %q does not name %s", err, name)
			}
		}
		if c.Foreign {
			try(c.Absent())
			return
		}
		try(l, "/no/such/engine")
		try(l, "no-such-engine")
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
	t.Run("comes up at a port of the kernel's", func(t *testing.T) {
		port := freePort(t)
		log := &arms.Tail{To: new(Log)}
		r, err := arms.Up(context.Background(), arms.Launch{Arm: "C0", Engine: helper{child: []string{"http", strconv.Itoa(port)}}, Launcher: l,
			Address: arms.Address{Host: "127.0.0.1", Port: port}, Log: log, Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Process.Stop(context.Background()) })
		stop(t, r.Process)
		if err := (helper{}).Ready(context.Background(), r.Endpoint); err == nil {
			t.Error("it still answers after it was stopped")
		}
	})
	t.Run("a crash tells its status and last lines", func(t *testing.T) {
		log := &arms.Tail{To: new(Log)}
		r, err := arms.Up(context.Background(), arms.Launch{Arm: "C0", Engine: helper{child: []string{"complain"}}, Launcher: l,
			Address: arms.Address{Host: "127.0.0.1", Port: freePort(t)}, Log: log, Deadline: time.Minute})
		var not *arms.NotReadyError
		if err == nil {
			r.Process.Stop(context.Background())
			t.Fatal("it is up")
		}
		if !errors.As(err, &not) || !strings.Contains(err.Error(), "exit status 5") {
			t.Fatalf("error %v, want a NotReadyError that names the exit status 5", err)
		}
		if n := len(not.LastLines); n == 0 || not.LastLines[n-1] != "complaint 20: no such device" || !strings.Contains(err.Error(), "complaint 20") {
			t.Errorf("last lines %q", not.LastLines)
		}
	})
	t.Run("what never answers tells its last lines and is ended", func(t *testing.T) {
		lines := new(Log)
		log := &arms.Tail{To: lines}
		r, err := arms.Up(context.Background(), arms.Launch{Arm: "C0", Engine: helper{child: []string{"serve"}}, Launcher: hasty,
			Address: arms.Address{Host: "127.0.0.1", Port: freePort(t)}, Log: log, Deadline: 5 * time.Second})
		if err == nil {
			r.Process.Stop(context.Background())
			t.Fatal("it is up")
		}
		var not *arms.NotReadyError
		if !errors.As(err, &not) || !strings.Contains(strings.Join(not.LastLines, " "), "pid ") {
			t.Errorf("error %v, want a NotReadyError with its lines", err)
		}
		if c.Host == nil {
			AllGone(t, lines.Pids())
		}
	})
	if c.Restart != nil {
		t.Run("a restart from outside is seen", func(t *testing.T) {
			p, log := launch(t, child("serve"))
			log.WaitPids(t, 1)
			w, ok := p.(arms.Watched)
			if !ok {
				t.Fatal("somebody can start the process again, and it does not watch for it")
			}
			start, restarts := p.Start(), *p.Restarts()
			if seen, _ := w.Replaced(); seen != "" {
				t.Fatalf("replaced before it was: %s", seen)
			}
			c.Restart(t, p)
			if !Eventually(func() bool { seen, _ := w.Replaced(); return seen != "" }) {
				t.Fatal("the restart was not seen by itself")
			}
			if _, since := w.Replaced(); since.IsZero() || time.Since(since) > time.Minute {
				t.Errorf("started again at %v", since)
			}
			if n := *p.Restarts(); n != restarts+1 {
				t.Errorf("%d restarts, want %d", n, restarts+1)
			}
			if p.Start() == start {
				t.Errorf("the start time is still %s", start)
			}
			select {
			case <-p.Done():
				t.Errorf("a process that runs again is said to have ended: %v", p.Err())
			default:
			}
			stop(t, p)
		})
	}
	if lab, ok := l.(arms.Labeller); ok {
		t.Run("label", func(t *testing.T) {
			folder := t.TempDir()
			p, log := launchWith(t, lab.Labelled(folder), child("serve"))
			here := pids(t, p, log, 1)
			left := labelled(t, lab, folder)
			if len(left) != 1 || left[0].ID != p.ID() || left[0].Kind == "" || left[0].Start == "" || left[0].State == "" {
				t.Fatalf("of folder %s these are found: %+v, want process %s", folder, left, p.ID())
			}
			if err := left[0].End(context.Background()); err != nil {
				t.Fatal(err)
			}
			wait(t, p)
			AllGone(t, here)
			if left := labelled(t, lab, folder); len(left) != 0 {
				t.Errorf("still found after its end: %+v", left)
			}
			stop(t, p)
		})
		t.Run("nothing stopped is found", func(t *testing.T) {
			folder := t.TempDir()
			p, log := launchWith(t, lab.Labelled(folder), child("serve"))
			log.WaitPids(t, 1)
			stop(t, p)
			if left := labelled(t, lab, folder); len(left) != 0 {
				t.Errorf("found after it was stopped: %+v", left)
			}
		})
	}
	if c.Program != nil {
		t.Run("the launching program is killed", func(t *testing.T) {
			folder := t.TempDir()
			log := new(Log)
			cmd := c.Program(folder, "serve")
			cmd.Stdout, cmd.Stderr = log, log
			cmd.WaitDelay = time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := log.WaitPids(t, 1)
			cmd.Process.Signal(syscall.SIGKILL)
			cmd.Wait()
			lab, ok := l.(arms.Labeller)
			if !ok {
				AllGone(t, said)
				return
			}
			left := labelled(t, lab, folder)
			if len(left) != 1 {
				t.Fatalf("of folder %s these are found: %+v, want one", folder, left)
			}
			if err := left[0].End(context.Background()); err != nil {
				t.Fatal(err)
			}
			if c.Host == nil {
				AllGone(t, said)
			}
			if left := labelled(t, lab, folder); len(left) != 0 {
				t.Errorf("still found after its end: %+v", left)
			}
		})
	}
}

// labelled is what a launcher finds of one run folder.
func labelled(t *testing.T, l arms.Labeller, folder string) []arms.Left {
	t.Helper()
	all, err := l.Left(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f arms.Left) bool { return f.Folder != folder })
}

func inherited(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "\n"+n+"="+os.Getenv(n)+"\n")
	}
	return out
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// helper is as much of an engine as Up asks for: its server is a child.
type helper struct {
	arms.Engine // what is not asked for is not there
	child       []string
}

func (helper) Name() string { return "helper" }

func (e helper) Spec(map[string]string, arms.Address, arms.Resources) (arms.Spec, error) {
	return arms.Spec{Argv: Child(e.child...)}, nil
}

func (helper) Ready(ctx context.Context, at probes.Endpoint) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
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
