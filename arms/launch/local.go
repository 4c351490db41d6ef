package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kvladder/arms"
)

// DefaultGrace is how long a family may take to end on SIGTERM before it gets SIGKILL.
// Engines write open chunks of their store in it.
const DefaultGrace = 10 * time.Second

// Allowed names the variables that a process inherits. Everything else it has must be in
// its Spec, and so in the receipt: an engine reads its settings from the environment too.
// The last three say which accelerators a scheduler has lent to this program.
var Allowed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH",
	"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
}

// Local starts processes on this machine, each under a guardian (see Hold), so that
// nothing of an engine outlives this program, however it ends. The zero value works
// where this program has the verb "hold".
type Local struct {
	Self  string        // program that plays the guardian as `Self hold --report -- argv...`; "" = this one
	Grace time.Duration // between SIGTERM and SIGKILL; 0 = DefaultGrace
}

// MissingFileError says that a file needed for a launch is not there.
type MissingFileError struct {
	File  string
	Fetch string // the project's script that brings it, "" where there is none
	Err   error
}

func (e *MissingFileError) Error() string {
	by := ""
	if e.Fetch != "" {
		by = " with " + e.Fetch
	}
	return fmt.Sprintf("%s is needed for the launch and cannot be used: %v; fetch it%s, or set the pin that names it", e.File, e.Err, by)
}

func (e *MissingFileError) Unwrap() error { return e.Err }

// Name is "local".
func (l Local) Name() string { return "local" }

// Launch starts spec and returns when the process runs or could not be started. ctx ends
// the launching only: once Launch has returned, the process lives until it ends or Stop.
// Everything that the family prints goes to log, from one goroutine.
func (l Local) Launch(ctx context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch local: %w", err)
	}
	p, err := l.launch(ctx, spec, log)
	if err != nil {
		return nil, fmt.Errorf("launch local: %w", err)
	}
	return p, nil
}

func (l Local) launch(ctx context.Context, spec arms.Spec, log io.Writer) (*family, error) {
	env := environment(spec.Env)
	if err := check(spec, env); err != nil {
		return nil, err
	}
	self := l.Self
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("the guardian is this program, whose path is not known: %w", err)
		}
	}
	leashEnd, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer leashEnd.Close()
	status, statusEnd, err := os.Pipe()
	if err != nil {
		leash.Close()
		return nil, err
	}
	defer statusEnd.Close()

	cmd := exec.Command(self, append([]string{"hold", "--report", "--"}, spec.Argv...)...)
	cmd.Env = env
	cmd.Dir = spec.Dir
	cmd.Stdin = leashEnd
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{statusEnd} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The guardian returns when nobody of the family is left, so nobody can hold the log
	// open after it. If it was killed itself, somebody may, and Wait would not return:
	// https://go.dev/issue/23019.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		leash.Close()
		status.Close()
		return nil, fmt.Errorf("cannot start the guardian %s: %w", self, err)
	}
	statusEnd.Close() // or the status pipe would not end with the guardian

	p := &family{grace: l.Grace, leash: leash, ending: newEnding()}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	started := make(chan error, 1)
	go p.follow(cmd, status, started)
	select {
	case err := <-started:
		if err != nil {
			leash.Close()
			<-p.done
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
		leash.Close()
		<-p.done
		return nil, ctx.Err()
	}
}

// check finds what is missing before anything is started.
func check(spec arms.Spec, env []string) error {
	if len(spec.Argv) == 0 {
		return errors.New("the spec has no command")
	}
	for _, f := range spec.Files {
		if _, err := os.Stat(resolve(spec.Dir, f)); err != nil {
			return missingFile(f, spec.Fetch, err)
		}
	}
	var path string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	name := spec.Argv[0]
	if strings.Contains(name, "/") {
		name = resolve(spec.Dir, name)
	}
	_, err := lookPath(name, path)
	return err
}

func resolve(dir, name string) string {
	if dir == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func missingFile(file, fetch string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &MissingFileError{File: file, Fetch: fetch, Err: err}
}

// lookPath finds the program called name in the folders of path, a list like $PATH.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", missingFile(name, "", err)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); dir != "" && executable(file) == nil {
			return file, nil
		}
	}
	return "", missingFile(name, "", errors.New("no such program on the path"))
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a folder")
	case info.Mode()&0o111 == 0:
		return errors.New("it is not executable")
	}
	return nil
}

// environment is what is allowed of this program's own, and extra over it, sorted.
func environment(extra map[string]string) []string {
	all := map[string]string{}
	for _, name := range Allowed {
		if v, ok := os.LookupEnv(name); ok {
			all[name] = v
		}
	}
	for name, v := range extra {
		all[name] = v
	}
	env := make([]string, 0, len(all))
	for name, v := range all {
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env
}

// FreePort asks the kernel for a TCP port of 127.0.0.1 that nobody listens on. Somebody
// may take it before it is used: a launch that fails for that is to be tried again.
func FreePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// family is a process, what it started, and the guardian above them.
type family struct {
	grace time.Duration
	pid   int
	start string

	mu    sync.Mutex
	leash *os.File // closing it ends the family at once

	ending // err is nil when the process ended with exit status 0
}

// follow reads the guardian's report and waits for it to end.
func (p *family) follow(cmd *exec.Cmd, status *os.File, started chan<- error) {
	sc := bufio.NewScanner(status)
	var first, last report
	if sc.Scan() {
		json.Unmarshal(sc.Bytes(), &first)
	}
	p.pid, p.start = first.Pid, first.Start
	if first.Pid != 0 {
		started <- nil
	}
	for sc.Scan() {
		json.Unmarshal(sc.Bytes(), &last)
	}
	status.Close()
	waited := cmd.Wait()
	switch {
	case first.Error != "":
		p.err = errors.New(first.Error)
	case first.Pid == 0:
		p.err = fmt.Errorf("the guardian ended without a report: %w", orEnded(waited))
	case last.Exit == nil:
		// Somebody killed the guardian: what it held is ours to end.
		syscall.Kill(-p.pid, syscall.SIGKILL)
		p.err = fmt.Errorf("process %d was lost: its guardian ended: %w", p.pid, orEnded(waited))
	case last.Signal != "":
		p.exit, p.err = last.Exit, fmt.Errorf("process %d was ended by signal: %s", p.pid, last.Signal)
	case *last.Exit != 0:
		p.exit, p.err = last.Exit, fmt.Errorf("process %d ended with exit status %d", p.pid, *last.Exit)
	default:
		p.exit = last.Exit
	}
	if first.Pid == 0 {
		started <- p.err
	}
	close(p.done)
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// ID is the pid of the process itself, not of its guardian.
func (p *family) ID() string { return strconv.Itoa(p.pid) }

// Start is read from the system anew while the process is there, so that another process
// under the same pid shows; afterwards it is what it was.
func (p *family) Start() string {
	select {
	case <-p.done:
	default:
		if now, err := startTime(p.pid); err == nil {
			return now
		}
	}
	return p.start
}

// Restarts is 0: nobody starts a local process again.
func (p *family) Restarts() *int { return new(int) }

// Stop sends SIGTERM to the process group, waits for the grace period or until ctx ends,
// then has the guardian kill what is left, and waits until nobody is. It returns an error
// only when even that could not be seen to happen.
func (p *family) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	syscall.Kill(-p.pid, syscall.SIGTERM)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	p.cut()
	select {
	case <-p.done:
		return nil
	case <-time.After(unkillable):
		return fmt.Errorf("process %d is still there %s after SIGKILL: look for a process in uninterruptible sleep", p.pid, unkillable)
	}
}

// unkillable is how long a family may take to vanish after SIGKILL. A process that holds
// tens of gigabytes, or a device, takes seconds.
const unkillable = 60 * time.Second

// cut ends the leash.
func (p *family) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leash != nil {
		p.leash.Close()
		p.leash = nil
	}
}
