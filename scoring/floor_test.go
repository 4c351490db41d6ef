package scoring

import (
	"math"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/scoring/compare"
)

func TestFormulas(t *testing.T) {
	s := samples{"P.d0": {1, 2, 3, 4, 10}, "P.margin": {0.5}}
	for f, want := range map[Formula]float64{
		"max(P.d0)":               10,
		"3 * max(P.d0)":           30,
		"p50(P.d0)":               3,
		"p90(P.d0)":               7.6, // 4 + 0.6·6
		"mean(P.d0)":              4,
		"2*(mean(P.d0)+1)/4-0.5":  2,
		"max(P.margin) - 1/2 + 1": 1,
		"0.001":                   0.001,
	} {
		if v, why := f.value(s); v == nil || math.Abs(*v-want) > 1e-12 {
			t.Errorf("%s: %v (%s), want %v", f, v, why, want)
		}
	}
	if v, why := Formula("p99(P.margin)").value(samples{"P.d0": {1}}); v != nil || !strings.Contains(why, "the controls show none") {
		t.Errorf("a value of nothing: %v, %q", v, why)
	}
	if v, why := Formula("1/(max(P.margin)-0.5)").value(s); v != nil || !strings.Contains(why, "divides by 0") {
		t.Errorf("a division by 0: %v, %q", v, why)
	}
}

// A threshold of the arm under test, or of one process, is refused before anything runs.
func TestFormulasRefuse(t *testing.T) {
	for f, want := range map[Formula]string{
		"max(arm.d0)":      "made of control data alone",
		"3 * max(WARM.d0)": "made of control data alone",
		"max(W.d0)":        "an arm is another process",
		"p99(W.margin)":    "an arm is another process",
		"max(P.d0":         `")" is wanted`,
		"median(P.d0)":     "no statistic",
		"p0(P.d0)":         "no statistic",
		"p100(P.d0)":       "no statistic",
		"3 max(P.d0)":      "nothing may follow",
		"3 *":              "it ends where",
		"":                 "it ends where",
		"1e":               "no number",
		Formula(strings.Repeat("(", 3_000_000) + "max(P.d0)" + strings.Repeat(")", 3_000_000)): "1000 are the most",
		Formula(strings.Repeat("-", 800_000) + "1"):                                            "1000 are the most",
	} {
		d := DefaultThresholds()
		d.NearTie = f
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.200v, want %q", f, err, want)
		}
	}
	d := DefaultThresholds()
	d.D0Gate = "p99(P.d0)"
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "exact test") {
		t.Errorf("the gate of the exceedance: %v", err)
	}
	if err := DefaultThresholds().Check(); err != nil {
		t.Error(err)
	}
}

// shift moves the first logprob of every reply of an arm by v, and by a little that differs
// from request to request.
func shift(v float64) func(*probes.Reply, int) {
	return func(r *probes.Reply, i int) {
		r.Tokens = slices.Clone(r.Tokens)
		r.Tokens[0].Logprob = ptr(*r.Tokens[0].Logprob + v*(1+float64(i)/100))
		r.Tokens[0].Top = nil
	}
}

func TestFloorInNumbers(t *testing.T) {
	l := newLab(t, 40, 40)
	l.reply["C1-b"], l.reply["C1-c"], l.reply["WARM"] = shift(0.001), shift(-0.0005), shift(0.01)
	// The second pass of C1-b lies a little off its first.
	within := l.reply["C1-b"]
	l.reply["C1-b"] = func(r *probes.Reply, i int) {
		within(r, i)
		if r.Pass == 2 {
			r.Tokens[0].Logprob = ptr(*r.Tokens[0].Logprob + 0.00025)
		}
	}
	l.write("store")
	a := want(t, l.assess(), "WARM", SuspectDivergent, 12, "")
	f := a.Floor
	if f == nil || f.Of != "C1" || f.Processes != 3 {
		t.Fatalf("floor %+v", f)
	}
	// Between: C1-b and C1, C1-c and C1, C1-c and C1-b, 40 each; the last are 0.0015·1.39 + 0.00025 apart.
	if f.Between.D0.N != 120 || math.Abs(*f.Between.D0.Max-(0.0015*1.39+0.00025)) > 1e-9 {
		t.Errorf("between %+v max %v", f.Between.D0, *f.Between.D0.Max)
	}
	// Within: both passes of C1 are cut elsewhere (the first has nothing to reuse), so none compares.
	if f.Within.D0.N != 0 || f.Within.D0.Max != nil {
		t.Errorf("within %+v", f.Within.D0)
	}
	by := map[string]Threshold{}
	for _, x := range f.Thresholds {
		by[x.Name] = x
	}
	if g := by["d0_gate"]; g.Formula != "max(P.d0)" || g.Value == nil || *g.Value != *f.Between.D0.Max {
		t.Errorf("gate %+v", g)
	}
	if g := by["d0_flag"]; g.Value == nil || math.Abs(*g.Value-3**f.Between.D0.Max) > 1e-12 {
		t.Errorf("flag %+v", g)
	}
	if g := by["near_tie"]; g.Value != nil || g.Why == "" {
		t.Errorf("near tie without a flip between controls: %+v", g)
	}
	// C1 against C0: its controls do not reuse, so both their passes compare, within each process.
	if w := arm(t, l.assess(), "C1").Floor; w.Of != "C0" || w.Within.D0.N != 80 || *w.Within.D0.Max != 0 || w.Processes != 2 {
		t.Errorf("floor of C1 %+v", w)
	}
	// A formula of the ladder is the one that counts.
	few := len(a.FlaggedIDs)
	th := DefaultThresholds()
	th.D0Flag = "0 * max(P.d0)"
	l.design.Rule.Thresholds = &th
	if many := arm(t, l.assess(), "WARM"); len(many.FlaggedIDs) != 40 || few == 40 && *by["d0_flag"].Value > 0.01 {
		t.Errorf("%d flagged by the usual formula, %d of 40 above 0", few, len(many.FlaggedIDs))
	}
}

// A floor that is climbed with the pin under test would call the treatment noise.
func TestFloorFromTheTreatedArm(t *testing.T) {
	for what, bend := range map[string]func(*lab){
		"its pin connector is": func(l *lab) {
			l.spec("C1-b").Pins = map[string]string{"connector": "disk"}
			l.spec("C1").Pins = map[string]string{"connector": "none"}
		},
		"one of them has the connector":           func(l *lab) { l.spec("C1-b").Connector = true },
		"never taken from the arm under test":     func(l *lab) { l.spec("WARM").Reference = "WARM" },
		"floor C1-b repeats C7, which is not the": func(l *lab) { l.spec("C1-b").FloorOf = "C7" },
	} {
		l := newLab(t, 40, 40)
		bend(l)
		l.write()
		if strings.Contains(what, "C7") {
			// Nobody leans on a floor of nothing.
			if f := l.assess(); arm(t, f, "WARM").Floor.Processes != 2 {
				t.Errorf("%s: %+v", what, arm(t, f, "WARM").Floor)
			}
			continue
		}
		a := want(t, l.assess(), "WARM", InvalidPrereg, 1, "")
		if a.Reason == nil || !strings.Contains(*a.Reason, what) {
			t.Errorf("%s: %v", what, a.Reason)
		}
	}
	// The prefill budget of a split floor is the one pin that may differ, and only its own.
	l := newLab(t, 40, 40)
	for _, n := range []string{"C0", "C0-b", "C0-split"} {
		l.spec(n).Pins = map[string]string{"budget": "127", "connector": "none"}
	}
	l.spec("C0-split").Pins = map[string]string{"budget": "64", "connector": "none"}
	l.spec("C0-split").Pin = Pin{Name: "budget", Arm: "64", Reference: "127"}
	l.write()
	want(t, l.assess(), "C1", CleanBounded, 17, "")
	l.spec("C0-split").Pins["connector"] = "disk"
	want(t, l.assess(), "C1", InvalidPrereg, 1, "")
}

// Controls are judged too: the early and the late one among them.
func TestControlsAreJudged(t *testing.T) {
	l := newLab(t, 40, 40)
	for _, n := range []string{"C0-early", "C0-late"} {
		l.design.Arms = append(l.design.Arms, ArmSpec{Name: n, Preset: n, Role: Control, Passes: 1, Chain: "late", Process: "late", Exercise: "none", Expected: l.spec("C0").Expected})
	}
	l.write()
	r := l.assess()
	want(t, r, "WARM", CleanBounded, 17, "")
	for _, n := range []string{"C0", "C0-early", "C0-late"} {
		if a := arm(t, r, n); a.Sound != "y" || a.Verdict != nil {
			t.Errorf("%s: sound %q, verdict %v", n, a.Sound, a.Verdict)
		}
	}
	// The late one fails: 8 of 40 are more than one in twenty with 95 %, and no connector is to blame.
	l.reply["C0-late"] = wrong(8)
	l.write()
	r = l.assess()
	if a := arm(t, r, "C0-late"); a.Sound != "n" || a.Failed != 8 {
		t.Errorf("C0-late: sound %q, %d failed", a.Sound, a.Failed)
	}
	if a := arm(t, r, "C0-early"); a.Sound != "y" {
		t.Errorf("C0-early: sound %q", a.Sound)
	}
	want(t, r, "WARM", ControlDirty, 6, "")
	l.skip["C0-early"], l.skip["C0-late"] = true, true
	l.write()
	if a := arm(t, l.assess(), "C0-late"); a.Sound != "-" {
		t.Errorf("without a row: sound %q", a.Sound)
	}
}

// The bootstrap by clusters is the registered one, to the last bit, and decides nothing.
func TestClusters(t *testing.T) {
	l := newLab(t, 40, 10) // four requests in each class
	l.reply["WARM"] = wrong(8)
	l.write()
	before := arm(t, l.assess(), "WARM")
	if before.Clusters != nil {
		t.Errorf("intervals that nobody registered: %+v", before.Clusters)
	}
	l.design.Rule.Bootstrap = &Resampling{Seed: 7, Resamples: 500, By: ByGeometry}
	a := arm(t, l.assess(), "WARM")
	if *a.Verdict != *before.Verdict || *a.Row != *before.Row {
		t.Errorf("the bootstrap decides: %s, %s without", *a.Verdict, *before.Verdict)
	}
	if len(a.Clusters) != 2 {
		t.Fatalf("%+v", a.Clusters)
	}
	// Requests 0 to 7 fail: classes c00 to c07 hold one failure of four.
	var values [][]float64
	for c := range 10 {
		v := []float64{0, 0, 0, 0}
		if c < 8 {
			v[0] = 1
		}
		values = append(values, v)
	}
	b, err := compare.ClusterBootstrap(values, 0.95, 500, 7)
	if err != nil {
		t.Fatal(err)
	}
	f := a.Clusters[0]
	if f.What != "failure rate" || f.By != ByGeometry || f.N != 40 || f.Clusters != 10 || f.Seed != 7 || f.Resamples != 500 ||
		*f.Mean != 0.2 || *f.Low != round12(b.Low) || *f.High != round12(b.High) {
		t.Errorf("%+v mean %v low %v high %v, want [%v, %v]", f, *f.Mean, *f.Low, *f.High, b.Low, b.High)
	}
	// The first token's distribution is the same there. Where it moves by 0.01 to 0.0139 and the
	// controls do not, the difference is that, whole.
	if d := a.Clusters[1]; d.What != "d0" || d.N != 40 || *d.Mean != 0 {
		t.Errorf("%+v", d)
	}
	l.reply["WARM"] = shift(0.01)
	l.write()
	if d := arm(t, l.assess(), "WARM").Clusters[1]; d.Low == nil || !(*d.Low > 0.01 && *d.Low < *d.Mean && *d.Mean < *d.High && *d.High < 0.0139) {
		t.Errorf("%+v", d)
	}
	// By document each request is a cluster of its own.
	l.design.Rule.Bootstrap.By = ByDocument
	if f := arm(t, l.assess(), "WARM").Clusters[0]; f.Clusters != 40 || f.By != ByDocument {
		t.Errorf("%+v", f)
	}
	// Where nothing fails there is nothing to resample, and no interval of no width.
	l.reply = map[string]func(*probes.Reply, int){}
	l.write()
	if f := arm(t, l.assess(), "WARM").Clusters[0]; f.Low != nil || !strings.Contains(f.Why, "no spread to resample") {
		t.Errorf("%+v", f)
	}
	for _, bad := range []Resampling{{-1, 500, ByGeometry}, {1, 99, ByGeometry}, {1, 500, "moon"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
