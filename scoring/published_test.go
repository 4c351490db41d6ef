package scoring_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
	"kvladder/scoring/detect"
)

type published struct {
	Arm, ID, Text      string
	Prompt, Completion int
	Expected           map[string]string
	Tokens             []string
	Logprobs           []float64
	Delta              map[string]float64
	Failed             bool
}

func readPublished(t *testing.T) []published {
	t.Helper()
	f, err := os.Open("testdata/published-ladder.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows []published
	if err := json.NewDecoder(z).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// imported turns the published rows into a ladder of their own, judged against reference.
func imported(t *testing.T, reference string, judged ...string) scoring.Result {
	t.Helper()
	rows := readPublished(t)
	external := map[string]float64{"L1cold": 0, "L2warm": 0, "L3restart": 17600} // of the published snapshots
	d := scoring.Design{Ladder: "published", Rule: scoring.DefaultRule(), Imported: true}
	d.Arms = append(d.Arms, scoring.ArmSpec{Name: reference, Preset: "import", Role: scoring.Control, Chain: reference, Passes: 1, Judge: 1, Exercise: "none"})
	for _, name := range judged {
		d.Arms = append(d.Arms, scoring.ArmSpec{Name: name, Preset: "import", Role: scoring.Judged, Chain: name, Passes: 1, Judge: 1, Reference: reference, ReferencePass: 1,
			Path: "external", Exercise: "none", Connector: true, Pin: scoring.Pin{Name: "connector", Arm: "lmcache", Reference: "none"}})
	}
	var ps []prompts.Prompt
	var recs []probes.Record
	seen := map[string]bool{}
	emit := func(arm string, r probes.Record) {
		r.Seq, r.Arm, r.Chain = int64(len(recs)+1), arm, arm
		recs = append(recs, r)
	}
	for _, p := range rows {
		if p.Arm != reference && !slices.Contains(judged, p.Arm) {
			continue
		}
		if !seen[p.Arm] {
			seen[p.Arm] = true
			if v, ok := external[p.Arm]; ok {
				for _, phase := range []string{"before", "after"} {
					value := 0.0
					if phase == "after" {
						value = v
					}
					emit(p.Arm, probes.Record{Kind: probes.KindSample, Sample: &probes.Sample{Phase: phase, Pass: 1, Values: []probes.Value{{Role: probes.ExternalHits, Series: "external_prefix_cache_hits", Value: value}}}})
				}
			}
		}
		e := prompts.Expectation{}
		for _, k := range []string{"A1", "A2", "A3", "A4"} {
			n := prompts.Needle{Key: k, Answer: p.Expected[k], Match: "field", Offset: -1, End: -1, Scored: k != "A4"}
			if k == "A3" {
				n.Match = "ints"
			}
			e.Needles = append(e.Needles, n)
		}
		if !slices.ContainsFunc(ps, func(q prompts.Prompt) bool { return q.ID == p.ID }) {
			ps = append(ps, prompts.Prompt{ID: p.ID, Role: prompts.Target, Body: "{}", Class: prompts.Class{Label: p.ID}, Expect: e})
		}
		r := &probes.Reply{Prompt: p.ID, Pass: 1, Status: 200, Decoded: probes.Decoded{Text: p.Text}}
		for i, tok := range p.Tokens {
			r.Tokens = append(r.Tokens, probes.Token{ID: -1, Text: tok, Logprob: &p.Logprobs[i]})
		}
		r.Usage = probes.Usage{Prompt: &p.Prompt, Completion: &p.Completion}
		zero, q, h := 0.0, p.Delta["prefix_cache_queries"], p.Delta["prefix_cache_hits"]
		r.Counters = []probes.Counter{
			{Role: probes.LocalQueries, Series: "prefix_cache_queries", Before: &zero, After: &q},
			{Role: probes.LocalHits, Series: "prefix_cache_hits", Before: &zero, After: &h},
		}
		emit(p.Arm, probes.Record{Kind: probes.KindReply, Reply: r})
	}
	set, err := prompts.Freeze(prompts.Header{Name: "published", Kind: "file", Dialect: "vllm", Path: "/v1/completions"}, ps)
	if err != nil {
		t.Fatal(err)
	}
	return scoring.Assess(scoring.Input{Design: d, Set: set}, recs, detect.All(d.Rule))
}

func near(t *testing.T, what string, got *float64, want, tolerance float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > tolerance {
		v := any("nothing")
		if got != nil {
			v = *got
		}
		t.Errorf("%s = %v, want %v", what, v, want)
	}
}

// The four published arms, scored again from their rows (malaiwah/qwen38-27b-exl3). Every
// arm-only failure is there, and no arm is attributed to a path that is not proven: the
// published counters know external hits for the arm only, and count none in two of three.
func TestPublishedLadder(t *testing.T) {
	r := imported(t, "L0", "L1cold", "L2warm", "L3restart")
	by := map[string]scoring.ArmResult{}
	for _, a := range r.Arms {
		by[a.Name] = a
	}
	type figures struct {
		failed, damaged, identical, forks, exposure int
		right                                       [4]int
		p, holm                                     float64
		prefixMean, prefixP99, prefixMax            float64
		d0Mean, d0Max, zippedMean, zippedMax        float64
		local                                       int
		e                                           string
	}
	for name, want := range map[string]figures{
		"L1cold":    {7, 0, 0, 38, 1601, [4]int{34, 35, 31, 38}, 0.0078125, 0.015625, 0.005695, 0.119792, 0.362714, 0.007877, 0.098590, 0.24506591, 1.802833, 249600, "n"},
		"L2warm":    {7, 1, 0, 38, 1563, [4]int{34, 35, 31, 38}, 0.0078125, 0.015625, 0.005342, 0.116582, 0.362714, 0.009027, 0.098590, 0.24639977, 1.908507, 264000, "n"},
		"L3restart": {38, 38, 0, 38, 62, [4]int{0, 4, 0, 8}, math.Pow(2, -38), 3 * math.Pow(2, -38), 0.054713, 0.299619, 0.342179, 3.706338, 5.764850, 3.60482341, 6.217821, 633600, "-"},
	} {
		a := by[name]
		if a.Verdict == nil || *a.Verdict != scoring.CorruptionAttributed || *a.Row != 8 || *a.Path != "unproven" || *a.Variable != "connector" || a.Columns["E"] != want.e {
			t.Fatalf("%s: %v row %v columns %v %q", name, *a.Verdict, *a.Row, a.Columns, a.Warnings)
		}
		if a.Failed != want.failed || a.Damaged != want.damaged || *a.ArmOnly != want.failed || *a.ControlOnly != 0 || a.N != 38 {
			t.Errorf("%s: failed %d damaged %d c %d b %d n %d", name, a.Failed, a.Damaged, *a.ArmOnly, *a.ControlOnly, a.N)
		}
		for i, k := range []string{"A1", "A2", "A3", "A4"} {
			if a.AnswersRight[k] != want.right[i] {
				t.Errorf("%s: %s right %d, want %d", name, k, a.AnswersRight[k], want.right[i])
			}
		}
		if *a.Identical != want.identical || *a.Forks != want.forks || *a.Exposure != want.exposure || *a.LocalTokens != want.local {
			t.Errorf("%s: identical %d forks %d exposure %d local %d", name, *a.Identical, *a.Forks, *a.Exposure, *a.LocalTokens)
		}
		near(t, name+" p", a.PMcNemar, want.p, 1e-12)
		near(t, name+" p corrected", a.PMcNemarHolm, want.holm, 1e-12)
		near(t, name+" prefix mean", a.PrefixMean, want.prefixMean, 5e-7)
		near(t, name+" prefix p99", a.PrefixP99, want.prefixP99, 5e-7)
		near(t, name+" prefix max", a.PrefixMax, want.prefixMax, 5e-7)
		near(t, name+" d0 mean", a.D0Mean, want.d0Mean, 5e-7)
		near(t, name+" d0 max", a.D0Max, want.d0Max, 5e-7)
		near(t, name+" zipped mean", a.ZippedMean, want.zippedMean, 5e-9)
		near(t, name+" zipped max", a.ZippedMax, want.zippedMax, 5e-7)
		if a.KLDMean != nil || a.ExternalTokens == nil || a.Columns["D"] != "-" || a.Columns["P"] != "y" {
			t.Errorf("%s: kld %v external %v columns %v", name, a.KLDMean, a.ExternalTokens, a.Columns)
		}
	}
	l3 := by["L3restart"]
	if l3.Detectors["script"] != 30 || l3.Detectors["replacement"] != 30 || l3.Detectors["repeated"] != 8 || l3.Detectors["ngram5"] != 5 {
		t.Errorf("detectors %v", l3.Detectors)
	}
	if l3.CountersTrusted == nil || *l3.CountersTrusted || len(l3.FlaggedIDs) != 6 {
		t.Errorf("946060 queries for 301180 prompt tokens are trusted: %v, flagged %v", l3.CountersTrusted, l3.FlaggedIDs)
	}
	if c := by["L1cold"].CountersTrusted; c == nil || !*c {
		t.Error("queries equal to the prompt tokens are not trusted")
	}
	if !slices.Contains(l3.Warnings, "known for the arm only: the path carried 17600 tokens, not known in which requests") {
		t.Errorf("%q", l3.Warnings)
	}
	if r.Order != "O0" || r.Exit != scoring.ExitCorrupt {
		t.Errorf("order %s exit %d", r.Order, r.Exit)
	}
}

// One process, cold then warm: 32 of 38 identical, and a clean verdict out of reach.
func TestPublishedPairOfOneProcess(t *testing.T) {
	r := imported(t, "L1cold", "L2warm")
	a := r.Arms[1]
	if *a.Identical != 32 || *a.Forks != 6 || *a.Exposure != 4246 || *a.ArmOnly != 1 || *a.ControlOnly != 1 {
		t.Errorf("identical %d forks %d exposure %d b %d c %d", *a.Identical, *a.Forks, *a.Exposure, *a.ControlOnly, *a.ArmOnly)
	}
	near(t, "p", a.PMcNemar, 0.75, 1e-12)
	near(t, "prefix mean", a.PrefixMean, 0.000803, 5e-7)
	near(t, "prefix p99", a.PrefixP99, 0.024706, 5e-7)
	near(t, "prefix max", a.PrefixMax, 0.226759, 5e-7)
	near(t, "d0 mean", a.D0Mean, 0.003131, 5e-7)
	near(t, "d0 max", a.D0Max, 0.080832, 5e-7)
	if *a.Exit == scoring.ExitClean {
		t.Error("an import is clean")
	}
}
