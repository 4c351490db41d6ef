package arms_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/prompts"
	"kvladder/scoring"
)

// open reads one of the frozen sets.
func open(t *testing.T, name string) *prompts.Set {
	t.Helper()
	s, err := prompts.Open(filepath.Join("..", "prompts", "sets", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ladderOf is a ladder with these arms, one process of each control.
func ladderOf(entries ...string) string {
	return "ladder: t\nengine: testbed\nset: s.jsonl\narms:\n  - " + strings.Join(entries, "\n  - ") + "\nrules: {n_min: 10, g_min: 10, p_max: 0.3}\n"
}

func resolve(t *testing.T, src string, s *prompts.Set, eng arms.Engine) (*arms.Plan, error) {
	t.Helper()
	l, err := arms.ParseLadder("t.yaml", []byte(src))
	if err != nil {
		return nil, err
	}
	return l.Resolve(s, eng)
}

// steps writes a chain in words: what is done, the pass, the clients.
func steps(p *arms.Plan, chain string) string {
	var out []string
	for _, c := range p.Chains {
		if c.Name != chain {
			continue
		}
		for _, s := range c.Steps {
			w := s.Do
			if s.Pass > 0 {
				w += fmt.Sprint(s.Pass)
			}
			if s.Concurrency > 1 && s.Pass > 0 {
				w += fmt.Sprintf("x%d", s.Concurrency)
			}
			out = append(out, strings.Join(append([]string{w}, s.Args...), ","))
		}
	}
	return strings.Join(out, " ")
}

// judged writes what an arm is judged by.
func judged(t *testing.T, p *arms.Plan, arm string) string {
	t.Helper()
	a, ok := p.Design.ByName(arm)
	if !ok {
		t.Fatalf("no arm %s", arm)
	}
	return fmt.Sprintf("%s pass %d of %d against %s/%d by %s over %s, pin %s", a.Role, a.Judge, a.Passes, a.Reference, a.ReferencePass, a.Exercise, a.Path, a.Pin.Name)
}

// Every preset resolves to its schedule, its reference and its twins.
func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		name, set string
		arms      []string
		chains    map[string]string
		judged    map[string]string
	}{
		{"PRESS", "t1-48", []string{"C0", "{preset: PRESS, pins: {blocks: 96}, concurrency: 4, after: [ask-liveness]}"},
			map[string]string{
				"PRESS":    "launch replay1x4 flood,1 drain replay2x4 ask-liveness stop",
				"C1-PRESS": "launch replay1x4 flood,1 replay2x4 stop",
				"C0-PRESS": "launch replay1x4 flood,1 replay2x4 stop",
			}, map[string]string{
				"PRESS":    "judged pass 2 of 2 against C1-PRESS/2 by PRESS over external, pin connector",
				"C1-PRESS": "judged pass 2 of 2 against C0-PRESS/2 by C1 over local, pin prefix_caching",
				"C0-PRESS": "control pass 0 of 2 against /0 by none over , pin ",
			}},
		{"CONC", "demo-48", []string{"C0", "C1", "{preset: CONC, name: SIDE, base: RST, concurrency: 8, before: [\"abort 5 20\", copy-store x]}"},
			map[string]string{
				"SIDE": "launch replay1x12 drain save stop copy-store,x launch restore abort,5,20 replay2x12 stop",
				"C1":   "launch replay1 replay2 replay1x12 stop",
				"C0":   "launch replay1 replay2 replay1x12 stop",
			}, map[string]string{
				"SIDE":    "judged pass 2 of 2 against C1-SIDE/1 by RST over external, pin connector",
				"C1-SIDE": "judged pass 1 of 1 against C0-SIDE/1 by C1 over local, pin prefix_caching",
				"C0-SIDE": "control pass 0 of 1 against /0 by none over , pin ",
			}},
		{"CONC of COLD", "demo-48", []string{"C0", "C1", "{preset: CONC, base: COLD, concurrency: 2}"},
			map[string]string{"CONC": "launch replay1x3 stop", "C1": "launch replay1 replay2 reset replay1x3 stop"},
			map[string]string{"CONC": "judged pass 1 of 1 against C1-CONC/1 by COLD over external, pin connector"}},
		{"XID of salts", "xid-salt-48", []string{"C0", "{preset: XID, identity: salt}"},
			map[string]string{"XID": "launch primes drain reset replay1 stop", "C1-XID": "launch primes replay1 stop"},
			map[string]string{
				"XID":    "judged pass 1 of 1 against C1-XID/1 by XID over external, pin connector",
				"C1-XID": "judged pass 1 of 1 against C0/2 by XID over local, pin prefix_caching",
			}},
		{"XID of configs", "needle-48", []string{"C0", "{preset: XID, identity: config, from: {model_seed: 12}}"},
			map[string]string{
				"XID":    "launch,model_seed=12 replay1 drain save stop launch restore replay2 drain reset replay3 stop",
				"C1-XID": "launch replay1 replay2 stop",
			}, map[string]string{
				"XID":    "judged pass 2 of 3 against C1-XID/1 by XID over external, pin connector",
				"C1-XID": "judged pass 1 of 2 against C0/2 by XID over local, pin prefix_caching",
			}},
		{"SOAK", "demo-48", []string{"C0", "C1", "{preset: SOAK, passes: 3, minutes: 2}"},
			map[string]string{"SOAK": "launch replay1 drain reset replay2 wait,60 drain reset replay3 wait,120 drain reset replay4 stop"},
			map[string]string{"SOAK": "judged pass 4 of 4 against C1/2 by WARM over external, pin connector"}},
		{"SOAK of PART", "demo-48", []string{"C0", "C1", "{preset: SOAK, base: PART, passes: 2}"},
			map[string]string{"SOAK": "launch replay1 drain reset prime2 drain reset prime3 stop", "C1": "launch replay1 replay2 reset prime1 stop"},
			map[string]string{"SOAK": "judged pass 3 of 3 against C1-PART/1 by PART over mixed, pin connector"}},
		{"C0-late", "demo-48", []string{"C0", "{preset: C0-late, flood: 5}"},
			map[string]string{"C0-late": "launch replay1 flood,5 replay1 stop"},
			map[string]string{"C0-late": "control pass 0 of 1 against /0 by none over , pin ", "C0-early": "control pass 0 of 1 against /0 by none over , pin "}},
		{"custom", "demo-48", []string{"C0", "C1", "{name: MINE, preset: custom, config: store, reference: C1, reference_pass: 2, exercise: RST, path: external, steps: [launch, replay, drain, restart hash_seed=0, replay, ask-liveness]}"},
			map[string]string{"MINE": "launch replay1 drain stop launch,hash_seed=0 replay2 ask-liveness stop"},
			map[string]string{"MINE": "judged pass 2 of 2 against C1/2 by RST over external, pin connector"}},
		{"steps around WARM", "demo-48", []string{"C0", "C1", "COLD", "{preset: WARM, before: [\"fail-load 3\"], after: [ask-liveness r01]}"},
			map[string]string{"WARM": "launch replay1 drain reset fail-load,3 replay2 ask-liveness,r01 stop"},
			map[string]string{"WARM": "judged pass 2 of 2 against C1/2 by WARM over external, pin connector"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := resolve(t, ladderOf(c.arms...), open(t, c.set), engine.Testbed{})
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range c.chains {
				if d := cmp.Diff(want, steps(p, name)); d != "" {
					t.Errorf("chain %s: want -, got +\n%s", name, d)
				}
			}
			for name, want := range c.judged {
				if d := cmp.Diff(want, judged(t, p, name)); d != "" {
					t.Errorf("arm %s: want -, got +\n%s", name, d)
				}
			}
		})
	}
}

// Geometry predicts what each of these arms takes from where.
func TestExpectedReuse(t *testing.T) {
	sum := func(p *arms.Plan, arm string) (r scoring.Reuse, hits int) {
		a, ok := p.Design.ByName(arm)
		if !ok {
			t.Fatalf("no arm %s", arm)
		}
		for _, x := range a.Expected {
			r.Local, r.External = r.Local+x.Local, r.External+x.External
			if x.Local+x.External > 0 {
				hits++
			}
		}
		return r, hits
	}
	p, err := resolve(t, ladderOf("C0", "{preset: XID, identity: salt}"), open(t, "xid-salt-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	if r, n := sum(p, "XID"); n != 24 || r.Local != 0 || r.External == 0 {
		t.Errorf("XID: %+v in %d requests; the 24 of the same identity hit the store, the others nothing", r, n)
	}
	if r, n := sum(p, "C1-XID"); n != 24 || r.Local == 0 || r.External != 0 {
		t.Errorf("C1-XID: %+v in %d requests", r, n)
	}
	p, err = resolve(t, ladderOf("C0", "{preset: XID, identity: config, from: {model_seed: 12}}"), open(t, "needle-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	if r, n := sum(p, "XID"); n != 0 {
		t.Errorf("XID of configs: %+v in %d requests: another configuration's store gives nothing", r, n)
	}
	p, err = resolve(t, ladderOf("C0", "{preset: PRESS, pins: {blocks: 96}}"), open(t, "t1-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	if r, n := sum(p, "PRESS"); n != 48 || r.External == 0 {
		t.Errorf("PRESS: %+v in %d requests", r, n)
	}
	p, err = resolve(t, ladderOf("C0", "{preset: PRESS, pins: {blocks: 96}, concurrency: 4}"), open(t, "t1-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	if _, n := sum(p, "PRESS"); n != 0 {
		t.Error("PRESS by four clients: geometry cannot know who was there first, and predicts something")
	}
	// nothing is predicted as nothing where the local cache was emptied and no two requests
	// begin alike, whoever comes first; where a pass could find what is left, nobody knows
	mine := "{name: MINE, preset: custom, config: C1, reference: C0, reference_pass: 2, exercise: PRESS, path: local, concurrency: 4, steps: [%s]}"
	for _, c := range []struct {
		set, entry, arm string
		known           bool
	}{
		{"needle-48", "{preset: PRESS, concurrency: 4}", "C1-PRESS", true},
		{"needle-48", "{preset: PRESS, concurrency: 4}", "PRESS", false},
		{"t1-48", "{preset: PRESS, concurrency: 4}", "C1-PRESS", false},
		{"demo-48", "{preset: PRESS, pins: {blocks: 24}, concurrency: 4}", "C1-PRESS", false}, // in turn nothing is left of a shared beginning; side by side there may be
		{"needle-48", fmt.Sprintf(mine, "launch, flood 1, replay, restart, replay"), "MINE", true},
		{"needle-48", fmt.Sprintf(mine, "launch, replay, reset, replay, flood 1"), "MINE", true},
		{"needle-48", fmt.Sprintf(mine, "launch, flood 1, replay, replay"), "MINE", false},
		{"needle-48", fmt.Sprintf(mine, "launch, replay, replay, flood 1"), "MINE", false},
		{"t1-48", fmt.Sprintf(mine, "launch, replay, restart, replay"), "MINE", false},
	} {
		p, err := resolve(t, ladderOf("C0", c.entry)+"pins: {blocks: 96}\n", open(t, c.set), engine.Testbed{})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := p.Design.ByName(c.arm)
		if r, n := sum(p, c.arm); n != 0 || r != (scoring.Reuse{}) || (len(a.Expected) > 0) != c.known {
			t.Errorf("%s of %s over %s: %+v for %d requests, known %v", c.arm, c.entry, c.set, r, len(a.Expected), !c.known)
		}
	}
}

// Each wrong arm is refused with what to do, before anything is started.
func TestRefusedArms(t *testing.T) {
	for _, c := range []struct {
		name, set, arm, want string
		eng                  arms.Engine
	}{
		{"conc alone", "demo-48", "{preset: CONC}", "concurrency of at least 2", nil},
		{"base of C1", "demo-48", "{preset: CONC, base: C1, concurrency: 4}", `base "C1"`, nil},
		{"clients of WARM", "demo-48", "{preset: WARM, concurrency: 4}", "not for preset WARM", nil},
		{"no identity", "xid-salt-48", "{preset: XID}", "identity \"\" is unknown", nil},
		{"config without from", "demo-48", "{preset: XID, identity: config}", "belong together", nil},
		{"the same config", "needle-48", "{preset: XID, identity: config, from: {model_seed: 11}}", "no other configuration", nil},
		{"a pin that is not there", "needle-48", "{preset: XID, identity: config, from: {weights: 12}}", `no pin "weights"`, nil},
		{"no pairs", "demo-48", "{preset: XID, identity: salt}", "freeze an xid set", nil},
		{"an unknown identity", "xid-salt-48", "{preset: XID, identity: colour}", "identity \"colour\" is unknown", nil},
		{"soak without end", "demo-48", "{preset: SOAK}", "number of passes", nil},
		{"soak of PART without primes", "needle-48", "{preset: SOAK, base: PART, passes: 2}", "prompts with a prime", nil},
		{"a twin", "demo-48", "{preset: C1-PRESS}", "comes with the arm", nil},
		{"launch between", "demo-48", "{preset: WARM, before: [launch]}", "cannot stand there", nil},
		{"flood of nothing", "demo-48", "{preset: WARM, before: [flood]}", "flood takes N", nil},
		{"flood without end", "demo-48", "{preset: WARM, before: [\"flood 9223372036854775807\"]}", "not a whole number from 1 to 1000", nil},
		{"damage in words", "demo-48", "{preset: RST, before: [\"corrupt x abc def\"]}", "neither a whole number nor a percentage", nil},
		{"flood of words", "demo-48", "{preset: WARM, before: [\"flood much\"]}", "not a whole number", nil},
		{"a launch without value", "demo-48", "{preset: custom, steps: [\"launch x\"]}", "PIN=VALUE", nil},
		{"custom without reference", "demo-48", "{preset: custom, config: store, steps: [launch, replay]}", "names no reference", nil},
		{"custom with a strange reference", "demo-48", "{preset: custom, config: store, reference: C7, exercise: RST, path: external, steps: [launch, replay]}", "not in the ladder", nil},
		{"custom without a replay", "demo-48", "{preset: custom, config: store, reference: C1, exercise: RST, path: external, steps: [launch, drain]}", "send no prompt", nil},
		{"aborts in steps by the clock", "demo-48", "{preset: WARM, before: [\"abort 5 20 steps\"]}", "needs replay: {lockstep: true}", nil},
		{"aborts in words", "demo-48", "{preset: WARM, before: [\"abort 5 few steps\"]}", "not a whole number", nil},
		{"aborts in something", "demo-48", "{preset: WARM, before: [\"abort 5 20 tokens\"]}", "abort takes N MS, or N K steps", nil},
		{"PRESS on slots", "demo-48", "PRESS", "engine llamacpp cannot run it", engine.LlamaCpp{}},
		{"flood on slots", "demo-48", "{preset: RST, before: [\"flood 2\"]}", "step flood: it does not report", engine.LlamaCpp{}},
		{"expire on slots", "demo-48", "{preset: RST, before: [expire]}", "step expire: its store cannot", engine.LlamaCpp{}},
		{"ranks on slots", "demo-48", "{preset: RST, before: [\"evict-rank 1\"]}", "step evict-rank", engine.LlamaCpp{}},
		{"damage of a format that is not known", "demo-48", "{preset: RST, before: [\"damage scale 2\"]}", "step damage: the format of its store", nil},
		{"damage of no kind", "demo-48", "{preset: RST, before: [\"damage melt 2\"]}", "use scale FACTOR", engine.LlamaCpp{}},
		{"damage alone", "demo-48", "{preset: RST, before: [damage]}", "damage takes what to do", engine.LlamaCpp{}},
		{"WARM without a host cache", "demo-48", "WARM", "nothing is left to hit", engine.LlamaCpp{}},
		{"failing loads on slots", "demo-48", "{preset: RST, after: [\"fail-load 1\"]}", "step fail-load", engine.LlamaCpp{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := c.eng
			if eng == nil {
				eng = engine.Testbed{}
			}
			_, err := resolve(t, ladderOf("C0", "C1", c.arm), open(t, c.set), eng)
			var fe *arms.FileError
			if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want a *FileError of one line with %q", err, c.want)
			}
		})
	}
}

// Lockstep is for an engine that can keep it, and no request ends by the clock inside of one.
func TestLockstep(t *testing.T) {
	for _, c := range []struct {
		name, more, want string
		eng              arms.Engine
	}{
		{"kept", "", "", engine.Testbed{}},
		{"slots", "", "engine llamacpp does not wait", engine.LlamaCpp{}},
		{"ranks", "pins: {ranks: 2}\n", "arm C0: its 2 ranks take their steps apart", engine.Testbed{}},
		{"one arm's ranks", "arm: {preset: PRESS, pins: {ranks: 2}, concurrency: 2}", "its 2 ranks take", engine.Testbed{}},
		{"by the clock", "arm: {preset: PRESS, concurrency: 2, before: [\"abort 5 20\"]}", "no request ends by the clock; write abort 5 K steps", engine.Testbed{}},
	} {
		arm, more := "", c.more
		if a, ok := strings.CutPrefix(c.more, "arm: "); ok {
			arm, more = a, ""
		}
		entries := []string{"C0"}
		if arm != "" {
			entries = append(entries, "C1", arm)
		}
		p, err := resolve(t, more+ladderOf(entries...)+"replay: {lockstep: true}\n", open(t, "demo-48"), c.eng)
		if c.want == "" {
			if err != nil || !p.Replay.Lockstep {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var fe *arms.FileError
		if !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// What is particular about the arms of llama.cpp stands in the plan: reuse that is inexact,
// the slot that a rank is, where a hybrid prompt is cut.
func TestSlotLadders(t *testing.T) {
	plan := func(name string) *arms.Plan {
		t.Helper()
		l, err := arms.ReadLadder("ladders/llamacpp-" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s, err := prompts.Open(l.SetPath())
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Resolve(s, engine.LlamaCpp{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	arm := func(p *arms.Plan, name string) *scoring.ArmSpec {
		t.Helper()
		a, ok := p.Design.ByName(name)
		if !ok {
			t.Fatalf("no arm %s", name)
		}
		return a
	}
	sum := func(a *scoring.ArmSpec) (r scoring.Reuse) {
		for _, e := range a.Expected {
			r.Local, r.External = r.Local+e.Local, r.External+e.External
		}
		return r
	}
	p := plan("chunks")
	if c, c1 := arm(p, "CHUNKS"), arm(p, "C1"); !strings.Contains(c.Inexact, "cache_reuse") || c1.Inexact != "" || sum(c).Local < 2*sum(c1).Local {
		t.Errorf("CHUNKS %q %+v, C1 %q %+v", c.Inexact, sum(c), c1.Inexact, sum(c1))
	}
	p = plan("host-cache")
	if h, c1 := arm(p, "HOST"), arm(p, "C1"); !h.Connector || h.Pin.Name != "cache_ram" || sum(h).External < 5000 || sum(c1).External != 0 || h.CachedIs != "" {
		t.Errorf("HOST %+v, C1 %+v", sum(h), sum(c1))
	}
	// two thousand tokens of 10,304 are lost where two prompts are drawn to one slot, and all
	// of them where nobody pins
	if got := sum(arm(plan("slots"), "C1")); got.Local < 8000 || got.Local > 9000 {
		t.Errorf("pinned: %+v", got)
	}
	if got := sum(arm(plan("slots-unpinned"), "C1")); got != (scoring.Reuse{}) {
		t.Errorf("unpinned: %+v", got)
	}
	for id, n := range arm(plan("hybrid"), "C0").LastChunk {
		if n != 4 {
			t.Errorf("hybrid, %s: last chunk %d", id, n)
		}
	}
	p = plan("other-model")
	if got := sum(arm(p, "XID-MODEL")); got != (scoring.Reuse{}) {
		t.Errorf("from another model: %+v is expected", got)
	}
}

// Every ladder of this repository resolves, and none is refused.
func TestLaddersResolve(t *testing.T) {
	n := 0
	err := filepath.WalkDir("ladders", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		l, err := arms.ReadLadder(path)
		if err != nil {
			return err
		}
		eng := map[string]arms.Engine{"testbed": engine.Testbed{}, "llamacpp": engine.LlamaCpp{}}[l.Engine]
		if eng == nil {
			return nil
		}
		s, err := prompts.Open(l.SetPath())
		if err != nil {
			return err
		}
		p, err := l.Resolve(s, eng)
		if err != nil && strings.Contains(err.Error(), `engine testbed has no pin "adapters"`) {
			return nil // an engine without adapters refuses that ladder by name
		}
		if err != nil {
			return err
		}
		n++
		return p.Refusal()
	})
	if err != nil {
		t.Error(err)
	}
	if n < 20 {
		t.Errorf("only %d ladders were looked at", n)
	}
}
