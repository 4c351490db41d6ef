package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// VLLM is `vllm serve`, version 1 of its engine, releases 0.22 to 0.33. By default it is the
// one that vllm/fetch.sh puts into the project's cache: 0.32.0 for CPUs, which is also the
// one that this adapter was run with; the others are known by their documentation and source.
//
// What was measured on it, two cores, SmolLM2-135M in float32 without compilation, block size
// 32, one request at a time, the store being testdata/vllm/blockfiles.py:
//
//   - Cold, a full local hit, a full hit from the store, and a hit of one half from each are
//     bitwise equal where at least two tokens are left to compute. With one token left they
//     differ by up to 1e-5: keep prompts whose length is 1 modulo the block size out of a Set.
//   - An explicit --kv-cache-dtype float32 does not exist. float32 is what `auto` means for a
//     float32 model, so that one value is rendered as auto, and what it became is read back.
//   - POST /reset_prefix_cache answers whether it succeeded; before 0.32 it always said 200.
//   - SIGTERM may log EngineDeadError while everything ends in order.
//
// Unless pins say otherwise every process has the development endpoints (/server_info and
// /reset_prefix_cache), accounts for cached tokens in its replies, and has a hash seed; nothing
// comes from a hub.
type VLLM struct{}

// vllmTypes are the words of --kv-cache-dtype (vllm/config/cache.py, CacheDType) without auto,
// and float32, which has none.
var vllmTypes = []string{"float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla",
	"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "ultraquant_4bit",
	"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4", "nvfp4_4over6"}

var vllmPins = map[string]pin{
	"binary":          {"vllm/venv/bin/vllm", some},                                        // relative to the cache
	"version":         {"0.32.0", vllmVersion},                                             // that the binary is
	"model":           {"vllm/model", some},                                                // folder, relative to the cache
	"served_model":    {"smollm2-135m", some},                                              // name in the requests
	"device":          {"cpu", oneOf("cpu", "cuda", "rocm", "xpu")},                        // what the binary was built for
	"preload":         {"vllm/venv/lib/libiomp5.so", nil},                                  // cpu: without it decoding is four times slower; "" = nothing
	"threads":         {"2", atLeast(1)},                                                   // cpu: of each rank
	"dtype":           {"float32", oneOf("float32", "float16", "bfloat16")},                //
	"kv_cache_dtype":  {"float32", oneOf(vllmTypes...)},                                    // never auto
	"block_size":      {"32", atLeast(1)},                                                  //
	"max_model_len":   {"2048", atLeast(1)},                                                //
	"max_num_seqs":    {"8", atLeast(1)},                                                   // of each rank
	"batch_tokens":    {"2048", atLeast(1)},                                                // --max-num-batched-tokens: the prefill budget
	"kv_memory":       {"536870912", atLeast(0)},                                           // bytes of each rank's pool; 0 = the engine's choice
	"blocks":          {"0", atLeast(0)},                                                   // --num-gpu-blocks-override; 0 = as many as kv_memory holds
	"seed":            {"1", unsigned},                                                     //
	"hash_seed":       {"0", vllmHashSeed},                                                 // PYTHONHASHSEED: without it no process finds what another stored
	"hash_algo":       {"sha256", oneOf("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")}, //
	"mamba_cache":     {"none", oneOf("none", "all", "align")},                             // --mamba-cache-mode; none where the model has no such layers
	"tensor_parallel": {"1", atLeast(1)},                                                   //
	"ranks":           {"1", atLeast(1)},                                                   // --data-parallel-size
	"eager":           {on, oneOf(on, off)},                                                // --enforce-eager
	"async":           {off, oneOf(on, off)},                                               // --async-scheduling
	"invariant":       {off, oneOf(on, off)},                                               // VLLM_BATCH_INVARIANT
	"attention":       {"", nil},                                                           // --attention-backend; "" = the engine's choice
	"hybrid_manager":  {on, oneOf(on, off)},                                                // off: --disable-hybrid-kv-cache-manager
	"prefix_caching":  {on, oneOf(on, off)},                                                //
	"connector":       {"none", vllmConnector},                                             // none, store, or store with a JSON object over store_config: `store {"fault":"scale"}`
	"store":           {"blockfiles:BlockFiles", vllmStoreKnown},                           // which connector "store" is: see vllmStores
	"store_config":    {"{}", jsonObject},                                                  // over what this adapter puts into kv_connector_extra_config
	"load_policy":     {"fail", oneOf("fail", "recompute")},                                // kv_load_failure_policy
	"pythonpath":      {"vllm/connectors", nil},                                            // folder of a connector's module, relative to the cache
	"prompt_details":  {on, oneOf(on, off)},                                                // --enable-prompt-tokens-details: cached_tokens in each reply's usage
	"dev_endpoints":   {on, oneOf(on, off)},                                                // VLLM_SERVER_DEV_MODE: without it no reset, and the configuration is read from the metric alone
	"args":            {"", nil},                                                           // further arguments, parted by spaces, as they are
}

// vllmVersion accepts the releases that this adapter knows.
func vllmVersion(v string) error {
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if major != "0" || err != nil || n < vllmOldest || n > vllmNewest {
		return fmt.Errorf("%q is not a release from 0.%d to 0.%d", v, vllmOldest, vllmNewest)
	}
	return nil
}

const (
	vllmOldest = 22
	vllmNewest = 33
)

// minor is the middle number of a release, 32 of 0.32.0.
func minor(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(parts[1])
	return n
}

// vllmHashSeed wants a number: "random" is Python's word for a new one in every process.
func vllmHashSeed(v string) error {
	if n, err := strconv.ParseUint(v, 10, 32); err != nil || n > 4294967295 {
		return fmt.Errorf("%q is not a number from 0 to 4294967295: without a fixed seed the names of blocks change from process to process, and nothing stored is found again", v)
	}
	return nil
}

// vllmAttached says whether a value of the pin connector attaches the store, and what it lays
// over store_config: an arm whose store differs from the others' still differs in one pin from
// an arm without a store.
func vllmAttached(v string) (stored bool, over string) {
	word, over, _ := strings.Cut(v, " ")
	return word == "store", over
}

func vllmConnector(v string) error {
	stored, over := vllmAttached(v)
	switch {
	case v == "none" || v == "store":
		return nil
	case stored:
		return jsonObject(over)
	}
	return fmt.Errorf("%q is not one of none, store, store {JSON}", v)
}

// vllmOver is what pins lay over the settings that this adapter gives a store.
func vllmOver(p map[string]string) (map[string]any, error) {
	var over map[string]any
	if err := json.Unmarshal([]byte(p["store_config"]), &over); err != nil {
		return nil, fmt.Errorf("engine vllm: store_config: %w", err)
	}
	if _, more := vllmAttached(p["connector"]); more != "" {
		if err := json.Unmarshal([]byte(more), &over); err != nil {
			return nil, fmt.Errorf("engine vllm: connector: %w", err)
		}
	}
	return over, nil
}

func jsonObject(v string) error {
	var m map[string]any
	if err := json.Unmarshal([]byte(v), &m); err != nil || m == nil {
		return fmt.Errorf("%q is not a JSON object", v)
	}
	return nil
}

func (VLLM) Name() string { return "vllm" }

func (VLLM) Pins() map[string]string { return defaults(vllmPins) }

// Configure: C0 and C1 differ in prefix_caching alone, C1 and store in connector alone.
func (VLLM) Configure(role string) (map[string]string, error) {
	return switches("vllm", "prefix_caching", role)
}

// SplitPin makes prefill go in pieces of one block, or of one recurrent block where that is
// more, since a smaller budget cannot reach the next state. The last piece is then what a
// full hit leaves to compute, so that such a control shows for every prompt whether what is
// computed at once changes a bit.
func (VLLM) SplitPin(g prompts.Geometry) (name, value string) {
	return "batch_tokens", strconv.Itoa(g.Boundary())
}

// Spec renders `vllm serve` (vllm/entrypoints/openai/cli_args.py, vllm/engine/arg_utils.py).
// Everything that decides over numbers or over what is cached is stated, also where it is the
// release's default. It refuses pins that are known to start something else than they say:
// see vllmTrap.
func (v VLLM) Spec(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	p, err := resolve("vllm", vllmPins, pins)
	if err != nil {
		return arms.Spec{}, err
	}
	if err := vllmTrap(p); err != nil {
		return arms.Spec{}, fmt.Errorf("engine vllm: %w", err)
	}
	inCache := func(path string) string {
		if path == "" || filepath.IsAbs(path) || res.Cache == "" {
			return path
		}
		return filepath.Join(res.Cache, path)
	}
	spec := arms.Spec{Env: map[string]string{
		"PYTHONHASHSEED":              p["hash_seed"],
		"PYTHONUNBUFFERED":            "1",
		"VLLM_SERVER_DEV_MODE":        map[string]string{on: "1", off: "0"}[p["dev_endpoints"]],
		"VLLM_COMPUTE_NANS_IN_LOGITS": "1",
		"VLLM_NO_USAGE_STATS":         "1",
		"DO_NOT_TRACK":                "1",
		"HF_HUB_OFFLINE":              "1",
		"TRANSFORMERS_OFFLINE":        "1",
	}}
	if at.Host == "127.0.0.1" {
		// what the parts of one server speak to each other through
		spec.Env["VLLM_HOST_IP"] = "127.0.0.1"
		spec.Env["GLOO_SOCKET_IFNAME"] = "lo"
	}
	binary, model := inCache(p["binary"]), inCache(p["model"])
	spec.Files, spec.Fetch = []string{binary, model}, "arms/engine/vllm/fetch.sh"
	if p["device"] == "cpu" {
		// One pool of threads for each rank, bound to no core: ranks and other programs share them.
		spec.Env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
		spec.Env["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
		spec.Env["OMP_NUM_THREADS"] = p["threads"]
		spec.Env["KMP_BLOCKTIME"] = "1"
		if p["preload"] != "" {
			spec.Env["LD_PRELOAD"] = inCache(p["preload"])
			spec.Files = append(spec.Files, spec.Env["LD_PRELOAD"])
		}
	}
	if p["invariant"] == on {
		spec.Env["VLLM_BATCH_INVARIANT"] = "1"
	}
	dtype := p["kv_cache_dtype"]
	if dtype == "float32" {
		dtype = "auto" // a float32 model's own type: vllmTrap has seen to that, ReadPins reads it back
	}
	spec.Argv = []string{binary, "serve", model,
		"--served-model-name", p["served_model"], "--host", at.Host, "--port", strconv.Itoa(at.Port),
		"--dtype", p["dtype"], "--kv-cache-dtype", dtype, "--block-size", p["block_size"],
		"--max-model-len", p["max_model_len"], "--max-num-seqs", p["max_num_seqs"], "--max-num-batched-tokens", p["batch_tokens"],
		"--seed", p["seed"], "--tensor-parallel-size", p["tensor_parallel"], "--data-parallel-size", p["ranks"],
		"--prefix-caching-hash-algo", p["hash_algo"],
		"--max-logprobs", "20",
		pick(p["prefix_caching"], "--enable-prefix-caching", "--no-enable-prefix-caching"),
		pick(p["eager"], "--enforce-eager", "--no-enforce-eager"),
		pick(p["async"], "--async-scheduling", "--no-async-scheduling"),
		pick(p["hybrid_manager"], "--no-disable-hybrid-kv-cache-manager", "--disable-hybrid-kv-cache-manager"),
	}
	if p["prompt_details"] == on {
		spec.Argv = append(spec.Argv, "--enable-prompt-tokens-details")
	}
	for _, o := range []struct{ pin, flag, unset string }{
		{"kv_memory", "--kv-cache-memory-bytes", "0"},
		{"blocks", "--num-gpu-blocks-override", "0"},
		{"mamba_cache", "--mamba-cache-mode", "none"},
		{"attention", "--attention-backend", ""},
	} {
		if p[o.pin] != o.unset {
			spec.Argv = append(spec.Argv, o.flag, p[o.pin])
		}
	}
	if stored, _ := vllmAttached(p["connector"]); stored {
		if err := v.attach(&spec, p, at, res, inCache); err != nil {
			return arms.Spec{}, err
		}
	}
	spec.Argv = append(spec.Argv, strings.Fields(p["args"])...)
	return spec, nil
}

// InvariantPin is VLLM_BATCH_INVARIANT (docs/features/batch_invariance.md).
func (VLLM) InvariantPin() (name, value string) { return "invariant", on }

// CannotTrace wants the server's own switch among its further arguments, and no speculation,
// with which it refuses (docs/serving/online_serving/trace_replay.md, vllm#46701). A release
// that does not know the member of the request ignores it, which the replies show.
func (VLLM) CannotTrace(pins map[string]string) string {
	args := strings.Fields(pins["args"])
	switch {
	case !slices.Contains(args, "--enable-trace-replay"):
		return "its requests cannot name their reply: add --enable-trace-replay to the pin args"
	case slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--speculative-config") }):
		return "it refuses trace replay beside speculative decoding: leave --speculative-config out of the pin args"
	}
	return ""
}

// attach adds the connector.
func (VLLM) attach(spec *arms.Spec, p map[string]string, at arms.Address, res arms.Resources, inCache func(string) string) error {
	w := &vllmWiring{pins: p, at: at, res: res, spec: spec, inCache: inCache}
	config, err := w.config(p["store"])
	if err != nil {
		return fmt.Errorf("engine vllm: store %s: %w", p["store"], err)
	}
	config["kv_load_failure_policy"] = p["load_policy"]
	config["engine_id"] = "kvladder" // else a new one in every process
	over, err := vllmOver(p)
	if err != nil {
		return err
	}
	if len(over) > 0 {
		extra, _ := config["kv_connector_extra_config"].(map[string]any)
		if extra == nil {
			extra = map[string]any{}
		}
		maps.Copy(extra, over)
		config["kv_connector_extra_config"] = extra
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(config); err != nil {
		return err
	}
	spec.Argv = append(spec.Argv, "--kv-transfer-config", strings.TrimSpace(b.String()))
	return nil
}

// ReadyWithin is generous: a large model is read from a disk, and a busy CPU compiles slowly.
func (VLLM) ReadyWithin() time.Duration { return 40 * time.Minute }

// Ready asks /health once: 503 once the engine is dead (vllm/entrypoints/serve/instrumentator/health.py).
func (VLLM) Ready(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/health", nil)
	return err
}

// Counters are those of vllm/v1/metrics/loggers.py; of the store, those of
// vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py where it is that one.
func (VLLM) Counters() map[string]string {
	return map[string]string{
		probes.LocalQueries:    "vllm:prefix_cache_queries",
		probes.LocalHits:       "vllm:prefix_cache_hits",
		probes.ExternalQueries: "vllm:external_prefix_cache_queries",
		probes.ExternalHits:    "vllm:external_prefix_cache_hits",
		probes.PromptTokens:    "vllm:prompt_tokens",
		probes.Computed:        `vllm:prompt_tokens_by_source{source="local_compute"}`,
		probes.CachedTokens:    "vllm:prompt_tokens_cached",
		probes.Preemptions:     "vllm:num_preemptions",
		probes.Corrupted:       "vllm:corrupted_requests",
		probes.Running:         "vllm:num_requests_running",
		probes.StoredBytes:     "vllm:kv_offload_store_bytes",
		probes.LoadedBytes:     "vllm:kv_offload_load_bytes",
	}
}

// CachedIs is "local" where there is no store; with one, the counters tell.
func (VLLM) CachedIs(preset string) string { return localAlone(preset) }

// Cannot: every preset can be run; what a store cannot do is refused with its pin.
func (VLLM) Cannot(string) string { return "" }

// Reset drops the local cache alone: the query reset_external stays false. Since 0.32 the
// answer says whether it was done, which it is not while blocks are held, so it is asked for
// a while; older ones say nothing, and the next request proves it.
func (VLLM) Reset(ctx context.Context, e probes.Endpoint) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		b, err := ask(ctx, e, "/reset_prefix_cache?reset_external=false", struct{}{})
		if err != nil {
			return fmt.Errorf("%w; the endpoint is there with VLLM_SERVER_DEV_MODE=1", err)
		}
		var said struct {
			Success *bool `json:"success"`
		}
		if json.Unmarshal(b, &said) != nil || said.Success == nil || *said.Success {
			return nil
		}
		if wait > 3*time.Second {
			return errors.New("/reset_prefix_cache: the engine did not reset its cache: blocks are still held; is a request running?")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// Store describes the folder that the arm's connector keeps its blocks in. A connector that
// keeps them in memory leaves it empty, and one whose files are no chunks has none counted.
func (VLLM) Store(res arms.Resources) (probes.StoreFact, error) {
	fact, err := chunkFact(res.Store)
	if fact.Chunks != nil && *fact.Chunks == 0 && *fact.Files > 0 {
		fact.Chunks = nil
	}
	return fact, err
}

// Save has nothing to do: a store that persists keeps itself.
func (VLLM) Save(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error { return nil }

// Restore has nothing to do: the store is found again.
func (VLLM) Restore(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error { return nil }

// Expect follows the rules of Paged, for requests that come one after another. One block of
// the pool stands for nothing (vllm/v1/core/block_pool.py, null_block).
func (VLLM) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	p, err := resolve("vllm", vllmPins, pins)
	if err != nil {
		return nil
	}
	block, _ := strconv.Atoi(p["block_size"])
	blocks, _ := strconv.Atoi(p["blocks"])
	if blocks > 0 {
		blocks--
	}
	recurrent := 0
	if p["mamba_cache"] != "none" {
		recurrent = s.Geometry.RecurrentBlock
	}
	st := vllmStoreOf(p["store"])
	stored, _ := vllmAttached(p["connector"])
	return Paged{
		Block: block, Recurrent: recurrent, Chunk: max(st.chunk(p), block), Blocks: blocks,
		Local: p["prefix_caching"] == on, Store: stored, Volatile: !st.persists,
	}.Expect(s, steps)
}

// vllmDead are what a dying engine writes: vllm/v1/engine/exceptions.py, core.py, utils.py and
// vllm/v1/executor/multiproc_executor.py.
var vllmDead = []string{
	"EngineDeadError",
	"EngineCore encountered an issue",
	"EngineCore encountered a fatal error",
	"EngineCore failed to start",
	"Engine core initialization failed",
	"died unexpectedly",
	"an illegal memory access was encountered",
}

// Death recognises the last words of an engine core, a worker or their supervisor. On SIGTERM
// some are written too: they count only while nobody asked for an end.
func (VLLM) Death(line string) bool {
	return slices.ContainsFunc(vllmDead, func(s string) bool { return strings.Contains(line, s) }) && !strings.Contains(line, "non-default args")
}

// LoadFailed recognises what the scheduler writes of failed loads (vllm/v1/core/sched/scheduler.py).
// A request that was "recovered" has been seen to answer wrongly all the same, so its row is
// counted apart.
func (VLLM) LoadFailed(line string) (failed, recovered bool) {
	switch {
	case strings.Contains(line, "Recovered from KV load failure"):
		return true, true
	case strings.Contains(line, "due to KV load failure"):
		return true, false
	}
	return false, false
}
