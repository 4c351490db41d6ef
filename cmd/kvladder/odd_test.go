package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// climbed runs a ladder written into a folder of its own, verifies the run, and returns the
// exit code, the result and the records.
func climbed(t *testing.T, set *prompts.Set, ladder string) (int, scoring.Result, []probes.Record) {
	t.Helper()
	dir := t.TempDir()
	if err := set.Write(filepath.Join(dir, "s.jsonl")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "l.yaml")
	if err := os.WriteFile(file, []byte("ladder: odd\nengine: testbed\nset: s.jsonl\nparallel: 2\n"+ladder), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run")
	code, stdout, stderr := kvladder(t, "run", "--json", "--out", out, file)
	var r scoring.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if code, stdout, stderr := kvladder(t, "verify", out); code != 0 {
		t.Errorf("verify: exit %d\n%s%s", code, stdout, stderr)
	}
	recs, err := probes.ReadAll(filepath.Join(out, "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return code, r, recs
}

func frozenSet(t *testing.T, kind string, n int) *prompts.Set {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f.jsonl")
	if code, _, stderr := kvladder(t, "freeze", "--kind", kind, "--n", fmt.Sprint(n), "--name", "s", "--out", file); code != 0 {
		t.Fatal(stderr)
	}
	s, err := prompts.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// factsOf are the facts of a name that an arm left in the registered run.
func factsOf[T any](t *testing.T, recs []probes.Record, arm, name string) (out []T) {
	t.Helper()
	for _, r := range recs {
		if r.Arm == arm && r.Run == 0 && r.Fact != nil && r.Fact.Name == name {
			var v T
			if err := json.Unmarshal(r.Fact.Value, &v); err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
	}
	return out
}

func armNamed(t *testing.T, r scoring.Result, name string) scoring.ArmResult {
	t.Helper()
	for _, a := range r.Arms {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no arm %s", name)
	return scoring.ArmResult{}
}

const smallRules = "rules: {n_min: 4, g_min: 4, p_max: 0.6}\nfloors: {C0: 3, C1: 2}\n"

// Twelve prompts under two salts: kept apart by a healthy store. Where both of a pair carry
// the same salt, what the first stored is what the second hits, and the ladder says so.
func TestIdentitiesEndToEnd(t *testing.T) {
	t.Parallel()
	ladder := "arms: [C0, {preset: XID, identity: salt}]\n" + smallRules
	set := frozenSet(t, "xid-salt", 12)
	code, r, recs := climbed(t, set, ladder)
	if a := armNamed(t, r, "XID"); code != 0 || *a.Verdict != scoring.CleanBounded || *a.ExternalTokens == 0 {
		t.Errorf("exit %d, XID %s, columns %v, warnings %q", code, *a.Verdict, a.Columns, a.Warnings)
	}
	primes := 0
	for _, x := range recs {
		if x.Arm == "XID" && x.Reply != nil && x.Reply.Prime {
			primes++
		}
	}
	if primes != 6 {
		t.Errorf("%d primes, one for each pair is 6", primes)
	}
	ps := slices.Clone(set.Prompts)
	for i := range ps {
		if ps[i].Cross() {
			ps[i].Body = strings.Replace(ps[i].Body, "tenant-b", "tenant-a", 1)
			p := *ps[i].Prime
			p.Body = strings.Replace(p.Body, `"max_tokens":8`, `"max_tokens":7`, 1)
			ps[i].Prime = &p
		}
	}
	for i := range ps { // the pair of a prime is found by its body
		if !ps[i].Cross() {
			ps[i].Body = strings.Replace(ps[i].Body, `"max_tokens":8`, `"max_tokens":7`, 1)
		}
	}
	shared, err := prompts.Freeze(set.Header, ps)
	if err != nil {
		t.Fatal(err)
	}
	code, r, _ = climbed(t, shared, ladder)
	if a := armNamed(t, r, "C1-XID"); code != 1 || a.Kind == nil || *a.Kind != "hits across identities = 0" {
		t.Errorf("exit %d, C1-XID %s, invariants %v", code, *a.Verdict, a.Invariants)
	}
}

// In lockstep two runs of several clients with aborts beside them have one schedule: the same
// requests load the same tokens from the store, in the same order.
func TestLockstepRuns(t *testing.T) {
	t.Parallel()
	set := frozenSet(t, "bystanders", 24)
	ladder := `pins: {blocks: 64, load_steps: 4, store_steps: 2, noise_seed: 7}
arms:
  - C0
  - C1
  - {preset: CONC, concurrency: 2, clients: 6, before: ["abort 12 5 steps"]}
replay: {lockstep: true}
` + smallRules
	var first string
	for run := range 2 {
		_, r, recs := climbed(t, set, ladder)
		got := ""
		for _, l := range factsOf[probes.LoadsFact](t, recs, "CONC", probes.FactLoads) {
			for _, x := range l.Loads {
				got += fmt.Sprintf("%s %d %d\n", x.RequestID, x.Local, x.External)
			}
		}
		for _, f := range factsOf[probes.RunningFact](t, recs, "CONC", probes.FactRunning) {
			got += fmt.Sprintf("pass %d peak %d\n", f.Pass, f.Peak)
			if f.Peak < 2 {
				t.Errorf("pass %d: at most %d at once", f.Pass, f.Peak)
			}
		}
		for _, s := range factsOf[probes.StepFact](t, recs, "CONC", probes.FactStep) {
			if s.Step == "abort" {
				got += s.Seen
				if s.Proved == nil || !*s.Proved {
					t.Errorf("abort: %+v", s)
				}
			}
		}
		if a := armNamed(t, r, "CONC"); a.Columns["F"] != "n" || a.Columns["H"] != "y" || a.Columns["A"] != "y" {
			t.Errorf("CONC: %v, %q", a.Columns, a.Warnings)
		}
		if run == 0 {
			first = got
		} else if got != first {
			t.Errorf("first\n%s\nthen\n%s", first, got)
		}
	}
}

// The odd steps do what they say, and each leaves a record of it.
func TestOddSteps(t *testing.T) {
	t.Parallel()
	set := frozenSet(t, "bystanders", 24)
	code, r, recs := climbed(t, set, `pins: {blocks: 384}
arms:
  - C0
  - {preset: C0-late, flood: 1}
  - C1
  - {preset: CONC, concurrency: 2, clients: 6, before: ["abort 12 5"], after: [check-identity, ask-liveness]}
  - {preset: SOAK, base: PART, passes: 2}
  - {name: COPY, preset: custom, config: store, reference: C1, reference_pass: 2, exercise: RST, path: external,
     steps: [launch, replay, drain, stop, copy-store second, launch, replay]}
`+smallRules)
	if code != 0 && code != 2 {
		t.Errorf("exit %d: a healthy engine was accused\n%+v", code, r.Warnings)
	}
	for _, name := range []string{"C1", "C1-CONC", "C1-PART", "SOAK", "COPY"} {
		if a := armNamed(t, r, name); *a.Verdict != scoring.CleanBounded {
			t.Errorf("%s is %s: %v, %q", name, *a.Verdict, a.Columns, a.Warnings)
		}
	}
	if a := armNamed(t, r, "CONC"); a.Columns["H"] != "y" || a.Columns["A"] != "y" || a.Columns["F"] != "n" || a.BystanderN != 8 || a.N != 24 {
		t.Errorf("CONC: %v, n %d, bystanders %d, %q", a.Columns, a.N, a.BystanderN, a.Warnings)
	}
	if got := factsOf[probes.RunningFact](t, recs, "CONC", probes.FactRunning); len(got) != 2 || got[1].Readings == 0 || got[1].Peak < 1 {
		t.Errorf("running: %+v", got)
	}
	live := factsOf[probes.LivenessFact](t, recs, "CONC", probes.FactLiveness)
	if len(live) != 1 || live[0].Right == nil || !*live[0].Right {
		t.Errorf("liveness: %+v", live)
	}
	steps := map[string]probes.StepFact{}
	for _, arm := range []string{"CONC", "C0-late", "COPY"} {
		for _, s := range factsOf[probes.StepFact](t, recs, arm, probes.FactStep) {
			steps[s.Step] = s
		}
	}
	if s := steps["abort"]; !s.Done || s.Proved == nil || !*s.Proved {
		t.Errorf("abort: %+v", s)
	}
	var requests, tokens, pool int
	if _, err := fmt.Sscanf(steps["flood"].Seen, "%d requests of %d tokens in all through a pool of %d", &requests, &tokens, &pool); err != nil || pool != 384*16 || tokens < pool {
		t.Errorf("flood: %q %v", steps["flood"].Seen, err)
	}
	if !steps["copy-store"].Done {
		t.Error("no record of the copied store")
	}
	life := armNamed(t, r, "SOAK").Lifetime
	if fmt.Sprint(life["requests"]) != "72" || fmt.Sprint(life["partial_hits"]) == "0" || fmt.Sprint(life["events"]) != "0" {
		t.Errorf("lifetime of three passes of 24: %v", life)
	}
	for _, late := range []string{"C0-early", "C0-late"} {
		if a := armNamed(t, r, late); a.N != 24 || a.Failed != 0 || a.Verdict != nil {
			t.Errorf("%s: n %d, failed %d, verdict %v", late, a.N, a.Failed, a.Verdict)
		}
	}
}

// Without pins, one request between the passes sends every prompt to the other rank.
func TestUnpinnedRanksLoseReuse(t *testing.T) {
	t.Parallel()
	set := frozenSet(t, "needle", 12)
	ladder := "pins: {ranks: 2}\narms: [C0, C1, {preset: COLD, after: [ask-liveness]}, WARM]\n" + smallRules
	code, r, _ := climbed(t, set, ladder)
	if a := armNamed(t, r, "WARM"); code != 2 || a.Sub == nil || *a.Sub != scoring.ReuseLost {
		t.Errorf("unpinned: exit %d, WARM %s, %q", code, *a.Verdict, a.Warnings)
	}
	code, r, _ = climbed(t, set, ladder+"replay: {ranks: 2}\n")
	if a := armNamed(t, r, "WARM"); code != 0 || a.Ranks == nil || a.Ranks.Asked != 12 || a.Ranks.Proven != 12 {
		t.Errorf("pinned: exit %d, WARM %s, ranks %+v, %q", code, *a.Verdict, a.Ranks, a.Warnings)
	}
}
