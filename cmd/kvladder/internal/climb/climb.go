// Package climb is the loop from a Plan to a scored transcript.
//
//  1. The run folder is opened and locked, the plan and the Set are laid down.
//  2. Every chain that has not been climbed to its end is climbed, independent chains side by
//     side; each step leaves Records in the transcript before the next one begins.
//  3. The transcript is scored. An arm that is SUSPECT gets its registered replicate: its
//     chain is climbed again, and the whole is scored again.
//
// Nothing here decides anything: it launches, asks, and writes down.
package climb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kvladder/arms"
	"kvladder/arms/launch"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts"
	"kvladder/scoring"
)

// Climb is one run of a plan.
type Climb struct {
	Plan      *arms.Plan
	Set       *prompts.Set
	Engine    arms.Engine
	Launcher  arms.Launcher
	Attacher  func(url string) arms.Launcher // for Attach
	Beside    arms.Launcher                  // set where this is the harness beside the server: what Launcher gives to go on with
	Folder    *Folder
	Tool      string            // name and version, for the transcript
	Self      string            // path of this binary
	Cache     string            // project cache
	Only      string            // climb this chain alone; "" = all
	Round     int               // which replicate Only is of; 0 = the registered run
	Attach    map[string]string // arm -> URL of a server that somebody else started
	APIKey    string
	Progress  func(format string, args ...any) // one line for people
	Assess    func(recs []probes.Record) scoring.Result
	Suspects  func(scoring.Result) []string
	Detectors []scoring.Detector // for the stopping rule of a soak
	Beacon    *receipts.Beacon   // that the request ids carry; nil = the ledger's, or none

	digest string
	ids    string                      // what request ids are derived from
	traces map[string]map[string][]int // forced arm -> prompt -> tokens of its reference's reply
	w      *probes.Writer
	zero   time.Time
	ledger sync.Mutex
}

// Run climbs and returns the scored ladder. The error is non-nil when the run could not be
// carried through: nothing that was written is lost, and --resume goes on from there.
func (c *Climb) Run(ctx context.Context) (scoring.Result, error) {
	d, _, err := c.Plan.Digest()
	if err != nil {
		return scoring.Result{}, err
	}
	c.digest = string(d)
	c.zero = time.Now()
	if err := c.reach(ctx); err != nil {
		return scoring.Result{}, err
	}
	if err := c.sweep(ctx); err != nil {
		return scoring.Result{}, err
	}
	if err := c.prepare(ctx); err != nil {
		return scoring.Result{}, err
	}
	if err := c.register(); err != nil {
		return scoring.Result{}, err
	}
	if err := c.carry(); err != nil {
		return scoring.Result{}, err
	}
	done, tries, err := c.begin()
	if err != nil {
		return scoring.Result{}, err
	}
	var todo []job
	for _, ch := range c.Plan.Chains {
		if c.Only != "" && ch.Name != c.Only {
			continue
		}
		if at := jobKey(ch.Name, c.Round); !done[at] {
			todo = append(todo, job{chain: ch, run: c.Round, try: tries[at] + 1})
		}
	}
	for _, follow := range []bool{false, true} {
		stage := slices.DeleteFunc(slices.Clone(todo), func(j job) bool { return c.Plan.Follows(j.chain) != follow })
		if follow && len(stage) > 0 {
			err = c.findTraces()
		}
		if err == nil {
			err = c.climbAll(ctx, stage)
		}
		if err != nil {
			_ = c.w.Close() // it can only say again what err says
			return scoring.Result{}, err
		}
	}
	res, err := c.score()
	for run := 1; err == nil && c.Only == "" && run <= c.Plan.Design.Rule.Replicates; run++ {
		var again []job
		for _, arm := range c.Suspects(res) {
			for _, ch := range c.Plan.Chains {
				if slices.Contains(ch.Arms, arm) && !slices.ContainsFunc(again, func(j job) bool { return j.chain.Name == ch.Name }) && !done[jobKey(ch.Name, run)] {
					again = append(again, job{chain: ch, run: run, try: tries[jobKey(ch.Name, run)] + 1})
				}
			}
		}
		if len(again) == 0 {
			break
		}
		c.say("replicate %d: %d chains with a suspect arm", run, len(again))
		if err = c.climbAll(ctx, again); err == nil {
			res, err = c.score()
		}
	}
	if cerr := c.w.Close(); err == nil {
		err = cerr
	}
	for _, dir := range []string{"stores", launch.JobsDir, chainsDir} {
		if dir != "stores" && (err != nil || c.Only != "") {
			continue // chains that were climbed elsewhere and are not gathered yet
		}
		if rerr := os.RemoveAll(c.Folder.at(dir)); err == nil {
			err = rerr
		}
	}
	return res, err
}

// reach asks every attached server whether it is there, before anything else is climbed.
func (c *Climb) reach(ctx context.Context) error {
	for _, arm := range slices.Sorted(maps.Keys(c.Attach)) {
		for _, url := range strings.Split(c.Attach[arm], ",") {
			rctx, done := context.WithTimeout(ctx, 5*time.Second)
			err := c.Engine.Ready(rctx, probes.Endpoint{URL: url, Model: c.Set.Model, APIKey: c.APIKey})
			done()
			if err != nil {
				return fmt.Errorf("arm %s (%s): no answer at %s: %w; start the server, or check the URL given to --attach", arm, c.Engine.Name(), url, err)
			}
		}
	}
	return nil
}

// sweep ends what an earlier climb in this folder left running when it was killed. The
// folder's lock is ours, so that nobody is climbing with it any more.
func (c *Climb) sweep(ctx context.Context) error {
	l, ok := c.Launcher.(arms.Labeller)
	if !ok || c.Beside != nil {
		return nil
	}
	left, err := l.Left(ctx)
	if err != nil {
		return fmt.Errorf("launcher %s: looking for what an earlier climb left: %w", l.Name(), err)
	}
	folder, err := filepath.Abs(c.Folder.Path)
	if err != nil {
		return err
	}
	for _, x := range left {
		if x.Folder != folder {
			continue
		}
		c.say("%s %s, launched %s for this folder, is still there (%s): ending it", x.Kind, x.ID, x.Start, x.State)
		if err := x.End(ctx); err != nil {
			return fmt.Errorf("launcher %s: ending the %s %s of an earlier climb: %w", l.Name(), x.Kind, x.ID, err)
		}
	}
	return nil
}

// prepare does what a launcher has to do before it launches, once for each set of its pins.
func (c *Climb) prepare(ctx context.Context) error {
	p, ok := c.Launcher.(arms.Pinned)
	if !ok {
		return nil
	}
	done := map[string]bool{}
	for i := range c.Plan.Design.Arms {
		a := &c.Plan.Design.Arms[i]
		_, own := arms.LauncherPins(p, a.Pins)
		key := fmt.Sprint(own) // maps print in the order of their keys
		if done[key] || c.Attach[a.Name] != "" {
			continue
		}
		done[key] = true
		l, err := p.With(own)
		if err != nil {
			return fmt.Errorf("arm %s: %w", a.Name, err)
		}
		if pr, ok := l.(arms.Preparer); ok && c.Beside == nil {
			if err := pr.Prepare(ctx, c.say); err != nil {
				return fmt.Errorf("arm %s: %w", a.Name, err)
			}
		}
	}
	return nil
}

type job struct {
	chain arms.Chain
	run   int
	try   int
}

func jobKey(chain string, run int) string { return fmt.Sprintf("%s/%d", chain, run) }

// begin opens the transcript, marks unfinished attempts of an earlier climb as abandoned, and
// says which chains are done and how often each was tried.
func (c *Climb) begin() (done map[string]bool, tries map[string]int, err error) {
	done, tries = map[string]bool{}, map[string]int{}
	w, err := probes.OpenWriter(c.Folder.Transcript())
	if err != nil {
		return nil, nil, &FolderError{Path: c.Folder.Path, What: reason(err)}
	}
	c.w = w
	recs, err := probes.ReadAll(c.Folder.Transcript())
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	if len(recs) == 0 {
		if err := c.fact(probes.Record{}, probes.FactPlan, "", probes.PlanFact{Plan: digestOf(c.digest), Set: c.Set.Digest, Tool: c.Tool}); err != nil {
			w.Close()
			return nil, nil, err
		}
		return done, tries, nil
	}
	open := map[string]probes.AttemptFact{}
	var order []string
	for _, r := range recs {
		if r.Fact == nil {
			continue
		}
		switch r.Fact.Name {
		case probes.FactPlan:
			var pf probes.PlanFact
			if err := json.Unmarshal(r.Fact.Value, &pf); err != nil || string(pf.Plan) != c.digest {
				w.Close()
				return nil, nil, &FolderError{Path: c.Folder.Path, What: "its transcript belongs to another plan", Hint: "choose another folder with --out"}
			}
		case probes.FactAttempt:
			var af probes.AttemptFact
			if json.Unmarshal(r.Fact.Value, &af) == nil {
				open[r.Attempt] = af
				order = append(order, r.Attempt)
				tries[jobKey(af.Chain, af.Run)]++
			}
		case probes.FactChainEnd:
			if af, ok := open[r.Attempt]; ok {
				done[jobKey(af.Chain, af.Run)] = true
				delete(open, r.Attempt)
			}
		case probes.FactAbandoned:
			var ab probes.AbandonedFact
			if json.Unmarshal(r.Fact.Value, &ab) == nil {
				delete(open, ab.Attempt)
			}
		}
	}
	for _, a := range order {
		if af, ok := open[a]; ok {
			c.say("chain %s: attempt %s was not finished; its records stay and are not scored", af.Chain, a)
			if err := c.fact(probes.Record{Chain: af.Chain, Run: af.Run}, probes.FactAbandoned, "resume", probes.AbandonedFact{Attempt: a, Why: "the climb ended before the chain did"}); err != nil {
				w.Close()
				return nil, nil, err
			}
		}
	}
	return done, tries, nil
}

// climbAll climbs jobs, Parallel at a time, and waits for all of them.
func (c *Climb) climbAll(ctx context.Context, jobs []job) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	far, away := c.Launcher.(arms.Elsewhere)
	away = away && c.Beside == nil
	slots := make(chan struct{}, max(1, c.Plan.Replay.Parallel))
	if away {
		slots = make(chan struct{}, max(1, len(jobs))) // which run at once is the cluster's to say
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, j := range jobs {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			var err error
			if away {
				err = c.send(ctx, far, j)
			} else {
				err = c.climb(ctx, j)
			}
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				var ce *ChainError
				if !errors.As(err, &ce) { // what befell one job is no concern of the others
					cancel(err)
				}
			}
		}()
	}
	wg.Wait()
	if err := c.w.Sync(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		// the first one is the cause; the others are its echo through the cancelled context
		return errs[0]
	}
	return context.Cause(ctx)
}

func (c *Climb) score() (scoring.Result, error) {
	recs, err := probes.ReadAll(c.Folder.Transcript())
	if err != nil {
		return scoring.Result{}, err
	}
	return c.Assess(recs), nil
}

func (c *Climb) say(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(format, args...)
	}
}

// fact appends one Fact; r carries the place it belongs to.
func (c *Climb) fact(r probes.Record, name, source string, v any) error {
	f := &probes.Fact{Name: name, Source: source}
	if v != nil {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		f.Value = b
	}
	r.Kind, r.Fact, r.Reply, r.Sample = probes.KindFact, f, nil, nil
	return c.append(r)
}

// WriteError says that a record could not be kept.
type WriteError struct {
	Path string
	Err  error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("%s: %s; what was written before is whole: free some space and continue with --resume", e.Path, reason(e.Err))
}

func (e *WriteError) Unwrap() error { return e.Err }

func (c *Climb) append(r probes.Record) error {
	if err := c.w.Append(r); err != nil {
		return &WriteError{Path: c.Folder.Transcript(), Err: err}
	}
	return nil
}
