package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// SGLang is `python -m sglang.launch_server`, written from its documentation
// (docs.sglang.io) and the source of 0.5.23, whose files are named below: it needs an
// accelerator, and nobody who wrote this has run it. Every receipt says so, see NeverRun.
//
// What is the local cache here is the radix cache on the device. The external store is
// HiCache with a storage backend of files below a host tier: /flush_cache empties device and
// host, so that what is hit after it came from the files.
type SGLang struct{}

// NeverRun is what doctor and every receipt say of this adapter.
func (SGLang) NeverRun() string {
	return "engine sglang: adapter never run by its authors: written from the documentation and the source of 0.5.23"
}

var sglangPins = map[string]pin{
	"python":          {"sglang/venv/bin/python", some},                                                    // relative to the cache
	"version":         {"0.5.23", some},                                                                    // read from /server_info
	"model":           {"sglang/model", some},                                                              // relative to the cache
	"served_model":    {"model", some},                                                                     //
	"dtype":           {"bfloat16", oneOf("bfloat16", "float16", "float32")},                               // fields/model.py dtype
	"kv_cache_dtype":  {"bf16", oneOf("bf16", "fp8_e5m2", "fp8_e4m3", "mxfp8", "nvfp4", "fp4_mx_block16")}, // never auto
	"page_size":       {"64", atLeast(1)},                                                                  // what hits come in
	"context":         {"4096", atLeast(1)},                                                                //
	"max_requests":    {"8", atLeast(1)},                                                                   //
	"prefill_chunk":   {"4096", atLeast(1)},                                                                // the prefill budget
	"pool_tokens":     {"0", atLeast(0)},                                                                   // --max-total-tokens; 0 = the engine's choice
	"seed":            {"1", unsigned},                                                                     //
	"tensor_parallel": {"1", atLeast(1)},                                                                   //
	"ranks":           {"1", atLeast(1)},                                                                   // --dp-size
	"cuda_graph":      {off, oneOf(on, off)},                                                               //
	"overlap":         {off, oneOf(on, off)},                                                               // overlap schedule
	"deterministic":   {off, oneOf(on, off)},                                                               // --enable-deterministic-inference
	"attention":       {"triton", some},                                                                    // one that a deterministic run may use too
	"radix_cache":     {on, oneOf(on, off)},                                                                //
	"connector":       {"none", oneOf("none", "store")},                                                    // HiCache with files
	"host_gigabytes":  {"4", atLeast(1)},                                                                   // --hicache-size
	"write_policy":    {"write_through", oneOf("write_through", "write_back", "write_through_selective")},  // write_back would leave files behind the run
	"args":            {"", nil},                                                                           // further arguments, parted by spaces
}

func (SGLang) Name() string { return "sglang" }

func (SGLang) Pins() map[string]string { return defaults(sglangPins) }

// Configure: C0 and C1 differ in radix_cache alone, C1 and store in connector alone.
func (SGLang) Configure(role string) (map[string]string, error) {
	return switches("sglang", "radix_cache", role)
}

// SplitPin makes prefill go in pieces of 128 tokens.
func (SGLang) SplitPin(g prompts.Geometry) (name, value string) {
	return "prefill_chunk", strconv.Itoa(max(128, g.RecurrentBlock))
}

// Spec renders the command line (srt/arg_groups/fields/*.py).
func (SGLang) Spec(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	p, err := resolve("sglang", sglangPins, pins)
	if err != nil {
		return arms.Spec{}, err
	}
	number := func(name string) int { n, _ := strconv.Atoi(p[name]); return n }
	switch {
	case p["connector"] == "store" && p["radix_cache"] == off:
		// srt/arg_groups/hicache_hook.py
		return arms.Spec{}, errors.New("engine sglang: connector store with radix_cache off: HiCache is a tier below the radix cache, and the engine refuses to start")
	case number("prefill_chunk")%number("page_size") != 0:
		return arms.Spec{}, fmt.Errorf("engine sglang: prefill_chunk %s is no multiple of page_size %s", p["prefill_chunk"], p["page_size"])
	case p["deterministic"] == on && p["attention"] != "triton" && p["attention"] != "fa3" && p["attention"] != "flashinfer":
		// docs.sglang.io/docs/advanced_features/deterministic_inference
		return arms.Spec{}, fmt.Errorf("engine sglang: deterministic on with attention %s: flashinfer, fa3 and triton have it", p["attention"])
	case p["connector"] == "store" && res.Store == "":
		return arms.Spec{}, errors.New("engine sglang: connector store needs a folder")
	}
	inCache := func(path string) string {
		if filepath.IsAbs(path) || res.Cache == "" {
			return path
		}
		return filepath.Join(res.Cache, path)
	}
	python, model := inCache(p["python"]), inCache(p["model"])
	spec := arms.Spec{
		Env:   map[string]string{"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"},
		Files: []string{python, model},
		Argv: []string{python, "-m", "sglang.launch_server", "--model-path", model, "--served-model-name", p["served_model"],
			"--host", at.Host, "--port", strconv.Itoa(at.Port),
			"--dtype", p["dtype"], "--kv-cache-dtype", p["kv_cache_dtype"], "--page-size", p["page_size"], "--context-length", p["context"],
			"--max-running-requests", p["max_requests"], "--chunked-prefill-size", p["prefill_chunk"], "--random-seed", p["seed"],
			"--tp-size", p["tensor_parallel"], "--dp-size", p["ranks"], "--attention-backend", p["attention"],
			"--enable-metrics", "--enable-cache-report"},
	}
	flag := func(given bool, flag ...string) {
		if given {
			spec.Argv = append(spec.Argv, flag...)
		}
	}
	flag(p["pool_tokens"] != "0", "--max-total-tokens", p["pool_tokens"])
	flag(p["cuda_graph"] == off, "--disable-cuda-graph")
	flag(p["overlap"] == off, "--disable-overlap-schedule")
	flag(p["deterministic"] == on, "--enable-deterministic-inference")
	flag(p["radix_cache"] == off, "--disable-radix-cache")
	if p["connector"] == "store" {
		flag(true, "--enable-hierarchical-cache", "--hicache-size", p["host_gigabytes"], "--hicache-write-policy", p["write_policy"], "--hicache-storage-backend", "file")
		spec.Env["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = res.Store // srt/mem_cache/hicache_storage.py
	}
	spec.Argv = append(spec.Argv, strings.Fields(p["args"])...)
	return spec, nil
}

// ReadyWithin: weights, graphs and kernels take minutes.
func (SGLang) ReadyWithin() time.Duration { return 30 * time.Minute }

// Ready asks /health once: 503 while it starts (srt/entrypoints/http_server.py, health_generate).
// With the default settings it also generates a token, which no counter of prompts shows.
func (SGLang) Ready(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/health", nil)
	return err
}

// Counters are those of srt/observability/metrics_collector.py. The cached tokens of a request
// are added when it ends, by where they were found; a source that never supplied anything has
// no series, and so the first hit of a process is not counted by a difference: usage counts it.
func (SGLang) Counters() map[string]string {
	return map[string]string{
		probes.PromptTokens: "sglang:prompt_tokens_total",
		probes.LocalHits:    `sglang:cached_tokens_total{cache_source="device"}`,
		probes.ExternalHits: `sglang:cached_tokens_total{cache_source="storage"}`,
		probes.CachedTokens: "sglang:cached_tokens_total",
		probes.Preemptions:  "sglang:num_retracted_requests_total",
		probes.Running:      "sglang:num_running_reqs",
	}
}

// CachedIs is "local" where there is no store; with one, the sources tell.
func (SGLang) CachedIs(preset string) string { return localAlone(preset) }

// Cannot: what nobody has run is not promised.
func (SGLang) Cannot(preset string) string {
	if strings.HasPrefix(preset, "PRESS") || strings.HasSuffix(preset, "-PRESS") {
		return "nobody has measured what a flood leaves of the radix cache's pool"
	}
	return ""
}

// ReadPins reads the resolved arguments that /server_info gives at its top level
// (srt/utils/common.py, build_server_info: server_args.resolved_dict).
func (SGLang) ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error) {
	const path = "/server_info"
	r := newReading(pins)
	var info map[string]any
	if err := askJSON(ctx, e, path, nil, &info); err != nil {
		return r.list(), err
	}
	for name, member := range map[string]string{
		"version": "version", "served_model": "served_model_name", "dtype": "dtype", "page_size": "page_size", "context": "context_length",
		"max_requests": "max_running_requests", "prefill_chunk": "chunked_prefill_size", "seed": "random_seed", "tensor_parallel": "tp_size", "ranks": "dp_size",
		"attention": "attention_backend", "pool_tokens": "max_total_tokens", "write_policy": "hicache_write_policy", "host_gigabytes": "hicache_size",
	} {
		switch v := info[member].(type) {
		case string:
			r.read(name, v, path, nil)
		case json.Number:
			r.read(name, v.String(), path, nil)
		}
	}
	if v, ok := info["kv_cache_dtype"].(string); ok {
		if v == "bfloat16" {
			v = "bf16"
		}
		r.read("kv_cache_dtype", v, path, nil)
	}
	if v, ok := info["model_path"].(string); ok {
		r.read("model", v, path, samePath)
	}
	for name, member := range map[string]string{"radix_cache": "disable_radix_cache", "cuda_graph": "disable_cuda_graph", "overlap": "disable_overlap_schedule"} {
		if v, ok := info[member].(bool); ok {
			r.read(name, onOff(!v), path, nil)
		}
	}
	if v, ok := info["enable_deterministic_inference"].(bool); ok {
		r.read("deterministic", onOff(v), path, nil)
	}
	if v, ok := info["enable_hierarchical_cache"].(bool); ok {
		store := "none"
		if backend, _ := info["hicache_storage_backend"].(string); v && backend == "file" {
			store = "store"
		}
		r.read("connector", store, path, nil)
	}
	return r.list(), nil
}

// Reset empties the device and host tiers; the files stay (srt/entrypoints/http_server.py,
// flush_cache: 400 while requests run).
func (SGLang) Reset(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/flush_cache", struct{}{})
	return err
}

// Store describes the folder of the file backend.
func (SGLang) Store(res arms.Resources) (probes.StoreFact, error) { return folderFact(res.Store) }

// Save has nothing to do: the files keep themselves.
func (SGLang) Save(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error { return nil }

// Restore has nothing to do: the files are found again.
func (SGLang) Restore(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error {
	return nil
}

// Expect: the radix cache finds whole pages, and leaves a token to compute.
func (SGLang) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	p, err := resolve("sglang", sglangPins, pins)
	if err != nil {
		return nil
	}
	page, _ := strconv.Atoi(p["page_size"])
	return Paged{Block: page, Chunk: page, Local: p["radix_cache"] == on, Store: p["connector"] == "store"}.Expect(s, steps)
}

// Death recognises the lines that a dying scheduler leaves (srt/managers/scheduler.py,
// srt/managers/tokenizer_manager.py, srt/utils/watchdog.py).
func (SGLang) Death(line string) bool {
	return strings.Contains(line, "Scheduler hit an exception") || strings.Contains(line, "SIGQUIT received") || strings.Contains(line, "watchdog timeout")
}

// CannotIdentify: a request names a salt (srt/entrypoints/openai/protocol.py, cache_salt).
func (SGLang) CannotIdentify(kind string) string {
	switch kind {
	case "salt", "config":
		return ""
	}
	return "nobody has tried its requests with another " + kind
}
