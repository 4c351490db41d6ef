package engine_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/arms/testbed"
	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/sched"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// TestPredictionsHold runs random sets through the embedded engine, under every
// configuration and through resets and restarts, also in a pool that is too small for the
// set, and compares what it counted for each request with what Expect says.
func TestPredictionsHold(t *testing.T) {
	seen := map[string]int{}
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		for _, role := range []string{"C0", "C1", "store"} {
			for _, blocks := range []string{"2048", "64"} {
				t.Run(fmt.Sprintf("%s/%s/%d", role, blocks, seed), func(t *testing.T) {
					s := forks(t, seed)
					pins := engine.Testbed{}.Pins()
					conf, err := engine.Testbed{}.Configure(role)
					if err != nil {
						t.Fatal(err)
					}
					for k, v := range conf {
						pins[k] = v
					}
					pins["blocks"] = blocks
					steps := []arms.Step{{Do: "replay"}, {Do: "replay"}, {Do: "drain"}, {Do: "reset"}, {Do: "replay"}, {Do: "reset"}, {Do: "prime"},
						{Do: "save"}, {Do: "stop"}, {Do: "restart"}, {Do: "restore"}, {Do: "replay"}}
					hold(t, s, pins, steps, seen)
				})
			}
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("geometry/%d", seed), func(t *testing.T) {
			pins := engine.Testbed{}.Pins()
			pins["connector"], pins["block_size"], pins["mamba_block_size"], pins["tensor_parallel"] = "store", "32", "96", "2"
			hold(t, forks(t, seed), pins, []arms.Step{{Do: "replay"}, {Do: "reset"}, {Do: "replay"}, {Do: "expire"}, {Do: "replay"}, {Do: "reset"},
				{Do: "prime"}, {Do: "reset"}, {Do: "evict-rank"}, {Do: "replay"}, {Do: "reset"}, {Do: "replay"}}, seen)
		})
	}
	for _, kind := range []string{"none", "local", "external", "both"} {
		if seen[kind] == 0 {
			t.Errorf("no request with reuse %s: the schedules do not test it", kind)
		}
	}
	t.Log(seen)
}

// forks draws prompts of 60 to 330 tokens, half of which go on from the beginning of an
// earlier one, with primes and now and then a salt.
func forks(t *testing.T, seed uint64) *prompts.Set {
	rng := rand.New(rand.NewPCG(seed, 7))
	var all [][]int
	for range 8 {
		var ids []int
		if len(all) > 0 && rng.IntN(2) == 0 {
			old := all[rng.IntN(len(all))]
			ids = append(ids, old[:rng.IntN(len(old)+1)]...)
		}
		for n := 60 + rng.IntN(270); len(ids) < n; {
			ids = append(ids, 3+rng.IntN(200))
		}
		if rng.IntN(3) == 0 { // a length that is a multiple of the boundary, or one more
			ids = ids[:len(ids)/64*64+rng.IntN(2)*min(1, len(ids)%64)]
			if len(ids) < 60 {
				ids = append(ids, make([]int, 64)...)
			}
		}
		all = append(all, ids)
	}
	s := set(t, paged, 0, all...)
	s.MaxTokens = 3
	for i := range s.Prompts {
		p := &s.Prompts[i]
		if rng.IntN(2) == 0 {
			p.Prime = &prompts.Prime{Tokens: 1 + rng.IntN(len(p.Tokens)-1)}
		}
		if rng.IntN(5) == 0 {
			p.Salt = "other"
		}
	}
	return s
}

// hold runs the schedule in a real engine beside the prediction.
func hold(t *testing.T, s *prompts.Set, pins map[string]string, steps []arms.Step, seen map[string]int) {
	t.Helper()
	want := engine.Testbed{}.Expect(s, pins, steps)
	cfg := testbed.Config{NoPrefixCaching: pins["prefix_caching"] == "off", Connector: pins["connector"] == "store"}
	fmt.Sscan(pins["blocks"], &cfg.Blocks)
	fmt.Sscan(pins["block_size"], &cfg.Geometry.Block)
	fmt.Sscan(pins["mamba_block_size"], &cfg.Geometry.Every)
	fmt.Sscan(pins["tensor_parallel"], &cfg.TensorParallel)
	if cfg.Connector {
		cfg.StorePath = t.TempDir()
	}
	var tb *testbed.Testbed
	start := func() {
		var err error
		if tb, err = testbed.New(cfg, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	start()
	defer func() { tb.Close() }()
	ask := func(p prompts.Prompt, tokens []int) scoring.Reuse {
		before := tb.Ranks[0].Stats()
		events, err := tb.Ranks[0].Submit(context.Background(), sched.Request{Prompt: tokens, Who: cache.Who{Salt: p.Salt}, MaxTokens: s.MaxTokens, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		for range events {
		}
		after := tb.Ranks[0].Stats()
		return scoring.Reuse{Local: after.LocalHits - before.LocalHits, External: after.ExternalHits - before.ExternalHits}
	}
	pass := 0
	for _, st := range steps {
		switch st.Do {
		case "reset":
			srv := httptest.NewServer(tb)
			if err := (engine.Testbed{}).Reset(context.Background(), probes.Endpoint{URL: srv.URL}); err != nil {
				t.Fatal(err)
			}
			srv.Close()
		case "expire":
			if err := tb.Ranks[0].ResetStore(); err != nil {
				t.Fatal(err)
			}
		case "evict-rank":
			if err := tb.Ranks[0].ResetStore(1); err != nil {
				t.Fatal(err)
			}
		case "restart":
			tb.Close()
			start()
		case "replay", "prime":
			for _, p := range s.Prompts {
				if st.Do == "prime" && p.Prime != nil {
					ask(p, p.Tokens[:p.Prime.Tokens])
				}
				got := ask(p, p.Tokens)
				if got != want[pass][p.ID] {
					t.Errorf("pass %d (%s), prompt %s of %d tokens: the engine reused %+v, predicted %+v", pass+1, st.Do, p.ID, len(p.Tokens), got, want[pass][p.ID])
				}
				seen[kind(got)]++
			}
			pass++
		}
	}
	if pass != len(want) {
		t.Errorf("%d passes predicted, %d run", len(want), pass)
	}
}

func kind(r scoring.Reuse) string {
	switch {
	case r.Local > 0 && r.External > 0:
		return "both"
	case r.Local > 0:
		return "local"
	case r.External > 0:
		return "external"
	}
	return "none"
}

// TestTestbedStates reads every pin back from a real server.
func TestTestbedStates(t *testing.T) {
	tb, err := testbed.New(testbed.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close()
	srv := httptest.NewServer(tb)
	defer srv.Close()
	at := probes.Endpoint{URL: srv.URL}
	if err := (engine.Testbed{}).Ready(context.Background(), at); err != nil {
		t.Error(err)
	}
	reads, err := engine.Testbed{}.ReadPins(context.Background(), at, engine.Testbed{}.Pins())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reads {
		if r.Agrees == nil || !*r.Agrees {
			t.Errorf("pin %s: asked %q, not read back as that", r.Name, r.Asked)
		}
	}
}
