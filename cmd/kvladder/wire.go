package main

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/cmd/kvladder/internal/foreign"
	"kvladder/probes"
	"kvladder/probes/replay"
	"kvladder/prompts"
	"kvladder/receipts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
	"kvladder/scoring/detect"
)

// This file is the switchboard: the one place where concrete things are named. Keep every
// table sorted by name. Adding an engine, a launcher, a detector or a verb is one file in its
// room and one line here.

// engines are what a ladder may name in `engine:`.
var engines = map[string]func() arms.Engine{
	"llamacpp": func() arms.Engine { return engine.LlamaCpp{} },
	"openai":   func() arms.Engine { return engine.OpenAI{} },
	"sglang":   func() arms.Engine { return engine.SGLang{} },
	"testbed":  func() arms.Engine { return engine.Testbed{} },
	"vllm":     func() arms.Engine { return engine.VLLM{} },
}

// launchers are what a ladder may name in `launcher:`.
var launchers = map[string]func(self string) arms.Launcher{
	"container": func(self string) arms.Launcher { return launch.Container{} },
	"local":     func(self string) arms.Launcher { return launch.Local{Self: self} },
	"slurm":     func(self string) arms.Launcher { return launch.Slurm{Self: self} },
}

// attacher launches nothing: it holds on to a server that somebody else started.
func attacher(url string) arms.Launcher { return launch.Attach{URL: url} }

// detectors look at one reply each; detect.All lists them.
func detectors(r scoring.Rule) []scoring.Detector { return detect.All(r) }

// verbs in the order in which --help shows them: by name.
func verbs(stdout, stderr io.Writer) []*cobra.Command {
	return []*cobra.Command{
		newAmendCmd(stdout, stderr),
		newAuditCmd(stdout, stderr),
		newChainCmd(stderr),
		newDemoCmd(stdout, stderr),
		newDiffCmd(stdout, stderr),
		newDoctorCmd(stdout, stderr),
		newExplainCmd(stdout, stderr),
		newFreezeCmd(stdout, stderr),
		newGateCmd(stdout, stderr),
		newHoldCmd(),
		newImportCmd(stdout, stderr),
		newInitCmd(stdout, stderr),
		newKeygenCmd(stdout, stderr),
		newPlanCmd(stdout, stderr),
		newRunCmd(stdout, stderr),
		newScoreCmd(stdout, stderr),
		newSelftestCmd(stdout, stderr),
		newShowCmd(stdout, stderr),
		newTestbedCmd(stdout, stderr),
		newVerifyCmd(stdout, stderr),
	}
}

func findEngine(name string) (arms.Engine, error) {
	f, ok := engines[name]
	if !ok {
		return nil, fmt.Errorf("engine %q is not known; engines: %s", name, names(engines))
	}
	return f(), nil
}

func findLauncher(name, self string) (arms.Launcher, error) {
	f, ok := launchers[name]
	if !ok {
		return nil, fmt.Errorf("launcher %q is not known; launchers: %s", name, names(launchers))
	}
	return f(self), nil
}

func names[V any](m map[string]V) string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// assess scores the records of a plan: the pure half of the program, used by run, score,
// import and verify alike.
func assess(p *arms.Plan, s *prompts.Set, recs []probes.Record) (scoring.Result, error) {
	d, _, err := p.Digest()
	if err != nil {
		return scoring.Result{}, err
	}
	return assessAs(p, d, s, recs), nil
}

// assessAs scores by a plan that may be amended the records of a run that names the
// registered one.
func assessAs(p *arms.Plan, registered digest.Digest, s *prompts.Set, recs []probes.Record) scoring.Result {
	in := scoring.Input{Design: p.Design, Set: s, PlanDigest: string(registered), SetDigest: string(s.Digest), Order: "O1"}
	if p.Design.Imported {
		in.Order = "O0"
	}
	return scoring.Assess(in, recs, detectors(p.Design.Rule))
}

// reassess is assess for a verifier, which reads records one by one.
func reassess(q receipts.Question, recs iter.Seq2[probes.Record, error]) (scoring.Result, error) {
	var all []probes.Record
	slim := newSlimmer()
	for r, err := range recs {
		if err != nil {
			return scoring.Result{}, err
		}
		slim.record(&r)
		all = append(all, r)
	}
	return assessAs(&q.Plan, q.Registered, q.Set, all), nil
}

// decode reads the kept bytes of a reply again, in the dialect of its Set.
func decode(dialect string, r *probes.Reply) (probes.Decoded, error) {
	raw, err := r.Bytes()
	if err != nil {
		return probes.Decoded{}, err
	}
	if dialect == foreign.Dialect {
		return foreign.Decode(raw)
	}
	return replay.Decode(dialect, r.Status, raw)
}

// checker is what verification recomputes with.
func checker() receipts.Checker {
	return receipts.Checker{
		Assess: reassess,
		Decode: decode,
		RequestID: func(from digest.Digest, r *probes.Record) string {
			id := r.Reply.Prompt
			if r.Reply.Prime {
				id += "/prime"
			}
			return replay.RequestID(string(from), r.Arm, r.Run, r.Reply.Pass, id)
		},
	}
}
