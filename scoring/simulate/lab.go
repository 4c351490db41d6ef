package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Lab climbs ladders of one World. It may be used by several goroutines, each with a random
// source of its own.
type Lab struct {
	world  World
	set    *prompts.Set
	design scoring.Design
	plan   json.RawMessage
	reply  []probes.Counter // of every request alike
}

const (
	promptTokens = 160
	reused       = 64
	planDigest   = "sha256:simulated"
)

// New makes the Set and the Design of a World.
func New(w World) (*Lab, error) {
	l := &Lab{world: w}
	var ps []prompts.Prompt
	for i := range w.Requests {
		tokens := make([]int, promptTokens)
		for k := range tokens {
			tokens[k] = 1000*i + k
		}
		ps = append(ps, prompts.Prompt{ID: fmt.Sprintf("p%03d", i), Role: prompts.Target, Document: fmt.Sprint(i % max(1, w.Documents)), Tokens: tokens, Body: "{}",
			Class:  prompts.Class{Label: fmt.Sprintf("c%03d", i)},
			Expect: prompts.Expectation{Needles: []prompts.Needle{{Key: "K", Answer: right, Scored: true, Rides: "attention", Offset: -1, End: -1}}}})
	}
	var err error
	l.set, err = prompts.Freeze(prompts.Header{Name: "simulated", Kind: "needle", Dialect: "vllm", Path: "/v1/completions", Random: true,
		Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64}}, ps)
	if err != nil {
		return nil, err
	}
	l.design = scoring.Design{Ladder: "simulated", Rule: scoring.DefaultRule()}
	for i := range w.Controls {
		a := scoring.ArmSpec{Name: "C", Preset: "custom", Role: scoring.Control, Passes: 1}
		if i > 0 {
			a.Name, a.Role, a.FloorOf = fmt.Sprintf("C-%d", i+1), scoring.Floor, "C"
		}
		l.add(a)
	}
	for i := range w.Arms {
		pin := scoring.Pin{Name: "connector", Arm: fmt.Sprintf("build %d", i+1), Reference: "none"}
		l.add(scoring.ArmSpec{Name: fmt.Sprintf("A%d", i+1), Preset: "custom", Role: scoring.Judged, Passes: 1, Judge: 1,
			Reference: "C", ReferencePass: 1, Path: "local", Exercise: "REPLAY", Pin: pin, PinsDiffer: []scoring.Pin{pin}})
	}
	if l.plan, err = json.Marshal(probes.PlanFact{Plan: planDigest, Set: l.set.Digest, Tool: "simulate"}); err != nil {
		return nil, err
	}
	zero := 0.0
	for role, v := range map[string]float64{probes.PromptTokens: promptTokens, probes.LocalQueries: promptTokens, probes.LocalHits: reused} {
		l.reply = append(l.reply, probes.Counter{Role: role, Series: role, Before: &zero, After: &v})
	}
	return l, nil
}

func (l *Lab) add(a scoring.ArmSpec) {
	a.Chain, a.Process = a.Name, a.Name
	if a.Exercise == "" {
		a.Exercise = "none"
	}
	a.Expected = map[string]scoring.Reuse{}
	for i := range l.set.Prompts {
		a.Expected[l.set.Prompts[i].ID] = scoring.Reuse{Local: reused}
	}
	l.design.Arms = append(l.design.Arms, a)
}

const (
	right = "101"
	wrong = "999"
)

// ladder is one draw: what belongs to the requests and not to a process.
type ladder struct {
	*Lab
	rng     *rand.Rand
	factor  []float64 // by document: how large its shifts are
	gap     []float64 // by request: how far its second token is from a tie
	defects []bool    // by request: the first arm corrupts it
	recs    []probes.Record
}

func (l *Lab) draw(rng *rand.Rand) *ladder {
	d := &ladder{Lab: l, rng: rng}
	for range max(1, l.world.Documents) {
		d.factor = append(d.factor, math.Exp(l.world.Spread*rng.NormFloat64()))
	}
	for range l.world.Requests {
		d.gap = append(d.gap, 0.02*math.Abs(rng.NormFloat64()))
		d.defects = append(d.defects, rng.Float64() < l.world.Defect)
	}
	d.emit(probes.Record{}, probes.FactPlan, l.plan)
	return d
}

func (d *ladder) emit(r probes.Record, name string, value json.RawMessage) {
	r.Seq, r.Kind = int64(len(d.recs)+1), probes.KindFact
	r.Fact = &probes.Fact{Name: name, Value: value}
	d.recs = append(d.recs, r)
}

// climb writes the records of one arm in one new process, and returns how many replies are
// wrong.
func (d *ladder) climb(a *scoring.ArmSpec, run int) (failed int) {
	base := probes.Record{Run: run, Chain: a.Chain, Attempt: fmt.Sprintf("%s-%d", a.Chain, run), Arm: a.Name, Incarnation: fmt.Sprintf("%s/%d", a.Process, run)}
	fact := func(name string, v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err) // plain structs of this package's own making
		}
		d.emit(base, name, raw)
	}
	fact(probes.FactAttempt, probes.AttemptFact{Chain: a.Chain, Run: run})
	fact(probes.FactArmStart, struct{}{})
	pid := fmt.Sprintf("pid-%s-%d", a.Process, run)
	fact(probes.FactIncarnation, probes.IncarnationFact{ID: pid, URL: "http://simulated", Start: "t0"})
	restarts := 0
	who := probes.IdentityFact{Phase: "before", Pass: 1, Process: pid, Start: "t0", Restarts: &restarts, Alive: true}
	fact(probes.FactIdentity, who)

	w := d.world
	normal := func(sd float64) float64 {
		if sd == 0 {
			return 0
		}
		return sd * d.rng.NormFloat64()
	}
	process := normal(w.Process)
	document := make([]float64, len(d.factor))
	for i := range document {
		document[i] = normal(w.Document)
	}
	struck, alone := d.flakes()
	for i := range d.set.Prompts {
		doc := i % len(d.factor)
		shift := d.factor[doc] * (process + document[doc] + normal(w.Reply))
		gap := d.gap[i] + d.factor[doc]*(process+document[doc]+normal(w.Reply))
		bad := d.rng.Float64() < alone || struck[doc] || a.Name == "A1" && d.defects[i]
		if bad {
			failed++
		}
		r := base
		r.Seq, r.Kind = int64(len(d.recs)+1), probes.KindReply
		r.Reply = d.answer(i, shift, gap, bad)
		d.recs = append(d.recs, r)
	}
	who.Phase = "after"
	fact(probes.FactIdentity, who)
	fact(probes.FactArmEnd, probes.ArmEndFact{Sent: w.Requests, Records: w.Requests})
	d.emit(probes.Record{Run: run, Chain: a.Chain, Attempt: base.Attempt}, probes.FactChainEnd, nil)
	return failed
}

// flakes draws which documents are struck as a whole in one process, and the chance that is
// left to each of the other replies, so that any one reply is wrong with chance Flake:
// 1 - (1-whole)(1-alone) = Flake.
func (d *ladder) flakes() (struck []bool, alone float64) {
	whole := d.world.Flake * d.world.Together
	struck = make([]bool, len(d.factor))
	if whole == 0 {
		return struck, d.world.Flake
	}
	for i := range struck {
		struck[i] = d.rng.Float64() < whole
	}
	return struck, 1 - (1-d.world.Flake)/(1-whole)
}

// answer is one reply of two tokens: the first is the same in every process and moves by
// shift, the second is one of two that lie gap apart.
func (d *ladder) answer(i int, shift, gap float64, bad bool) *probes.Reply {
	r := &probes.Reply{Prompt: d.set.Prompts[i].ID, Pass: 1, Path: "/v1/completions", Status: 200, Counters: d.reply}
	r.Text, r.Finish = right, "stop"
	if bad {
		r.Text = wrong
	}
	n, two := promptTokens, 2
	r.Usage = probes.Usage{Prompt: &n, Completion: &two}
	first, high, low := -0.5+shift, -0.7+math.Abs(gap)/2, -0.7-math.Abs(gap)/2
	id, other := 10, 11
	if gap < 0 {
		id, other = other, id
	}
	r.Tokens = []probes.Token{
		{ID: 7, Text: right, Logprob: &first},
		{ID: id, Text: "", Logprob: &high, Top: []probes.Candidate{{ID: id, Logprob: &high}, {ID: other, Logprob: &low}}},
	}
	return r
}

func (d *ladder) assess() scoring.Result {
	in := scoring.Input{Design: d.design, Set: d.set, PlanDigest: planDigest, SetDigest: string(d.set.Digest), Order: "O1"}
	return scoring.Assess(in, d.recs, []scoring.Detector{answers{}})
}

// answers fires where the one planted answer is not in the reply.
type answers struct{}

func (answers) Name() string { return "needle" }

func (answers) Inspect(r *probes.Reply, e prompts.Expectation) scoring.Finding {
	for _, n := range e.Needles {
		if !scoring.AnswerRight(n, r.Text) {
			return scoring.Finding{Fired: true}
		}
	}
	return scoring.Finding{}
}

func (answers) Specimen() (*probes.Reply, prompts.Expectation) {
	return &probes.Reply{Decoded: probes.Decoded{Text: wrong}}, prompts.Expectation{Needles: []prompts.Needle{{Answer: right, Scored: true}}}
}
