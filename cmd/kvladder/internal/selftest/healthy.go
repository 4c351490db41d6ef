package selftest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"kvladder/arms"
	"kvladder/scoring"
)

// HealthyReport is the JSON document of `kvladder selftest --healthy N`. The noisy half runs
// on a healthy engine whose kernels depend on the prefill split or on the process, and that
// answers one needle in a hundred wrongly, in every arm alike. Bounds are exact, one-sided,
// 95 %.
type HealthyReport struct {
	Seed         uint64         `json:"seed"`
	Ladders      int            `json:"ladders"` // of the exact half
	Noisy        int            `json:"noisy"`   // of the noisy half
	Accused      int            `json:"accused"`
	Upper95      *float64       `json:"upper95"` // on the rate of accused exact ladders
	AccusedNoisy int            `json:"accused_noisy"`
	NoisySound   int            `json:"noisy_sound"`   // noisy ladders whose controls held (K = y in every judged arm)
	AccusedSound int            `json:"accused_sound"` // of them, accused
	Upper95Noisy *float64       `json:"upper95_noisy"` // on the rate of accused ones among them
	ControlDirty int            `json:"control_dirty"` // noisy ladders with a CONTROL_DIRTY arm
	Verdicts     map[string]int `json:"verdicts"`      // exact half: verdict word -> arms
	VerdictsN    map[string]int `json:"verdicts_noisy"`
	Cases        []string       `json:"cases"` // the accused ladders, as they can be run again
	Exit         int            `json:"exit"`
}

// HealthyUpper is the bound on a rate; the caller wires compare.Upper95.
type HealthyUpper func(k, n int) *float64

// Healthy climbs n small healthy ladders, every second one on the noisy engine. Seeds,
// geometries, dtypes, kinds and sizes of the Sets, and the arms are drawn.
func (b *Bench) Healthy(ctx context.Context, n int, upper HealthyUpper) (HealthyReport, error) {
	rep := HealthyReport{Seed: b.Seed, Verdicts: map[string]int{}, VerdictsN: map[string]int{}, Cases: []string{}}
	var mu sync.Mutex
	err := b.each(ctx, n, func(ctx context.Context, i int) error {
		noisy := i%2 == 1
		text, kind, size, seed, geo := drawHealthy(b.Seed, i, noisy)
		one := *b
		one.Geometry = geo
		set, err := b.Draw(ctx, Sheet{Kind: kind, N: size, Seed: seed, Geometry: geo})
		if err != nil {
			return fmt.Errorf("healthy ladder %d: %w", i, err)
		}
		l, err := arms.ParseLadder(fmt.Sprintf("healthy-%d", i), []byte(text))
		if err != nil {
			return err
		}
		l.Pin(one.geometryPins())
		res, err := one.ladder(ctx, fmt.Sprintf("healthy-%d", i), l, set, &numbered{Launcher: b.Inproc})
		if err != nil {
			return fmt.Errorf("healthy ladder %d: %w", i, err)
		}
		mu.Lock()
		defer mu.Unlock()
		rep.count(res, noisy, fmt.Sprintf("ladder %d of seed %d: %s set of %d with seed %d, geometry %v: %s\n%s", i, b.Seed, kind, size, seed, geo, res.Verdict, text))
		return nil
	})
	rep.Upper95 = upper(rep.Accused, rep.Ladders)
	rep.Upper95Noisy = upper(rep.AccusedSound, rep.NoisySound)
	if rep.Accused > 0 || rep.NoisySound > 0 && float64(rep.AccusedSound) > 0.05*float64(rep.NoisySound) {
		rep.Exit = scoring.ExitCorrupt
	}
	return rep, err
}

func (rep *HealthyReport) count(res scoring.Result, noisy bool, what string) {
	words, sound, dirty := rep.Verdicts, true, false
	if noisy {
		words = rep.VerdictsN
	}
	for _, a := range res.Arms {
		if a.Role != scoring.Judged || a.Verdict == nil {
			continue
		}
		words[*a.Verdict]++
		sound = sound && a.Columns["K"] == "y"
		dirty = dirty || *a.Verdict == scoring.ControlDirty
	}
	accused := accuses(res)
	if accused {
		rep.Cases = append(rep.Cases, what)
	}
	if !noisy {
		rep.Ladders++
		if accused {
			rep.Accused++
		}
		return
	}
	rep.Noisy++
	if accused {
		rep.AccusedNoisy++
	}
	if sound {
		rep.NoisySound++
		if accused {
			rep.AccusedSound++
		}
	}
	if dirty {
		rep.ControlDirty++
	}
}

// numbered gives each engine of a ladder its number, so that a random order of summation and
// a flake are of one process, and come out of the seed again all the same.
type numbered struct {
	arms.Launcher
	n atomic.Uint64
}

func (l *numbered) Launch(ctx context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	spec.Argv = append(slices.Clone(spec.Argv), "--noise-process", fmt.Sprint(l.n.Add(1)))
	return l.Launcher.Launch(ctx, spec, log)
}

// smallGeometries are those of healthy ladders: attention block and recurrent boundary.
var smallGeometries = []Geometry{DefaultGeometry, {32, 64}, {64, 64}, {16, 80}, {32, 96}}

// drawHealthy draws one small ladder. The draw depends on the seed and the number alone.
func drawHealthy(seed uint64, i int, noisy bool) (text, kind string, size int, setSeed uint64, geo Geometry) {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	geo = smallGeometries[r.IntN(len(smallGeometries))]
	kind = []string{"brief", "brief", "brief", "brief", "brief", "mixed", "needle", "partial-hit"}[r.IntN(8)]
	size = 10 + r.IntN(6)
	setSeed = 1 + r.Uint64N(40) // few Sets, so that drawing them costs little beside climbing
	pins := []string{"kv_cache_dtype: " + []string{"bf16", "fp8"}[r.IntN(2)], fmt.Sprintf("model_seed: %d", []int{7, 11, 11}[r.IntN(3)])}
	if noisy {
		pins = append(pins, "noise: "+[]string{"split", "order"}[r.IntN(2)], fmt.Sprintf("noise_seed: %d", 1+r.IntN(1<<30)), "flake: \"0.01\"")
	}
	list := []string{"C0", "C1", "COLD"}
	for _, a := range []string{"REPLAY", "WARM", "RST"} {
		if r.IntN(5) < 2 {
			list = append(list, a)
		}
	}
	if kind != "needle" && r.IntN(4) == 0 {
		list = append(list, "PART")
	}
	text = fmt.Sprintf("ladder: healthy-%d\nengine: testbed\nset: drawn\npins: {%s}\narms: [%s]\nfloors: {C0: %d, C1: 2}\nrules: {n_min: 8, g_min: 6, p_max: 0.40}\n",
		i, strings.Join(pins, ", "), strings.Join(list, ", "), 2+r.IntN(2))
	return text, kind, size, setSeed, geo
}
