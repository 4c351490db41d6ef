package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/prompts"
)

// TestMain lets the test binary be the guardian of what it launches.
func TestMain(m *testing.M) {
	armtest.Main(m, map[string]func([]string) int{
		"hold": func(args []string) int {
			return launch.Hold(args[2:], os.Stdin, os.Stdout, os.Stderr, launch.Report())
		},
	})
}

// completion is what the test wants to know of a reply.
type completion struct {
	Tokens  []int `json:"tokens"`
	Timings struct {
		Cached int `json:"cache_n"`
	} `json:"timings"`
	Probabilities json.RawMessage `json:"completion_probabilities"`
}

// TestLlamaServer climbs C1 and RST with a real llama-server and a synthetic model: what was
// predicted is reused, cold, warm and restored replies are bitwise equal, pins read back
// agree, and flipped bytes in a slot file show. It needs what llamacpp/fetch.sh fetches.
func TestLlamaServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a real engine takes seconds")
	}
	cache, err := filepath.Abs("../../.cache")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cache, "llamacpp", "model", "synthetic-llama.gguf")); err != nil {
		t.Skip("no llama-server: arms/engine/llamacpp/fetch.sh fetches it")
	}
	for _, dtype := range []map[string]string{
		{"kv_cache_dtype": "f16", "flash_attn": "off"},
		{"kv_cache_dtype": "q8_0", "flash_attn": "on"},
	} {
		t.Run(dtype["kv_cache_dtype"], func(t *testing.T) {
			pins := engine.LlamaCpp{}.Pins()
			pins["model"] = "llamacpp/model/synthetic-llama.gguf"
			pins["slots"], pins["ctx"], pins["slot_restore"] = "2", "512", "on"
			pins["threads"] = "1" // two that wait for each other are slow on a busy machine
			for k, v := range dtype {
				pins[k] = v
			}
			climbSlots(t, pins, arms.Resources{Cache: cache, Slots: t.TempDir()})
		})
	}
}

func climbSlots(t *testing.T, pins map[string]string, res arms.Resources) {
	ctx := context.Background()
	e := engine.LlamaCpp{}
	s := set(t, prompts.Header{Geometry: prompts.Geometry{Mode: "slot"}}, 2, few(1, 65), few(2, 40))
	expect := e.Expect(s, pins, []arms.Step{{Do: "replay"}, {Do: "replay"}, {Do: "save"}, {Do: "restart"}, {Do: "restore"}, {Do: "replay"}})
	log := new(armtest.Log)
	up := func() *arms.Running {
		t.Helper()
		port, err := launch.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		r, err := arms.Up(ctx, arms.Launch{Arm: "RST", Engine: e, Launcher: launch.Local{}, Pins: pins, Address: arms.Address{Host: "127.0.0.1", Port: port},
			Resources: res, Log: &arms.Tail{To: log}, Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Process.Stop(ctx) })
		return r
	}
	// replay asks every prompt and wants pass's reuse, and want's replies where not nil.
	replay := func(r *arms.Running, pass int, want []completion) []completion {
		t.Helper()
		var got []completion
		for i, p := range s.Prompts {
			c := complete(t, r.Endpoint.URL, p)
			reuse := expect[pass-1][p.ID]
			if c.Timings.Cached != reuse.Local+reuse.External {
				t.Errorf("pass %d, prompt %s: %d tokens reused, predicted %+v", pass, p.ID, c.Timings.Cached, reuse)
			}
			if want != nil && !same(c, want[i]) {
				t.Errorf("pass %d, prompt %s differs from cold\n%s\n%s", pass, p.ID, c.Probabilities, want[i].Probabilities)
			}
			got = append(got, c)
		}
		return got
	}

	r := up()
	reads, err := e.ReadPins(ctx, r.Endpoint, pins)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ReadLog(bytes.NewBufferString(log.String()), reads); err != nil {
		t.Fatal(err)
	}
	for _, p := range reads {
		unread := slices.Contains([]string{"binary", "cache_prompt", "cache_reuse", "cache_idle_slots", "memory", "slot_restore", "slot_similarity"}, p.Name)
		if unread != (p.Read == nil) || (p.Agrees != nil && !*p.Agrees) {
			got := "nothing"
			if p.Read != nil {
				got = *p.Read
			}
			t.Errorf("pin %s: asked %q, read %s from %s", p.Name, p.Asked, got, p.Source)
		}
	}
	cold := replay(r, 1, nil)
	replay(r, 2, cold)
	if err := e.Save(ctx, r.Endpoint, s, res); err != nil {
		t.Fatal(err)
	}
	if err := r.Process.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if x := r.Process.Exit(); x == nil || *x != 0 {
		t.Errorf("exit status %v, error %v", x, r.Process.Err())
	}
	store, err := e.Store(res)
	if err != nil || *store.Files != 2 {
		t.Errorf("slot files: %+v, %v, want 2", store, err)
	}

	r = up()
	if err := e.Restore(ctx, r.Endpoint, s, res); err != nil {
		t.Fatal(err)
	}
	replay(r, 3, cold)

	// a reset drops the slots: everything is computed anew
	if err := e.Reset(ctx, r.Endpoint); err != nil {
		t.Fatal(err)
	}
	replay(r, 1, cold)

	// Flip bytes of the first slot's file and look: this must show, or the comparisons above
	// prove nothing. The file is K of the four layers and then V, so a quarter into it, and half
	// a layer further, is the middle of layer 2's K: no header, and no generated token.
	file := filepath.Join(res.Slots, "slot-0.bin")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		b[len(b)/4+len(b)/16+i] ^= 0x55
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Restore(ctx, r.Endpoint, s, res); err != nil {
		t.Fatal(err)
	}
	if c := complete(t, r.Endpoint.URL, s.Prompts[0]); same(c, cold[0]) {
		t.Error("flipped bytes in the slot file change nothing")
	}
	if c := complete(t, r.Endpoint.URL, s.Prompts[1]); !same(c, cold[1]) {
		t.Error("flipped bytes in one slot's file change another slot's reply")
	}
}

// few are token ids that the small vocabulary of the synthetic models has.
func few(seed uint64, n int) []int {
	ids := numbers(seed, n)
	for i := range ids {
		ids[i] = 3 + ids[i]%96
	}
	return ids
}

func same(a, b completion) bool {
	return cmp.Equal(a.Tokens, b.Tokens) && bytes.Equal(a.Probabilities, b.Probabilities)
}

func complete(t *testing.T, url string, p prompts.Prompt) completion {
	t.Helper()
	body, _ := json.Marshal(map[string]any{
		"prompt": p.Tokens, "n_predict": 3, "temperature": 0, "seed": 1, "n_probs": 5, "id_slot": *p.Slot, "return_tokens": true,
	})
	resp, err := http.Post(url+"/completion", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var c completion
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return c
}
