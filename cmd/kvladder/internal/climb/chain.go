package climb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kvladder/arms"
	"kvladder/arms/launch"
	"kvladder/probes"
	"kvladder/probes/identity"
	"kvladder/probes/replay"
	"kvladder/receipts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

func digestOf(s string) digest.Digest { return digest.Digest(s) }

// errDied ends a chain whose engine died: an outcome, not a failure of the run.
var errDied = errors.New("the engine died")

// chainRun is one climb of one chain.
type chainRun struct {
	c       *Climb
	job     job
	attempt string
	res     arms.Resources

	proc     *arms.Running
	log      *os.File
	logName  string
	tail     *arms.Tail
	launches int
	pins     map[string]string // of the process that was launched last
	saved    *probes.StoreFact // what the last save step wrote, where it is to be found again
	inc      string            // name of the incarnation
	arm      *scoring.ArmSpec
	sent     int
	stopping bool
	http     *http.Client      // for questions
	wire     *http.Client      // for requests: their time limit is the plan's
	began    time.Time         // of the arm
	asked    int               // liveness questions
	aborts   *aborts           // beside the next pass
	beside   *beside           // a store's own process
	said     map[string]string // prompt -> the latest whole answer

	soak *scoring.Watch // of the arm's stopping rule; nil = it has none
	goOn int            // steps before this one are left out

	mu     sync.Mutex
	deaths []string                // death lines seen while no stop was asked for
	failed []probes.LoadFailedFact // loads, since the reply before
}

// climb climbs one chain to its end. A dead engine or a failing step of the harness ends the
// chain and is written down; only what makes the whole run impossible is returned.
func (c *Climb) climb(ctx context.Context, j job) (err error) {
	r := &chainRun{c: c, job: j, attempt: fmt.Sprintf("%s#%d.%d", j.chain.Name, j.run, j.try), http: &http.Client{Timeout: 5 * time.Second}}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 512
	defer t.CloseIdleConnections()
	r.wire = &http.Client{Transport: t}
	dir, err := filepath.Abs(c.Folder.at(filepath.Join("stores", fmt.Sprintf("%s-%d-%d", fileName(j.chain.Name), j.run, j.try))))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &FolderError{Path: c.Folder.Path, What: reason(err), Hint: "free some space, or choose another folder with --out"}
	}
	r.res = arms.Resources{Store: dir, Slots: dir, Cache: c.Cache, Self: c.Self}
	defer func() {
		// whatever happened above, the family is ended and its store removed
		r.stopping = true
		if serr := r.stop(ctx); err == nil {
			err = serr
		}
		if serr := r.dismiss(ctx); err == nil {
			err = serr
		}
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
	}()
	if err := c.fact(r.at(), probes.FactAttempt, "", probes.AttemptFact{Chain: j.chain.Name, Run: j.run}); err != nil {
		return err
	}
	start := time.Now()
	err = r.steps(ctx)
	switch {
	case err == nil:
		c.say("chain %s: %d requests in %s", r.attempt, r.sent, time.Since(start).Round(time.Second/10))
	case errors.Is(err, errDied):
		c.say("chain %s: the engine died after %d requests", r.attempt, r.sent)
		err = nil
	default:
		var he *harnessError
		if ctx.Err() != nil || !errors.As(err, &he) {
			return err
		}
		c.say("chain %s: %v", r.attempt, err)
		if ferr := c.fact(r.at(), probes.FactHarness, "", probes.HarnessFact{What: he.Error()}); ferr != nil {
			return ferr
		}
	}
	if err := r.endArm(); err != nil {
		return err
	}
	if err := r.stop(ctx); err != nil {
		return err
	}
	return c.fact(probes.Record{Attempt: r.attempt, Run: j.run, Chain: j.chain.Name}, probes.FactChainEnd, "", nil)
}

// harnessError is something the harness failed to do in one chain: the chain ends, the others go on.
type harnessError struct {
	arm, what string
	err       error
}

func (e *harnessError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("arm %s: %s", e.arm, e.what)
	}
	return fmt.Sprintf("arm %s: %s: %v", e.arm, e.what, e.err)
}

func (e *harnessError) Unwrap() error { return e.err }

func (r *chainRun) harness(what string, err error) error {
	return &harnessError{arm: r.arm.Name, what: what, err: err}
}

// at is the place that a record of now belongs to.
func (r *chainRun) at() probes.Record {
	rec := probes.Record{Attempt: r.attempt, Run: r.job.run, Chain: r.job.chain.Name, Incarnation: r.inc}
	if r.arm != nil {
		rec.Arm = r.arm.Name
	}
	return rec
}

func (r *chainRun) fact(name, source string, v any) error { return r.c.fact(r.at(), name, source, v) }

func (r *chainRun) steps(ctx context.Context) error {
	for i, st := range r.job.chain.Steps {
		if i < r.goOn {
			continue // of the rounds that the stopping rule left out
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if r.arm == nil || r.arm.Name != st.Arm {
			if err := r.endArm(); err != nil {
				return err
			}
			a, ok := r.c.Plan.Design.ByName(st.Arm)
			if !ok {
				return fmt.Errorf("plan: chain %s names the arm %q, which is not there", r.job.chain.Name, st.Arm)
			}
			r.arm, r.began = a, time.Now()
			if err := r.follow(); err != nil {
				return err
			}
			if err := r.fact(probes.FactArmStart, "", nil); err != nil {
				return err
			}
			if err := r.c.enter(receipts.LedgerArmStart, r.entry()); err != nil {
				return err
			}
		}
		if err := r.step(ctx, i, st); err != nil {
			return err
		}
		if err := r.enough(i, st); err != nil {
			return err
		}
	}
	return nil
}

// endArm closes the arm: what the store holds now, and a sync.
func (r *chainRun) endArm() error {
	if r.arm == nil {
		return nil
	}
	if r.arm.Connector {
		if err := r.storeFact("end"); err != nil {
			return err
		}
	}
	if err := r.fact(probes.FactArmEnd, "", probes.ArmEndFact{Sent: r.sent}); err != nil {
		return err
	}
	if err := r.c.w.Sync(); err != nil {
		return err
	}
	e := r.entry()
	r.arm = nil
	return r.c.enter(receipts.LedgerArmEnd, e)
}

// entry is what the ledger says of the arm that runs now.
func (r *chainRun) entry() receipts.LedgerObject {
	return receipts.LedgerObject{Chain: r.job.chain.Name, Arm: r.arm.Name, Attempt: r.attempt, Run: r.job.run}
}

func (r *chainRun) storeFact(when string) error {
	sf, source, err := r.stored()
	sf.When = when
	if err != nil {
		rec := r.at()
		rec.Kind = probes.KindFact
		rec.Fact = &probes.Fact{Name: probes.FactStore, Source: source, Error: err.Error()}
		return r.c.append(rec)
	}
	return r.fact(probes.FactStore, source, sf)
}

// stored is what the store holds now: by the engine's log where that is the only place to
// look, else by the store's folder.
func (r *chainRun) stored() (probes.StoreFact, string, error) {
	if x, ok := r.c.Engine.(arms.Accountant); ok && r.logName != "" {
		f, err := os.Open(r.c.Folder.at(r.logName))
		if err != nil {
			return probes.StoreFact{}, "log", err
		}
		defer f.Close()
		if sf, ok, err := x.Kept(f, r.pins); ok || err != nil {
			return sf, "log", err
		}
	}
	sf, err := r.c.Engine.Store(r.res)
	return sf, "store folder", err
}

func (r *chainRun) step(ctx context.Context, _ int, st arms.ChainStep) error {
	switch st.Do {
	case "launch":
		return r.launch(ctx, st.Args)
	case "stop":
		if err := r.stop(ctx); err != nil {
			return err
		}
		return nil
	case "replay", "prime":
		first := r.arm.Judge
		if r.arm.Exercise == "PRESS" {
			first = 1 // what a small pool keeps from being stored is lost in the pass that fills the store
		}
		if (st.Pass == first || r.soak != nil && st.Pass >= r.arm.Stop.From) && r.arm.Connector {
			if err := r.storeFact("start"); err != nil {
				return err
			}
		}
		return r.pass(ctx, st)
	case "primes":
		st.Pass = max(1, r.arm.Judge)
		return r.alone(ctx, st, nil)
	case "flood", "expire", "evict-rank", "abort", "fail-load", "copy-store", "check-identity", "ask-liveness", "wait":
		return r.odd(ctx, st)
	case "reset":
		for _, e := range r.eachRank() {
			if err := r.c.Engine.Reset(ctx, e); err != nil {
				return r.gone(ctx, r.harness("reset of the local cache", err))
			}
		}
		return r.fact(probes.FactReset, "engine", probes.StepFact{Step: "reset", Done: true})
	case "drain":
		return r.drain(ctx)
	case "save":
		if err := r.c.Engine.Save(ctx, r.proc.Endpoint, r.c.Set, r.res); err != nil {
			return r.gone(ctx, r.harness("save", err))
		}
		return r.save()
	case "restore":
		if err := r.kept(); err != nil {
			return err
		}
		err := r.c.Engine.Restore(ctx, r.proc.Endpoint, r.c.Set, r.res)
		var refused *arms.RefusedError
		if errors.As(err, &refused) { // an answer: what follows is computed anew
			if gerr := r.gone(ctx, nil); gerr != nil {
				return gerr
			}
			seen := refused.Error()
			if why := r.explain(ctx); why != "" {
				seen += " (log: " + why + ")"
			}
			return r.fact(probes.FactStep, "engine", probes.StepFact{Step: "restore", Done: true, Proved: new(false), Seen: seen})
		}
		if err != nil {
			return r.gone(ctx, r.harness("restore", err))
		}
		return r.fact(probes.FactStep, "engine", probes.StepFact{Step: "restore", Done: true})
	case "damage":
		r.saved = nil // not what was saved any more, and meant to be so
		d, ok := r.c.Engine.(arms.Damager)
		if !ok {
			return r.harness("damage", errors.New("this engine cannot do it"))
		}
		seen, err := d.Damage(r.res, st.Args)
		if err != nil {
			return r.harness("damage "+strings.Join(st.Args, " "), err)
		}
		return r.fact(probes.FactStep, "store folder", probes.StepFact{Step: "damage", Args: st.Args, Done: true, Proved: new(true), Seen: seen})
	case "corrupt":
		r.saved = nil
		seen, err := corrupt(r.res.Store, st.Args)
		if err != nil {
			return r.harness("corrupt "+strings.Join(st.Args, " "), err)
		}
		return r.fact(probes.FactStep, "store folder", probes.StepFact{Step: "corrupt", Args: st.Args, Done: true, Proved: new(true), Seen: seen})
	}
	return r.harness("step "+st.Do, errors.New("this program does not know it"))
}

// eachRank is the server, or each of them where every rank is one.
func (r *chainRun) eachRank() []probes.Endpoint {
	e := r.proc.Endpoint
	if len(e.RankURLs) < 2 {
		return []probes.Endpoint{e}
	}
	var out []probes.Endpoint
	for _, u := range e.RankURLs {
		one := e
		one.URL, one.RankURLs = u, nil
		out = append(out, one)
	}
	return out
}

// launch starts the chain's process and reads its pins back.
func (r *chainRun) launch(ctx context.Context, args []string) error {
	pinned := maps.Clone(r.arm.Pins)
	for _, w := range args {
		k, v, _ := strings.Cut(w, "=")
		pinned[k] = v
	}
	launcher, pinned, own, err := r.launcher(pinned)
	if err != nil {
		return err
	}
	r.pins = pinned
	if err := r.company(ctx, launcher, pinned); err != nil {
		return err
	}
	r.launches++
	r.inc = fmt.Sprintf("%s.%d", r.attempt, r.launches)
	r.logName = filepath.Join("logs", fileName(r.inc)+".log")
	f, err := os.OpenFile(r.c.Folder.at(r.logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return &FolderError{Path: r.c.Folder.Path, What: reason(err)}
	}
	r.log, r.stopping = f, false
	r.mu.Lock()
	r.deaths = nil
	r.mu.Unlock()
	r.tail = &arms.Tail{To: f, Line: func(line string) {
		if r.c.Engine.Death(line) {
			r.mu.Lock()
			r.deaths = append(r.deaths, line)
			r.mu.Unlock()
		}
		if m, ok := r.c.Engine.(arms.LoadMourner); ok {
			if failed, recovered := m.LoadFailed(line); failed {
				r.mu.Lock()
				r.failed = append(r.failed, probes.LoadFailedFact{Recovered: recovered, Line: line})
				r.mu.Unlock()
			}
		}
	}}
	url := r.c.Attach[r.arm.Name]
	var ranks []string // where each rank is a server
	if ranks = strings.Split(url, ","); len(ranks) > 1 {
		url = ranks[0]
	} else {
		ranks = nil
	}
	at := arms.Address{Host: "127.0.0.1"}
	var deadline time.Duration
	if url != "" {
		deadline = 5 * time.Second // it is said to be running
	}
	if url == "" {
		if at.Port, err = launch.FreePort(); err != nil {
			return r.harness("asking the system for a port", err)
		}
	}
	if p, ok := r.c.Engine.(arms.Patient); ok && url == "" {
		deadline = p.ReadyWithin()
	}
	run, err := arms.Up(ctx, arms.Launch{Arm: r.arm.Name, Engine: r.c.Engine, Launcher: launcher, Pins: pinned, Address: at, Resources: r.res,
		Log: r.tail, URL: url, Deadline: deadline, Model: r.c.Set.Model, APIKey: r.c.APIKey})
	if err != nil {
		f.Close()
		return err
	}
	run.Endpoint.RankURLs = ranks
	r.proc = run
	id := probes.IncarnationFact{ID: run.Process.ID(), Argv: run.Spec.Argv, Env: run.Spec.Env, URL: run.Endpoint.URL, Start: run.Process.Start(), Attached: url != ""}
	if err := r.fact(probes.FactIncarnation, "launcher "+launcher.Name(), id); err != nil {
		return err
	}
	if err := r.serves(ctx); err != nil {
		return err
	}
	pins, err := r.c.Engine.ReadPins(ctx, run.Endpoint, pinned)
	var mine []probes.PinRead
	if st, ok := run.Process.(arms.Stating); ok {
		mine = st.ReadPins(ctx, own)
	} else {
		for _, name := range slices.Sorted(maps.Keys(own)) {
			mine = append(mine, probes.PinRead{Name: name, Asked: own[name]})
		}
	}
	if err != nil {
		rec := r.at()
		rec.Kind = probes.KindFact
		rec.Fact = &probes.Fact{Name: probes.FactPins, Source: "engine", Error: err.Error()}
		if err := r.c.append(rec); err != nil || len(mine) == 0 {
			return err
		}
		return r.fact(probes.FactPins, "launcher "+launcher.Name(), probes.PinsFact{Read: mine})
	}
	if lr, ok := r.c.Engine.(arms.LogReader); ok {
		if lf, err := os.Open(r.c.Folder.at(r.logName)); err == nil {
			err = lr.ReadLog(lf, pins)
			lf.Close()
			if err != nil {
				r.c.say("chain %s: reading pins from the log: %v", r.attempt, err)
			}
		}
	}
	if er, ok := r.c.Engine.(arms.EnvironReader); ok && url == "" {
		if env, ok := environ(run.Process.ID()); ok {
			er.ReadEnviron(env, pins)
		}
	}
	source := "engine"
	if len(mine) > 0 {
		source += " and launcher " + launcher.Name()
	}
	return r.fact(probes.FactPins, source, probes.PinsFact{Read: append(pins, mine...)})
}

// launcher is what launches under these pins, which it parts into the engine's and its own.
func (r *chainRun) launcher(pins map[string]string) (l arms.Launcher, engine, own map[string]string, err error) {
	engine, own = arms.LauncherPins(r.c.Launcher, pins)
	switch p, ok := r.c.Launcher.(arms.Pinned); {
	case r.c.Attach[r.arm.Name] != "":
		url, _, _ := strings.Cut(r.c.Attach[r.arm.Name], ",") // of the first rank
		l = r.c.Attacher(url)
	case r.c.Beside != nil:
		l = r.c.Beside
	case ok:
		if l, err = p.With(own); err != nil {
			err = fmt.Errorf("arm %s: %w", r.arm.Name, err)
		}
	default:
		l = r.c.Launcher
	}
	return l, engine, own, err
}

// environ is the environment that a process of this machine was started with, where the
// system tells it (proc(5)); false for what has another name than a number.
func environ(id string) (map[string]string, bool) {
	if _, err := strconv.Atoi(id); err != nil {
		return nil, false
	}
	b, err := os.ReadFile(filepath.Join("/proc", id, "environ"))
	if err != nil || len(b) == 0 {
		return nil, false
	}
	env := map[string]string{}
	for _, v := range strings.Split(string(b), "\x00") {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env, true
}

// serves refuses a server that is not the one that the Set was frozen for: it would answer
// something, and every number after that would be about another model.
func (r *chainRun) serves(ctx context.Context) error {
	s, e := identity.Read(ctx, r.http, r.proc.Endpoint), r.proc.Endpoint
	switch {
	case e.Model == "" || r.c.Set.Dialect != replay.VLLM:
		return nil
	case len(s.Models) == 0:
		return fmt.Errorf("arm %s: the server at %s lists no models, so it is no OpenAI-compatible server: %s; check the URL", r.arm.Name, e.URL, s.Error())
	case !s.Serves(e.Model):
		return fmt.Errorf("arm %s: the server at %s serves %s, set %s was frozen for %s; serve that model or freeze another set", r.arm.Name, e.URL, strings.Join(s.Models, ", "), r.c.Set.Name, e.Model)
	}
	return nil
}

// stop ends the process and writes down how it ended.
func (r *chainRun) stop(ctx context.Context) error {
	if r.proc == nil {
		if r.log != nil {
			r.log.Close()
			r.log = nil
		}
		return nil
	}
	p := r.proc.Process
	ended := false
	select {
	case <-p.Done():
		ended = true
	default:
	}
	r.stopping = true
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	serr := p.Stop(sctx)
	r.proc = nil
	if r.log != nil {
		r.log.Close()
		r.log = nil
	}
	sf := probes.StoppedFact{ID: p.ID(), Exit: p.Exit(), Asked: !ended, Log: r.logName}
	if d, _, err := digest.OfFile(r.c.Folder.at(r.logName)); err == nil {
		sf.Digest = d
	}
	if err := r.fact(probes.FactStopped, "launcher", sf); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("chain %s: process %s did not end: %w", r.job.chain.Name, p.ID(), serr)
	}
	return nil
}

// gone decides whether a failing step means a dead engine or a failing harness.
func (r *chainRun) gone(ctx context.Context, otherwise error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	dead, err := r.death(ctx, "", 0)
	if err != nil {
		return err
	}
	if dead {
		return errDied
	}
	return otherwise
}

// replaced writes a FactDeath when somebody else has started the process again. With now the
// system is asked; without, what the launcher's own watch has seen is enough.
func (r *chainRun) replaced(ctx context.Context, now bool, prompt string, pass int) (bool, error) {
	w, ok := r.proc.Process.(arms.Watched)
	if !ok {
		return false, nil
	}
	if now {
		w.Look(ctx)
	}
	seen, since := w.Replaced()
	if seen == "" {
		return false, nil
	}
	return true, r.fact(probes.FactDeath, "launcher", probes.DeathFact{Sub: "RESTARTED", Seen: seen, Prompt: prompt, Pass: pass, After: max(1, since.Sub(r.c.zero).Microseconds())})
}

// death writes a FactDeath when the process has ended, was started again, or printed a death
// line, and says so.
func (r *chainRun) death(ctx context.Context, prompt string, pass int) (bool, error) {
	if again, err := r.replaced(ctx, true, prompt, pass); again || err != nil {
		return again, err
	}
	select {
	case <-r.proc.Process.Done():
		seen := "the process ended"
		if e := r.proc.Process.Exit(); e != nil {
			seen = fmt.Sprintf("the process ended with exit status %d", *e)
		}
		return true, r.fact(probes.FactDeath, "launcher", probes.DeathFact{Sub: "DIED", Seen: seen, Prompt: prompt, Pass: pass})
	case <-time.After(300 * time.Millisecond):
	}
	r.mu.Lock()
	lines := r.deaths
	r.mu.Unlock()
	if len(lines) > 0 {
		return true, r.fact(probes.FactDeath, "log", probes.DeathFact{Sub: "DIED", Seen: lines[0], Prompt: prompt, Pass: pass})
	}
	return false, nil
}

func fileName(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
			return c
		}
		return '_'
	}, s)
}
