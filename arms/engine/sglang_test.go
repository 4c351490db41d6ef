package engine_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/probes"
	"kvladder/probes/metrics"
	"kvladder/probes/replay"
	"kvladder/prompts"
)

func TestSGLang(t *testing.T) {
	shared := numbers(1, 321)
	armtest.TestEngine(t, armtest.EngineCase{
		Engine: engine.SGLang{},
		Other: map[string]string{
			"python": "/opt/sglang/bin/python", "version": "0.5.22", "model": "/models/m", "served_model": "m", "dtype": "float16", "kv_cache_dtype": "fp8_e4m3",
			"page_size": "32", "context": "2048", "max_requests": "4", "prefill_chunk": "512", "pool_tokens": "8192", "seed": "2", "tensor_parallel": "2",
			"ranks": "2", "cuda_graph": "on", "overlap": "on", "deterministic": "on", "attention": "fa3", "radix_cache": "off", "connector": "store",
			"host_gigabytes": "8", "write_policy": "write_back", "args": "--trust-remote-code",
		},
		With:   map[string]map[string]string{"radix_cache": {"connector": "none"}},
		Silent: []string{"version"},
		Bad: map[string]string{
			"kv_cache_dtype": "auto", "radix_cache": "auto", "page_size": "0", "prefill_chunk": "100", "connector": "hicache", "seed": "-1", "version": "",
		},
		Dead: []string{
			"[2026-11-29 12:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
			"[2026-11-29 12:00:00] SIGQUIT received. signum=<Signals.SIGQUIT: 3>, frame=<frame at 0x1>. It usually means one child failed.",
			"[2026-11-29 12:00:00] Scheduler watchdog timeout (self.watchdog_timeout=300, soft=False)",
		},
		Alive: []string{"[2026-11-29 12:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.00", "INFO:     Application startup complete.", ""},
		Set:   set(t, prompts.Header{MaxTokens: 8, Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 64, StoreChunk: 64}}, 0, shared, append(slices.Clone(shared[:200]), numbers(2, 121)...), numbers(3, 130)),
	})
	if (engine.SGLang{}).NeverRun() == "" {
		t.Error("the adapter does not say that nobody has run it")
	}
}

// The payloads of testdata/sglang are written from the documentation and the source of 0.5.23,
// not captured: each file says so.
func TestSGLangCommandLines(t *testing.T) {
	for name, role := range map[string]string{"control": "C0", "local": "C1", "store": "store"} {
		pins := engine.SGLang{}.Pins()
		conf, err := engine.SGLang{}.Configure(role)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(pins, conf)
		maps.Copy(pins, map[string]string{"python": "/opt/sglang/bin/python", "model": "/models/m"})
		spec, err := engine.SGLang{}.Spec(pins, arms.Address{Host: "127.0.0.1", Port: 30000}, arms.Resources{Store: "/store"})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", "sglang", "argv", name+".txt"), spec, sglangSources)
	}
}

// sglangSources are files of python/sglang/srt at 0.5.23.
var sglangSources = map[string]string{
	"-m":                          "docs.sglang.io: python -m sglang.launch_server",
	"--model-path":                "arg_groups/fields/model.py",
	"--served-model-name":         "arg_groups/fields/serving.py",
	"--host":                      "arg_groups/fields/serving.py",
	"--port":                      "arg_groups/fields/serving.py",
	"--dtype":                     "arg_groups/fields/model.py",
	"--kv-cache-dtype":            "arg_groups/fields/model.py; auto follows the model, but not for every model",
	"--page-size":                 "arg_groups/fields/memory.py",
	"--context-length":            "arg_groups/fields/model.py",
	"--max-running-requests":      "arg_groups/fields/schedule.py",
	"--chunked-prefill-size":      "arg_groups/fields/schedule.py",
	"--random-seed":               "arg_groups/fields/device.py",
	"--tp-size":                   "arg_groups/fields/parallel.py",
	"--dp-size":                   "arg_groups/fields/parallel.py",
	"--attention-backend":         "arg_groups/fields/exec_.py; docs.sglang.io deterministic_inference",
	"--enable-metrics":            "arg_groups/fields/observability.py",
	"--enable-cache-report":       "arg_groups/fields/serving.py; without it usage has no cached_tokens",
	"--disable-cuda-graph":        "arg_groups/fields/exec_.py",
	"--disable-overlap-schedule":  "arg_groups/fields/schedule.py",
	"--disable-radix-cache":       "arg_groups/fields/memory.py",
	"--enable-hierarchical-cache": "arg_groups/fields/memory.py; docs.sglang.io hicache_best_practices",
	"--hicache-size":              "arg_groups/fields/memory.py",
	"--hicache-write-policy":      "arg_groups/fields/memory.py",
	"--hicache-storage-backend":   "arg_groups/fields/memory.py",
	"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": "mem_cache/hicache_storage.py",
}

func sglangServer(t *testing.T) probes.Endpoint {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/server_info" {
			http.ServeFile(w, r, "testdata/sglang/server_info.json")
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	return probes.Endpoint{URL: srv.URL}
}

func TestSGLangPinsRead(t *testing.T) {
	pins := engine.SGLang{}.Pins()
	conf, _ := engine.SGLang{}.Configure("store")
	maps.Copy(pins, conf)
	e := sglangServer(t)
	reads, err := engine.SGLang{}.ReadPins(context.Background(), e, pins)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reads {
		switch {
		case r.Name == "python" || r.Name == "args" || r.Name == "pool_tokens":
		case r.Read == nil || !*r.Agrees:
			t.Errorf("pin %s: asked %q, read %s", r.Name, r.Asked, deref(r.Read))
		}
	}
	for name, other := range map[string]string{"kv_cache_dtype": "fp8_e5m2", "radix_cache": "off", "connector": "none", "page_size": "1", "ranks": "2", "version": "0.5.0", "deterministic": "on"} {
		asked := maps.Clone(pins)
		asked[name] = other
		reads, err := engine.SGLang{}.ReadPins(context.Background(), e, asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			if r.Name == name && (r.Agrees == nil || *r.Agrees) {
				t.Errorf("pin %s=%s is said to agree", name, other)
			}
		}
	}
}

// TestSGLangEvidence reads the split of tokens from the documented metrics, and a reply.
func TestSGLangEvidence(t *testing.T) {
	snap, err := metrics.ParseSnapshotFile("testdata/sglang/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	values, err := metrics.Select(snap, engine.SGLang{}.Counters())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, v := range values {
		got[v.Role+v.Rank] = v.Value
	}
	want := map[string]float64{probes.PromptTokens + "0": 4096, probes.LocalHits + "0": 1024, probes.ExternalHits + "0": 512, probes.CachedTokens + "0": 1600,
		probes.Preemptions + "0": 0, probes.Running + "0": 1, probes.PromptTokens + "1": 100}
	for k, v := range want {
		if x, ok := got[k]; !ok || x != v {
			t.Errorf("%s: %v (there: %t), want %v", k, x, ok, v)
		}
	}
	raw, err := os.ReadFile("testdata/sglang/completion.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := replay.Decode(replay.VLLM, http.StatusOK, raw)
	if err != nil || d.Usage.Cached == nil || *d.Usage.Cached != 320 || len(d.Tokens) != 2 || d.Tokens[1].Logprob == nil {
		t.Errorf("%+v, %v, want 320 cached tokens and two tokens with their logprobs", d, err)
	}
}
