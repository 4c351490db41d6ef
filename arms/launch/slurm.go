package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kvladder/arms"
)

// Slurm starts each process as a batch job (sbatch(1)) of a Slurm cluster.
//
// What it starts is this program itself, which climbs one chain on the node that it was given,
// beside the server that it launches there as Beside does: requests, counters and the end of a
// process stay on one machine, and a chain's numbers are those of a local run. So it needs the
// run folder and this program under the same path on every node, as clusters have it.
//
//  1. The job's files are in a folder of the run folder: the script, what it printed, the
//     times it was started, its exit status. Where the controller is away they are enough:
//     the job does not need it to go on, nor does the wait for its end.
//  2. On the node the process runs under the guardian (see Hold), so that a cancelled job
//     leaves nothing.
//  3. A job that Slurm puts back into the queue begins again from the start of its script, and
//     its process is another one.
//  4. The job's comment is its label. When this program is killed the job goes on, and is found
//     by it.
type Slurm struct {
	Self   string        // this program, as the nodes see it; "" = the running one's path
	Grace  time.Duration // between SIGTERM and SIGKILL; 0 = DefaultGrace
	Folder string        // run folder, for the label and the job's files
	pins   map[string]string
}

// pinSlurmArgs are further words for sbatch, such as "--partition gpu --gres gpu:1 --time 4:00:00".
// A chain has its node for itself unless they say otherwise.
const pinSlurmArgs = "slurm_args"

var slurmPins = map[string]string{pinSlurmArgs: "--exclusive"}

// slurmOurs are the arguments of sbatch that the launcher gives itself.
var slurmOurs = []string{"--array", "-a", "--comment", "--export", "--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode", "--parsable", "--wrap", "--chdir", "-D", "--wait", "-W"}

// Name is "slurm".
func (s Slurm) Name() string { return "slurm" }

// Pins: see pinSlurmArgs.
func (s Slurm) Pins() map[string]string { return maps.Clone(slurmPins) }

// With checks the pins.
func (s Slurm) With(pins map[string]string) (arms.Launcher, error) {
	all := maps.Clone(slurmPins)
	for k, v := range pins {
		if _, ok := all[k]; ok {
			all[k] = v
		}
	}
	ws, err := words(all[pinSlurmArgs])
	if err != nil {
		return nil, fmt.Errorf("launcher slurm: pin %s: %w", pinSlurmArgs, err)
	}
	for _, w := range ws {
		name, _, _ := strings.Cut(w, "=")
		if slices.Contains(slurmOurs, name) {
			return nil, fmt.Errorf("launcher slurm: pin %s: %s is the launcher's to give; leave it out", pinSlurmArgs, name)
		}
	}
	s.pins = all
	return s, nil
}

// Labelled sets the run folder.
func (s Slurm) Labelled(folder string) arms.Launcher {
	s.Folder = folder
	return s
}

// Beside launches what belongs to a chain on the node that climbs it.
func (s Slurm) Beside() arms.Launcher { return Local{Self: s.Self, Grace: s.Grace} }

// JobError says that a job ended otherwise than by its process's end: somebody cancelled it, its
// node failed, its time was over.
type JobError struct {
	ID     string
	State  string // as Slurm calls it: CANCELLED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED ...; "" = not known any more
	Reason string
}

func (e *JobError) Error() string {
	state := e.State
	if state == "" {
		state = "gone from the queue without a trace"
	}
	if e.Reason != "" && e.Reason != "None" {
		state += " (" + e.Reason + ")"
	}
	return fmt.Sprintf("slurm job %s: %s", e.ID, state)
}

// SlurmVersion is the version of Slurm whose cluster answers.
func SlurmVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := call(ctx, "sinfo", "--version")
	if err != nil {
		if notFound(err) {
			return "", errors.New("sinfo is not on the path")
		}
		return "", err
	}
	if _, err := call(ctx, "sinfo", "--noheader"); err != nil {
		return "", err
	}
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(out), "slurm")), nil
}

// Launch submits spec as a job and returns when it is in the queue. A controller that is away
// is waited for until ctx ends.
func (s Slurm) Launch(ctx context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch slurm: %w", err)
	}
	p, err := s.launch(ctx, spec, log)
	if err != nil {
		return nil, fmt.Errorf("launch slurm: %w", err)
	}
	return p, nil
}

func (s Slurm) launch(ctx context.Context, spec arms.Spec, log io.Writer) (*slurmJob, error) {
	if err := check(spec, environment(spec.Env)); err != nil {
		return nil, err
	}
	if log == nil {
		log = io.Discard
	}
	self := s.Self
	if self == "" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("the guardian is this program, whose path is not known: %w", err)
		}
	}
	pins := s.pins
	if pins == nil {
		pins = slurmPins
	}
	extra, err := words(pins[pinSlurmArgs])
	if err != nil {
		return nil, err
	}
	p := &slurmJob{name: unique(), grace: s.Grace, log: log, ending: newEnding()}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	if s.Folder != "" {
		p.dir = filepath.Join(s.Folder, JobsDir, p.name)
		err = os.MkdirAll(p.dir, 0o755)
	} else {
		p.dir, err = os.MkdirTemp("", p.name+"-")
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.at("script"), []byte(slurmScript(self, p.dir, spec)), 0o755); err != nil {
		return nil, err
	}
	var names []string // of variables that the job takes along; the node's devices are its own
	for _, n := range Allowed {
		if !strings.HasSuffix(n, "_DEVICES") {
			names = append(names, n)
		}
	}
	argv := append([]string{"sbatch", "--parsable", "--job-name", p.name, "--comment", labelFolder + "=" + s.Folder,
		"--output", p.at("out"), "--open-mode", "append", "--export", strings.Join(names, ","), "--chdir", p.dir}, extra...)
	if p.id, err = p.submit(ctx, append(argv, p.at("script"))); err != nil {
		return nil, err
	}
	go p.watch()
	return p, nil
}

// JobsDir is the folder, inside a run folder, of the files of jobs.
const JobsDir = "jobs"

// slurmScript is what the node runs. The environment is made anew from the allow-list, as for
// a local process, and from the Spec; what a scheduler says of devices is in the list. The
// guardian's leash is a pipe whose both ends are its own: here it is the job that ends it.
func slurmScript(self, dir string, spec arms.Spec) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# written by kvladder: one process of a run folder\n")
	fmt.Fprintf(&b, "cd %s || exit 1\nrm -f exit leash\n", quote(dir))
	b.WriteString("echo \"$(date -u +%Y-%m-%dT%H:%M:%SZ) $(hostname)\" >> started\n")
	b.WriteString("mkfifo leash && exec 3<>leash || exit 1\nrm -f leash\ntrap : TERM INT HUP\n")
	if spec.Dir != "" {
		fmt.Fprintf(&b, "cd %s || exit 1\n", quote(spec.Dir))
	}
	b.WriteString("env -i")
	for _, n := range Allowed {
		if _, ok := spec.Env[n]; !ok {
			fmt.Fprintf(&b, " ${%s+\"%s=$%s\"}", n, n, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(spec.Env)) {
		b.WriteString(" " + quote(n+"="+spec.Env[n]))
	}
	b.WriteString(" " + quote(self) + " hold --")
	for _, w := range spec.Argv {
		b.WriteString(" " + quote(w))
	}
	fmt.Fprintf(&b, " <&3 3<&-\nstatus=$?\ncd %s\necho $status > exit.part && mv exit.part exit\nexit $status\n", quote(dir))
	return b.String()
}

// quote makes one word of a shell's command line.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// away says whether a call failed since the controller does not answer.
func away(err error) bool {
	var ce *CommandError
	if !errors.As(err, &ce) {
		return false
	}
	for _, sign := range []string{"Unable to contact slurm controller", "Connection refused", "Socket timed out", "Zero Bytes were transmitted", "Transport endpoint", "Communication connection failure"} {
		if strings.Contains(ce.Stderr, sign) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// slurmCall calls one of Slurm's programs, none of which should take long.
func slurmCall(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	return call(ctx, argv...)
}

// slurmJob is a process that is a job.
type slurmJob struct {
	id, name, dir string
	grace         time.Duration
	log           io.Writer
	read          int64 // bytes of the output that are in the log

	mu       sync.Mutex
	restarts int
	started  []string // lines of the file of that name
	first    string   // when it was started first
	replaced string
	since    time.Time

	looking sync.Mutex
	lost    time.Time // since when the controller does not answer

	once   sync.Once
	ending // err is a *JobError when the job was ended from outside
}

func (p *slurmJob) at(name string) string { return filepath.Join(p.dir, name) }

// submit puts the job into the queue once. A submission whose answer was lost may have been
// taken: the queue is asked for the job's name, which nothing else has, before it is repeated.
func (p *slurmJob) submit(ctx context.Context, argv []string) (string, error) {
	told := false
	for {
		out, err := slurmCall(ctx, argv...)
		if err == nil {
			id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
			if _, err := strconv.Atoi(id); err != nil {
				return "", fmt.Errorf("sbatch prints %q where the number of the job belongs", strings.TrimSpace(out))
			}
			return id, nil
		}
		if !away(err) || ctx.Err() != nil {
			return "", err
		}
		if !told {
			told = true
			fmt.Fprintf(p.log, "kvladder: slurm's controller does not answer; the job is submitted when it does\n")
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(2 * time.Second):
		}
		for {
			out, qerr := slurmCall(ctx, "squeue", "--noheader", "--states", "all", "--name", p.name, "--format", "%i")
			if id := strings.TrimSpace(out); qerr == nil && id != "" {
				return strings.Fields(id)[0], nil
			}
			if qerr == nil {
				break
			}
			select {
			case <-ctx.Done():
				return "", err
			case <-time.After(2 * time.Second):
			}
		}
	}
}

// Times of a job's watch.
const (
	filesEvery = 200 * time.Millisecond
	queueEvery = 2 * time.Second
	fileLag    = 5 * time.Second // between the end of a job and the sight of its last file
)

func (p *slurmJob) watch() {
	asked := time.Time{}
	for {
		select {
		case <-p.done:
			return
		case <-time.After(filesEvery):
		}
		// the script has come to its end: so has the job, or it is put back into the queue
		if over := p.files(); over || time.Since(asked) >= queueEvery {
			p.Look(context.Background())
			asked = time.Now()
		}
	}
}

// files takes in what the job has written, and says whether its script came to its end.
func (p *slurmJob) files() bool {
	p.looking.Lock()
	defer p.looking.Unlock()
	select {
	case <-p.done:
		return false
	default:
	}
	p.copyOutput()
	p.readStarted()
	_, ok := p.exited()
	return ok
}

// exited reads the exit status that the script wrote last.
func (p *slurmJob) exited() (int, bool) {
	b, err := os.ReadFile(p.at("exit"))
	if err != nil {
		return 0, false
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return code, err == nil
}

func exitError(who string, code int) error {
	switch {
	case code > signalled && code < signalled+65:
		return fmt.Errorf("%s was ended by signal: %s", who, syscall.Signal(code-signalled))
	case code != 0:
		return fmt.Errorf("%s ended with exit status %d", who, code)
	}
	return nil
}

func (p *slurmJob) copyOutput() {
	f, err := os.Open(p.at("out"))
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Seek(p.read, io.SeekStart); err != nil {
		return
	}
	n, _ := io.Copy(p.log, f)
	p.read += n
}

func (p *slurmJob) readStarted() {
	b, err := os.ReadFile(p.at("started"))
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = lines
	if p.first == "" {
		p.first = startOf(lines[0])
	}
	if len(lines) > 1 {
		at, err := time.Parse(time.RFC3339, startOf(lines[len(lines)-1]))
		if err == nil && at.After(p.since) {
			p.since = at
		}
		p.again(len(lines) - 1)
	}
}

func startOf(line string) string {
	at, _, _ := strings.Cut(line, " ")
	return at
}

// again notes that the job was started n times more; p.mu is held.
func (p *slurmJob) again(n int) {
	if n <= p.restarts {
		return
	}
	p.restarts = n
	if p.since.IsZero() {
		p.since = time.Now()
	}
	p.replaced = fmt.Sprintf("slurm put job %s, started %s, back into the queue", p.id, p.first)
}

// Look asks the controller now. One that is away says nothing of the job.
func (p *slurmJob) Look(ctx context.Context) {
	p.files()
	p.looking.Lock()
	defer p.looking.Unlock()
	select {
	case <-p.done:
		return
	default:
	}
	out, err := slurmCall(ctx, "scontrol", "--oneliner", "show", "job", p.id)
	if err != nil {
		var ce *CommandError
		if errors.As(err, &ce) && strings.Contains(ce.Stderr, "Invalid job id") {
			p.vanished("", "")
		} else if ctx.Err() == nil && p.lost.IsZero() {
			p.lost = time.Now()
			fmt.Fprintf(p.log, "kvladder: slurm's controller does not answer; job %s goes on without it\n", p.id)
		}
		// nobody can be putting the job back into the queue, nor cancel it
		if code, ok := p.exited(); ok && away(err) {
			p.end(&code, exitError("slurm job "+p.id, code))
		}
		return
	}
	if !p.lost.IsZero() {
		fmt.Fprintf(p.log, "kvladder: slurm's controller answers again after %s\n", time.Since(p.lost).Round(time.Second))
		p.lost = time.Time{}
	}
	said := fields(out)
	if n, err := strconv.Atoi(said["Restarts"]); err == nil {
		p.mu.Lock()
		p.again(n)
		p.mu.Unlock()
	}
	if over(said["JobState"]) {
		p.vanished(said["JobState"], said["Reason"])
	}
}

// vanished ends a job that Slurm holds for ended, by the exit status that it left, or without.
func (p *slurmJob) vanished(state, reason string) {
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		p.copyOutput()
		code, ok := p.exited()
		// of a job that was ended from outside the status says how its process took it
		if ok && (state == "" || state == "COMPLETED" || state == "FAILED" || state == "COMPLETING") {
			p.end(&code, exitError("slurm job "+p.id, code))
			return
		}
		if state != "" && state != "COMPLETED" && state != "FAILED" || time.Since(begun) > fileLag {
			p.end(nil, &JobError{ID: p.id, State: state, Reason: reason})
			return
		}
	}
}

func (p *slurmJob) end(code *int, err error) {
	p.once.Do(func() {
		p.copyOutput()
		p.exit, p.err = code, err
		close(p.done)
	})
}

// over says whether a job in a state will not run any more; see squeue(1), job state codes.
func over(state string) bool {
	switch state {
	case "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT":
		return true
	case "PREEMPTED": // it may have been put back: then it is PENDING
		return true
	}
	return false
}

// fields takes a line of scontrol --oneliner apart: NAME=VALUE, separated by blanks.
func fields(line string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			if _, have := out[k]; !have {
				out[k] = v
			}
		}
	}
	return out
}

// ID is the number of the job.
func (p *slurmJob) ID() string { return p.id }

// Start is when the job's script began on its node, by that node's clock; "" before.
func (p *slurmJob) Start() string {
	p.files()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.started); n > p.restarts {
		return startOf(p.started[n-1])
	}
	return "" // it waits in the queue, for the first time or again
}

// Restarts is how often Slurm has put the job back into the queue.
func (p *slurmJob) Restarts() *int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.restarts
	return &n
}

// Replaced says that the job was put back into the queue.
func (p *slurmJob) Replaced() (string, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replaced, p.since
}

// Stop signals the job as it would a local family, cancels it after the grace period or when
// ctx ends, waits until Slurm holds it for ended, and removes its files.
func (p *slurmJob) Stop(ctx context.Context) error {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*unkillable)
	defer cancel()
	wait := func(ctx context.Context, limit time.Duration) bool {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-p.done:
			return true
		case <-t.C:
		case <-ctx.Done():
		}
		return false
	}
	select {
	case <-p.done:
	default:
		p.mu.Lock()
		running := len(p.started) > p.restarts
		p.mu.Unlock()
		ended := false
		if running && ctx.Err() == nil {
			slurmCall(ctx, "scancel", "--signal", "TERM", "--full", p.id)
			ended = wait(ctx, p.grace)
		}
		if running && !ended {
			slurmCall(clean, "scancel", "--signal", "KILL", "--full", p.id)
		}
	}
	if err := endJob(clean, p.id); err != nil {
		return err
	}
	for begun := time.Now(); !wait(clean, queueEvery/2); {
		p.Look(clean)
		if time.Since(begun) > unkillable {
			return fmt.Errorf("slurm job %s is not in the queue any more, and its end was not seen", p.id)
		}
	}
	return os.RemoveAll(p.dir)
}

// endJob cancels a job and waits until it is not in the queue any more.
func endJob(ctx context.Context, id string) error {
	for begun := time.Now(); ; {
		out, err := slurmCall(ctx, "squeue", "--noheader", "--jobs", id, "--format", "%T")
		var ce *CommandError
		switch state := strings.TrimSpace(out); {
		case errors.As(err, &ce) && strings.Contains(ce.Stderr, "Invalid job id"), err == nil && (state == "" || over(state)):
			return nil
		case err == nil && state != "COMPLETING":
			slurmCall(ctx, "scancel", id)
		case err != nil && !away(err):
			return err
		}
		if time.Since(begun) > 2*unkillable {
			return fmt.Errorf("slurm job %s is still in the queue %s after it was cancelled", id, 2*unkillable)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("slurm job %s was cancelled, and whether it has ended is not known: %w", id, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Left lists the jobs of this user that carry the label. Without Slurm there are none.
func (s Slurm) Left(ctx context.Context) ([]arms.Left, error) {
	out, err := slurmCall(ctx, "squeue", "--noheader", "--user", user(), "--format", "%i|%T|%S|%k")
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []arms.Left
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 4)
		if len(f) != 4 {
			continue
		}
		folder, ours := strings.CutPrefix(f[3], labelFolder+"=")
		if !ours || over(f[1]) {
			continue
		}
		id := f[0]
		left = append(left, arms.Left{Kind: "slurm job", ID: id, Folder: folder, Start: f[2], State: f[1],
			End: func(ctx context.Context) error { return endJob(ctx, id) }})
	}
	return left, nil
}
