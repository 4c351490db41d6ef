package arms

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Resolve expands the ladder into a Plan for a Set and an engine. Nothing is started. Problems
// that geometry or arithmetic finds are listed in the plan; the fatal ones make Plan.Refusal
// non-nil. An error means that the file itself does not hold together.
func (l *Ladder) Resolve(s *prompts.Set, eng Engine) (*Plan, error) {
	rule, err := l.rule()
	if err != nil {
		return nil, err
	}
	r := &resolver{l: l, s: s, eng: eng, known: eng.Pins(), origin: map[string]string{}}
	if p, ok := l.by.(Pinned); ok {
		maps.Copy(r.known, p.Pins())
	}
	for i, p := range l.Subject {
		if _, ok := r.known[p]; !ok {
			return nil, l.wrong([]any{"subject", i}, "its pins: "+strings.Join(sortedKeys(r.known), ", "), "subject: engine %s has no pin %.80q", eng.Name(), p)
		}
	}
	r.plan = &Plan{
		Schema: PlanSchema, Ladder: l.Name, Question: l.Question, Engine: eng.Name(), Launcher: l.Launcher,
		Set: PlanSet{Name: s.Name, Digest: s.Digest, Requests: len(s.Prompts), Classes: s.Classes(), Geometry: s.Geometry, Dialect: s.Dialect,
			Path: s.Path},
		Subject: orEmpty(l.Subject), Pins: plain(l.Pins), Predict: l.Predict,
		NotClaimed: orEmpty(l.NotClaimed), Unproven: orEmpty(l.Unproven), Claims: l.Claims, Problems: []Problem{}, Source: string(l.source),
		Replay: Replay{Concurrency: max(1, l.Replay.Concurrency), Ranks: l.Replay.Ranks, RankBy: l.Replay.RankBy, RankField: l.Replay.Field,
			TimeoutSecs: max(l.Replay.Timeout, 0), Parallel: max(1, l.Parallel), Lockstep: l.Replay.Lockstep},
	}
	if u, ok := eng.(Unrun); ok {
		r.plan.Unproven = append(r.plan.Unproven, u.NeverRun())
	}
	if r.plan.Replay.TimeoutSecs == 0 {
		r.plan.Replay.TimeoutSecs = int(rule.StallSecs)
	}
	if r.plan.Replay.Ranks > 0 && r.plan.Replay.RankBy == "" {
		r.plan.Replay.RankBy = "header"
	}
	if r.plan.Replay.RankBy == "header" && r.plan.Replay.RankField == "" {
		r.plan.Replay.RankField = "X-data-parallel-rank"
	}
	if r.plan.Replay.RankBy == "body" && r.plan.Replay.RankField == "" {
		return nil, &FileError{File: l.file, What: "replay.rank_by: body needs replay.rank_field", Hint: "SGLang reads routed_dp_rank"}
	}
	if r.plan.Predict == nil {
		r.plan.Predict = map[string]map[string]any{}
	}
	if r.plan.Claims == nil {
		r.plan.Claims = []Claim{}
	}
	r.plan.Design = scoring.Design{Ladder: l.Name, Question: l.Question, Rule: rule}
	if err := r.expand(); err != nil {
		return nil, err
	}
	if err := r.legalLaunches(); err != nil {
		return nil, err
	}
	if err := r.legalRanks(); err != nil {
		return nil, err
	}
	if err := r.legalLockstep(); err != nil {
		return nil, err
	}
	if err := r.predictions(); err != nil {
		return nil, err
	}
	r.expect()
	r.lint()
	r.order()
	return r.plan, nil
}

type resolver struct {
	l     *Ladder
	s     *prompts.Set
	eng   Engine
	known map[string]string
	plan  *Plan

	origin map[string]string // arm -> where it comes from
}

func orEmpty(v []string) []string {
	if v == nil {
		return []string{}
	}
	return v
}

func plain(m map[string]Scalar) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = string(v)
	}
	return out
}

func (r *resolver) fail(format string, args ...any) error {
	return &FileError{File: r.l.file, What: fmt.Sprintf(format, args...)}
}

// expand turns entries into arms and chains, once per dtype.
func (r *resolver) expand() error {
	groups := r.l.DT
	if len(groups) == 0 {
		groups = []Dtype{{}}
	}
	for i, g := range groups {
		for j, o := range groups[:i] {
			if o.Name == g.Name {
				return r.l.wrong([]any{"dt", i}, "leave one out", "dt: %q is named twice", g.Name)
			}
			if maps.Equal(r.shared(o), r.shared(g)) {
				return r.l.wrong([]any{"dt", i}, "let a pin differ, or leave one out", "dtypes %s and %s have equal pins: they would be compared as two and are one (the other is at %s)", o.Name, g.Name, r.l.place("dt", j))
			}
		}
	}
	for _, g := range groups {
		if err := r.group(g); err != nil {
			return err
		}
	}
	if r.l.Twin {
		for _, g := range groups {
			if err := r.twin(g); err != nil {
				return err
			}
		}
	}
	chains := map[string]bool{}
	for _, c := range r.plan.Chains {
		if chains[c.Name] {
			return r.fail("two chains would be called %s: %s; give the arm another name", c.Name, r.origin[c.Name])
		}
		chains[c.Name] = true
	}
	return nil
}

// twin adds the arms of a group once more in the engine's batch-invariant mode: the same
// requests, with controls of their own and a store of its own. What moves first tokens in the
// one and not a bit in the other is the kernels' arithmetic, not the cache.
func (r *resolver) twin(g Dtype) error {
	inv, ok := r.eng.(Invariant)
	if !ok {
		return r.l.wrong([]any{"twin"}, "leave it out", "twin: engine %s has no batch-invariant mode", r.eng.Name())
	}
	name, value := inv.InvariantPin()
	if r.shared(g)[name] == value {
		return r.l.wrong([]any{"twin"}, "leave it out, or let the pin differ", "twin: %s is %s already: the ladder would be its own twin", name, value)
	}
	t := Dtype{Name: invariantName, Pins: maps.Clone(g.Pins)}
	base := ""
	if g.Name != "" {
		t.Name, base = g.Name+"-"+invariantName, "@"+g.Name
	}
	if t.Pins == nil {
		t.Pins = map[string]Scalar{}
	}
	t.Pins[name] = Scalar(value)
	from := len(r.plan.Design.Arms)
	if err := r.group(t); err != nil {
		return err
	}
	for i := from; i < len(r.plan.Design.Arms); i++ {
		a := &r.plan.Design.Arms[i]
		a.TwinOf = strings.TrimSuffix(a.Name, "@"+t.Name) + base
	}
	return nil
}

// invariantName is the group of twins.
const invariantName = "invariant"

// shared are the pins that every arm of a dtype begins with.
func (r *resolver) shared(g Dtype) map[string]string {
	out := maps.Clone(r.known)
	maps.Copy(out, plain(r.l.Pins))
	maps.Copy(out, plain(g.Pins))
	return out
}

// group expands the arms for one dtype.
func (r *resolver) group(g Dtype) error {
	suffix := ""
	if g.Name != "" {
		suffix = "@" + g.Name
	}
	byPreset := map[string]Entry{}
	var store, own []Entry
	for _, e := range r.l.Arms {
		if why := r.cannot(&e); why != "" {
			return r.fail("arm %s: engine %s cannot run it: %s", e.Name, r.eng.Name(), why)
		}
		if presets[e.Preset].own || e.Preset == "custom" {
			own = append(own, e)
			continue
		}
		if presets[e.Preset].config == "store" {
			store = append(store, e)
			continue
		}
		if _, twice := byPreset[e.Preset]; twice {
			return r.fail("arm %s: preset %s is there twice", e.Name, e.Preset)
		}
		byPreset[e.Preset] = e
	}
	part := slices.ContainsFunc(append(slices.Clone(store), own...), func(e Entry) bool {
		return e.Preset == "PART" || e.Preset == "SOAK" && e.Base == "PART" || strings.HasPrefix(e.Reference, "C1-PART")
	})
	for _, e := range append(slices.Clone(store), own...) {
		if (e.Preset == "PART" || e.Base == "PART") && !r.hasPrimes() {
			return r.fail("arm %s needs prompts with a prime, set %s has none: freeze a mixed or partial-hit set", e.Name, r.s.Name)
		}
	}
	for _, need := range []string{"C0", "C1"} {
		if _, ok := byPreset[need]; !ok && (need == "C0" || len(store) > 0 || slices.ContainsFunc(own, needsC1)) {
			return r.fail("the ladder has no %s: every judged arm needs its control; add it to arms", need)
		}
	}
	c0 := max(1, r.l.Floors.C0)
	c1 := max(1, r.l.Floors.C1)
	mk := func(name, presetName string, e Entry) (scoring.ArmSpec, error) {
		return r.arm(g, name+suffix, presetName, e, suffix)
	}

	// the control processes
	for _, base := range []struct {
		preset string
		n      int
	}{{"C0", c0}, {"C1", c1}} {
		e, ok := byPreset[base.preset]
		if !ok {
			continue
		}
		for i := range base.n {
			name, split := e.Name, false
			if i > 0 {
				name = fmt.Sprintf("%s-%d", e.Name, i+1)
			}
			if base.preset == "C0" && base.n >= 2 && i == base.n-1 {
				name, split = e.Name+"-split", true
			}
			a, err := mk(name, base.preset, e)
			if err != nil {
				return err
			}
			a.Passes = 2
			if base.preset == "C1" {
				a.Judge = 2
			}
			if i > 0 {
				r.floor(&a, e.Name+suffix, split)
			}
			ch := Chain{Name: a.Name, Group: g.Name, Arms: []string{a.Name}, Steps: []ChainStep{
				{Do: "launch", Arm: a.Name}, {Do: "replay", Arm: a.Name, Pass: 1}, {Do: "replay", Arm: a.Name, Pass: 2}}}
			a.Chain, a.Process = ch.Name, ch.Name
			r.plan.Design.Arms = append(r.plan.Design.Arms, a)
			if err := r.concTwins(g, suffix, base.preset, name, i, split, e, own, &ch); err != nil {
				return err
			}
			if part {
				tn := base.preset + "-PART"
				t, err := mk(name+"-PART", tn, Entry{Preset: tn, Name: name + "-PART", Pins: e.Pins, at: e.at})
				if err != nil {
					return err
				}
				t.Passes, t.Chain, t.Process = 1, ch.Name, ch.Name
				if base.preset == "C1" {
					t.Judge = 1
					ch.Steps = append(ch.Steps, ChainStep{Do: "reset", Arm: t.Name})
				}
				if i > 0 {
					r.floor(&t, e.Name+"-PART"+suffix, split)
				}
				ch.Arms = append(ch.Arms, t.Name)
				ch.Steps = append(ch.Steps, ChainStep{Do: "prime", Arm: t.Name, Pass: 1})
				r.plan.Design.Arms = append(r.plan.Design.Arms, t)
			}
			ch.Steps = append(ch.Steps, ChainStep{Do: "stop", Arm: a.Name})
			r.plan.Chains = append(r.plan.Chains, ch)
		}
	}
	for _, e := range own {
		if err := r.families(g, suffix, e, c0, c1); err != nil {
			return err
		}
	}
	if e, ok := byPreset["C0-late"]; ok {
		if err := r.late(g, suffix, e); err != nil {
			return err
		}
	}
	if err := r.storeChains(g, suffix, store); err != nil {
		return err
	}
	for _, e := range own {
		if err := r.ownChain(g, suffix, e); err != nil {
			return err
		}
	}
	return nil
}

// storeChains puts the connector arms into chains: one chain runs in the usual order, and an
// arm whose preset is already there (RST twice, once corrupted) opens a chain of its own.
func (r *resolver) storeChains(g Dtype, suffix string, store []Entry) error {
	var lists [][]Entry
next:
	for _, e := range store {
		for i, l := range lists {
			if !slices.ContainsFunc(l, func(o Entry) bool { return o.Preset == e.Preset }) && maps.Equal(plain(l[0].Pins), plain(e.Pins)) && len(e.Before) == 0 && len(l[len(l)-1].Before) == 0 {
				lists[i] = append(l, e)
				continue next
			}
		}
		lists = append(lists, []Entry{e})
	}
	for _, e := range store {
		if !e.Trace {
			continue
		}
		f := e
		f.Name, f.After = e.Name+forcedName, nil
		lists = append(lists, []Entry{f})
	}
	for i, list := range lists {
		slices.SortStableFunc(list, func(a, b Entry) int {
			return slices.Index(storeOrder, a.Preset) - slices.Index(storeOrder, b.Preset)
		})
		ch := Chain{Name: "store" + suffix, Group: g.Name}
		if i > 0 {
			ch.Name = list[0].Name + suffix
		}
		for j, e := range list {
			a, err := r.arm(g, e.Name+suffix, e.Preset, e, suffix)
			if err != nil {
				return err
			}
			a.Chain, a.Process = ch.Name, ch.Name
			a.Passes, a.Judge = 1, 1
			ch.Arms = append(ch.Arms, a.Name)
			if j == 0 {
				ch.Steps = append(ch.Steps, ChainStep{Do: "launch", Arm: a.Name})
				if e.Preset != "COLD" {
					// nothing has filled the store yet: the arm's first pass does
					ch.Steps = append(ch.Steps, ChainStep{Do: "replay", Arm: a.Name, Pass: 1})
					a.Passes, a.Judge = 2, 2
					a.ScheduleDiff = append(a.ScheduleDiff, "fill")
				}
			}
			lines := func(ls []StepLine) {
				for _, b := range ls {
					ch.Steps = append(ch.Steps, ChainStep{Do: b[0], Arm: a.Name, Args: b[1:]})
					a.ScheduleDiff = append(a.ScheduleDiff, strings.Join(b, " "))
				}
			}
			do := func(steps ...string) {
				for _, d := range steps {
					ch.Steps = append(ch.Steps, ChainStep{Do: d, Arm: a.Name})
					a.ScheduleDiff = append(a.ScheduleDiff, d)
				}
			}
			replay := "replay"
			switch e.Preset {
			case "COLD", "REPLAY":
				lines(e.Before)
			case "WARM":
				do("drain", "reset")
				lines(e.Before)
			case "RST":
				down, up := whileDown(e.Before)
				do("drain", "save", "stop")
				lines(down)
				do("launch", "restore")
				lines(up)
			case "PART":
				do("drain", "reset")
				lines(e.Before)
				replay = "prime"
			}
			ch.Steps = append(ch.Steps, ChainStep{Do: replay, Arm: a.Name, Pass: a.Judge})
			lines(e.After)
			a.FailLoads = failLoads(e.Before)
			if of, forced := strings.CutSuffix(e.Name, forcedName); forced && e.Trace {
				if why := r.cannotTrace(a.Pins); why != "" {
					return r.l.wrong([]any{"arms", e.at - 1}, "or leave trace out", "arm %s: trace: engine %s: %s", of, r.eng.Name(), why)
				}
				a.Role, a.ForcedOf, a.Path = scoring.Forced, of+suffix, ""
			}
			if a.ScheduleDiff == nil {
				a.ScheduleDiff = []string{}
			}
			r.plan.Design.Arms = append(r.plan.Design.Arms, a)
		}
		ch.Steps = append(ch.Steps, ChainStep{Do: "stop", Arm: list[len(list)-1].Name + suffix})
		r.plan.Chains = append(r.plan.Chains, ch)
	}
	return nil
}

// forcedName is what the name of an arm has behind it that repeats another along a trace.
const forcedName = "-forced"

// cannotTrace says why the engine cannot be told its replies, "" when it can.
func (r *resolver) cannotTrace(pins map[string]string) string {
	t, ok := r.eng.(Tracer)
	if !ok {
		return "its requests cannot name the tokens of their reply"
	}
	return t.CannotTrace(pins)
}

// floor makes a a further process of the arm named of.
func (r *resolver) floor(a *scoring.ArmSpec, of string, split bool) {
	a.Role, a.FloorOf, a.Split, a.Judge, a.Reference, a.ReferencePass = scoring.Floor, of, split, 0, "", 0
	a.Pin, a.PinsDiffer = scoring.Pin{}, nil
	if split {
		name, value := r.eng.SplitPin(r.s.Geometry)
		old := a.Pins[name]
		a.Pins[name] = value
		a.Pin = scoring.Pin{Name: name, Arm: value, Reference: old}
		a.PinsDiffer = []scoring.Pin{a.Pin}
	}
}

func (r *resolver) hasPrimes() bool {
	for _, p := range r.s.Prompts {
		if p.Prime != nil {
			return true
		}
	}
	return false
}

// pins are the engine's defaults, then the preset's configuration, then the ladder's shared
// pins, the dtype's, and the arm's own; later ones win.
func (r *resolver) pins(g Dtype, presetName string, e Entry) (map[string]string, error) {
	config := presets[presetName].config
	if presetName == "custom" {
		config = e.Config
	}
	conf, err := r.eng.Configure(config)
	if err != nil {
		return nil, r.fail("arm %s: %v", e.Name, err)
	}
	out := maps.Clone(r.known)
	maps.Copy(out, conf)
	for _, src := range []struct {
		where string
		m     map[string]Scalar
	}{{"pins", r.l.Pins}, {"dt " + g.Name, g.Pins}, {"arm " + e.Name, e.Pins}} {
		for k, v := range src.m {
			if _, ok := r.known[k]; !ok {
				return nil, r.l.wrong(r.stated(k, g, e), "its pins: "+strings.Join(sortedKeys(r.known), ", "), "%s: engine %s has no pin %q", src.where, r.eng.Name(), k)
			}
			if cv, fixed := conf[k]; fixed && src.where == "pins" && cv != string(v) {
				return nil, r.fail("pins: %q is set by the presets (%s needs %s=%s); state it in an arm, not for all", k, presetName, k, cv)
			}
			out[k] = string(v)
		}
	}
	return out, nil
}

func (r *resolver) arm(g Dtype, name, presetName string, e Entry, suffix string) (scoring.ArmSpec, error) {
	p := presets[presetName]
	if presetName == "custom" {
		p = preset{config: e.Config, role: scoring.Judged, path: e.Path, exercise: e.Exercise, reference: e.Reference, refPass: max(1, e.ReferencePass)}
	}
	return r.armOf(g, name, presetName, p, e, suffix)
}

// armOf builds the arm of an entry with the meaning that p states.
func (r *resolver) armOf(g Dtype, name, presetName string, p preset, e Entry, suffix string) (scoring.ArmSpec, error) {
	if err := r.called(name, presetName, e, suffix); err != nil {
		return scoring.ArmSpec{}, err
	}
	pins, err := r.pins(g, presetName, e)
	if err != nil {
		return scoring.ArmSpec{}, err
	}
	if err := r.legal(name, pins, g, e); err != nil {
		return scoring.ArmSpec{}, err
	}
	if c, ok := r.eng.(Chooser); ok {
		if why := c.CannotWith(presetName, pins); why != "" {
			return scoring.ArmSpec{}, r.l.wrong([]any{"arms", e.at - 1}, "", "arm %s: engine %s cannot run it: %s", e.Name, r.eng.Name(), why)
		}
	}
	a := scoring.ArmSpec{Name: name, Preset: presetName, Role: p.role, Group: g.Name, Path: p.path, Exercise: p.exercise, Connector: p.config == "store",
		Counters: r.eng.Counters(), CachedIs: r.eng.CachedIs(presetName), Pins: pins, Why: e.Why, ScheduleDiff: []string{}}
	if x, ok := r.eng.(Inexacter); ok {
		a.Inexact = x.Inexact(pins)
	}
	if p.reference == "" {
		return a, nil
	}
	refName := p.reference
	if _, there := r.plan.Design.ByName(refName + suffix); !there {
		for _, o := range r.l.Arms {
			if o.Preset == p.reference {
				refName = o.Name
			}
		}
	}
	a.Reference, a.ReferencePass = refName+suffix, p.refPass
	ref, ok := r.plan.Design.ByName(a.Reference)
	if !ok {
		return a, r.fail("arm %s is judged against %s, which is not in the ladder", e.Name, refName)
	}
	a.PinsDiffer = Differences(pins, ref.Pins)
	if len(a.PinsDiffer) != 1 {
		var names []string
		for _, d := range a.PinsDiffer {
			names = append(names, fmt.Sprintf("%s (%s, reference %s)", d.Name, d.Arm, d.Reference))
		}
		if len(names) == 0 {
			return a, r.fail("arm %s does not differ from its reference %s in any pin: there is nothing to test", name, a.Reference)
		}
		return a, r.fail("arm %s differs from its reference %s in %d pins, one is allowed: %s", name, a.Reference, len(names), strings.Join(names, ", "))
	}
	a.Pin = a.PinsDiffer[0]
	return a, nil
}

// Differences lists the pins in which two arms differ, by name.
func Differences(arm, ref map[string]string) []scoring.Pin {
	names := map[string]bool{}
	for k := range arm {
		names[k] = true
	}
	for k := range ref {
		names[k] = true
	}
	var out []scoring.Pin
	for _, k := range sortedKeys(names) {
		if arm[k] != ref[k] {
			out = append(out, scoring.Pin{Name: k, Arm: arm[k], Reference: ref[k]})
		}
	}
	return out
}

func (r *resolver) predictions() error {
	groups := r.l.DT
	for _, arm := range sortedKeys(r.plan.Predict) {
		members := r.plan.Predict[arm]
		_, ok := r.plan.Design.ByName(arm)
		for _, g := range groups {
			if _, in := r.plan.Design.ByName(arm + "@" + g.Name); in {
				ok = true
			}
		}
		if !ok {
			return r.l.wrong([]any{"predict", arm}, "its arms: "+strings.Join(sortedKeys(r.origin), ", "), "predict: there is no arm %q in this ladder", arm)
		}
		for _, m := range sortedKeys(members) {
			p, err := scoring.ParsePrediction(m, members[m])
			if err == nil {
				err = meetable(p)
			}
			if err != nil {
				return r.l.wrong([]any{"predict", arm, m}, "", "predict.%s.%s: %v", arm, m, err)
			}
		}
	}
	return nil
}

// settled is how many passes of a chain are worked out. The rounds of a SOAK are alike, and
// what the first few have stored and recycled is what all later ones find.
const settled = 8

// expect asks the engine what geometry predicts for every arm, and works out the last
// computed prefill chunk of each request.
func (r *resolver) expect() {
	alike := map[string][]map[string]scoring.Reuse{}
	for _, ch := range r.plan.Chains {
		var steps []Step
		type at struct {
			arm  string
			pass int
		}
		var asked []at
		first, _ := r.plan.Design.ByName(ch.Arms[0])
		launched := false
		var under map[string]string
		for _, st := range ch.Steps {
			if len(asked) >= settled && st.Do != "replay" && st.Do != "prime" {
				continue
			}
			switch st.Do {
			case "launch":
				if launched {
					steps = append(steps, Step{Do: "restart"})
				}
				if o := overrides(st.Args); launched && !maps.Equal(o, under) {
					steps = append(steps, Step{Do: "expire"}) // what another configuration stored is not to be found
				}
				launched, under = true, overrides(st.Args)
			case "replay", "prime":
				asked = append(asked, at{st.Arm, st.Pass})
				if len(asked) <= settled {
					steps = append(steps, Step{Do: st.Do, Pass: st.Pass})
				}
			default:
				steps = append(steps, Step{Do: st.Do, Args: st.Args})
			}
		}
		// The processes of a floor are alike, and so is what geometry predicts for them.
		key := fmt.Sprintln(first.Pins, steps)
		passes, known := alike[key]
		if !known {
			passes = r.expectRanks(first.Pins, steps)
			alike[key] = passes
		}
		for i, w := range asked {
			if i >= settled {
				i = settled - 1
			}
			if i >= len(passes) {
				break
			}
			a, _ := r.plan.Design.ByName(w.arm)
			judged := a.Judge == w.pass || (a.Judge == 0 && w.pass == a.Passes)
			if r.unordered(a) {
				if judged && a.Exercise != "COLD" && r.nothingInAnyOrder(steps, i, passes[i]) {
					a.Expected = passes[i]
				}
				continue
			}
			if judged {
				a.Expected = passes[i]
				a.LastChunk = r.lastChunks(a.Pins, passes[i])
			}
			if a.Judge > 1 && w.pass == 1 {
				a.FirstExpected = passes[i]
				a.FirstChunk = r.lastChunks(a.Pins, passes[i])
			}
		}
	}
}

// expectRanks predicts per rank, since each rank keeps its own caches, and joins the parts.
func (r *resolver) expectRanks(pins map[string]string, steps []Step) []map[string]scoring.Reuse {
	n := r.plan.Replay.Ranks
	if n <= 1 {
		return r.eng.Expect(r.s, r.engine(pins), steps)
	}
	var out []map[string]scoring.Reuse
	for k := range n {
		part := *r.s
		part.Prompts = nil
		for _, p := range r.s.Prompts {
			if r.plan.Replay.Rank(p.ID) == k {
				if r.s.Geometry.Mode == "slot" {
					p.Slot = &k // a slot is the rank
				}
				part.Prompts = append(part.Prompts, p)
			}
		}
		for i, m := range r.eng.Expect(&part, r.engine(pins), steps) {
			if i == len(out) {
				out = append(out, map[string]scoring.Reuse{})
			}
			maps.Copy(out[i], m)
		}
	}
	return out
}

// lastChunks is the length of the last computed chunk of each prompt. Engines with a
// recurrent group cut the prefill at the last state boundary before the prompt's end;
// others compute in slices of the prefill budget, counted from the first computed token.
func (r *resolver) lastChunks(pins map[string]string, reuse map[string]scoring.Reuse) map[string]int {
	name, _ := r.eng.SplitPin(r.s.Geometry)
	budget, err := strconv.Atoi(pins[name])
	if err != nil || budget < 1 {
		return nil
	}
	out := map[string]int{}
	for _, p := range r.s.Prompts {
		n := len(p.Tokens)
		hit := reuse[p.ID].Local + reuse[p.ID].External
		if n == 0 || hit >= n {
			continue
		}
		if c, ok := r.eng.(Chunker); ok {
			out[p.ID] = c.LastChunk(pins, n, hit)
			continue
		}
		if g := r.s.Geometry.RecurrentBlock; g > 0 {
			if last := (n - 1) / g * g; last > hit {
				hit = last
			}
		}
		out[p.ID] = (n-hit-1)%budget + 1
	}
	return out
}

// order sorts the independent chains by a digest that depends on the whole plan, so that the
// order in the server's own log carries the registration.
func (r *resolver) order() {
	slices.SortFunc(r.plan.Chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	d, _, err := r.plan.Digest()
	if err != nil {
		return
	}
	key := func(c Chain) string { return string(digest.Of([]byte(string(d) + "\x00" + c.Name))) }
	slices.SortFunc(r.plan.Chains, func(a, b Chain) int { return strings.Compare(key(a), key(b)) })
	// What decodes along a reference's tokens comes behind every reference.
	slices.SortStableFunc(r.plan.Chains, func(a, b Chain) int { return r.plan.stage(a) - r.plan.stage(b) })
}

// stage is 1 for a chain that needs what others have left, and 0 for all others.
func (p *Plan) stage(c Chain) int {
	if p.Follows(c) {
		return 1
	}
	return 0
}

// Follows says whether a chain can be climbed only when all that do not follow have been:
// its requests name tokens that a reference gave.
func (p *Plan) Follows(c Chain) bool {
	for _, name := range c.Arms {
		if a, ok := p.Design.ByName(name); ok && a.Role == scoring.Forced {
			return true
		}
	}
	return false
}

// ErrRefused is wrapped by Refusal.
var ErrRefused = errors.New("the plan is refused")

// Refusal is nil when the plan may run, else an error that names every fatal problem.
func (p *Plan) Refusal() error {
	var what []string
	for _, q := range p.Problems {
		if q.Fatal {
			what = append(what, q.What)
		}
	}
	if len(what) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(what, "; "))
}
