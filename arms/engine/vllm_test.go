package engine_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/probes"
	"kvladder/probes/metrics"
	"kvladder/prompts"
)

var update = flag.Bool("update", false, "write the golden command lines anew")

var attention = prompts.Header{MaxTokens: 8, Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 32, StoreChunk: 32}}

func TestVLLM(t *testing.T) {
	shared := numbers(1, 321)
	armtest.TestEngine(t, armtest.EngineCase{
		Engine: engine.VLLM{},
		Other: map[string]string{
			"binary": "/opt/vllm/bin/vllm", "version": "0.33.0", "model": "/models/m", "served_model": "m", "device": "cuda", "preload": "", "threads": "1",
			"dtype": "bfloat16", "kv_cache_dtype": "fp8", "block_size": "64", "max_model_len": "1024", "max_num_seqs": "4", "batch_tokens": "512",
			"kv_memory": "0", "blocks": "256", "seed": "2", "hash_seed": "7", "hash_algo": "xxhash", "mamba_cache": "align", "tensor_parallel": "2",
			"ranks": "2", "eager": "off", "async": "on", "invariant": "on", "attention": "FLASH_ATTN", "hybrid_manager": "off",
			"prefix_caching": "off", "connector": "store", "store": "decode-bench", "store_config": `{"fault":"shift"}`, "load_policy": "recompute",
			"pythonpath": "/opt/connectors", "args": "--disable-cascade-attn", "prompt_details": "off", "dev_endpoints": "off",
		},
		With: map[string]map[string]string{
			"dtype": {"kv_cache_dtype": "bfloat16"}, "async": {"device": "cuda"}, "invariant": {"device": "cuda"}, "prefix_caching": {"connector": "none"},
			"connector": {"prefix_caching": "on"},
		},
		Silent: []string{"version"},
		Bad: map[string]string{
			"version": "0.21.9", "kv_cache_dtype": "auto", "hash_seed": "random", "store_config": "[1]", "store": "floppy", "blocks": "5", "invariant": "on",
			"async": "on", "block_size": "48", "device": "tpu", "mamba_cache": "all", "served_model": "",
		},
		Dead: []string{
			"(APIServer pid=1) ERROR 11-29 22:33:30 [async_llm.py:700] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
			"(EngineCore pid=2) ERROR 11-29 22:33:30 [core.py:1512] EngineCore encountered a fatal error.",
			"(APIServer pid=1) ERROR 11-29 22:33:30 [core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
			"(EngineCore pid=2) ERROR 11-29 22:33:30 [multiproc_executor.py:316] Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
			"torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
		},
		Alive: []string{
			"INFO:     127.0.0.1:52614 - \"POST /v1/completions HTTP/1.1\" 200 OK",
			"(APIServer pid=1) INFO 11-29 22:33:30 [loggers.py:273] Engine 000: Avg prompt throughput: 63.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%",
			"(EngineCore pid=2) WARNING 11-29 22:33:30 [scheduler.py:2400] Recovered from KV load failure: 1 request(s) rescheduled (64 tokens affected).",
			"",
		},
		Set: set(t, attention, 0, shared, append(slices.Clone(shared[:200]), numbers(2, 121)...), numbers(3, 130)),
	})
}

// traps are pins that would start another engine than they say, each with words of the refusal.
func TestVLLMTraps(t *testing.T) {
	for _, c := range []struct {
		pins map[string]string
		want string
	}{
		{map[string]string{"dtype": "bfloat16"}, "kv_cache_dtype float32 needs dtype float32"},
		{map[string]string{"version": "0.31.0", "kv_cache_dtype": "fp8"}, "serves unquantized"},
		{map[string]string{"device": "cuda", "version": "0.31.0", "mamba_cache": "align", "block_size": "640", "batch_tokens": "512", "max_model_len": "512"}, "batch_tokens 512 is smaller than block_size 640"},
		{map[string]string{"batch_tokens": "32", "max_num_seqs": "64"}, "batch_tokens 32 is smaller than max_num_seqs 64"},
		{map[string]string{"device": "cuda", "mamba_cache": "all"}, "knows align and none"},
		{map[string]string{"blocks": "64"}, "hold less than one prompt"},
		{map[string]string{"connector": "store", "store": "offloading"}, "does not run on the CPU backend"},
		{map[string]string{"connector": "store", "store": "multi:nixl+tiering"}, "does not run on the CPU backend"},
		{map[string]string{"connector": "store", "store": "example"}, "hybrid_manager off"},
		{map[string]string{"connector": "store", "store": "multi:example+decode-bench"}, "hybrid_manager off"},
		{map[string]string{"connector": "store", "prefix_caching": "off"}, "prefix_caching off"},
		{map[string]string{"device": "cuda", "connector": "store", "store": "lmcache", "hybrid_manager": "off", "block_size": "96"}, "no multiple of block_size 96"},
		{map[string]string{"store": "multi:nixl"}, "joins at least two"},
		{map[string]string{"connector": "store fault"}, "not a JSON object"},
		{map[string]string{"connector": `none {"a":1}`}, "not one of none, store"},
	} {
		_, err := engine.VLLM{}.Spec(c.pins, arms.Address{Host: "127.0.0.1", Port: 1}, arms.Resources{Store: "/store"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one with %q", c.pins, err, c.want)
		}
	}
}

// goldens are the command lines of the documented connectors. A file of testdata/vllm/argv has
// one argument or variable a line, and behind each that decides something where it is from.
func TestVLLMCommandLines(t *testing.T) {
	gpu := map[string]string{"device": "cuda", "dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "binary": "/opt/vllm/bin/vllm", "model": "/models/m", "max_model_len": "32768"}
	for name, pins := range map[string]map[string]string{
		"none":         {"connector": "none"},
		"fp8":          {"connector": "none", "kv_cache_dtype": "fp8"},
		"example":      {"store": "example", "hybrid_manager": "off"},
		"offloading":   {"store": "offloading", "store_config": `{"cpu_bytes_to_use":4294967296,"eviction_policy":"arc"}`},
		"tiering":      {"store": "tiering"},
		"simple-cpu":   {"store": "simple-cpu"},
		"lmcache":      {"store": "lmcache", "hybrid_manager": "off"},
		"lmcache-mp":   {"store": "lmcache-mp", "hybrid_manager": "off"},
		"nixl":         {"store": "nixl"},
		"multi":        {"store": "multi:nixl+offloading", "load_policy": "recompute"},
		"mooncake":     {"store": "mooncake"},
		"decode-bench": {"store": "decode-bench"},
		"module-fault": {"connector": `store {"fault":"scale"}`, "store": "blockfiles:BlockFiles", "pythonpath": "/opt/connectors", "store_config": `{"fault":"","tier":"a"}`},
		"module":       {"store": "blockfiles:BlockFiles", "pythonpath": "/opt/connectors", "store_config": `{"fault":"shift"}`},
		"ranks":        {"connector": "none", "ranks": "2"},
		"hybrid":       {"connector": "none", "mamba_cache": "align", "block_size": "640"},
		"press":        {"connector": "none", "blocks": "2049"},
		"invariant":    {"connector": "none", "invariant": "on"},
		"cpu":          {"connector": "none", "device": "cpu", "dtype": "float32", "kv_cache_dtype": "float32", "preload": "/opt/vllm/lib/libiomp5.so"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{"connector": "store"}
			maps.Copy(all, gpu)
			maps.Copy(all, pins)
			spec, err := engine.VLLM{}.Spec(all, arms.Address{Host: "127.0.0.1", Port: 8000}, arms.Resources{Store: "/store", Beside: arms.Address{Host: "127.0.0.1", Port: 5555}})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", "vllm", "argv", name+".txt"), spec, vllmSources)
			if name == "none" {
				return
			}
			for _, arg := range spec.Argv {
				if strings.Contains(arg, "kv_connector\"") && !strings.Contains(arg, `"kv_load_failure_policy":"`+map[bool]string{true: "recompute", false: "fail"}[name == "multi"]) {
					t.Errorf("no load failure policy in %s", arg)
				}
			}
		})
	}
}

// The server of LMCache is a process of its own, for the store that is one and for no other.
func TestVLLMBeside(t *testing.T) {
	at, res := arms.Address{Host: "127.0.0.1", Port: 5555}, arms.Resources{Store: "/store"}
	pins := map[string]string{"device": "cuda", "binary": "/opt/vllm/bin/vllm", "connector": "store", "hybrid_manager": "off"}
	for store, want := range map[string]bool{"lmcache-mp": true, "multi:nixl+lmcache-mp": true, "lmcache": false, "blockfiles:BlockFiles": false} {
		pins["store"] = store
		spec, err := engine.VLLM{}.Beside(pins, at, res)
		if err != nil || (len(spec.Argv) > 0) != want {
			t.Errorf("%s: %v, %v, want a process: %t", store, spec.Argv, err, want)
		}
		if store == "lmcache-mp" {
			golden(t, filepath.Join("testdata", "vllm", "argv", "lmcache-server.txt"), spec, lmcacheSources)
		}
	}
	pins["store"] = "lmcache-mp"
	if _, err := (engine.VLLM{}).Spec(pins, at, arms.Resources{Store: "/store"}); err == nil {
		t.Error("a connector to LMCache's server was wired to nowhere")
	}
}

var lmcacheSources = map[string]string{
	"--host":            "LMCache docs/source/mp/configuration.rst",
	"--port":            "LMCache docs/source/mp/configuration.rst, ZMQ",
	"--l1-size-gb":      "LMCache docs/source/mp/quickstart.rst",
	"--eviction-policy": "LMCache docs/source/mp/quickstart.rst",
	"--chunk-size":      "LMCache docs/source/mp/configuration.rst",
	"--hash-algorithm":  "LMCache docs/source/mp/configuration.rst; blake3 needs no PYTHONHASHSEED",
	"--http-port":       "LMCache docs/source/mp/http_api.rst: /healthcheck",
	"--l2-adapter":      "LMCache docs/source/mp/l2_storage/fs_native.rst",
}

// golden compares a command line with a file, in which `#` begins where a line is from.
func golden(t *testing.T, file string, spec arms.Spec, sources map[string]string) {
	t.Helper()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		lines = append(lines, name+"="+spec.Env[name])
	}
	for i := 0; i < len(spec.Argv); i++ {
		line := spec.Argv[i]
		if strings.HasPrefix(line, "-") && i+1 < len(spec.Argv) && !strings.HasPrefix(spec.Argv[i+1], "-") {
			i++
			line += " " + spec.Argv[i]
		}
		lines = append(lines, line)
	}
	if *update {
		var b strings.Builder
		for _, l := range lines {
			key := l
			if i := strings.IndexAny(l, " ="); i >= 0 {
				key = l[:i]
			}
			if from := sources[key]; from != "" {
				l += "  # " + from
			}
			b.WriteString(l + "\n")
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(b)) {
		text, source, _ := strings.Cut(strings.TrimRight(line, "\n"), "  # ")
		want = append(want, text)
		if strings.HasPrefix(text, "-") && source == "" {
			t.Errorf("%s: %q does not say where it is from", file, text)
		}
	}
	if !slices.Equal(want, lines) {
		t.Errorf("%s: want\n%s\ngot\n%s", file, strings.Join(want, "\n"), strings.Join(lines, "\n"))
	}
}

// vllmSources says where the flags and variables of vLLM are described; -update writes it into
// the golden files.
var vllmSources = map[string]string{
	"--served-model-name":                  "docs/cli/serve.md; vllm/config/model.py ModelConfig.served_model_name",
	"--host":                               "vllm/entrypoints/openai/cli_args.py FrontendArgs.host",
	"--port":                               "vllm/entrypoints/openai/cli_args.py FrontendArgs.port",
	"--dtype":                              "vllm/config/model.py ModelConfig.dtype",
	"--kv-cache-dtype":                     "vllm/config/cache.py CacheConfig.cache_dtype; auto follows the model, but not for every model",
	"--block-size":                         "vllm/config/cache.py CacheConfig.block_size",
	"--max-model-len":                      "vllm/config/model.py ModelConfig.max_model_len",
	"--max-num-seqs":                       "vllm/config/scheduler.py SchedulerConfig.max_num_seqs",
	"--max-num-batched-tokens":             "vllm/config/scheduler.py SchedulerConfig.max_num_batched_tokens",
	"--seed":                               "vllm/config/model.py ModelConfig.seed",
	"--tensor-parallel-size":               "vllm/config/parallel.py ParallelConfig.tensor_parallel_size",
	"--data-parallel-size":                 "docs/serving/data_parallel_deployment.md",
	"--prefix-caching-hash-algo":           "vllm/config/cache.py CacheConfig.prefix_caching_hash_algo",
	"--max-logprobs":                       "vllm/config/model.py ModelConfig.max_logprobs",
	"--enable-prompt-tokens-details":       "vllm/entrypoints/openai/cli_args.py; without it usage has no cached_tokens",
	"--enable-prefix-caching":              "vllm/config/cache.py CacheConfig.enable_prefix_caching",
	"--no-enable-prefix-caching":           "vllm/config/cache.py CacheConfig.enable_prefix_caching, on unless it is said",
	"--enforce-eager":                      "vllm/config/model.py ModelConfig.enforce_eager",
	"--no-async-scheduling":                "vllm/config/scheduler.py SchedulerConfig.async_scheduling",
	"--no-disable-hybrid-kv-cache-manager": "vllm/config/scheduler.py SchedulerConfig.disable_hybrid_kv_cache_manager",
	"--disable-hybrid-kv-cache-manager":    "vllm/distributed/kv_transfer/kv_connector/factory.py: the connector does not support HMA",
	"--kv-cache-memory-bytes":              "vllm/config/cache.py CacheConfig.kv_cache_memory_bytes",
	"--num-gpu-blocks-override":            "vllm/config/cache.py CacheConfig.num_gpu_blocks_override, for testing preemption",
	"--mamba-cache-mode":                   "vllm/config/cache.py CacheConfig.mamba_cache_mode",
	"--kv-transfer-config":                 "vllm/config/kv_transfer.py KVTransferConfig; the connector's own keys: vllmStores in vllm_store.go names the page",
	"PYTHONHASHSEED":                       "docs/features/kv_offloading_usage.md: else every process names its blocks anew",
	"VLLM_SERVER_DEV_MODE":                 "vllm/envs.py: /server_info, /reset_prefix_cache",
	"VLLM_COMPUTE_NANS_IN_LOGITS":          "vllm/envs.py: vllm:corrupted_requests counts",
	"VLLM_BATCH_INVARIANT":                 "docs/features/batch_invariance.md",
	"VLLM_CPU_OMP_THREADS_BIND":            "docs/getting_started/installation/cpu.md",
	"VLLM_NIXL_SIDE_CHANNEL_PORT":          "docs/features/nixl_connector_usage.md",
	"LMCACHE_CHUNK_SIZE":                   "LMCache docs/source/api_reference/configurations.rst, as all of LMCACHE_",
	"MOONCAKE_CONFIG_PATH":                 "docs/features/mooncake_store_connector_usage.md",
}

// serve answers with captures: path -> file of testdata/vllm/captures.
func captures(t *testing.T, files map[string]string) probes.Endpoint {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		b, err := os.ReadFile(filepath.Join("testdata", "vllm", "captures", f))
		if err != nil {
			t.Error(err)
		}
		w.Write(b)
	}))
	t.Cleanup(srv.Close)
	return probes.Endpoint{URL: srv.URL}
}

func vllmAsked(t *testing.T) map[string]string {
	t.Helper()
	pins := engine.VLLM{}.Pins()
	conf, err := engine.VLLM{}.Configure("store")
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(pins, conf)
	return pins
}

// TestVLLMPinsRead reads pins from what a 0.32.0 said that was started with the default pins
// and the block files as its store.
func TestVLLMPinsRead(t *testing.T) {
	e := captures(t, map[string]string{"/version": "version.json", "/server_info": "server_info.json", "/metrics": "metrics.txt"})
	pins := vllmAsked(t)
	reads, err := engine.VLLM{}.ReadPins(context.Background(), e, pins)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Open("testdata/vllm/captures/start.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := (engine.VLLM{}).ReadLog(log, reads); err != nil {
		t.Fatal(err)
	}
	engine.VLLM{}.ReadEnviron(map[string]string{"PYTHONHASHSEED": "0", "LD_PRELOAD": "/srv/cache/vllm/venv/lib/libiomp5.so", "PYTHONPATH": "/srv/cache/vllm/connectors"}, reads)
	silent := []string{"binary", "args", "attention"} // a command line, and what the engine chose itself and does not say
	for _, r := range reads {
		switch {
		case slices.Contains(silent, r.Name):
			if r.Read != nil {
				t.Errorf("pin %s was read as %q", r.Name, *r.Read)
			}
		case r.Read == nil:
			t.Errorf("pin %s was not read", r.Name)
		case r.Agrees == nil || !*r.Agrees:
			t.Errorf("pin %s: asked %q, read %q from %s", r.Name, r.Asked, *r.Read, r.Source)
		}
	}

	// each pin asked otherwise is seen to be otherwise
	for name, other := range map[string]string{
		"version": "0.31.0", "model": "vllm/other", "served_model": "m", "device": "cuda", "threads": "1", "dtype": "bfloat16", "kv_cache_dtype": "fp8",
		"block_size": "64", "max_model_len": "1024", "max_num_seqs": "4", "batch_tokens": "512", "kv_memory": "1", "blocks": "256", "seed": "2",
		"hash_seed": "7", "hash_algo": "xxhash", "mamba_cache": "align", "tensor_parallel": "2", "ranks": "2", "eager": "off", "async": "on",
		"invariant": "on", "hybrid_manager": "off", "prefix_caching": "off", "connector": "none", "store": "decode-bench",
		"store_config": `{"fault":"shift"}`, "load_policy": "recompute", "preload": "x", "pythonpath": "y", "prompt_details": "off", "dev_endpoints": "off",
	} {
		asked := maps.Clone(pins)
		asked[name] = other
		reads, err := engine.VLLM{}.ReadPins(context.Background(), e, asked)
		if err != nil {
			t.Fatal(err)
		}
		engine.VLLM{}.ReadEnviron(map[string]string{"PYTHONHASHSEED": "0", "LD_PRELOAD": "/srv/libiomp5.so", "PYTHONPATH": "/srv/connectors"}, reads)
		if _, err := log.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := (engine.VLLM{}).ReadLog(log, reads); err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			if r.Name == name && (r.Agrees == nil || *r.Agrees) {
				t.Errorf("pin %s=%s is said to agree", name, other)
			}
		}
	}
	// what an arm lays over its store's settings is read back with the connector
	for value, agrees := range map[string]bool{`store {"path":"/srv/store"}`: true, `store {"path":"/elsewhere"}`: false, `store {"fault":"scale"}`: false} {
		asked := maps.Clone(pins)
		asked["connector"] = value
		reads, err := engine.VLLM{}.ReadPins(context.Background(), e, asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reads {
			if r.Name == "connector" && (r.Agrees == nil || *r.Agrees != agrees) {
				t.Errorf("connector %s: read %s, agrees %s, want %t", value, deref(r.Read), deref(r.Agrees), agrees)
			}
		}
	}
}

// TestVLLMSourcesDiffer: where /server_info and the metric say different things, the pin is
// not as asked, whichever of them is right; with the metric alone it is read from there.
func TestVLLMSourcesDiffer(t *testing.T) {
	pins := vllmAsked(t)
	of := func(files map[string]string) map[string]probes.PinRead {
		files["/version"] = "version.json"
		reads, err := engine.VLLM{}.ReadPins(context.Background(), captures(t, files), pins)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]probes.PinRead{}
		for _, r := range reads {
			out[r.Name] = r
		}
		return out
	}
	// the second capture is of a server with blocks of 128
	r := of(map[string]string{"/server_info": "server_info.json", "/metrics": "metrics_connector.txt"})["block_size"]
	if r.Agrees == nil || *r.Agrees || *r.Read != "32 and 128" {
		t.Errorf("block_size: %v %v from %s, want 32 and 128 to differ", deref(r.Read), deref(r.Agrees), r.Source)
	}
	alone := of(map[string]string{"/metrics": "metrics_connector.txt"})
	if r := alone["block_size"]; deref(r.Read) != "128" || deref(r.Agrees) != "false" || r.Source != "vllm:cache_config_info" {
		t.Errorf("block_size from the metric alone: %v %v from %s", deref(r.Read), deref(r.Agrees), r.Source)
	}
	if r := alone["kv_cache_dtype"]; r.Read != nil {
		t.Errorf("kv_cache_dtype was read as %v from a metric that says auto", deref(r.Read))
	}
}

func deref[T any](p *T) string {
	if p == nil {
		return "nothing"
	}
	return fmt.Sprint(*p)
}

// TestVLLMCounters: the split of a server with a store, by the roles that scoring reads, and
// the ranks of one with two. What was computed, hit and loaded adds up to what was asked.
func TestVLLMCounters(t *testing.T) {
	read := func(file string) map[string]float64 {
		snap, err := metrics.ParseSnapshotFile(filepath.Join("testdata", "vllm", "captures", file))
		if err != nil {
			t.Fatal(err)
		}
		values, err := metrics.Select(snap, engine.VLLM{}.Counters())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, v := range values {
			out[v.Role+" "+v.Rank] = v.Value
		}
		return out
	}
	for file, want := range map[string]map[string]float64{
		"metrics_connector.txt": {"local_queries 0": 7095, "local_hits 0": 3456, "external_queries 0": 3639, "external_hits 0": 1536, "prompt_tokens 0": 7095, "computed 0": 2103, "preemptions 0": 0},
		"metrics_dp2.txt":       {"local_hits 0": 2048, "local_hits 1": 1024, "prompt_tokens 0": 3279, "prompt_tokens 1": 2186, "computed 0": 1231, "computed 1": 1162, "external_hits 1": 0},
		"metrics.txt":           {"corrupted 0": 0},
	} {
		got := read(file)
		for role, v := range want {
			if x, ok := got[role]; !ok || x != v {
				t.Errorf("%s: %s is %v (there: %t), want %v", file, role, x, ok, v)
			}
		}
		for _, rank := range []string{"0", "1"} {
			if sum := got["computed "+rank] + got["local_hits "+rank] + got["external_hits "+rank]; sum != got["prompt_tokens "+rank] {
				t.Errorf("%s, rank %s: %v of %v prompt tokens are accounted for", file, rank, sum, got["prompt_tokens "+rank])
			}
		}
	}
}

// TestVLLMPool: the pool is what the engine made of its memory, less the block for nothing.
func TestVLLMPool(t *testing.T) {
	f, err := engine.VLLM{}.Pool(context.Background(), captures(t, map[string]string{"/metrics": "metrics.txt"}))
	if err != nil || f.Blocks != 364 || f.Tokens != 363*32 {
		t.Errorf("%+v, %v, want 364 blocks and the tokens of 363", f, err)
	}
	if _, err := (engine.VLLM{}).Pool(context.Background(), captures(t, map[string]string{"/metrics": "version.json"})); err == nil {
		t.Error("a pool was read where none is stated")
	}
}

// TestVLLMReset: the answer of 0.32 is believed when it says no; older ones say nothing.
func TestVLLMReset(t *testing.T) {
	for _, c := range []struct {
		answers []string
		want    string
	}{
		{[]string{`{"success":true}`}, ""},
		{[]string{`{"success":false}`, `{"success":true}`}, ""},
		{[]string{``}, ""},
		{[]string{`{"success":false}`}, "did not reset"},
	} {
		n := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/reset_prefix_cache" || r.URL.Query().Get("reset_external") != "false" {
				t.Errorf("asked %s %s", r.Method, r.URL)
			}
			fmt.Fprint(w, c.answers[min(n, len(c.answers)-1)])
			n++
		}))
		err := engine.VLLM{}.Reset(context.Background(), probes.Endpoint{URL: srv.URL})
		srv.Close()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.answers, err, c.want)
		}
	}
}
