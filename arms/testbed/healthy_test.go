package testbed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// TestReuseChangesNoBit drives a healthy engine through random schedules:
// prompts that share prefixes, alone and together, local resets, store resets,
// restarts over the same store, aborts, chunk files that disappear or lose their
// end, pools too small for what is asked at once. Whatever was reused, tokens and
// logprobs must be those of an engine that reuses nothing.
func TestReuseChangesNoBit(t *testing.T) {
	seen := map[string]int{}
	runs := 6
	if testing.Short() || raceEnabled {
		runs = 3
	}
	for seed := range runs {
		for _, dt := range []model.DType{model.BF16, model.FP8} {
			t.Run(fmt.Sprintf("%s/%d", dt, seed), func(t *testing.T) {
				if diff := schedule(t, dt, uint64(seed), nil, seen); diff != "" {
					t.Fatal(diff)
				}
			})
		}
	}
	for _, path := range []string{"local", "external", "both", "restarted", "preempted", "failed load", "aborted", "salted"} {
		if seen[path] == 0 && !raceEnabled {
			t.Errorf("no request took the path %q: the schedules do not test it", path)
		}
	}
	t.Log(seen)
}

// TestSchedulesSeeFaults shows that the check above can fail: under each of
// these faults some schedule gives another answer.
func TestSchedulesSeeFaults(t *testing.T) {
	if raceEnabled {
		t.Skip("the schedules are too short under the race detector")
	}
	for _, id := range []string{"F01", "F02", "F03"} {
		caught := false
		for seed := uint64(0); seed < 8 && !caught; seed++ {
			caught = schedule(t, model.FP8, seed, []string{id}, map[string]int{}) != ""
		}
		if !caught {
			t.Errorf("no schedule sees %s", id)
		}
	}
}

// needles is a page of keys and tags among filler. Without tags nothing is
// written to the recurrent state, and a test over filler alone is blind to it.
func needles(seed uint64, n int) []int {
	p := newPage(seed).fillTo(8)
	for i := 0; len(p.tokens) < n; i++ {
		p.add(fmt.Sprintf("\nnote: tag T%02d is %d .\n", i%8, 100+p.rng.IntN(900)))
		p.fillTo(len(p.tokens) + p.rng.IntN(20))
		p.add(fmt.Sprintf("\nfact: key K%02d is %d .\n", i%8, 1000+p.rng.IntN(9000)))
		p.fillTo(len(p.tokens) + p.rng.IntN(20))
	}
	return p.tokens
}

// schedule runs one random schedule and describes the first answer that differs
// from the one without reuse.
func schedule(t *testing.T, dt model.DType, seed uint64, faults []string, seen map[string]int) (diff string) {
	rng := rand.New(rand.NewPCG(seed, uint64(dt)))
	reference := start(t, Config{DType: dt, NoPrefixCaching: true, PrefillBudget: 1 + rng.IntN(200)})
	known := map[string]answer{}
	const output = 12
	expect := func(prompt []int) answer {
		key := fmt.Sprint(prompt)
		if _, ok := known[key]; !ok {
			known[key] = begin(t, reference.Ranks[0], prompt, output, "")()
		}
		return known[key]
	}

	dir := t.TempDir()
	cfg := Config{
		DType:         dt,
		Connector:     rng.IntN(4) > 0,
		Ranks:         1 + rng.IntN(2),
		PrefillBudget: 64 + rng.IntN(200),
		Blocks:        []int{30, 60, 400}[seed%3],
		Faults:        faults,
	}
	if cfg.Connector {
		cfg.StorePath = dir
	}
	cfg.NoPrefixCaching = cfg.Connector && rng.IntN(6) == 0
	tb := start(t, cfg)

	stem := needles(seed, 400)
	prompt := func() []int {
		p := newPage(rng.Uint64() % 4)
		p.tokens = slices.Clone(stem[:1+rng.IntN(len(stem))])
		if rng.IntN(3) == 0 {
			p.fillTo(len(p.tokens) + rng.IntN(60))
		}
		p.tokens = p.tokens[:min(len(p.tokens), 30*model.BlockTokens-output-16)]
		switch rng.IntN(4) {
		case 0:
			return p.tokens
		case 1:
			return p.with(fmt.Sprintf("\nquestion: key K%02d ?", rng.IntN(8)))
		default:
			return p.with(fmt.Sprintf("\nquestion: tag T%02d ?", rng.IntN(8)))
		}
	}
	restarts := 0
	rounds := 14
	if raceEnabled {
		rounds = 5
	}
	for range rounds {
		switch rng.IntN(8) {
		case 0:
			resetLocal(t, tb)
		case 1:
			tb.Close()
			tb = start(t, cfg)
			restarts++
		case 2:
			files, _ := filepath.Glob(filepath.Join(dir, "rank-*", "*.kv"))
			if len(files) > 0 {
				tb.Close() // or the memory tier would answer for the file
				f := files[rng.IntN(len(files))]
				var err error
				if rng.IntN(2) == 0 {
					err = os.Remove(f)
				} else {
					err = os.Truncate(f, rng.Int64N(2000))
				}
				if err != nil {
					t.Fatal(err)
				}
				tb = start(t, cfg)
			}
		case 3:
			if rng.IntN(3) == 0 {
				for _, e := range tb.Ranks {
					if err := e.ResetStore(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		type asked struct {
			prompt []int
			wait   func() answer
		}
		var batch []asked
		n := 1
		if rng.IntN(2) == 0 {
			n = 2 + rng.IntN(4)
		}
		for range n {
			p := prompt()
			e := tb.Ranks[rng.IntN(len(tb.Ranks))]
			if rng.IntN(10) == 0 {
				ctx, cancel := context.WithCancel(context.Background())
				events, err := e.Submit(ctx, sched.Request{Prompt: p, MaxTokens: output, Logprobs: -1})
				if err != nil {
					t.Fatal(err)
				}
				for range rng.IntN(3) {
					<-events
				}
				cancel()
				for ev := range events {
					if ev.Finish == sched.FinishAbort {
						seen["aborted"]++
					}
				}
			}
			salt := ""
			if rng.IntN(5) == 0 {
				salt = "tenant"
				seen["salted"]++
			}
			batch = append(batch, asked{p, begin(t, e, p, output, salt)})
		}
		for _, a := range batch {
			got, want := a.wait(), expect(a.prompt)
			if !got.same(want) {
				return fmt.Sprintf("%d tokens, split %+v of %+v: got %v, without reuse %v", len(a.prompt), got.split, cfg, got.tokens, want.tokens)
			}
			s := got.split
			if s.Local+s.External+s.Computed != len(a.prompt) || s.Computed < 1 {
				t.Fatalf("split %+v does not account for %d tokens", s, len(a.prompt))
			}
			if faults == nil && s.Local%64 != 0 || s.External%64 != 0 {
				t.Fatalf("split %+v ends inside a recurrent block", s)
			}
			switch {
			case s.Local > 0 && s.External > 0:
				seen["both"]++
			case s.Local > 0:
				seen["local"]++
			case s.External > 0:
				seen["external"]++
				if restarts > 0 {
					seen["restarted"]++
				}
			}
		}
		for k, e := range tb.Ranks {
			st := e.Stats()
			seen["preempted"] += st.Preemptions
			seen["failed load"] += st.LoadFailures
			if st.Attention.Used+st.Window.Used+st.States.Used > 0 || st.Running+st.Waiting > 0 {
				t.Fatalf("rank %d is idle and holds blocks: %+v", k, st)
			}
		}
	}
	return ""
}

// TestLocalHitIsMinOverGroups shows the align mode: a prompt of 250 tokens leaves
// one snapshot, at 192 = 3 x 64, so a second prompt that shares 240 tokens, 15
// whole blocks, resumes at 192 and one that shares 180 resumes nowhere.
func TestLocalHitIsMinOverGroups(t *testing.T) {
	tb := start(t, Config{})
	stem := newPage(1).fillTo(250).tokens
	ask(t, tb, stem)
	other := newPage(2).fillTo(60).tokens[1:]
	for _, c := range []struct{ share, local int }{
		{240, 192}, {250, 192}, {193, 192}, {180, 0}, {64, 0},
	} {
		p := append(slices.Clone(stem[:c.share]), other...)
		if got := ask(t, tb, p).split.Local; got != c.local {
			t.Errorf("sharing %d tokens: local hit %d, want %d", c.share, got, c.local)
		}
	}
	// Exactly the first 192 tokens: one must be left to compute, and the next
	// snapshot below is the one that the last prompt above left at 64.
	if got := ask(t, tb, stem[:192]).split.Local; got != 64 {
		t.Errorf("prompt of 192 tokens: local hit %d, want 64", got)
	}
}

// TestStoreHitsEveryBoundary shows that the store, unlike the local cache, can
// be resumed from at each multiple of 64 below the prompt's end.
func TestStoreHitsEveryBoundary(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Connector: true, StorePath: dir}
	tb := start(t, cfg)
	stem := newPage(3).fillTo(256).tokens
	if got := ask(t, tb, stem).split; got.External != 0 {
		t.Fatalf("empty store gave %+v", got)
	}
	if got := tb.Ranks[0].Stats(); got.ChunksPresent != 4 || got.ChunksStored != 4 {
		t.Fatalf("256 tokens are 4 chunks, store has %d and wrote %d", got.ChunksPresent, got.ChunksStored)
	}
	tb.Close()
	tb = start(t, cfg) // nothing local is left
	for _, c := range []struct{ n, external int }{{256, 192}, {193, 192}, {192, 128}, {130, 128}, {64, 0}} {
		resetLocal(t, tb)
		if got := ask(t, tb, stem[:c.n]).split; got.Local != 0 || got.External != c.external {
			t.Errorf("%d tokens: %+v, want external %d", c.n, got, c.external)
		}
	}
	// A local hit of 128 and a store that goes on to 192.
	resetLocal(t, tb)
	ask(t, tb, stem[:130])
	if got := ask(t, tb, stem).split; got.Local != 128 || got.External != 64 {
		t.Errorf("partial hit is %+v, want local 128 and external 64", got)
	}
}

// TestRanksAreApart asks one rank and then the other.
func TestRanksAreApart(t *testing.T) {
	tb := start(t, Config{Connector: true, StorePath: t.TempDir(), Ranks: 2})
	p := newPage(4).fillTo(200).tokens
	begin(t, tb.Ranks[0], p, 2, "")()
	if got := begin(t, tb.Ranks[1], p, 2, "")().split; got.Computed != 200 {
		t.Errorf("rank 1 found what rank 0 computed: %+v", got)
	}
	if got := begin(t, tb.Ranks[0], p, 2, "")().split; got.Local != 192 {
		t.Errorf("rank 0 lost what it computed: %+v", got)
	}
}

// TestIdentityIsInTheKey asks the same tokens under another salt, weights seed,
// format and hash seed. Each time nothing may be found, and the same identity
// must be.
func TestIdentityIsInTheKey(t *testing.T) {
	base := Config{Connector: true, StorePath: t.TempDir()}
	p := newPage(5).fillTo(200).tokens
	ask(t, start(t, base), p)
	seed := uint64(12)
	other := map[string]func(*Config){
		"weights":   func(c *Config) { c.ModelSeed = &seed },
		"format":    func(c *Config) { c.DType = model.FP8 },
		"hash seed": func(c *Config) { c.HashSeed = "1" },
	}
	for name, change := range other {
		cfg := base
		change(&cfg)
		if got := ask(t, start(t, cfg), p).split; got.External != 0 {
			t.Errorf("another %s found %+v", name, got)
		}
	}
	tb := start(t, base)
	if got := begin(t, tb.Ranks[0], p, 1, "tenant")().split; got.Computed != 200 {
		t.Errorf("another salt found %+v", got)
	}
	if got := ask(t, tb, p).split; got.External != 192 {
		t.Errorf("the same identity found %+v, want external 192", got)
	}
	if got := begin(t, tb.Ranks[0], p, 1, "tenant")().split; got.Local != 192 {
		t.Errorf("the same salt found %+v, want local 192", got)
	}
}
