package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/arms/testbed"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/prompts/draw"
)

// asked freezes a set whose bodies ask for the prompts that are given as ids.
func asked(t *testing.T, h prompts.Header, w draw.Wire, slots bool, tokens ...[]int) *prompts.Set {
	t.Helper()
	var ps []prompts.Prompt
	for i, ids := range tokens {
		p := prompts.Prompt{ID: fmt.Sprintf("p%d", i), Role: prompts.Target, Tokens: ids}
		if slots {
			p.Slot = &i
		}
		p.Body = w.Body(ids, h.MaxTokens, p.Slot)
		ps = append(ps, p)
	}
	h.Name, h.Dialect, h.Model = "asked", w.Dialect, w.Model
	var err error
	if h.Path, err = w.Path(); err != nil {
		t.Fatal(err)
	}
	s, err := prompts.Freeze(h, ps)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func small(seed uint64, n int) []int {
	ids := numbers(seed, n)
	for i := range ids {
		ids[i] = 3 + ids[i]%200
	}
	return ids
}

// TestTestbedServer: the embedded engine as a server.
func TestTestbedServer(t *testing.T) {
	h := prompts.Header{MaxTokens: 3, Geometry: paged.Geometry}
	armtest.TestServer(t, armtest.ServerCase{
		Engine: engine.Testbed{},
		Set:    asked(t, h, draw.Wire{Dialect: "vllm", Model: testbed.DefaultName}, false, small(1, 321), small(2, 130), small(3, 200)),
		Up: func(t *testing.T, pins map[string]string) armtest.Server {
			tb, err := testbed.New(testbed.Config{NoPrefixCaching: pins["prefix_caching"] == "off"}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(tb)
			stop := func() { srv.Close(); tb.Close() }
			return armtest.Server{Endpoint: probes.Endpoint{URL: srv.URL}, Stop: stop}
		},
	})
}

// TestLlamaCppServer: a real llama-server with a real model, where llamacpp/fetch.sh has put them.
func TestLlamaCppServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a real engine takes seconds")
	}
	cache, err := filepath.Abs("../../.cache")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cache, "llamacpp", "sha256sums")); err != nil {
		t.Skip("no llama-server: arms/engine/llamacpp/fetch.sh fetches it")
	}
	armtest.TestServer(t, armtest.ServerCase{
		Engine: engine.LlamaCpp{},
		Pins:   map[string]string{"slots": "2", "ctx": "512", "threads": "1"},
		Set:    asked(t, prompts.Header{MaxTokens: 3, Geometry: prompts.Geometry{Mode: "slot"}}, draw.Wire{Dialect: "llamacpp"}, true, numbers(1, 65), numbers(2, 40)),
		Unread: []string{"binary", "cache_prompt", "slot_restore", "cache_idle_slots", "cache_reuse", "memory", "slot_similarity"},
		Up: func(t *testing.T, pins map[string]string) armtest.Server {
			port, err := launch.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			log := new(armtest.Log)
			r, err := arms.Up(context.Background(), arms.Launch{Arm: "C1", Engine: engine.LlamaCpp{}, Launcher: launch.Local{}, Pins: pins,
				Address: arms.Address{Host: "127.0.0.1", Port: port}, Resources: arms.Resources{Cache: cache, Slots: t.TempDir()}, Log: &arms.Tail{To: log}, Deadline: 2 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Process.Stop(context.Background()) })
			return armtest.Server{Endpoint: r.Endpoint, Log: func() io.Reader { return strings.NewReader(log.String()) }, Stop: func() { r.Process.Stop(context.Background()) }}
		},
	})
}
