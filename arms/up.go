package arms

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Spec is how a process is started: what a launcher needs and nothing else.
type Spec struct {
	Argv []string
	Env  map[string]string // the whole environment of the process, beside the launcher's allow-list
	Dir  string
	// Files are paths that must exist before the launch (a model, a binary): a missing one is
	// reported by name before anything is started.
	Files []string
	// Fetch is the project's script that brings Files, "" where there is none: said when one
	// is missing.
	Fetch string
	// Folders are written to by the process: a launcher whose processes see other files than
	// this program has to let them see these. Up fills in those of the Resources.
	Folders []string
}

// Address is where a process should listen.
type Address struct {
	Host string
	Port int
}

// Resources are folders that the harness prepares for one process.
type Resources struct {
	Store string // folder of the external store, "" when the arm has none
	Slots string // folder for saved slots
	Cache string // project cache: engines and models fetched by scripts
	Self  string // path of the running kvladder binary
	// Beside is where the process of a Companion listens; the zero value = there is none.
	Beside Address
}

// Engine maps pins to a command line and back to what the server can prove. Its methods do
// no I/O except where they take a context.
type Engine interface {
	Name() string
	// Pins lists the pins the engine knows, with their defaults; a ladder that names another is refused.
	Pins() map[string]string
	// Configure gives the pins of a preset ("C0", "C1", "store") on top of the shared ones: how this engine
	// switches reuse off, the local cache on, and the external store on. An error says that it cannot.
	Configure(role string) (map[string]string, error)
	// SplitPin is the pin that changes the prefill budget for C0-split, and its value.
	SplitPin(g prompts.Geometry) (name, value string)
	Spec(pins map[string]string, at Address, res Resources) (Spec, error)
	// Ready asks once whether the server answers.
	Ready(ctx context.Context, e probes.Endpoint) error
	// Counters maps roles (probes.LocalHits ...) to series names; nil when the engine has no usable counters.
	Counters() map[string]string
	// CachedIs says what per-request `cached` tokens mean in an arm of that preset: "local", "external" or "" (not known).
	CachedIs(preset string) string
	// Cannot says why the engine cannot run a preset, "" when it can.
	Cannot(preset string) string
	// ReadPins reads pins back from a running server.
	ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error)
	// Reset drops the local cache alone. The effect is proved by the next request, never by the status code.
	Reset(ctx context.Context, e probes.Endpoint) error
	// Store describes the external store of a process: what is in it now.
	Store(res Resources) (probes.StoreFact, error)
	// Save and Restore carry reuse state over a restart where the engine needs it asked (llama-server slots);
	// engines whose store persists by itself return nil at once.
	Save(ctx context.Context, e probes.Endpoint, s *prompts.Set, res Resources) error
	Restore(ctx context.Context, e probes.Endpoint, s *prompts.Set, res Resources) error
	// Expect is the reuse that geometry predicts: one map per pass of the schedule.
	Expect(s *prompts.Set, pins map[string]string, steps []Step) []map[string]scoring.Reuse
	// Death recognises a log line that says the engine died.
	Death(line string) bool
}

// The interfaces below are what some engines can do beside serving. A ladder that asks for a
// step whose interface its engine lacks is refused when it is planned.

// Expirer drops what the external store holds and leaves the local cache.
type Expirer interface {
	Expire(ctx context.Context, e probes.Endpoint) error
}

// RankEvicter drops what one rank's store holds.
type RankEvicter interface {
	EvictRank(ctx context.Context, e probes.Endpoint, rank int) error
}

// LoadFailer makes the next n loads from the store fail.
type LoadFailer interface {
	FailLoads(ctx context.Context, e probes.Endpoint, n int) error
}

// LoadLister lists the loads from the store since the process began, and which blocks were
// written for each. A request may have had several; complete says that none is missing.
type LoadLister interface {
	Loads(ctx context.Context, e probes.Endpoint) (loads []Load, complete bool, err error)
}

// PoolReader reads the size of the local pool from a running server.
type PoolReader interface {
	Pool(ctx context.Context, e probes.Endpoint) (probes.PoolFact, error)
}

// Invariant names the pin, and its value, under which the engine computes a request to the same
// bits whatever runs beside it and however its prompt is cut.
type Invariant interface {
	InvariantPin() (name, value string)
}

// Tracer says why requests to a process with these pins cannot name the tokens of their reply
// (trace_decode_token_ids), "" when they can: every position is then aligned with the
// reference's, and the logprobs are the model's own.
type Tracer interface {
	CannotTrace(pins map[string]string) string
}

// Identifier says why requests of the engine cannot carry an identity of a kind (salt,
// adapter, image), "" when they can.
type Identifier interface {
	CannotIdentify(kind string) string
}

// Patient is an engine that may take longer to answer than the two minutes that others get.
type Patient interface {
	ReadyWithin() time.Duration
}

// Companion is an engine that, under some pins, needs a second process beside the server's: a
// store with a server of its own. It is started before the server and ends with the chain, so
// that what it holds outlives a restart of the server.
type Companion interface {
	// Beside is how the second process is started; a spec without a command = these pins need none.
	Beside(pins map[string]string, at Address, res Resources) (Spec, error)
	// BesideReady asks once whether it answers.
	BesideReady(ctx context.Context, at Address) error
}

// LoadMourner recognises a log line that says that loads from the store failed, and whether
// what was missing was then computed.
type LoadMourner interface {
	LoadFailed(line string) (failed, recovered bool)
}

// Conductor lets several clients into an engine in lockstep: it takes no step while one of
// them is between two requests, so that the schedule of a pass follows from the Set and the
// engine's seed, and not from how fast anybody was.
type Conductor interface {
	// CannotLockstep says why an engine with such pins cannot, "" when it can.
	CannotLockstep(pins map[string]string) string
	// Lockstep says how many clients send requests from now on, each one at a time; 0 ends the
	// pass. peak is the most requests that ran at once since it began.
	Lockstep(ctx context.Context, e probes.Endpoint, clients int) (peak int, err error)
	// AbortAfter is the header of a request that the engine is to abort after so many steps.
	AbortAfter(steps int) map[string]string
}

// Load is a probes.Load with the blocks written for it.
type Load struct {
	probes.Load
	Written map[string][]int // cache group -> positions in the request's block table, in blocks; nil = not told
	Null    map[string]int   // cache group -> how many of them were the block that stands for nothing
	Block   int              // tokens of a block
	Failed  bool             // the load was given up: what it wrote is not used
}

// LogReader is an Engine whose server states some pins only in what it prints. ReadLog
// fills in the pins that ReadPins left unread, from the process's log so far.
type LogReader interface {
	ReadLog(log io.Reader, reads []probes.PinRead) error
}

// Unrun is an engine whose adapter nobody has tried on the engine. Doctor and every plan, and so
// every receipt, say what NeverRun says.
type Unrun interface {
	NeverRun() string
}

// AttachOnly is an engine that starts nothing: every arm that launches is attached to a server
// of somebody else. Its Spec has no command.
type AttachOnly interface {
	AttachOnly()
}

// EnvironReader is an Engine some of whose settings stand in the environment alone. ReadEnviron
// fills in pins from the variables that the process was started with, as the system tells them.
type EnvironReader interface {
	ReadEnviron(env map[string]string, reads []probes.PinRead)
}

// Launcher starts processes.
type Launcher interface {
	Name() string
	// Launch starts spec; ctx bounds the launching only. The process's output goes to log.
	Launch(ctx context.Context, spec Spec, log io.Writer) (Process, error)
}

// Process is a running family of processes.
type Process interface {
	ID() string                     // pid or container id
	Start() string                  // start time as the system reports it
	Restarts() *int                 // nil when the launcher cannot count
	Done() <-chan struct{}          // closed when the process has ended
	Err() error                     // why, after Done
	Exit() *int                     // exit status, after Done; nil when not known
	Stop(ctx context.Context) error // ends the whole family and waits; repeatable
}

// The interfaces below are what some launchers and their processes can do beside that.

// Pinned is a Launcher with pins of its own, which stand beside the engine's in a ladder: what
// an image holds decides as much of what is measured as a flag does.
type Pinned interface {
	Launcher
	// Pins lists them with their defaults. No engine has a pin of one of these names.
	Pins() map[string]string
	// With is the launcher under pins, those it does not know left aside. It starts nothing
	// and asks nobody; an error names the pin that cannot be meant so.
	With(pins map[string]string) (Launcher, error)
}

// Preparer is a Launcher with something to do before a first launch that may take longer than
// any launch should, such as loading an image.
type Preparer interface {
	Prepare(ctx context.Context, say func(format string, args ...any)) error
}

// Labeller is a Launcher whose processes live on when this program is killed. Each carries a
// label, by which it is found and ended later.
type Labeller interface {
	Launcher
	// Labelled is the launcher with the run folder that its processes' label names.
	Labelled(folder string) Launcher
	// Left lists everything of this user that carries the label of any run folder.
	Left(ctx context.Context) ([]Left, error)
}

// Left is something that carries a launcher's label.
type Left struct {
	Kind   string // "podman container", "slurm job"
	ID     string
	Folder string // the run folder it was launched for
	Start  string
	State  string
	End    func(ctx context.Context) error // ends it and waits until it is gone
}

// Elsewhere is a Launcher whose processes run on other machines. The harness goes there with
// the server: what is launched is this program, which climbs one chain with Beside.
type Elsewhere interface {
	Launcher
	Beside() Launcher
}

// Watched is a Process that may be started again by somebody else under the same id.
type Watched interface {
	Process
	// Replaced says what was seen when the process was no longer the one that was launched,
	// and when the other one began; "" while it is the same. It asks nobody.
	Replaced() (seen string, since time.Time)
	// Look asks the system now. Afterwards Done and Replaced are up to date.
	Look(ctx context.Context)
}

// Stating is a Process that reads pins of its launcher back.
type Stating interface {
	ReadPins(ctx context.Context, pins map[string]string) []probes.PinRead
}

// LauncherPins parts pins into the engine's and those of the launcher.
func LauncherPins(l Launcher, pins map[string]string) (engine, launcher map[string]string) {
	p, ok := l.(Pinned)
	if !ok {
		return pins, nil
	}
	engine, launcher = map[string]string{}, map[string]string{}
	own := p.Pins()
	for k, v := range pins {
		if _, mine := own[k]; mine {
			launcher[k] = v
		} else {
			engine[k] = v
		}
	}
	return engine, launcher
}

// NotReadyError says that an arm's server did not come up, with the last lines it printed.
type NotReadyError struct {
	Arm, Engine string
	Waited      time.Duration
	Err         error
	LastLines   []string
}

func (e *NotReadyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "arm %s (%s): not ready after %s: %v", e.Arm, e.Engine, e.Waited.Round(time.Second/10), e.Err)
	if len(e.LastLines) > 0 {
		fmt.Fprintf(&b, "; its last lines: %s", strings.Join(e.LastLines, " | "))
	}
	return b.String()
}

func (e *NotReadyError) Unwrap() error { return e.Err }

// Running is a process that answers.
type Running struct {
	Process  Process
	Endpoint probes.Endpoint
	Spec     Spec
}
