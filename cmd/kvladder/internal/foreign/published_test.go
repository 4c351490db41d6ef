package foreign

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"kvladder/probes"
	"kvladder/probes/metrics"
	"kvladder/scoring"
	"kvladder/scoring/detect"
)

const published = "../../testdata/published-ladder-4arm/"

var publishedArms = []string{"L0", "L1cold", "L2warm", "L3restart"}

func counters(text []byte) ([]probes.Value, error) {
	series, err := metrics.Parse(string(text))
	if err != nil {
		return nil, err
	}
	return metrics.Select(metrics.Snapshot{Series: series}, map[string]string{
		probes.LocalQueries: "vllm:prefix_cache_queries", probes.LocalHits: "vllm:prefix_cache_hits",
		probes.ExternalHits: "vllm:external_prefix_cache_hits", probes.PromptTokens: "vllm:prompt_tokens",
		probes.Preemptions: "vllm:num_preemptions",
	})
}

// publishedSources opens the published ladder, with its snapshots or without.
func publishedSources(t *testing.T, snapshots bool) []Source {
	t.Helper()
	var out []Source
	for _, name := range publishedArms {
		f, err := Open(published + "arm-" + name + ".json.gz")
		if err != nil {
			t.Fatal(err)
		}
		s := Source{Name: name, File: f, Arm: f.Arms[0]}
		if snapshots {
			if s.Snapshots, err = Snapshots(published, name, counters); err != nil {
				t.Fatal(err)
			}
			if len(s.Snapshots) != 2 || s.Snapshots[0].Phase != "before" || s.Snapshots[1].Phase != "after" {
				t.Fatalf("snapshots of %s: %+v", name, s.Snapshots)
			}
		}
		out = append(out, s)
	}
	return out
}

func assess(t *testing.T, sources []Source, o Options) (*Import, map[string]scoring.ArmResult, scoring.Result) {
	t.Helper()
	im, err := Build(sources, o)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := im.Plan.Digest()
	if err != nil {
		t.Fatal(err)
	}
	recs := slices.Clone(im.Records)
	for i := range recs {
		recs[i].Seq = int64(i + 1)
	}
	res := scoring.Assess(scoring.Input{Design: im.Plan.Design, Set: im.Set, PlanDigest: string(d), SetDigest: string(im.Set.Digest), Order: "O0"}, recs, detect.All(im.Plan.Design.Rule))
	by := map[string]scoring.ArmResult{}
	for _, a := range res.Arms {
		by[a.Name] = a
	}
	return im, by, res
}

func num(p *int) int {
	if p == nil {
		return -1
	}
	return *p
}

// near compares at the digits that were published.
func near(t *testing.T, what string, got *float64, want, within float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > within {
		t.Errorf("%s is %v, published %v", what, deref(got), want)
	}
}

func deref(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

func TestPublishedLadder(t *testing.T) {
	im, by, res := assess(t, publishedSources(t, true), Options{})
	if len(im.Notes) != 0 {
		t.Errorf("notes: %q", im.Notes)
	}
	if res.Exit != scoring.ExitCorrupt || res.Order != "O0" {
		t.Errorf("exit %d, order %s", res.Exit, res.Order)
	}
	for name, want := range map[string]struct {
		failed, damaged int
		right           map[string]int
		local, external int
		trusted         bool
	}{
		"L0":        {0, 0, map[string]int{"A1": 38, "A2": 38, "A3": 38, "A4": 38}, 190400, 0, true},
		"L1cold":    {7, 0, map[string]int{"A1": 34, "A2": 35, "A3": 31, "A4": 38}, 249600, 0, true},
		"L2warm":    {7, 1, map[string]int{"A1": 34, "A2": 35, "A3": 31, "A4": 38}, 264000, 0, true},
		"L3restart": {38, 38, map[string]int{"A1": 0, "A2": 4, "A3": 0, "A4": 8}, 633600, 17600, false},
	} {
		a := by[name]
		if a.N != 38 || a.Substantive != 38 || a.Failed != want.failed || a.Damaged != want.damaged {
			t.Errorf("%s: n %d, substantive %d, failed %d, damaged %d", name, a.N, a.Substantive, a.Failed, a.Damaged)
		}
		if !reflect.DeepEqual(a.AnswersRight, want.right) {
			t.Errorf("%s: right %v", name, a.AnswersRight)
		}
		if num(a.LocalTokens) != want.local || num(a.ExternalTokens) != want.external {
			t.Errorf("%s: local %d, external %d", name, num(a.LocalTokens), num(a.ExternalTokens))
		}
		if a.CountersTrusted == nil || *a.CountersTrusted != want.trusted {
			t.Errorf("%s: counters trusted %v", name, a.CountersTrusted)
		}
	}
	if got := by["L3restart"].Detectors; got["script"] != 30 || got["replacement"] != 30 || got["repeated"] != 8 || got["ngram5"] != 5 {
		t.Errorf("L3restart: detectors %v", got)
	}
	if got := by["L3restart"].FlaggedIDs; !reflect.DeepEqual(got, []string{"p1s1", "p1s2", "p1s4", "p1s6", "p1s8", "p1s10"}) {
		t.Errorf("L3restart: flagged %v", got)
	}
	for _, name := range publishedArms[:3] {
		if got := by[name].FlaggedIDs; len(got) != 0 {
			t.Errorf("%s: flagged %v", name, got)
		}
	}
	for _, want := range []struct {
		arm                            string
		c, identical, forks, exposure  int
		p                              float64
		prefixMean, prefixP99          float64
		prefixMax, d0Mean, d0Max       float64
		zippedMean, zippedMax, zipErr  float64
		answersE, process, declaration string
	}{
		{"L1cold", 7, 0, 38, 1601, 0.0078125, 0.005695, 0.119792, 0.362714, 0.007877, 0.098590, 0.24506591, 1.802833, 5e-9, "n", "", ""},
		{"L2warm", 7, 0, 38, 1563, 0.0078125, 0.005342, 0.116582, 0.362714, 0.009027, 0.098590, 0.24639977, 1.908507, 5e-9, "n", "", ""},
		{"L3restart", 38, 0, 38, 62, math.Pow(2, -38), 0.054713, 0.299619, 0.342179, 3.706338, 5.764850, 3.60482341, 6.217821, 5e-9, "-", "", ""},
	} {
		a := by[want.arm]
		if num(a.ArmOnly) != want.c || num(a.ControlOnly) != 0 || num(a.Identical) != want.identical || num(a.Forks) != want.forks || num(a.Exposure) != want.exposure {
			t.Errorf("%s: c %d, b %d, identical %d, forks %d, exposure %d", want.arm, num(a.ArmOnly), num(a.ControlOnly), num(a.Identical), num(a.Forks), num(a.Exposure))
		}
		near(t, want.arm+" p", a.PMcNemar, want.p, want.p*1e-9)
		near(t, want.arm+" prefix mean", a.PrefixMean, want.prefixMean, 5e-7)
		near(t, want.arm+" prefix p99", a.PrefixP99, want.prefixP99, 5e-7)
		near(t, want.arm+" prefix max", a.PrefixMax, want.prefixMax, 5e-7)
		near(t, want.arm+" d0 mean", a.D0Mean, want.d0Mean, 5e-7)
		near(t, want.arm+" d0 max", a.D0Max, want.d0Max, 5e-7)
		near(t, want.arm+" zipped mean", a.ZippedMean, want.zippedMean, want.zipErr)
		near(t, want.arm+" zipped max", a.ZippedMax, want.zippedMax, 5e-7)
		if a.Verdict == nil || *a.Verdict != scoring.CorruptionAttributed || a.Row == nil || *a.Row != 8 || a.Path == nil || *a.Path != "unproven" {
			t.Errorf("%s: verdict %v, row %d, path %v", want.arm, a.Verdict, num(a.Row), a.Path)
		}
		if a.Columns["P"] != "y" || a.Columns["F"] != "y" || a.Columns["D"] != "-" || a.Columns["E"] != want.answersE {
			t.Errorf("%s: columns %v, want E %s", want.arm, a.Columns, want.answersE)
		}
		if a.Columns["A"] != "y" || a.Columns["H"] != "y" || a.Columns["K"] != "y" {
			t.Errorf("%s: columns %v", want.arm, a.Columns)
		}
		if a.Variable == nil || *a.Variable != labelOf(im, want.arm) {
			t.Errorf("%s: variable %v", want.arm, a.Variable)
		}
		if a.BitEqual == nil || *a.BitEqual != 0 {
			t.Errorf("%s: bit equal %d", want.arm, num(a.BitEqual))
		}
	}
	// L1cold and L2warm were served by one process, the others by one each.
	if a, b, c := by["L1cold"].Incarnations, by["L2warm"].Incarnations, by["L3restart"].Incarnations; len(a) != 1 || len(b) != 1 || len(c) != 1 || a[0] != b[0] || a[0] == c[0] {
		t.Errorf("incarnations %v %v %v", a, b, c)
	}
	// p1s1 of L1cold begins as the reference does, L3restart's with another token.
	censored := num(by["L3restart"].Censored)
	if censored == 0 {
		t.Error("L3restart: no first token differs")
	}
}

func labelOf(im *Import, arm string) string {
	a, _ := im.Plan.Design.ByName(arm)
	return a.Pin.Name
}

// Forks are where the published reading has them: those of the failing requests of L1cold
// at 3 and 15, all others from 32 on.
func TestPublishedForks(t *testing.T) {
	_, by, _ := assess(t, publishedSources(t, true), Options{})
	var failing []int
	for _, o := range by["L1cold"].Outcomes {
		switch {
		case o.Fork == nil:
			t.Fatalf("%s has no fork", o.ID)
		case o.Failed:
			failing = append(failing, *o.Fork)
		case *o.Fork < 32 || *o.Fork > 66:
			t.Errorf("%s passes and forks at %d", o.ID, *o.Fork)
		}
	}
	slices.Sort(failing)
	if !reflect.DeepEqual(failing, []int{3, 3, 3, 3, 15, 15, 15}) {
		t.Errorf("failing forks %v", failing)
	}
}

// L1cold against L2warm, two passes of one process: 32 of 38 identical.
func TestPublishedOneProcess(t *testing.T) {
	_, by, _ := assess(t, publishedSources(t, true), Options{Reference: "L1cold"})
	a := by["L2warm"]
	if num(a.Identical) != 32 || num(a.Forks) != 6 || num(a.Exposure) != 4246 || num(a.ArmOnly) != 1 || num(a.ControlOnly) != 1 {
		t.Errorf("identical %d, forks %d, exposure %d, c %d, b %d", num(a.Identical), num(a.Forks), num(a.Exposure), num(a.ArmOnly), num(a.ControlOnly))
	}
	near(t, "prefix mean", a.PrefixMean, 0.000803, 5e-7)
	near(t, "prefix p99", a.PrefixP99, 0.024706, 5e-7)
	near(t, "prefix max", a.PrefixMax, 0.226759, 5e-7)
	near(t, "d0 mean", a.D0Mean, 0.003131, 5e-7)
	near(t, "d0 max", a.D0Max, 0.080832, 5e-7)
	near(t, "p", a.PMcNemar, 0.75, 1e-12)
}

// Without the snapshots nothing says what came from outside: not known is not none.
func TestPublishedRowsAlone(t *testing.T) {
	_, by, res := assess(t, publishedSources(t, false), Options{})
	for _, name := range publishedArms {
		if a := by[name]; a.ExternalTokens != nil {
			t.Errorf("%s: external tokens %d from nowhere", name, *a.ExternalTokens)
		}
	}
	a := by["L1cold"]
	if a.Failed != 7 || a.Columns["E"] != "-" || *a.Row != 8 || *a.Path != "unproven" || a.Columns["A"] != "-" || res.Exit != 1 {
		t.Errorf("L1cold: failed %d, row %d, columns %v, exit %d", a.Failed, num(a.Row), a.Columns, res.Exit)
	}
}

func TestPublishedFloor(t *testing.T) {
	im, by, _ := assess(t, publishedSources(t, true), Options{Floors: []string{"L2warm"}})
	a, _ := im.Plan.Design.ByName("L2warm")
	if a.Role != scoring.Floor || a.FloorOf != "L0" || a.Reference != "" {
		t.Errorf("floor: %+v", a)
	}
	if by["L2warm"].Verdict != nil {
		t.Error("a floor has a verdict")
	}
	// What fails in a further process of the reference is unstable: it accuses nobody.
	if got := by["L1cold"]; len(got.Unstable) != 7 {
		t.Errorf("L1cold: unstable %v", got.Unstable)
	}
}

// Every reply decodes from its bytes to what is written beside them.
func TestPublishedDecode(t *testing.T) {
	im, _, _ := assess(t, publishedSources(t, true), Options{})
	n := 0
	for _, r := range im.Records {
		if r.Reply == nil {
			continue
		}
		n++
		raw, err := r.Reply.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(raw)
		if err != nil || !reflect.DeepEqual(got, r.Reply.Decoded) {
			t.Fatalf("%s: %v, decodes otherwise", r.Reply.Prompt, err)
		}
	}
	if n != 4*38 {
		t.Errorf("%d replies", n)
	}
}

// The same files give the same plan, whoever imports them.
func TestBuildIsPure(t *testing.T) {
	digestOf := func() string {
		im, err := Build(publishedSources(t, true), Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(im.Records)
		if err != nil {
			t.Fatal(err)
		}
		d, _, _ := im.Plan.Digest()
		return string(d) + string(b)
	}
	if first := digestOf(); first != digestOf() {
		t.Error("two imports of the same files differ")
	}
}
