package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// report is one line that the guardian writes to its launcher: first the child's pid,
// then how the child ended.
type report struct {
	Pid    int    `json:"pid,omitempty"`
	Start  string `json:"start,omitempty"`
	Exit   *int   `json:"exit,omitempty"`
	Signal string `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"` // the child could not be started
}

// signalled is added to a signal's number to make the exit status of a process that a
// signal ended, as shells do.
const signalled = 128

// cannotStart is the guardian's exit status when the child could not be started at all,
// the status of a shell that finds no such command.
const cannotStart = 127

// Hold is the guardian: it runs argv and makes sure that nothing of it is left, however
// the program that asked for it ends. It returns the exit status of argv, or 128 plus the
// number of the signal that ended it.
//
// The leash is a pipe whose other end only the launcher holds. The kernel closes that end
// when the launcher dies, even by SIGKILL, so the end of the leash is the one sign of a
// lost launcher that cannot fail to come; a parent-death signal (prctl(2),
// PR_SET_PDEATHSIG) would reach the first child alone, and depends on which thread forked.
//
// The family is argv in a process group of its own, whatever it starts, and what it
// starts and then abandons: the guardian is a child subreaper (prctl(2),
// PR_SET_CHILD_SUBREAPER), so a process that forks twice, or leaves the group with
// setsid(2), becomes the guardian's own child instead of init's. When argv has ended, or
// the leash has, all of them get SIGKILL, and Hold returns when none is left to wait for.
//
// Hold waits for every child that the calling program has, so the program should have no
// other. SIGINT, SIGTERM and SIGHUP are passed on to the group and have no other effect: ending
// is the group's answer to give. Report lines go to status, which may be nil.
func Hold(argv []string, leash io.Reader, stdout, stderr *os.File, status io.Writer) int {
	tell := func(r report) {
		if status != nil {
			b, _ := json.Marshal(r)
			status.Write(append(b, '\n'))
		}
	}
	// `killall kvladder` is meant for the launcher: the guardian goes by another name, and
	// should it be killed all the same, the kernel kills at least the head of the family.
	// That signal is tied to the thread that forks, so this goroutine keeps it.
	os.WriteFile("/proc/self/comm", []byte("kv-hold"), 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := startFamily(argv, stdout, stderr)
	if err != nil {
		tell(report{Error: err.Error()})
		fmt.Fprintf(stderr, "error: hold: %v\n", err)
		return cannotStart
	}
	start, _ := startTime(child)
	tell(report{Pid: child, Start: start})

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	var ended sync.Once
	over := make(chan struct{})
	end := func() { ended.Do(func() { close(over) }) }
	go func() {
		io.Copy(io.Discard, leash)
		end()
	}()
	gone := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				syscall.Kill(-child, s.(syscall.Signal))
			case <-gone:
				return
			}
		}
	}()
	go func() {
		<-over
		for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
			killFamily()
			select {
			case <-gone:
				return
			case <-time.After(wait):
			}
		}
	}()

	code := 0
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // ECHILD: nobody is left
			break
		}
		if pid == child {
			r := report{}
			if ws.Signaled() {
				code = signalled + int(ws.Signal())
				r.Signal = ws.Signal().String()
			} else {
				code = ws.ExitStatus()
			}
			r.Exit = &code
			tell(r)
			end()
		}
	}
	close(gone)
	return code
}

// Report opens descriptor 3, where Local reads the guardian's report. The family does not
// inherit it, or its reader would wait for all of them.
func Report() *os.File {
	unix.CloseOnExec(3)
	return os.NewFile(3, "report")
}

// startFamily starts argv at the head of a process group of its own.
func startFamily(argv []string, stdout, stderr *os.File) (int, error) {
	if len(argv) == 0 {
		return 0, errors.New("nothing to run: give a command after --")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("cannot become the reaper of a family: %w", err)
	}
	// Whatever this program was given open, an engine has no business with. Kernels before
	// 5.11 refuse, and keep the habit that files are opened to close on exec anyway.
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	path, err := lookPath(argv[0], os.Getenv("PATH"))
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), stdout.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot start %s: %w", path, err)
	}
	return pid, nil
}

// killFamily sends SIGKILL to all descendants of this process, which is everybody: see
// Hold. One pass can miss a process born during it: the caller repeats until none is left.
func killFamily() {
	for _, pid := range descendants(os.Getpid()) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// descendants lists the processes below pid, parents first.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		st, err := readStat(f)
		if err == nil {
			children[st.ppid] = append(children[st.ppid], st.pid)
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var below []int
		for _, p := range next {
			below = append(below, children[p]...)
		}
		next = below
	}
	return all
}

// stat is what the program needs of /proc/<pid>/stat, see proc_pid_stat(5).
type stat struct {
	pid, ppid int
	ticks     uint64 // start time after boot, in clock ticks
}

func readStat(file string) (stat, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(b))
}

// parseStat reads a line of /proc/<pid>/stat. The command name, in parentheses, may hold
// blanks and parentheses itself: the fields are counted from the last one that closes.
func parseStat(s string) (stat, error) {
	open, shut := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || shut < open {
		return stat{}, fmt.Errorf("no command name in %q", s)
	}
	rest := strings.Fields(s[shut+1:]) // from field 3, the state
	if len(rest) < 20 {
		return stat{}, fmt.Errorf("%d fields after the command name, want at least 20", len(rest))
	}
	var st stat
	var err [3]error
	st.pid, err[0] = strconv.Atoi(strings.TrimSpace(s[:open]))
	st.ppid, err[1] = strconv.Atoi(rest[1])
	st.ticks, err[2] = strconv.ParseUint(rest[19], 10, 64)
	return st, errors.Join(err[:]...)
}

// ticksPerSecond is USER_HZ, which is 100 in what Linux shows of every architecture that
// Go runs on.
const ticksPerSecond = 100

// bootTime is when the machine was booted. The kernel computes it from a clock that is
// steered, so two readings may differ by a second: one reading serves the whole process,
// so that a start time does not seem to move.
var bootTime = sync.OnceValues(func() (time.Time, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			sec, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return time.Unix(sec, 0).UTC(), err
		}
	}
	return time.Time{}, errors.New("/proc/stat has no btime")
})

// startTime is when process pid started, RFC 3339 to a hundredth of a second, UTC.
func startTime(pid int) (string, error) {
	st, err := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	boot, err := bootTime()
	if err != nil {
		return "", err
	}
	t := boot.Add(time.Duration(st.ticks) * (time.Second / ticksPerSecond))
	return t.Format("2006-01-02T15:04:05.00Z07:00"), nil
}
