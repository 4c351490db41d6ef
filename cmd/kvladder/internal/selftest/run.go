package selftest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/climb"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Bench is everything that climbing needs; the caller, who knows every floor, fills it in.
type Bench struct {
	Rows     []Row
	Engine   arms.Engine
	Local    arms.Launcher // real processes
	Inproc   arms.Launcher // the engine inside this process; nil = Local
	Draw     func(ctx context.Context, s Sheet) (*prompts.Set, error)
	Assess   func(*arms.Plan, *prompts.Set, []probes.Record) (scoring.Result, error)
	Seed     uint64
	Geometry Geometry
	Self     string
	Dir      string // scratch folder
	Parallel int    // ladders side by side
	Progress func(format string, args ...any)
}

// Sheet says which Set to draw.
type Sheet struct {
	Kind     string // of prompts/draw
	N        int    // requests; 0 = the kind's own number
	Tokens   int    // of a reply, at most; 0 = the kind's own number
	Seed     uint64
	Geometry Geometry
}

// Report is the JSON document of `kvladder selftest`.
type Report struct {
	Seed        uint64   `json:"seed"`
	Geometry    Geometry `json:"geometry"`
	Faults      []Fault  `json:"faults"`
	Decoys      []Decoy  `json:"decoys"`
	Caught      int      `json:"caught"`
	Attributed  int      `json:"attributed"`
	FalseAlarms int      `json:"false_alarms"` // healthy ladders and decoys that were accused
	Dull        int      `json:"dull"`         // ladders that say less of a healthy engine than the table asks
	Exit        int      `json:"exit"`
}

// Fault is what came of one fault, in all of its rows.
type Fault struct {
	ID         string `json:"id"`
	Caught     bool   `json:"caught"`
	Attributed bool   `json:"attributed"`
	Rows       []Case `json:"rows"`
}

// Case is what came of one row: a ladder with its fault planted, and without.
type Case struct {
	ID          string         `json:"id"`
	Caught      bool           `json:"caught"`
	Attributed  bool           `json:"attributed"`
	Verdict     string         `json:"verdict"` // of the ladder
	Arms        map[string]Arm `json:"arms"`
	Healthy     string         `json:"healthy"` // verdict of the same ladder without the fault
	HealthyArms map[string]Arm `json:"healthy_arms"`
	Accused     bool           `json:"accused"` // the healthy ladder was accused
	Dull        bool           `json:"dull"`    // an arm says something else of a healthy engine than the table
	Seconds     float64        `json:"seconds"` // both ladders
}

// Arm is one arm's expected and measured words.
type Arm struct {
	Expected string `json:"expected"`
	Measured string `json:"measured"`
	Agrees   bool   `json:"agrees"`
}

// Decoy is what came of something that is not a fault.
type Decoy struct {
	ID      string         `json:"id"`
	Accused bool           `json:"accused"`
	Verdict string         `json:"verdict"`
	Arms    map[string]Arm `json:"arms"`
	Agrees  bool           `json:"agrees"` // every arm says what the table lists
}

// Run climbs the rows named by only (all when empty), each with its fault and without.
func (b *Bench) Run(ctx context.Context, only []string) (Report, error) {
	rep := Report{Seed: b.Seed, Geometry: b.Geometry, Faults: []Fault{}, Decoys: []Decoy{}}
	rows := b.Rows
	if len(only) > 0 {
		rows = nil
		for _, id := range only {
			found := false
			for _, r := range b.Rows {
				if r.ID == id || r.Fault == id {
					found, rows = true, append(rows, r)
				}
			}
			if !found {
				return rep, fmt.Errorf("selftest has no fault %q; it has %s", id, strings.Join(ids(b.Rows), ", "))
			}
		}
	}
	type pair struct {
		planted, healthy scoring.Result
		took             [2]time.Duration
	}
	out := make([]pair, len(rows))
	err := b.each(ctx, len(rows)*2, func(ctx context.Context, i int) error {
		row, plant := rows[i/2], i%2 == 0
		if !plant && (row.Decoy || sameLadder(rows, i/2) != i/2) {
			return nil
		}
		start := time.Now()
		res, err := b.climb(ctx, row, plant)
		out[i/2].took[i%2] = time.Since(start)
		if err != nil {
			return fmt.Errorf("selftest %s (planted %v): %w", row.ID, plant, err)
		}
		if plant {
			out[i/2].planted = res
		} else {
			out[i/2].healthy = res
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	for i, row := range rows {
		if row.Decoy {
			d := decoy(row, out[i].planted)
			if d.Accused {
				rep.FalseAlarms++
			}
			rep.Decoys = append(rep.Decoys, d)
			continue
		}
		c := judge(row, out[i].planted, out[sameLadder(rows, i)].healthy)
		c.Seconds = math.Round((out[i].took[0]+out[i].took[1]).Seconds()*10) / 10
		rep.add(row.Fault, c)
	}
	for _, f := range rep.Faults {
		if f.Caught {
			rep.Caught++
		}
		if f.Attributed {
			rep.Attributed++
		}
	}
	faults := len(rep.Faults)
	if rep.Caught < faults || rep.Attributed < faults || rep.FalseAlarms+rep.Dull > 0 || slices.ContainsFunc(rep.Decoys, func(d Decoy) bool { return !d.Agrees }) {
		rep.Exit = scoring.ExitCorrupt
	}
	return rep, nil
}

// sameLadder is the first row whose ladder and Set are those of row i: without their faults
// they are one, and are climbed once.
func sameLadder(rows []Row, i int) int {
	return slices.IndexFunc(rows, func(r Row) bool {
		return !r.Decoy && r.Ladder == rows[i].Ladder && r.Kind == rows[i].Kind && r.N == rows[i].N && r.Tokens == rows[i].Tokens
	})
}

// add puts a case to its fault.
func (rep *Report) add(fault string, c Case) {
	if c.Accused {
		rep.FalseAlarms++
	}
	if c.Dull {
		rep.Dull++
	}
	i := slices.IndexFunc(rep.Faults, func(f Fault) bool { return f.ID == fault })
	if i < 0 {
		i = len(rep.Faults)
		rep.Faults = append(rep.Faults, Fault{ID: fault, Caught: true, Attributed: true})
	}
	f := &rep.Faults[i]
	f.Rows = append(f.Rows, c)
	f.Caught, f.Attributed = f.Caught && c.Caught, f.Attributed && c.Attributed
}

// judge compares a planted ladder and a healthy one with their row.
func judge(row Row, planted, healthy scoring.Result) Case {
	c := Case{ID: row.ID, Verdict: planted.Verdict, Healthy: healthy.Verdict, Accused: accuses(healthy)}
	c.Arms, c.Attributed = compare(row.Expect, planted)
	var clear bool
	c.HealthyArms, clear = compare(row.Healthy, healthy)
	c.Dull = !clear
	for name, e := range row.Expect {
		a := c.Arms[name]
		if e.Verdict != scoring.CleanBounded && strings.HasPrefix(a.Measured, e.Verdict) {
			c.Caught = true
		}
	}
	return c
}

func decoy(row Row, r scoring.Result) Decoy {
	d := Decoy{ID: row.ID, Accused: accuses(r), Verdict: r.Verdict}
	d.Arms, d.Agrees = compare(row.Expect, r)
	return d
}

// compare lists every judged arm; an arm that the table does not name must be clean.
func compare(expect map[string]Expect, r scoring.Result) (map[string]Arm, bool) {
	out, all := map[string]Arm{}, true
	for _, a := range r.Arms {
		if a.Role != scoring.Judged {
			continue
		}
		want, named := expect[a.Name]
		if !named {
			want = Expect{Verdict: scoring.CleanBounded}
		}
		got := said(a)
		if want.Kind == "" {
			got.Kind = "" // of interest where an invariant is meant
		}
		arm := Arm{Expected: want.String(), Measured: got.String(), Agrees: want == got}
		all = all && arm.Agrees
		out[a.Name] = arm
	}
	for name, want := range expect {
		if _, ok := out[name]; !ok {
			out[name] = Arm{Expected: want.String(), Measured: "no such arm"}
			all = false
		}
	}
	return out, all
}

// words are pins as an engine takes them.
func words(pins map[string]arms.Scalar) map[string]string {
	out := make(map[string]string, len(pins))
	for k, v := range pins {
		out[k] = string(v)
	}
	return out
}

// climb draws the Set of a row, resolves its ladder and climbs it. Its clients are let in in
// lockstep and the engine's seed is the bench's, so that what a row comes to follows from the
// seed and not from how fast the machine is.
func (b *Bench) climb(ctx context.Context, row Row, plant bool) (scoring.Result, error) {
	set, err := b.Draw(ctx, Sheet{row.Kind, row.N, row.Tokens, b.Seed, b.Geometry})
	if err != nil {
		return scoring.Result{}, err
	}
	ladder, err := b.Geometry.write(row.Ladder)
	if err != nil {
		return scoring.Result{}, err
	}
	text := "ladder: selftest-" + row.ID + "\nengine: " + b.Engine.Name() + "\nset: drawn\n" + ladder
	l, err := arms.ParseLadder(row.ID, []byte(text))
	if err != nil {
		return scoring.Result{}, err
	}
	pins := b.geometryPins()
	pins["noise_seed"] = fmt.Sprint(1 + b.Seed%(1<<50))
	for k := range l.Pins {
		delete(pins, k) // the row states it
	}
	if plant {
		maps.Copy(pins, row.Plant)
	}
	l.Pin(pins)
	if c, ok := b.Engine.(arms.Conductor); ok {
		l.Replay.Lockstep = c.CannotLockstep(words(l.Pins)) == ""
	}
	launcher := b.Inproc
	if launcher == nil || row.Crash && plant {
		launcher = b.Local
	}
	name := row.ID + "-healthy"
	if plant {
		name = row.ID + "-planted"
	}
	return b.ladder(ctx, name, l, set, launcher)
}

// geometryPins are the pins of a geometry other than the reference one.
func (b *Bench) geometryPins() map[string]string {
	if b.Geometry == DefaultGeometry {
		return map[string]string{}
	}
	return map[string]string{"block_size": fmt.Sprint(b.Geometry.AttentionBlock), "mamba_block_size": fmt.Sprint(b.Geometry.RecurrentBlock),
		"prefill_budget": fmt.Sprint(2*b.Geometry.RecurrentBlock - 1)}
}

// ladder climbs one resolved ladder in a scratch folder of its own.
func (b *Bench) ladder(ctx context.Context, name string, l *arms.Ladder, set *prompts.Set, launcher arms.Launcher) (scoring.Result, error) {
	plan, err := l.Resolve(set, b.Engine)
	if err != nil {
		return scoring.Result{}, err
	}
	if err := plan.Refusal(); err != nil {
		return scoring.Result{}, err
	}
	dir := filepath.Join(b.Dir, name)
	folder, err := climb.OpenFolder(dir, plan, set, false)
	if err != nil {
		return scoring.Result{}, err
	}
	defer os.RemoveAll(dir)
	defer folder.Close()
	var aerr error
	c := &climb.Climb{Plan: plan, Set: set, Engine: b.Engine, Launcher: launcher, Folder: folder, Tool: "kvladder selftest", Self: b.Self,
		Assess: func(recs []probes.Record) scoring.Result {
			res, err := b.Assess(plan, set, recs)
			aerr = errors.Join(aerr, err)
			return res
		},
		Suspects: scoring.Suspects}
	res, err := c.Run(ctx)
	if err = errors.Join(err, aerr); err != nil {
		return res, err
	}
	if b.Progress != nil {
		b.Progress("%s: %s", name, res.Verdict)
	}
	return res, nil
}

// each runs f(0..n-1), Parallel at a time, and returns the first error.
func (b *Bench) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, max(1, b.Parallel))
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		}()
	}
	wg.Wait()
	return context.Cause(ctx)
}
