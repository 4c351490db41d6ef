package scoring

import (
	"fmt"
	"slices"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
)

// after files a fact of an arm behind the whole transcript.
func (l *lab) after(arm, name string, value any) {
	a := l.spec(arm)
	l.tell(probes.Record{Arm: arm, Chain: a.Chain, Attempt: l.attempt(0, a.Chain)}, name, value)
}

// sampled files counters of an arm before and after a pass.
func (l *lab) sampled(arm string, pass int, rise map[string]float64) {
	a := l.spec(arm)
	for _, phase := range []string{"before", "after"} {
		s := &probes.Sample{Phase: phase, Pass: pass, Source: "/metrics"}
		for _, role := range sortedStrings(rise) {
			v := 500.0
			if phase == "after" {
				v += rise[role]
			}
			s.Values = append(s.Values, probes.Value{Role: role, Series: role, Value: v})
		}
		l.emit(probes.Record{Arm: arm, Chain: a.Chain, Attempt: l.attempt(0, a.Chain), Kind: probes.KindSample, Sample: s})
	}
}

// as lets another arm of the lab stand for one of the presets that share its schedule.
func (l *lab) as(arm string, change func(*ArmSpec)) { change(l.spec(arm)) }

func held(a ArmResult, name string) string {
	for _, f := range a.Invariants {
		if f.Name == name {
			if f.Held == nil {
				return "unknown"
			}
			return fmt.Sprint(*f.Held)
		}
	}
	return "absent"
}

// CONC is exercised by its base's rule and by as many requests at once as it claims.
func TestConcurrencyHasToBeSeen(t *testing.T) {
	for _, c := range []struct {
		name      string
		fact      *probes.RunningFact
		word, sub string
		row       int
	}{
		{"seen", &probes.RunningFact{Pass: 1, Peak: 9, Readings: 40}, CleanBounded, "", 17},
		{"not reached", &probes.RunningFact{Pass: 1, Peak: 7, Readings: 40}, NotExercised, ReuseLost, 13},
		{"never read", &probes.RunningFact{Pass: 1}, NotExercised, Unproven, 13},
		{"of another pass", &probes.RunningFact{Pass: 2, Peak: 9, Readings: 40}, NotExercised, Unproven, 13},
		{"no fact", nil, NotExercised, Unproven, 13},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 48, 40)
			l.as("RST", func(a *ArmSpec) { a.Preset, a.Exercise, a.Concurrency, a.Process = "CONC", "RST", 8, "s2" })
			l.reply["RST"] = func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, labReuse) }
			bend := l.fact["RST"]
			l.fact["RST"] = func(name string, v any) any {
				if s, ok := v.(probes.StoreFact); ok && s.When == "start" {
					s.Chunks, s.Files = ptr(9), ptr(9)
					return s
				}
				if bend != nil {
					return bend(name, v)
				}
				return v
			}
			l.write()
			if c.fact != nil {
				l.after("RST", probes.FactRunning, *c.fact)
			}
			want(t, l.assess(), "RST", c.word, c.row, c.sub)
		})
	}
}

// Requests that ran side by side have no counters of their own. What splits them is the
// engine's account, or a total that is nothing at all; else they stay unsplit.
func TestSplitsOfRequestsSideBySide(t *testing.T) {
	for _, c := range []struct {
		name            string
		local, external float64 // totals of the pass
		loads           bool
		known           bool
	}{
		{"the store alone gave something", 0, 48 * labReuse, false, true},
		{"both gave something", 64, 47 * labReuse, false, false},
		{"both, and the engine says which", 64, 47 * labReuse, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 48, 40)
			l.mute["RST"] = true
			l.as("RST", func(a *ArmSpec) { a.CachedIs = "" })
			l.reply["RST"] = func(r *probes.Reply, i int) {
				r.Usage.Cached = ptr(labReuse)
				r.RequestID = fmt.Sprint("id", i)
			}
			l.write()
			l.sampled("RST", 1, map[string]float64{probes.LocalHits: c.local, probes.ExternalHits: c.external})
			if c.loads {
				f := probes.LoadsFact{Pass: 1}
				for i := range 48 {
					f.Loads = append(f.Loads, probes.Load{RequestID: fmt.Sprint("id", i), External: labReuse})
				}
				l.after("RST", probes.FactLoads, f)
			}
			a := arm(t, l.assess(), "RST")
			if got := a.Exercised != nil && *a.Exercised == 48; got != c.known {
				t.Errorf("exercised %v, want known %v; X %s, warnings %q", a.Exercised, c.known, a.Columns["X"], a.Warnings)
			}
			if c.known != (a.Columns["X"] == "y") {
				t.Errorf("X is %s", a.Columns["X"])
			}
		})
	}
}

// xidLab: every second prompt asks the tokens of the one behind it under another identity.
// WARM is the XID arm.
func xidLab(t *testing.T) *lab {
	l := newLab(t, 80, 40)
	ps := slices.Clone(l.set.Prompts)
	for i := range ps {
		ps[i].Body = fmt.Sprintf(`{"salt":%d}`, i)
	}
	for i := 0; i < len(ps); i += 2 {
		p := ps[i+1]
		p.ID, p.Body = ps[i].ID, ps[i].Body
		p.Prime = &prompts.Prime{Tokens: len(p.Tokens), Body: ps[i+1].Body}
		ps[i] = p
	}
	set, err := prompts.Freeze(l.set.Header, ps)
	if err != nil {
		t.Fatal(err)
	}
	l.set = set
	l.as("RST", func(a *ArmSpec) {
		a.Preset, a.Exercise, a.Identity = "XID", "XID", "salt"
		for i := range set.Prompts {
			p := &set.Prompts[i]
			a.Expected[p.ID] = Reuse{External: labReuse}
			if p.Cross() {
				a.Expected[p.ID] = Reuse{}
			}
		}
	})
	l.reply["RST"] = func(r *probes.Reply, i int) {
		if !set.Prompts[i].Cross() {
			rise(r, probes.ExternalHits, labReuse)
		}
	}
	return l
}

// A hit across identities is a violation whatever the text says; no hit at all is no proof.
func TestIdentitiesDoNotShare(t *testing.T) {
	t.Run("kept apart", func(t *testing.T) {
		l := xidLab(t)
		l.write()
		a := arm(t, l.assess(), "RST")
		if held(a, sharedHits) != "true" || a.Columns["V"] != "n" || a.Columns["X"] != "y" || *a.Exercised != 80 {
			t.Errorf("%s, columns %v, exercised %d, warnings %q", held(a, sharedHits), a.Columns, *a.Exercised, a.Warnings)
		}
	})
	t.Run("one hit", func(t *testing.T) {
		l := xidLab(t)
		healthy := l.reply["RST"]
		l.reply["RST"] = func(r *probes.Reply, i int) {
			healthy(r, i)
			if i == 6 {
				rise(r, probes.ExternalHits, labReuse)
			}
		}
		l.write()
		a := want(t, l.assess(), "RST", CorruptionAttributed, 4, "")
		if a.Kind == nil || *a.Kind != sharedHits || held(a, sharedHits) != "false" {
			t.Errorf("kind %v, %s", a.Kind, held(a, sharedHits))
		}
	})
	t.Run("a local hit counts too", func(t *testing.T) {
		l := xidLab(t)
		healthy := l.reply["RST"]
		l.reply["RST"] = func(r *probes.Reply, i int) {
			healthy(r, i)
			if i == 6 {
				rise(r, probes.LocalHits, labReuse)
			}
		}
		l.write()
		want(t, l.assess(), "RST", CorruptionAttributed, 4, "")
	})
	t.Run("the cache is off", func(t *testing.T) {
		l := xidLab(t)
		l.reply["RST"] = nil
		l.write()
		a := want(t, l.assess(), "RST", NotExercised, 13, ReuseLost)
		if a.Columns["V"] != "n" {
			t.Errorf("V is %s", a.Columns["V"])
		}
	})
	t.Run("no counters", func(t *testing.T) {
		l := xidLab(t)
		l.mute["RST"] = true
		l.write()
		if a := arm(t, l.assess(), "RST"); held(a, sharedHits) != "unknown" || a.Columns["V"] != "-" || a.Columns["X"] != "-" {
			t.Errorf("%s, columns %v", held(a, sharedHits), a.Columns)
		}
	})
}

// Two private values of one owner in other replies are a leak; one short one is chance, one
// long one is not; what the reference shows too is not this arm's.
func TestLeaks(t *testing.T) {
	says := func(l *lab, arm string, texts map[int]string) {
		old := l.reply[arm]
		l.reply[arm] = func(r *probes.Reply, i int) {
			if old != nil {
				old(r, i)
			}
			if s, ok := texts[i]; ok {
				r.Text += " " + s
			}
		}
	}
	for _, c := range []struct {
		name string
		arm  map[int]string
		ref  map[int]string
		held string
	}{
		{"nothing", nil, nil, "true"},
		{"two of one owner in two replies", map[int]string{3: "9010", 4: "9510"}, nil, "false"},
		{"two of one owner in one reply", map[int]string{3: "x 9010 9510"}, nil, "false"},
		{"one short one", map[int]string{3: "9010"}, nil, "true"},
		{"the same twice", map[int]string{3: "9010", 4: "9010"}, nil, "true"},
		{"one each of two owners", map[int]string{3: "9010", 4: "9511"}, nil, "true"},
		{"its own", map[int]string{10: "9010 9510"}, nil, "true"},
		{"one long one", map[int]string{3: "12345678"}, nil, "false"},
		{"part of a longer number", map[int]string{3: "190100 95100"}, nil, "true"},
		{"in the reference too", map[int]string{3: "9010 9510"}, map[int]string{3: "9010 9510"}, "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 48, 40)
			ps := slices.Clone(l.set.Prompts)
			for i := range ps {
				ps[i].Codewords = []string{fmt.Sprint(9000 + i), fmt.Sprint(9500 + i)}
			}
			ps[20].Codewords = append(ps[20].Codewords, "12345678")
			set, err := prompts.Freeze(l.set.Header, ps)
			if err != nil {
				t.Fatal(err)
			}
			l.set = set
			says(l, "RST", c.arm)
			says(l, "C1", c.ref)
			l.write()
			a := arm(t, l.assess(), "RST")
			wantV := map[string]string{"true": "n", "false": "y"}[c.held]
			if c.ref != nil {
				wantV = "n"
			}
			if held(a, noLeak) != c.held || a.Columns["V"] != wantV {
				t.Errorf("held %s, V %s, want %s and %s; %v", held(a, noLeak), a.Columns["V"], c.held, wantV, a.Invariants)
			}
		})
	}
	l := newLab(t, 48, 40)
	l.write()
	if got := held(arm(t, l.assess(), "RST"), noLeak); got != "absent" {
		t.Errorf("a set without private values is checked for leaks: %s", got)
	}
}

// PRESS needs a pool that what is asked does not fit into, and blocks that were taken back.
func TestPressureHasToBeSeen(t *testing.T) {
	for _, c := range []struct {
		name string
		pool int // tokens; 0 = not reported
		rise map[string]float64
		word string
		sub  string
	}{
		{"evictions", 1024, map[string]float64{probes.Evictions: 5, probes.Preemptions: 0}, CleanBounded, ""},
		{"preemptions", 1024, map[string]float64{probes.Preemptions: 1}, CleanBounded, ""},
		{"neither", 1024, map[string]float64{probes.Evictions: 0, probes.Preemptions: 0}, NotExercised, ReuseLost},
		{"evictions not counted", 1024, map[string]float64{probes.Preemptions: 0}, NotExercised, Unproven},
		{"nothing counted", 1024, nil, NotExercised, Unproven},
		{"a pool for all of it", 1 << 20, map[string]float64{probes.Evictions: 5}, NotExercised, ReuseLost},
		{"no size", 0, map[string]float64{probes.Evictions: 5}, NotExercised, Unproven},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 48, 40)
			l.as("RST", func(a *ArmSpec) { a.Preset, a.Exercise = "PRESS", "PRESS" })
			l.reply["RST"] = func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, labReuse) }
			l.write()
			l.sampled("RST", 1, c.rise)
			if c.pool > 0 {
				l.after("RST", probes.FactPool, probes.PoolFact{Blocks: c.pool / 16, Tokens: c.pool})
			}
			row := 13
			if c.word == CleanBounded {
				row = 17
			}
			want(t, l.assess(), "RST", c.word, row, c.sub)
		})
	}
}

// What PRESS lost is counted between the pass that fills the store and the flood.
func TestPressureLosesNoChunk(t *testing.T) {
	for _, c := range []struct {
		filled int
		held   string
	}{{1000, "true"}, {3, "false"}} {
		l := newLab(t, 48, 40)
		l.as("RST", func(a *ArmSpec) { a.Preset, a.Exercise = "PRESS", "PRESS" })
		l.reply["RST"] = func(r *probes.Reply, _ int) { rise(r, probes.ExternalHits, labReuse) }
		l.fact["RST"] = func(name string, v any) any {
			if s, ok := v.(probes.StoreFact); ok && s.When == "start" {
				s.Chunks = ptr(0)
				return s
			}
			return v
		}
		l.write()
		l.after("RST", probes.FactStore, probes.StoreFact{When: "filled", Chunks: &c.filled})
		if a := arm(t, l.assess(), "RST"); held(a, storeInvariant) != c.held {
			t.Errorf("%d chunks: %s, want %s; %v", c.filled, held(a, storeInvariant), c.held, a.Invariants)
		}
	}
}

// The block that stands for nothing keeps its checksum.
func TestNullBlock(t *testing.T) {
	for _, c := range []struct {
		rise float64
		held string
		v    string
	}{{0, "true", "n"}, {1, "false", "y"}, {-1, "false", "y"}} {
		l := newLab(t, 48, 40)
		l.write()
		l.sampled("RST", 1, map[string]float64{probes.NullBlock: c.rise})
		if a := arm(t, l.assess(), "RST"); held(a, "null block unchanged") != c.held || a.Columns["V"] != c.v {
			t.Errorf("%g: held %s, V %s", c.rise, held(a, "null block unchanged"), a.Columns["V"])
		}
	}
}

// Loads that were made to fail are not missed hits; more misses than that are.
func TestFailedLoadsAreNoLostReuse(t *testing.T) {
	for _, c := range []struct {
		missed, failed int
		x              string
	}{{12, 12, "y"}, {12, 0, "n"}, {20, 12, "n"}} {
		l := newLab(t, 48, 40)
		l.as("RST", func(a *ArmSpec) { a.FailLoads = c.failed })
		l.reply["RST"] = func(r *probes.Reply, i int) {
			if i < c.missed {
				rise(r, probes.ExternalHits, 0)
			}
		}
		l.write()
		if a := arm(t, l.assess(), "RST"); a.Columns["X"] != c.x {
			t.Errorf("%d missed, %d made to fail: X %s, want %s; %q", c.missed, c.failed, a.Columns["X"], c.x, a.Warnings)
		}
	}
}

// With several clients the first request after a reset may be one that nothing could have
// kept; another of those sent beside it shows the reset then.
func TestResetShownByTheFirstWave(t *testing.T) {
	for _, c := range []struct {
		name   string
		beside bool // the second request is sent before the first comes back
		local  int  // of the second
		x      string
	}{
		{"beside, nothing found", true, 0, "y"},
		{"beside, something found", true, labReuse, "-"},
		{"one after another", false, 0, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, 48, 40)
			ps := slices.Clone(l.set.Prompts)
			ps[0].Tokens = ps[0].Tokens[:60] // nothing of it can be kept
			set, err := prompts.Freeze(l.set.Header, ps)
			if err != nil {
				t.Fatal(err)
			}
			l.set = set
			l.reply["WARM"] = func(r *probes.Reply, i int) {
				switch i {
				case 0:
					rise(r, probes.ExternalHits, 0)
					if c.beside {
						r.LastAt = r.SentAt + 1500
					}
				case 1:
					rise(r, probes.LocalHits, float64(c.local))
				}
			}
			l.write()
			if a := arm(t, l.assess(), "WARM"); a.Columns["X"] != c.x {
				t.Errorf("X %s, want %s; %q", a.Columns["X"], c.x, a.Warnings)
			}
		})
	}
}
