package scoring

import (
	"encoding/json"
	"fmt"
	"sort"

	"kvladder/probes"
	"kvladder/prompts"
)

// armRun is what one climb of one arm left in the transcript.
type armRun struct {
	spec *ArmSpec
	run  int

	started, ended bool
	passes         map[int]map[string]*row // pass -> prompt id
	twice          []string                // prompts recorded more than once in a pass
	foreign        []string                // prompt ids the Set does not hold

	identity    []identitySeen
	incarnation []probes.IncarnationFact
	stopped     []stoppedSeen
	deaths      []deathSeen
	pins        []probes.PinsFact
	stores      []probes.StoreFact
	steps       []probes.StepFact
	resets      []probes.StepFact
	invariants  []probes.InvariantFact
	liveness    []probes.LivenessFact
	loads       []probes.LoadsFact
	pools       []probes.PoolFact
	running     []probes.RunningFact
	loadsFailed []probes.LoadFailedFact
	stops       []probes.StopFact
	soak        *Soak
	cut         int // the pass after which its rule ended a soak; 0 = it ran its length
	harness     []string
	samples     []*probes.Sample
	badScrapes  []string

	ranks     Ranks
	elsewhere string // the first request that the counters show on another rank than the one asked

	models     map[string]string // model asked for -> model that answered first
	otherModel string            // the first reply of another model
	replaced   string            // what shows that another process answers than the one before
	odd        []string          // what cannot be true in the arm's own account of its requests
}

type identitySeen struct {
	incarnation string
	fact        probes.IdentityFact
}

type stoppedSeen struct {
	at   string
	fact probes.StoppedFact
}

type deathSeen struct {
	at   string
	fact probes.DeathFact
}

// transcript is every scored record, by run and arm.
type transcript struct {
	arms     map[runArm]*armRun
	lives    map[lifetimeKey]*lifetime
	dead     map[runChain]bool // a death in the chain, in an arm or between arms
	runs     int               // highest run number
	plan     *probes.PlanFact
	warnings []string
}

type runArm struct {
	run int
	arm string
}

type runChain struct {
	run   int
	chain string
}

// arm is the climb of an arm in a run, nil when the transcript has none.
func (t *transcript) arm(run int, name string) *armRun { return t.arms[runArm{run, name}] }

// gather sorts the records by run and arm. Of the climbs of one chain it keeps the latest
// that came to the chain's end, else the latest; a climb that was abandoned is dropped
// whatever it holds.
func gather(d *Design, set *prompts.Set, recs []probes.Record) *transcript {
	t := &transcript{arms: map[runArm]*armRun{}, lives: map[lifetimeKey]*lifetime{}, dead: map[runChain]bool{}}
	known := map[string]*prompts.Prompt{}
	if set != nil {
		for i := range set.Prompts {
			known[set.Prompts[i].ID] = &set.Prompts[i]
		}
	}
	chainOf := func(r *probes.Record) string {
		if r.Chain != "" {
			return r.Chain
		}
		if s, ok := d.ByName(r.Arm); ok {
			return s.Chain
		}
		return ""
	}
	keep := chosenAttempts(recs, chainOf)
	open := map[runChain]*armRun{}
	strangers := map[string]bool{}
	for i := range recs {
		r := &recs[i]
		if r.Kind == probes.KindFact && r.Fact != nil && r.Fact.Name == probes.FactPlan && t.plan == nil {
			var p probes.PlanFact
			if t.read(r, &p) {
				t.plan = &p
			}
			continue
		}
		at := runChain{r.Run, chainOf(r)}
		if !keep.has(at, r.Attempt) {
			continue
		}
		t.runs = max(t.runs, r.Run)
		a := open[at]
		if r.Arm != "" {
			s, ok := d.ByName(r.Arm)
			if !ok {
				if !strangers[r.Arm] {
					strangers[r.Arm] = true
					t.warnings = append(t.warnings, fmt.Sprintf("the transcript holds records of arm %q, which the plan does not have: not scored", r.Arm))
				}
				continue
			}
			key := runArm{r.Run, r.Arm}
			a = t.arms[key]
			if a == nil {
				a = &armRun{spec: s, run: r.Run, passes: map[int]map[string]*row{}}
				t.arms[key] = a
			}
		}
		switch {
		case r.Kind == probes.KindReply && r.Reply != nil && a != nil:
			a.started = true
			a.addReply(r, set, known)
			for _, c := range r.Reply.Counters {
				if c.Role == probes.ProcessStart && c.Rank == "" {
					at := fmt.Sprintf("request %s pass %d", r.Reply.Prompt, max(1, r.Reply.Pass))
					t.began(r, a, c.Before, at)
					t.began(r, a, c.After, at)
				}
			}
		case r.Kind == probes.KindSample && r.Sample != nil && a != nil:
			a.samples = append(a.samples, r.Sample)
			for _, v := range r.Sample.Values {
				if v.Role == probes.ProcessStart && v.Bad == "" {
					t.began(r, a, &v.Value, fmt.Sprintf("scrape %s pass %d", r.Sample.Phase, r.Sample.Pass))
				}
			}
			if r.Sample.Error != "" {
				a.badScrapes = append(a.badScrapes, fmt.Sprintf("scrape %s pass %d: %s", r.Sample.Phase, r.Sample.Pass, r.Sample.Error))
			}
		case r.Kind == probes.KindFact && r.Fact != nil:
			t.addFact(r, a, at, open)
		}
	}
	return t
}

// attempts holds, per run and chain, the one climb that is scored.
type attempts map[runChain]string

func (k attempts) has(at runChain, attempt string) bool {
	chosen, ok := k[at]
	return !ok || chosen == attempt
}

func chosenAttempts(recs []probes.Record, chainOf func(*probes.Record) string) attempts {
	abandoned := map[string]bool{}
	for i := range recs {
		if f := recs[i].Fact; f != nil && f.Name == probes.FactAbandoned {
			var a probes.AbandonedFact
			if json.Unmarshal(f.Value, &a) == nil {
				name := a.Attempt
				if name == "" {
					name = recs[i].Attempt
				}
				abandoned[name] = true
			}
		}
	}
	type state struct {
		name     string
		finished bool
	}
	order := map[runChain][]*state{}
	for i := range recs {
		r := &recs[i]
		if r.Fact != nil && (r.Fact.Name == probes.FactPlan || r.Fact.Name == probes.FactAbandoned) {
			continue
		}
		at := runChain{r.Run, chainOf(r)}
		if at.chain == "" {
			continue
		}
		var s *state
		for _, have := range order[at] {
			if have.name == r.Attempt {
				s = have
			}
		}
		if s == nil {
			s = &state{name: r.Attempt}
			order[at] = append(order[at], s)
		}
		if r.Fact != nil && r.Fact.Name == probes.FactChainEnd {
			s.finished = true
		}
	}
	keep := attempts{}
	for at, list := range order {
		chosen := "\x00none" // no attempt has this name: an abandoned chain has nothing to score
		finished := false
		for _, s := range list {
			if abandoned[s.name] && s.name != "" {
				continue
			}
			if s.finished || !finished {
				chosen, finished = s.name, s.finished
			}
		}
		keep[at] = chosen
	}
	return keep
}

// read decodes a fact's value. A fact that holds an error instead of a value says that
// something could not be read: that is not zero, it is nothing.
func (t *transcript) read(r *probes.Record, into any) bool {
	if len(r.Fact.Value) == 0 && r.Fact.Error != "" {
		t.warnings = append(t.warnings, fmt.Sprintf("arm %s: %s could not be read: %s", r.Arm, r.Fact.Name, r.Fact.Error))
		return false
	}
	if err := json.Unmarshal(r.Fact.Value, into); err != nil {
		t.warnings = append(t.warnings, fmt.Sprintf("record %d: fact %q cannot be read: %v", r.Seq, r.Fact.Name, err))
		return false
	}
	return true
}

// addFact files a fact with its arm, or with the arm that was running in its chain.
func (t *transcript) addFact(r *probes.Record, a *armRun, at runChain, open map[runChain]*armRun) {
	switch r.Fact.Name {
	case probes.FactDeath:
		var f probes.DeathFact
		if !t.read(r, &f) {
			return
		}
		t.dead[at] = true
		if a != nil && !a.ended {
			a.deaths = append(a.deaths, deathSeen{r.Time, f})
			a.void(f.After)
		}
		return
	case probes.FactStopped:
		var f probes.StoppedFact
		if !t.read(r, &f) {
			return
		}
		if !f.Asked {
			t.dead[at] = true
		}
		if a != nil {
			if !f.Asked && !a.ended {
				a.deaths = append(a.deaths, deathSeen{r.Time, probes.DeathFact{Sub: "DIED", Seen: "the process ended unasked"}})
			}
			a.stopped = append(a.stopped, stoppedSeen{r.Time, f})
		}
		return
	}
	if a == nil {
		if r.Fact.Name == probes.FactHarness {
			t.warnings = append(t.warnings, fmt.Sprintf("record %d: the harness failed outside any arm: %s%s", r.Seq, r.Fact.Error, string(r.Fact.Value)))
		}
		return
	}
	switch r.Fact.Name {
	case probes.FactArmStart:
		a.started, a.ended = true, false
		open[at] = a
	case probes.FactArmEnd:
		a.ended = true
		delete(open, at)
	case probes.FactIdentity:
		var f probes.IdentityFact
		if t.read(r, &f) {
			a.identity = append(a.identity, identitySeen{r.Incarnation, f})
			t.stated(r, a, f)
		}
	case probes.FactIncarnation:
		keep(t, r, &a.incarnation)
	case probes.FactPins:
		keep(t, r, &a.pins)
	case probes.FactStore:
		keep(t, r, &a.stores)
	case probes.FactReset, probes.FactStep, probes.FactDrain:
		var f probes.StepFact
		if !t.read(r, &f) {
			return
		}
		if f.Step == "" {
			f.Step = r.Fact.Name
		}
		if f.Step == "reset" {
			a.resets = append(a.resets, f)
		}
		a.steps = append(a.steps, f)
	case probes.FactInvariant:
		keep(t, r, &a.invariants)
	case probes.FactLiveness:
		keep(t, r, &a.liveness)
	case probes.FactLoads:
		keep(t, r, &a.loads)
	case probes.FactPool:
		keep(t, r, &a.pools)
	case probes.FactRunning:
		keep(t, r, &a.running)
	case probes.FactLoadFailed:
		keep(t, r, &a.loadsFailed)
	case probes.FactStop:
		keep(t, r, &a.stops)
	case probes.FactHarness:
		var f probes.HarnessFact
		if len(r.Fact.Value) > 0 && !t.read(r, &f) {
			return
		}
		if f.What == "" {
			f.What = r.Fact.Error
		}
		a.harness = append(a.harness, f.What)
	}
}

// void drops the replies that came whole after a moment: another process gave them. 0 drops none.
func (a *armRun) void(after int64) {
	if after == 0 {
		return
	}
	for _, pass := range a.passes {
		for id, w := range pass {
			if w.reply.LastAt > after {
				delete(pass, id)
			}
		}
	}
}

func (a *armRun) addReply(r *probes.Record, set *prompts.Set, known map[string]*prompts.Prompt) {
	p := known[r.Reply.Prompt]
	if p == nil {
		a.foreign = append(a.foreign, r.Reply.Prompt)
		return
	}
	a.countRank(r.Reply)
	a.inSlot(p, r.Reply)
	a.answeredBy(set, p, r.Reply, r.Incarnation)
	if r.Reply.Prime {
		return
	}
	pass := max(1, r.Reply.Pass)
	if a.passes[pass] == nil {
		a.passes[pass] = map[string]*row{}
	}
	if a.passes[pass][p.ID] != nil {
		a.twice = append(a.twice, p.ID) // each request counts once: the first
		return
	}
	a.passes[pass][p.ID] = newRow(a.spec, p, r.Reply, r.Seq)
}

// countRank counts a pinned request, and whether the counters prove the rank: those of the
// asked rank moved and those of no other did.
//
// A server whose ranks are slots has no counters of each, and names the slot in its reply.
func (a *armRun) countRank(r *probes.Reply) {
	if r.RankAsked == nil {
		return
	}
	a.ranks.Asked++
	asked, others := false, false
	if r.Slot != nil {
		asked = *r.Slot == *r.RankAsked
		others = !asked
	}
	for _, c := range r.Counters {
		if c.Rank == "" || c.Role != probes.PromptTokens && c.Role != probes.LocalQueries {
			continue
		}
		if d, ok := c.Delta(); ok && d > 0 {
			if c.Rank == fmt.Sprint(*r.RankAsked) {
				asked = true
			} else {
				others = true
			}
		}
	}
	switch {
	case asked && !others:
		a.ranks.Proven++
	case others && !asked && a.elsewhere == "":
		a.elsewhere = fmt.Sprintf("request %s asked for rank %d and another one served it", r.Prompt, *r.RankAsked)
	}
}

// inSlot compares the slot that a prompt names with the one that the reply names: a server may
// take a number that it does not have for another one in silence.
func (a *armRun) inSlot(p *prompts.Prompt, r *probes.Reply) {
	if p.Slot != nil && r.Slot != nil && *p.Slot != *r.Slot && a.elsewhere == "" {
		a.elsewhere = fmt.Sprintf("request %s asked for slot %d and slot %d served it", r.Prompt, *p.Slot, *r.Slot)
	}
}

// rows of a pass, in Set order.
func (a *armRun) rows(set *prompts.Set, pass int) []*row {
	if a == nil || set == nil {
		return nil
	}
	have := a.passes[pass]
	out := make([]*row, 0, len(have))
	for i := range set.Prompts {
		if r := have[set.Prompts[i].ID]; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// allRows are those of every pass, passes ascending.
func (a *armRun) allRows(set *prompts.Set) []*row {
	if a == nil {
		return nil
	}
	numbers := make([]int, 0, len(a.passes))
	for p := range a.passes {
		numbers = append(numbers, p)
	}
	sort.Ints(numbers)
	var out []*row
	for _, p := range numbers {
		out = append(out, a.rows(set, p)...)
	}
	return out
}

// total is how far a role's counters rose over a pass, from the samples before and after
// it, summed over series and ranks. A series that is missing on one side, or is no count on
// either, gives no total.
func (a *armRun) total(role string, pass int) *float64 {
	before, after := map[string]float64{}, map[string]float64{}
	has := [2]bool{}
	for _, s := range a.samples {
		if s.Error != "" || s.Pass != 0 && s.Pass != pass {
			continue
		}
		into, which := before, 0
		switch s.Phase {
		case "before":
			if has[0] { // the first reading before, the last after
				continue
			}
		case "after":
			into, which = after, 1
		default:
			continue
		}
		for _, v := range s.Values {
			if v.Role == role && (v.Bad != "" || v.Value < 0) {
				return nil
			}
			if v.Role == role {
				into[v.Series+"\x00"+v.Rank] = v.Value
				has[which] = true
			}
		}
	}
	if !has[0] || !has[1] || len(before) != len(after) {
		return nil
	}
	keys := make([]string, 0, len(after))
	for k := range after {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	sum := 0.0
	for _, k := range keys {
		b, ok := before[k]
		if !ok || after[k] < b {
			return nil
		}
		sum += after[k] - b
	}
	return &sum
}

// keep reads the record's fact onto the end of list.
func keep[F any](t *transcript, r *probes.Record, list *[]F) {
	var f F
	if t.read(r, &f) {
		*list = append(*list, f)
	}
}
