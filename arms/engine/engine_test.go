package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// numbers returns n token ids that depend on seed.
func numbers(seed uint64, n int) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 1000 + rng.IntN(30000)
	}
	return ids
}

// set freezes a set of prompts that are given as token ids; the i-th is asked of slot
// i modulo slots, where slots is not 0.
func set(t testing.TB, h prompts.Header, slots int, tokens ...[]int) *prompts.Set {
	t.Helper()
	var ps []prompts.Prompt
	for i, ids := range tokens {
		p := prompts.Prompt{ID: fmt.Sprintf("p%d", i), Role: prompts.Target, Tokens: ids, Body: "{}"}
		if slots > 0 {
			n := i % slots
			p.Slot = &n
		}
		ps = append(ps, p)
	}
	h.Name = "test"
	s, err := prompts.Freeze(h, ps)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var paged = prompts.Header{MaxTokens: 8, Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64}}

func TestTestbed(t *testing.T) {
	shared := numbers(1, 321)
	armtest.TestEngine(t, armtest.EngineCase{
		Engine: engine.Testbed{},
		Other: map[string]string{
			"model_seed": "12", "kv_cache_dtype": "fp8", "prefix_caching": "off", "connector": "store", "blocks": "64",
			"prefill_budget": "64", "ranks": "2", "hash_seed": "1", "fault": "F01",
			"block_size": "32", "mamba_block_size": "96", "tensor_parallel": "2", "store_scope": "shared", "store_steps": "2",
			"load_steps": "3", "load_policy": "fail", "draft": "3", "trace_replay": "on", "config_epoch": "1", "adapters": "a,b", "noise": "split",
			"noise_seed": "5", "flake": "0.01",
		},
		Bad: map[string]string{
			"model_seed": "-1", "kv_cache_dtype": "f16", "prefix_caching": "yes", "connector": "", "blocks": "3", "prefill_budget": "0",
			"ranks": "x", "hash_seed": "", "block_size": "8", "mamba_block_size": "8", "tensor_parallel": "3", "store_scope": "all",
			"store_steps": "-1", "load_steps": "x", "load_policy": "retry", "draft": "-1", "trace_replay": "maybe", "config_epoch": "-1", "noise": "white",
			"noise_seed": "-1", "flake": "2",
		},
		Dead:  []string{"EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.", "panic: runtime error: index out of range", "fatal error: all goroutines are asleep - deadlock!"},
		Alive: []string{"listening on http://127.0.0.1:1", `request id=1 prompt="panic: "`, ""},
		Set:   set(t, paged, 0, shared, append(slices.Clone(shared[:200]), numbers(2, 121)...), numbers(3, 130)),
	})
}

func TestLlamaCpp(t *testing.T) {
	shared := numbers(1, 321)
	armtest.TestEngine(t, armtest.EngineCase{
		Engine: engine.LlamaCpp{},
		Other: map[string]string{
			"binary": "/opt/llama/llama-server", "model": "other.gguf", "ggml_backend": "zen4", "kv_cache_dtype": "q8_0", "flash_attn": "on",
			"threads": "1", "batch": "1024", "ubatch": "64", "slots": "2", "ctx": "4096", "cache_prompt": "off", "kv_unified": "on",
			"seed": "2", "slot_restore": "on", "cache_ram": "64",
			"slot_similarity": "0", "cache_reuse": "32", "cache_idle_slots": "on", "ctx_checkpoints": "0", "checkpoint_step": "64", "memory": "hybrid",
		},
		With:   map[string]map[string]string{"kv_cache_dtype": {"flash_attn": "on"}},
		Silent: []string{"slot_restore", "memory"},
		Bad: map[string]string{
			"kv_cache_dtype": "fp8", "flash_attn": "auto", "threads": "0", "ubatch": "513", "ctx": "8200", "cache_ram": "-1", "seed": "-1", "model": "",
			"slot_similarity": "1.5", "cache_reuse": "-1", "cache_idle_slots": "yes", "ctx_checkpoints": "-1", "checkpoint_step": "x", "memory": "mamba",
		},
		Dead:  []string{"/build/ggml/src/ggml.c:1: GGML_ASSERT(n > 0) failed", "terminate called after throwing an instance of 'std::bad_alloc'"},
		Alive: []string{"srv  llama_server: model loaded", "slot launch_slot_: id  0 | task 0 | processing task"},
		Set:   set(t, prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}, 2, shared, numbers(2, 321)),
	})
}

// TestLlamaCppSizes: sizes that the server would change in silence are refused.
func TestLlamaCppSizes(t *testing.T) {
	spec := func(pins map[string]string) error {
		_, err := engine.LlamaCpp{}.Spec(pins, arms.Address{}, arms.Resources{})
		return err
	}
	for _, bad := range []map[string]string{
		{"ctx": "1000", "slots": "4"},
		{"kv_cache_dtype": "q8_0", "flash_attn": "off"},
		{"slot_restore": "on"},
	} {
		if err := spec(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
	if err := spec(map[string]string{"ctx": "12288", "slots": "32"}); err == nil {
		t.Error("384 tokens a slot were accepted: the server makes them 512")
	}
	if err := spec(map[string]string{"ctx": "16384", "slots": "32"}); err != nil {
		t.Error(err)
	}
}

// check runs one schedule, written as words, through predict and compares the passes with
// want, one string a pass: "local+external" for each prompt in order.
func check(t *testing.T, s *prompts.Set, predict func(*prompts.Set, []arms.Step) []map[string]scoring.Reuse, schedule string, want ...string) {
	t.Helper()
	var steps []arms.Step
	for _, w := range strings.Fields(schedule) {
		steps = append(steps, arms.Step{Do: w})
	}
	var got []string
	for _, pass := range predict(s, steps) {
		var row []string
		for _, p := range s.Prompts {
			row = append(row, fmt.Sprintf("%d+%d", pass[p.ID].Local, pass[p.ID].External))
		}
		got = append(got, strings.Join(row, " "))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: want -, got +\n%s", schedule, d)
	}
}

// TestPaged works out reuse by hand. Boundaries are 64 tokens, so a prompt of n tokens
// keeps its snapshot at floor((n-1)/64)*64: 320 for n=321, 256 for n=320. Its chunks end
// at every multiple of 64 up to n, and at most n-1 tokens are taken.
func TestPaged(t *testing.T) {
	a, b := numbers(1, 321), numbers(2, 321)
	fork := append(slices.Clone(a[:200]), b[:121]...) // shares 200 tokens with a: 192 in whole blocks, 192 in chunks
	whole := a[:320]
	var local = engine.Paged{Block: 16, Recurrent: 64, Chunk: 64, Local: true}
	store := local
	store.Store = true
	none := local
	none.Local = false
	only := none
	only.Store = true
	attention := local
	attention.Recurrent = 0
	small := local
	small.Blocks = 42 // two prompts of 321 tokens and their output take 2 x 21 blocks

	check(t, set(t, paged, 0, a, b), none.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
	check(t, set(t, paged, 0, a, b), local.Expect, "replay replay reset replay restart replay", "0+0 0+0", "320+0 320+0", "0+0 0+0", "0+0 0+0")
	// fork finds 12 blocks of a but no snapshot among them, so locally nothing; the store
	// has three chunks of it, and all five once it has been asked
	check(t, set(t, paged, 0, a, fork), local.Expect, "replay replay", "0+0 0+0", "320+0 320+0")
	check(t, set(t, paged, 0, a, fork), store.Expect, "replay replay reset replay restart replay", "0+0 0+192", "320+0 320+0", "0+320 0+320", "0+320 0+320")
	check(t, set(t, paged, 0, a, fork), only.Expect, "replay replay", "0+0 0+192", "0+320 0+320")
	// without a recurrent group fork takes the 12 blocks
	check(t, set(t, paged, 0, a, fork), attention.Expect, "replay", "0+0 192+0")
	// 320 tokens: the last chunk is stored, but one token must be left to compute
	check(t, set(t, paged, 0, whole), store.Expect, "replay replay reset replay", "0+0", "256+0", "0+256")
	check(t, set(t, paged, 0, whole, a), store.Expect, "replay", "0+0 256+64")
	// 42 blocks hold two prompts. Of three, each takes the blocks of the one that is
	// asked next; of two, both stay
	check(t, set(t, paged, 0, a, b), small.Expect, "replay replay", "0+0 0+0", "320+0 320+0")
	check(t, set(t, paged, 0, a, b, numbers(3, 321)), small.Expect, "replay replay", "0+0 0+0 0+0", "0+0 0+0 0+0")
}

// TestPagedPrime: a prime of 130 tokens leaves a snapshot at 128, below the 320 in the store.
func TestPagedPrime(t *testing.T) {
	s := set(t, paged, 0, numbers(1, 321))
	s.Prompts[0].Prime = &prompts.Prime{Tokens: 130}
	g := engine.Paged{Block: 16, Recurrent: 64, Chunk: 64, Local: true, Store: true}
	check(t, s, g.Expect, "replay reset prime", "0+0", "128+192")
	g.Store = false
	check(t, s, g.Expect, "prime prime", "128+0", "320+0")
}

// TestPagedSalt: another salt shares nothing.
func TestPagedSalt(t *testing.T) {
	s := set(t, paged, 0, numbers(1, 321), numbers(1, 321), numbers(1, 321))
	s.Prompts[1].Salt = "x"
	check(t, s, engine.Paged{Block: 16, Recurrent: 64, Chunk: 64, Local: true, Store: true}.Expect, "replay", "0+0 0+0 320+0")
}

// TestSlots: a slot holds the last prompt asked of it.
func TestSlots(t *testing.T) {
	a, b := numbers(1, 321), numbers(2, 300)
	fork := append(slices.Clone(a[:200]), b[:121]...)
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}
	reuse := engine.Slots{Reuse: true}
	files := engine.Slots{Reuse: true, Files: true}
	check(t, set(t, h, 2, a, b), engine.Slots{}.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
	check(t, set(t, h, 2, a, b), reuse.Expect, "replay replay reset replay", "0+0 0+0", "320+0 299+0", "0+0 0+0")
	check(t, set(t, h, 1, a, b), reuse.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
	check(t, set(t, h, 1, a, fork), reuse.Expect, "replay replay", "0+0 200+0", "200+0 200+0")
	check(t, set(t, h, 2, a, b), reuse.Expect, "replay save restart restore replay", "0+0 0+0", "0+0 0+0")
	check(t, set(t, h, 2, a, b), files.Expect, "replay save restart replay restore replay replay", "0+0 0+0", "0+0 0+0", "0+320 0+299", "0+320 0+299")
	check(t, set(t, h, 0, a, b), reuse.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
}

// TestSlotsRouting: prompts that name no slot. Similarity 0.1 is of the prompt that comes.
func TestSlotsRouting(t *testing.T) {
	a, b := numbers(1, 100), numbers(2, 100)
	fork := append(slices.Clone(a[:40]), numbers(3, 60)...) // 40 of 100 are in a's slot
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}
	lcp := engine.Slots{Reuse: true, Count: 3, Similarity: 0.1}
	lru := engine.Slots{Reuse: true, Count: 3}
	check(t, set(t, h, 0, a, b), lcp.Expect, "replay replay", "0+0 0+0", "99+0 99+0")
	check(t, set(t, h, 0, a, fork), lcp.Expect, "replay replay", "0+0 40+0", "40+0 40+0") // both go to one slot, two stay empty
	// without a search for a like one: slots 0 and 1, then 2 and 0, then 1 and 2
	check(t, set(t, h, 0, a, b), lru.Expect, "replay replay replay", "0+0 0+0", "0+0 0+0", "0+0 0+0")
	lru.Count = 2
	check(t, set(t, h, 0, a, b), lru.Expect, "replay replay", "0+0 0+0", "99+0 99+0")
}

// TestSlotsHost: one slot, and the host keeps what leaves it.
func TestSlotsHost(t *testing.T) {
	a, b := numbers(1, 100), numbers(2, 80)
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}, MaxTokens: 8}
	host := engine.Slots{Reuse: true, Count: 1, Similarity: 0.1, Host: true, Says: 7}
	check(t, set(t, h, 0, a, b), host.Expect, "replay replay restart replay", "0+0 0+0", "0+99 0+79", "0+0 0+0")
	// an erased slot held the last prompt, which has no copy: it was taken back when it was asked
	check(t, set(t, h, 0, a, b), host.Expect, "replay reset replay", "0+0 0+0", "0+99 0+0")
	// another end behind 60 of 100 tokens: the slot keeps more than half, nothing is copied
	fork := append(slices.Clone(a[:60]), numbers(3, 10)...)
	check(t, set(t, h, 0, a, fork), host.Expect, "replay replay", "0+0 60+0", "60+0 60+0")
	host.Host = false
	check(t, set(t, h, 0, a, b), host.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
}

// TestSlotsChunks: head of 20, middle of 50, rest of 100.
func TestSlotsChunks(t *testing.T) {
	head, middle, rest := numbers(1, 20), numbers(2, 50), numbers(3, 100)
	long, short := slices.Concat(head, middle, rest), slices.Concat(head, rest)
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}
	g := engine.Slots{Reuse: true, Chunk: 32}
	// the long one finds nothing moved in the short one: behind the head it goes on otherwise
	check(t, set(t, h, 1, long, short), g.Expect, "replay replay", "0+0 119+0", "20+0 119+0")
	g.Chunk = 101 // the rest is shorter
	check(t, set(t, h, 1, long, short), g.Expect, "replay", "0+0 20+0")
	g.Chunk = 0
	check(t, set(t, h, 1, long, short), g.Expect, "replay", "0+0 20+0")
}

// TestSlotsHybrid: a checkpoint lies four tokens before the end of each prompt.
func TestSlotsHybrid(t *testing.T) {
	a := numbers(1, 201)
	more := append(slices.Clone(a), numbers(2, 100)...)
	half := append(slices.Clone(a[:150]), numbers(3, 51)...)
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}
	g := engine.Slots{Reuse: true, Files: true, Hybrid: true, Checkpoints: 32}
	check(t, set(t, h, 1, a), g.Expect, "replay replay", "0+0", "197+0")
	check(t, set(t, h, 1, a, more), g.Expect, "replay replay", "0+0 197+0", "197+0 197+0")
	check(t, set(t, h, 1, a, half), g.Expect, "replay replay", "0+0 0+0", "0+0 0+0")
	check(t, set(t, h, 1, a), g.Expect, "replay save restart restore replay", "0+0", "0+197")
	g.Checkpoints = 1 // that of the first prompt is given up for the second's
	check(t, set(t, h, 1, a, more), g.Expect, "replay replay", "0+0 197+0", "0+0 197+0")
	g.Checkpoints = 0
	check(t, set(t, h, 1, a), g.Expect, "replay replay", "0+0", "0+0")
}

// TestSlotsExpire: what another configuration saved is not to be found.
func TestSlotsExpire(t *testing.T) {
	h := prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}
	check(t, set(t, h, 1, numbers(1, 50)), engine.Slots{Reuse: true, Files: true}.Expect, "replay save restart expire restore replay", "0+0", "0+0")
}

// TestLlamaCppLastChunk: a hybrid prompt is cut four tokens before its end.
func TestLlamaCppLastChunk(t *testing.T) {
	pins := engine.LlamaCpp{}.Pins()
	for _, c := range []struct {
		memory        string
		tokens, reuse int
		want          int
	}{
		{"attention", 561, 0, 49}, {"attention", 561, 560, 1}, {"attention", 300, 100, 200},
		{"hybrid", 561, 0, 4}, {"hybrid", 561, 557, 4}, {"hybrid", 561, 100, 4}, {"hybrid", 3, 0, 3},
	} {
		pins["memory"] = c.memory
		if got := (engine.LlamaCpp{}).LastChunk(pins, c.tokens, c.reuse); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestLlamaCppChoices: what the pins allow and mean.
func TestLlamaCppChoices(t *testing.T) {
	e := engine.LlamaCpp{}
	pins := e.Pins()
	if why := e.CannotWith("WARM", pins); why == "" {
		t.Error("WARM without a cache beside the slots")
	}
	pins["cache_ram"] = "64"
	if why := e.CannotWith("WARM", pins); why != "" {
		t.Error(why)
	}
	pins["slot_restore"] = "on"
	if why := e.CannotWith("WARM", pins); why == "" {
		t.Error("WARM from slot files")
	}
	if e.Inexact(pins) != "" {
		t.Error("nothing is shifted, and it is called inexact")
	}
	pins["cache_reuse"] = "32"
	if e.Inexact(pins) == "" {
		t.Error("shifted chunks are called exact")
	}
}

// TestTestbedPinsRead reads pins from the members that the server states.
func TestTestbedPinsRead(t *testing.T) {
	stated := map[string]any{
		"model_seed": json.Number("18446744073709551615"), "kv_cache_dtype": "fp8", "enable_prefix_caching": false, "connector": "store", "blocks": 64,
		"prefill_budget": 127, "data_parallel_size": 1, "hash_seed": "0", "faults": []string{"F02", "F01"},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/server_info" {
			json.NewEncoder(w).Encode(map[string]any{"testbed": stated})
		}
	}))
	defer srv.Close()
	asked := map[string]string{"model_seed": "18446744073709551615", "kv_cache_dtype": "bf16", "prefix_caching": "off", "connector": "store", "blocks": "64",
		"prefill_budget": "64", "ranks": "1", "hash_seed": "0", "fault": "f01,F02", "unheard_of": "1"}
	reads, err := engine.Testbed{}.ReadPins(context.Background(), probes.Endpoint{URL: srv.URL}, asked)
	if err != nil {
		t.Fatal(err)
	}
	wantReads(t, reads, map[string]string{
		"model_seed": "18446744073709551615 agrees", "kv_cache_dtype": "fp8 differs", "prefix_caching": "off agrees", "connector": "store agrees",
		"blocks": "64 agrees", "prefill_budget": "127 differs", "ranks": "1 agrees", "hash_seed": "0 agrees", "fault": "F02,F01 agrees", "unheard_of": "unread",
	})
}

// TestLlamaCppPinsRead reads pins from a recorded log of build 11669, started with q8_0,
// and from the members of /props that the same build sends.
func TestLlamaCppPinsRead(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/props" {
			fmt.Fprint(w, `{"default_generation_settings":{"params":{"seed":1},"n_ctx":4096},"total_slots":2,"model_path":"/srv/cache/llamacpp/model/x.gguf"}`)
		}
	}))
	defer srv.Close()
	asked := engine.LlamaCpp{}.Pins()
	asked["slots"], asked["model"] = "2", "llamacpp/model/x.gguf"
	reads, err := engine.LlamaCpp{}.ReadPins(context.Background(), probes.Endpoint{URL: srv.URL}, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"model": "/srv/cache/llamacpp/model/x.gguf agrees", "slots": "2 agrees", "seed": "1 agrees", "ctx": "8192 agrees",
		"binary": "unread", "ggml_backend": "unread", "kv_cache_dtype": "unread", "flash_attn": "unread", "threads": "unread", "batch": "unread",
		"ubatch": "unread", "cache_prompt": "unread", "cache_ram": "unread", "kv_unified": "unread", "slot_restore": "unread",
		"slot_similarity": "unread", "cache_reuse": "unread", "cache_idle_slots": "unread", "ctx_checkpoints": "unread", "checkpoint_step": "unread",
		"memory": "unread",
	}
	wantReads(t, reads, want)
	log, err := os.Open("testdata/llamacpp-start.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := (engine.LlamaCpp{}).ReadLog(log, reads); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"ggml_backend": "haswell agrees", "kv_cache_dtype": "q8_0 differs", "flash_attn": "on differs", "threads": "2 agrees",
		"batch": "512 agrees", "ubatch": "512 agrees", "kv_unified": "off agrees"} {
		want[name] = v
	}
	wantReads(t, reads, want)
}

// TestLlamaCppPinsOfCaches reads what build 11669 prints of its caches: a hybrid model with
// all of them on, and what it prints of those that are off.
func TestLlamaCppPinsOfCaches(t *testing.T) {
	asked := map[string]string{"cache_ram": "64", "ctx_checkpoints": "7", "checkpoint_step": "8192", "memory": "attention"}
	for log, want := range map[string]map[string]string{
		`0.00.081.114 I llama_memory_recurrent: size =    0.01 MiB (     2 cells,   4 layers,  2 seqs  0 rs_seq), R (f32):    0.01 MiB
0.00.134.412 I srv    load_model: prompt cache is enabled, size limit: 64 MiB
0.00.134.413 I srv    load_model: context checkpoints enabled, max = 7, min spacing = 100`: {
			"cache_ram": "64 agrees", "ctx_checkpoints": "7 agrees", "checkpoint_step": "100 differs", "memory": "hybrid differs"},
		"0.00.084.967 I srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it\n0.00.084.983 I srv    load_model: context checkpoints disabled": {
			"cache_ram": "0 differs", "ctx_checkpoints": "0 differs", "checkpoint_step": "unread", "memory": "unread"},
	} {
		var reads []probes.PinRead
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			reads = append(reads, probes.PinRead{Name: name, Asked: asked[name]})
		}
		if err := (engine.LlamaCpp{}).ReadLog(strings.NewReader(log), reads); err != nil {
			t.Fatal(err)
		}
		wantReads(t, reads, want)
	}
}

// wantReads compares reads with name -> "value agrees", "value differs" or "unread".
func wantReads(t *testing.T, reads []probes.PinRead, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, r := range reads {
		switch {
		case r.Read == nil && r.Agrees == nil:
			got[r.Name] = "unread"
		case r.Read == nil || r.Agrees == nil || r.Source == "":
			t.Errorf("pin %s: half a reading: %+v", r.Name, r)
		case *r.Agrees:
			got[r.Name] = *r.Read + " agrees"
		default:
			got[r.Name] = *r.Read + " differs"
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

// TestSlotErrors: the server's own words reach the caller, and an empty slot is an error.
func TestSlotErrors(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		json.NewDecoder(r.Body).Decode(&body)
		asked = append(asked, r.URL.String()+" "+body["filename"])
		switch r.URL.Path {
		case "/slots/0":
			fmt.Fprint(w, `{"id_slot":0,"n_saved":328,"n_restored":328}`)
		case "/slots/1":
			fmt.Fprint(w, `{"id_slot":1,"n_saved":0,"n_restored":0}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"code":400,"message":"Unable to restore slot: No available space in KV cache or invalid slot save file"}}`)
		}
	}))
	defer srv.Close()
	ctx, at, e := context.Background(), probes.Endpoint{URL: srv.URL}, engine.LlamaCpp{}
	h := prompts.Header{}
	a := numbers(1, 20)
	one := set(t, h, 1, a, a)
	if err := e.Save(ctx, at, one, arms.Resources{}); err != nil {
		t.Error(err)
	}
	if err := e.Restore(ctx, at, one, arms.Resources{}); err != nil {
		t.Error(err)
	}
	if want := []string{"/slots/0?action=save slot-0.bin", "/slots/0?action=restore slot-0.bin"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want each slot once: %q", asked, want)
	}
	wantErr := func(s *prompts.Set, words ...string) {
		t.Helper()
		for _, do := range []func(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error{e.Save, e.Restore} {
			err := do(ctx, at, s, arms.Resources{})
			for _, w := range words {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v, want one with %q", err, w)
				}
			}
		}
	}
	wantErr(set(t, h, 2, a, a), "slot 1", "at least 1 token")
	wantErr(set(t, h, 3, a, a, a), "slot 1")
	third := set(t, h, 1, a)
	*third.Prompts[0].Slot = 2
	wantErr(third, "slot 2", "Unable to restore slot: No available space")
	wantErr(set(t, h, 0, a), `"p0"`, "names no slot")
	// to take nothing back is an answer, to save nothing is none
	var refused *arms.RefusedError
	if err := e.Restore(ctx, at, third, arms.Resources{}); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a refused restore is %v", err)
	}
	if err := e.Save(ctx, at, third, arms.Resources{}); errors.As(err, &refused) {
		t.Errorf("a failing save is called a refusal: %v", err)
	}
}
