package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/receipts/digest"
)

// Container starts each process in a container of its own, through the command line of
// podman (podman-run(1)) or docker (docker-run(1)), which agree in everything used here.
//
//  1. The image is named by digest, never by a tag, which may mean another image tomorrow. One
//     that is not here is loaded from a local archive, or pulled when its name says where from.
//  2. The container shares the network of this machine, so that the port is the kernel's to
//     give; it sees the files and folders of its Spec, each under the path it has here; its
//     environment is the Spec's and what ContainerAllowed lets through.
//  3. Once a second it is asked for its id, start time and restart count. A container that
//     was started again by anybody is no longer the process that was launched.
//  4. It has a label and is never restarted by the runtime. When this program is killed, the
//     container goes on, and is found by its label.
//
// The zero value needs a call of With: there is no default image.
type Container struct {
	Grace  time.Duration // between SIGTERM and SIGKILL; 0 = DefaultGrace
	Folder string        // run folder, for the label
	pins   map[string]string
}

// ContainerAllowed names the variables of this program that a container gets beside those of
// its Spec. Paths of this machine mean nothing in there, so that PATH, HOME and
// LD_LIBRARY_PATH are the image's own.
var ContainerAllowed = []string{"TZ", "LANG", "LC_ALL", "LC_CTYPE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// The pins of a container.
const (
	// pinImage is "sha256:HEX", the image's id, or "NAME@sha256:HEX", a manifest in a registry.
	pinImage = "image"
	// pinArchive is a file that `podman save` or `docker save` wrote, loaded where the image is not here.
	pinArchive = "image_archive"
	// pinRuntime is podman, docker, the path of one, or auto: whichever is here and answers.
	pinRuntime = "container_runtime"
	// pinProgram replaces the first word of the command line: a program inside the image, "" for
	// the same name looked up there, "entrypoint" for the image's own entry point.
	pinProgram = "container_program"
	// pinArgs are further words for `run`, such as "--gpus all --shm-size 8g".
	pinArgs = "container_args"
	// pinMarkerCommand is run in the started container; what it prints has to be pinMarker.
	pinMarkerCommand = "marker_command"
	pinMarker        = "marker"
)

var containerPins = map[string]string{
	pinImage: "", pinArchive: "", pinRuntime: "auto", pinProgram: "", pinArgs: "", pinMarkerCommand: "", pinMarker: "",
}

// Name is "container".
func (c Container) Name() string { return "container" }

// Pins: see the constants above.
func (c Container) Pins() map[string]string { return maps.Clone(containerPins) }

// With checks pins as far as that is possible without a look at this machine.
func (c Container) With(pins map[string]string) (arms.Launcher, error) {
	all := maps.Clone(containerPins)
	for k, v := range pins {
		if _, ok := all[k]; ok {
			all[k] = v
		}
	}
	if all[pinImage] == "" {
		return nil, fmt.Errorf("launcher container: the pin %s is missing: state the image's digest, which `podman image inspect -f {{.Id}} NAME` prints", pinImage)
	}
	if _, _, err := parseImage(all[pinImage]); err != nil {
		return nil, fmt.Errorf("launcher container: pin %s: %w", pinImage, err)
	}
	for _, name := range []string{pinArgs, pinMarkerCommand} {
		if _, err := words(all[name]); err != nil {
			return nil, fmt.Errorf("launcher container: pin %s: %w", name, err)
		}
	}
	if (all[pinMarkerCommand] == "") != (all[pinMarker] == "") {
		return nil, fmt.Errorf("launcher container: pins %s and %s belong together: what is to be run, and what it has to print", pinMarkerCommand, pinMarker)
	}
	if all[pinRuntime] == "" {
		return nil, fmt.Errorf("launcher container: pin %s is empty: use auto, podman, docker or the path of one", pinRuntime)
	}
	c.pins = all
	return c, nil
}

// Labelled sets the run folder of the label.
func (c Container) Labelled(folder string) arms.Launcher {
	c.Folder = folder
	return c
}

// parseImage takes a reference apart; name is "" when it is an image's id.
func parseImage(ref string) (name string, d digest.Digest, err error) {
	name, hex := "", ref
	if i := strings.LastIndexByte(ref, '@'); i >= 0 {
		name, hex = ref[:i], ref[i+1:]
		if name == "" {
			return "", "", fmt.Errorf("%.120q has no name before the @", ref)
		}
	}
	if d, err = digest.Parse(hex); err != nil || d.Empty() {
		return "", "", fmt.Errorf("%.120q is no digest: write sha256:HEX, the image's id, or NAME@sha256:HEX; a tag may mean another image tomorrow", ref)
	}
	return name, d, nil
}

// runtime finds the command that starts containers and says its version.
func (c Container) runtime(ctx context.Context) (command, version string, err error) {
	names := []string{"podman", "docker"}
	if p := c.pins[pinRuntime]; p != "" && p != "auto" {
		names = []string{p}
	}
	var why []string
	for _, name := range names {
		version, err := RuntimeVersion(ctx, name)
		if err == nil {
			return name, version, nil
		}
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		why = append(why, err.Error())
	}
	return "", "", fmt.Errorf("no container runtime answers: %s; install podman or docker, or set the pin %s", strings.Join(why, "; "), pinRuntime)
}

// RuntimeVersion is the version of a container runtime that can be used, podman or docker. Of
// docker it is the daemon's: without one its command line is of no use.
func RuntimeVersion(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	format := "{{.Server.Version}}"
	if isPodman(command) {
		format = "{{.Client.Version}}"
	}
	out, err := call(ctx, command, "version", "--format", format)
	if err != nil {
		if notFound(err) {
			return "", fmt.Errorf("%s is not on the path", command)
		}
		return "", err
	}
	return strings.TrimSpace(out), nil
}

func isPodman(command string) bool { return strings.Contains(filepath.Base(command), "podman") }

// image is what image inspect says; podman and docker write the same members.
type image struct {
	ID          string `json:"Id"`
	RepoDigests []string
	Digest      string // podman: of the manifest
}

// Prepare loads or pulls the image where it is not here yet.
func (c Container) Prepare(ctx context.Context, say func(format string, args ...any)) error {
	command, _, err := c.runtime(ctx)
	if err == nil {
		_, err = c.fetch(ctx, command, say)
	}
	if err != nil {
		return fmt.Errorf("launch container: %w", err)
	}
	return nil
}

// fetch makes sure that the image is here and is the one that the pin names.
func (c Container) fetch(ctx context.Context, command string, say func(format string, args ...any)) (image, error) {
	ref := c.pins[pinImage]
	name, d, err := parseImage(ref)
	if err != nil {
		return image{}, err
	}
	if name == "" {
		ref = d.Hex() // the one form of an id that both command lines take
	}
	im, missing := inspectImage(ctx, command, ref)
	if missing == nil {
		return im, im.is(name, d)
	}
	archive := c.pins[pinArchive]
	switch {
	case archive != "":
		if _, err := os.Stat(archive); err != nil {
			return image{}, missingFile(archive, "", err)
		}
		say("loading image %s from %s", c.pins[pinImage], archive)
		out, err := call(ctx, command, "load", "--input", archive)
		if err != nil {
			return image{}, err
		}
		if im, err = inspectImage(ctx, command, ref); err != nil {
			return image{}, fmt.Errorf("archive %s does not hold image %s; it holds: %s", archive, c.pins[pinImage], lastLines(out, 1))
		}
	case name != "":
		say("pulling image %s", ref)
		if _, err := call(ctx, command, "pull", "--quiet", ref); err != nil {
			return image{}, err
		}
		if im, err = inspectImage(ctx, command, ref); err != nil {
			return image{}, err
		}
	default:
		return image{}, fmt.Errorf("image %s is not here (%w); load it, or name an archive of it with the pin %s", c.pins[pinImage], missing, pinArchive)
	}
	return im, im.is(name, d)
}

func inspectImage(ctx context.Context, command, ref string) (image, error) {
	out, err := call(ctx, command, "image", "inspect", ref)
	if err != nil {
		return image{}, err
	}
	var ims []image
	if err := json.Unmarshal([]byte(out), &ims); err != nil || len(ims) != 1 {
		return image{}, fmt.Errorf("%s image inspect %s prints something else than one image", command, ref)
	}
	return ims[0], nil
}

// id is the image's id with its algorithm, which podman leaves out.
func (im image) id() string {
	if im.ID == "" || strings.Contains(im.ID, ":") {
		return im.ID
	}
	return "sha256:" + im.ID
}

// is says that the image is not the one of a reference.
func (im image) is(name string, d digest.Digest) error {
	if name == "" {
		if im.id() != string(d) {
			return fmt.Errorf("the image is %s, not %s", im.id(), d)
		}
		return nil
	}
	if im.Digest != string(d) && !slices.ContainsFunc(im.RepoDigests, func(r string) bool { return strings.HasSuffix(r, "@"+string(d)) }) {
		return fmt.Errorf("the image called %s has the digests %s, not %s", name, strings.Join(im.RepoDigests, ", "), d)
	}
	return nil
}

// Launch starts spec in a new container and returns when it runs.
func (c Container) Launch(ctx context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch container: %w", err)
	}
	p, err := c.launch(ctx, spec, log)
	if err != nil {
		return nil, fmt.Errorf("launch container: %w", err)
	}
	return p, nil
}

func (c Container) launch(ctx context.Context, spec arms.Spec, log io.Writer) (*contained, error) {
	if len(c.pins) == 0 {
		return nil, fmt.Errorf("the pin %s is missing", pinImage)
	}
	command, version, err := c.runtime(ctx)
	if err != nil {
		return nil, err
	}
	im, err := c.fetch(ctx, command, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	p := &contained{command: command, version: version, name: unique(), image: im, pins: c.pins, grace: c.Grace, ending: newEnding()}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	argv, err := c.argv(p.name, im, spec)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, append([]string{command}, argv...)...)
	p.id = strings.TrimSpace(out)
	if i := strings.LastIndexByte(p.id, '\n'); i >= 0 {
		p.id = p.id[i+1:]
	}
	if err == nil {
		p.first, err = p.inspect(ctx)
		p.last = p.first
	}
	if err != nil {
		// what could not be started may have been made
		clean, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer done()
		call(clean, command, "rm", "--force", "--volumes", p.name)
		return nil, err
	}
	p.follow(log)
	go p.watch()
	return p, nil
}

// argv is the command line of `run`, without the command.
func (c Container) argv(name string, im image, spec arms.Spec) ([]string, error) {
	if len(spec.Argv) == 0 {
		return nil, errors.New("the spec has no command")
	}
	argv := []string{"run", "--detach", "--name", name, "--pull", "never", "--restart", "no", "--network", "host",
		"--label", labelFolder + "=" + c.Folder, "--label", labelUser + "=" + user()}
	env := map[string]string{}
	for _, k := range ContainerAllowed {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	maps.Copy(env, spec.Env)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		argv = append(argv, "--env", k+"="+env[k])
	}
	mounted := map[string]bool{}
	mount := func(path, how string) error {
		abs, err := filepath.Abs(resolve(spec.Dir, path))
		if err != nil {
			return err
		}
		if strings.Contains(abs, ":") {
			return fmt.Errorf("%s cannot be seen from a container: its name has a colon, which separates the parts of a mount", abs)
		}
		if !mounted[abs] {
			mounted[abs] = true
			argv = append(argv, "--volume", abs+":"+abs+how)
		}
		return nil
	}
	for _, dir := range spec.Folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, missingFile(dir, "", err)
		}
		if err := mount(dir, ""); err != nil {
			return nil, err
		}
	}
	for _, f := range spec.Files {
		if f == spec.Argv[0] {
			continue // the image has it
		}
		if _, err := os.Stat(resolve(spec.Dir, f)); err != nil {
			return nil, missingFile(f, spec.Fetch, err)
		}
		if err := mount(f, ":ro"); err != nil {
			return nil, err
		}
	}
	if spec.Dir != "" {
		if err := mount(spec.Dir, ""); err != nil {
			return nil, err
		}
		argv = append(argv, "--workdir", spec.Dir)
	}
	switch program := c.pins[pinProgram]; program {
	case "entrypoint":
	case "":
		argv = append(argv, "--entrypoint", filepath.Base(spec.Argv[0]))
	default:
		argv = append(argv, "--entrypoint", program)
	}
	extra, err := words(c.pins[pinArgs])
	if err != nil {
		return nil, err
	}
	argv = append(argv, extra...)
	id := strings.TrimPrefix(im.id(), "sha256:")
	return append(append(argv, id), spec.Argv[1:]...), nil
}

// Left lists the containers of this user that carry the label, whatever runtime has them.
func (c Container) Left(ctx context.Context) ([]arms.Left, error) {
	var out []arms.Left
	for _, command := range []string{"podman", "docker"} {
		if _, err := RuntimeVersion(ctx, command); err != nil {
			continue // what is not here holds nothing
		}
		ids, err := call(ctx, command, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+labelUser+"="+user(), "--filter", "label="+labelFolder)
		if err != nil {
			return out, err
		}
		for _, id := range strings.Fields(ids) {
			s, err := (&contained{command: command, id: id}).inspect(ctx)
			if err != nil {
				continue // it has just ended
			}
			out = append(out, arms.Left{Kind: filepath.Base(command) + " container", ID: id, Folder: s.Config.Labels[labelFolder], Start: s.start(), State: s.State.Status,
				End: func(ctx context.Context) error {
					_, err := call(ctx, command, "rm", "--force", "--volumes", id)
					return err
				}})
		}
	}
	return out, nil
}

// state is what inspect says of a container; podman and docker write the same members.
type state struct {
	ID           string `json:"Id"`
	Path         string
	Image        string
	ImageDigest  string // podman: of the manifest
	RestartCount int
	State        struct {
		Status    string
		Running   bool
		OOMKilled bool
		Pid       int
		ExitCode  int
		Error     string
		StartedAt time.Time
	}
	Config struct {
		Labels map[string]string
	}
}

func (s state) start() string { return s.State.StartedAt.UTC().Format(time.RFC3339Nano) }

// contained is a process in a container.
type contained struct {
	command, version string
	name, id         string
	image            image
	pins             map[string]string
	grace            time.Duration
	logs             *exec.Cmd
	logged           chan struct{} // closed when everything printed is in the log

	looking sync.Mutex // one look at a time

	mu       sync.Mutex
	first    state
	last     state
	replaced string
	restarts int
	stopping bool
	removed  bool

	once sync.Once
	ending
}

// errGone says that there is no such container.
var errGone = errors.New("the container is gone: somebody removed it")

func (p *contained) inspect(ctx context.Context) (state, error) {
	out, err := call(ctx, p.command, "container", "inspect", p.id)
	if err != nil {
		var ce *CommandError
		if errors.As(err, &ce) && strings.Contains(strings.ToLower(ce.Stderr), "no such") {
			return state{}, errGone
		}
		return state{}, err
	}
	var ss []state
	if err := json.Unmarshal([]byte(out), &ss); err != nil || len(ss) != 1 {
		return state{}, fmt.Errorf("%s inspect %s prints something else than one container", p.command, p.id)
	}
	return ss[0], nil
}

// follow copies what the container prints to log.
func (p *contained) follow(log io.Writer) {
	p.logged = make(chan struct{})
	if log == nil {
		close(p.logged)
		return
	}
	p.logs = exec.Command(p.command, "logs", "--follow", p.id)
	p.logs.Stdout, p.logs.Stderr = log, log
	p.logs.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.logs.WaitDelay = time.Second
	started := make(chan error, 1)
	go func() {
		defer close(p.logged)
		err := p.logs.Start()
		started <- err
		if err == nil {
			p.logs.Wait()
		}
	}()
	if err := <-started; err != nil {
		fmt.Fprintf(log, "kvladder: what the container prints cannot be read: %v\n", err)
	}
}

// Times of the watch. A container that ends may be on its way up again: `restart` is a stop
// and a start. Only after settle is its end taken for one.
const (
	watchEvery   = time.Second
	settle       = 2 * time.Second
	settleStop   = 30 * time.Second // while the runtime says that it is stopping it
	inspectLimit = 20 * time.Second
)

func (p *contained) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-p.logged: // it printed its last: look at once
			p.Look(context.Background())
			select {
			case <-p.done:
				return
			case <-tick.C:
			}
		case <-tick.C:
		}
		p.Look(context.Background())
	}
}

// Look asks the runtime now.
func (p *contained) Look(ctx context.Context) {
	p.looking.Lock()
	defer p.looking.Unlock()
	begun := time.Now()
	for {
		select {
		case <-p.done:
			return
		default:
		}
		ictx, cancel := context.WithTimeout(ctx, inspectLimit)
		s, err := p.inspect(ictx)
		cancel()
		switch {
		case errors.Is(err, errGone):
			p.end(nil, err)
			return
		case err != nil:
			return // a runtime that does not answer says nothing of the container
		}
		p.mu.Lock()
		p.see(s)
		stopping := p.stopping
		p.mu.Unlock()
		if s.State.Running && s.State.Status != "stopping" {
			return
		}
		wait := settle
		if s.State.Running || s.State.Status == "stopping" {
			wait = settleStop
		}
		if stopping && s.State.Running {
			return // Stop waits for it
		}
		if !s.State.Running && s.State.Status != "stopping" && (stopping || time.Since(begun) > wait) {
			p.ended(s)
			return
		}
		if time.Since(begun) > wait {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// see compares a state with the one before; p.mu is held.
func (p *contained) see(s state) {
	if s.State.Running && (!s.State.StartedAt.Equal(p.last.State.StartedAt) || s.RestartCount != p.last.RestartCount) {
		p.restarts = max(p.restarts+1, s.RestartCount)
		if p.replaced == "" {
			p.replaced = fmt.Sprintf("container %s started %s with process %d was started again %s with process %d; the runtime counts %d restarts",
				short(p.id), p.first.start(), p.first.State.Pid, s.start(), s.State.Pid, s.RestartCount)
		}
		p.last = s
		return
	}
	if s.State.Running {
		p.last = s
	}
}

func short(id string) string { return id[:min(12, len(id))] }

// ended takes the end of the container from its last state.
func (p *contained) ended(s state) {
	code := s.State.ExitCode
	var err error
	switch {
	case s.State.OOMKilled:
		err = fmt.Errorf("container %s was killed: it needed more memory than it may have", short(p.id))
	case code > signalled && code < signalled+65:
		err = fmt.Errorf("container %s was ended by signal: %s", short(p.id), syscall.Signal(code-signalled))
	case code != 0:
		err = fmt.Errorf("container %s ended with exit status %d", short(p.id), code)
	}
	p.end(&code, err)
}

func (p *contained) end(code *int, err error) {
	p.once.Do(func() {
		select { // the log is whole before anybody is told
		case <-p.logged:
		case <-time.After(3 * time.Second):
			p.logs.Process.Kill()
			<-p.logged
		}
		p.exit, p.err = code, err
		close(p.done)
	})
}

// ID is the container's id.
func (p *contained) ID() string { return p.id }

// Start is asked anew while the container is there, so that a restart shows.
func (p *contained) Start() string {
	p.Look(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.start()
}

// Restarts is how often the container was started again: as often as was seen, or as the
// runtime counts, which counts its own restarts alone.
func (p *contained) Restarts() *int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.restarts
	return &n
}

// Pid is the container's first process as this machine numbers it, 0 when it has ended.
func (p *contained) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.State.Pid
}

// Replaced says that the container was started again, and when.
func (p *contained) Replaced() (string, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replaced, p.last.State.StartedAt
}

// Stop asks the container to end, kills it after the grace period or when ctx ends, and
// removes it with the log that the runtime keeps, which this program has a copy of.
func (p *contained) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	removed := p.removed
	p.mu.Unlock()
	if removed {
		return nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), unkillable)
	defer cancel()
	select {
	case <-p.done:
	default:
		sctx, done := context.WithTimeout(ctx, p.grace+unkillable)
		_, err := call(sctx, p.command, "stop", "-t", fmt.Sprint(int((p.grace+time.Second-1)/time.Second)), p.id)
		done()
		if err != nil {
			call(clean, p.command, "kill", p.id) // ended already, or about to be
		}
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			p.Look(clean)
			select {
			case <-p.done:
			default:
				if time.Since(begun) < unkillable {
					continue
				}
				return fmt.Errorf("container %s is still there %s after it was killed", short(p.id), unkillable)
			}
			break
		}
	}
	if _, err := call(clean, p.command, "rm", "--force", "--volumes", p.id); err != nil && !gone(err) {
		return err
	}
	p.mu.Lock()
	p.removed = true
	p.mu.Unlock()
	return nil
}

func gone(err error) bool {
	var ce *CommandError
	return errors.As(err, &ce) && strings.Contains(strings.ToLower(ce.Stderr), "no such")
}

// ReadPins reads back what the runtime says it started, and what the marker command prints
// in the container that serves: the code that was loaded, not the code that was meant.
func (p *contained) ReadPins(ctx context.Context, pins map[string]string) []probes.PinRead {
	out := []probes.PinRead{}
	base := filepath.Base(p.command)
	p.mu.Lock()
	s := p.last
	p.mu.Unlock()
	running := image{ID: s.Image, Digest: s.ImageDigest, RepoDigests: p.image.RepoDigests}
	for _, name := range slices.Sorted(maps.Keys(pins)) {
		r := probes.PinRead{Name: name, Asked: pins[name]}
		read := func(value, source string, agrees bool) { r.Read, r.Source, r.Agrees = &value, source, &agrees }
		switch name {
		case pinImage:
			source := base + " container inspect"
			if s.ImageDigest != "" {
				source += ", manifest " + s.ImageDigest
			}
			refName, d, err := parseImage(pins[name])
			value := running.id()
			if err == nil && refName != "" && running.is(refName, d) == nil {
				value = pins[name]
			}
			read(value, source, err == nil && running.is(refName, d) == nil)
		case pinRuntime:
			read(base+" "+p.version, base+" version", pins[name] == "auto" || filepath.Base(pins[name]) == base)
		case pinProgram:
			read(s.Path, base+" container inspect", pins[name] == "" || pins[name] == "entrypoint" || pins[name] == s.Path)
		case pinMarker:
			if pins[pinMarkerCommand] == "" {
				break
			}
			argv, _ := words(pins[pinMarkerCommand])
			mctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			got, err := call(mctx, append([]string{p.command, "exec", p.id}, argv...)...)
			cancel()
			if err != nil {
				got = fmt.Sprintf("it failed: %v", err)
			}
			got = strings.TrimSpace(got)
			read(got, base+" exec "+pins[pinMarkerCommand], err == nil && got == strings.TrimSpace(pins[name]))
		}
		out = append(out, r)
	}
	return out
}
