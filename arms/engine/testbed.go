package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Testbed is the embedded engine, started as `kvladder testbed serve`. It speaks vLLM's
// dialect, counts under vLLM's names, and states every pin it runs with.
type Testbed struct{}

// The sizes that the embedded engine has unless pins say otherwise.
const (
	testbedBlock     = 16
	testbedRecurrent = 64
)

var testbedPins = map[string]pin{
	"model_seed":     {"11", unsigned},
	"kv_cache_dtype": {"bf16", oneOf("bf16", "fp8")},
	"prefix_caching": {on, oneOf(on, off)},
	"connector":      {"none", oneOf("none", "store")},
	"blocks":         {"2048", within(testbedRecurrent/testbedBlock, 1<<20)},
	"prefill_budget": {"127", atLeast(1)},
	"ranks":          {"1", within(1, 64)},
	"hash_seed":      {"0", some},
	"fault":          {"", nil}, // identifiers separated by commas; the server knows which exist

	// What has a default that changes nothing is left out of the command line.
	"block_size":       {"16", within(16, 1<<16)},
	"mamba_block_size": {"64", within(16, 1<<16)},
	"tensor_parallel":  {"1", oneOf("1", "2")},
	"store_scope":      {"rank", oneOf("rank", "shared")},
	"store_steps":      {"0", atLeast(0)},
	"load_steps":       {"0", atLeast(0)},
	"load_policy":      {"recompute", oneOf("recompute", "fail")},
	"draft":            {"0", within(0, 8)},
	"trace_replay":     {off, oneOf(on, off)},
	"config_epoch":     {"0", within(0, 9)},
	"adapters":         {"", nil},
	"noise":            {"none", oneOf("none", "split", "order")},
	"noise_seed":       {"0", unsigned},
	"flake":            {"0", rate},
}

// testbedOptions are the pins that are left out where they have their default: the flag of
// each, and the member of /server_info that states it.
var testbedOptions = []struct{ pin, flag, member string }{
	{"block_size", "--block-size", ""},
	{"mamba_block_size", "--mamba-block-size", ""},
	{"tensor_parallel", "--tensor-parallel-size", "tensor_parallel_size"},
	{"store_scope", "--store-scope", "store_scope"},
	{"store_steps", "--store-steps", "store_steps"},
	{"load_steps", "--load-steps", "load_steps"},
	{"load_policy", "--kv-load-failure-policy", "kv_load_failure_policy"},
	{"draft", "--num-speculative-tokens", "num_speculative_tokens"},
	{"config_epoch", "--config-epoch", "config_epoch"},
	{"adapters", "--adapters", "adapters"},
	{"noise", "--noise", "noise"},
	{"noise_seed", "--noise-seed", "noise_seed"},
	{"flake", "--flake", "flake"},
}

// rate accepts numbers from 0 to 1.
func rate(v string) error {
	if x, err := strconv.ParseFloat(v, 64); err != nil || !(x >= 0 && x <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", v)
	}
	return nil
}

func (Testbed) Name() string { return "testbed" }

func (Testbed) Pins() map[string]string { return defaults(testbedPins) }

// Configure: C0 and C1 differ in prefix_caching alone, C1 and store in connector alone.
func (Testbed) Configure(role string) (map[string]string, error) {
	return switches("testbed", "prefix_caching", role)
}

// SplitPin halves the prefill budget to one recurrent block, the least that lets chunks
// end at every boundary.
func (Testbed) SplitPin(g prompts.Geometry) (name, value string) {
	return "prefill_budget", strconv.Itoa(max(testbedRecurrent, g.RecurrentBlock))
}

// Spec needs Resources.Self, and Resources.Store where the connector is on and what it
// stores is to outlive the process.
func (Testbed) Spec(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	p, err := resolve("testbed", testbedPins, pins)
	if err != nil {
		return arms.Spec{}, err
	}
	if res.Self == "" {
		return arms.Spec{}, errors.New("engine testbed: the path of this program is not known")
	}
	number := func(name string) int { n, _ := strconv.Atoi(p[name]); return n }
	block, every := number("block_size"), number("mamba_block_size")
	switch {
	case every%block != 0:
		return arms.Spec{}, fmt.Errorf("engine testbed: mamba_block_size %d is no multiple of block_size %d", every, block)
	case number("blocks") < every/block:
		return arms.Spec{}, fmt.Errorf("engine testbed: blocks %d do not hold one recurrent block of %d tokens: %d are needed", number("blocks"), every, every/block)
	case (p["prefix_caching"] == on || p["connector"] == "store") && number("prefill_budget") < every:
		return arms.Spec{}, fmt.Errorf("engine testbed: prefill_budget %d is smaller than the recurrent block of %d tokens, which reuse needs", number("prefill_budget"), every)
	}
	caching := "--no-enable-prefix-caching"
	if p["prefix_caching"] == on {
		caching = "--enable-prefix-caching"
	}
	argv := []string{res.Self, "testbed", "serve",
		"--host", at.Host, "--port", strconv.Itoa(at.Port),
		"--model-seed", p["model_seed"], "--kv-cache-dtype", p["kv_cache_dtype"], caching,
		"--blocks", p["blocks"], "--prefill-budget", p["prefill_budget"],
		"--data-parallel-size", p["ranks"], "--hash-seed", p["hash_seed"],
		"--connector", p["connector"]}
	if p["connector"] == "store" && res.Store != "" {
		argv = append(argv, "--store-path", res.Store)
	}
	for _, o := range testbedOptions {
		if p[o.pin] != testbedPins[o.pin].def {
			argv = append(argv, o.flag, p[o.pin])
		}
	}
	if p["trace_replay"] == on {
		if p["draft"] != "0" {
			return arms.Spec{}, errors.New("engine testbed: trace_replay is not supported with a draft: leave one of them off")
		}
		argv = append(argv, "--enable-trace-replay")
	}
	if p["fault"] != "" {
		argv = append(argv, "--fault", p["fault"])
	}
	return arms.Spec{Argv: argv, Env: map[string]string{}, Files: []string{res.Self}}, nil
}

// Ready asks /health once.
func (Testbed) Ready(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/health", nil)
	return err
}

// Counters are vLLM's names (vllm/v1/metrics/loggers.py) and the store's own.
func (Testbed) Counters() map[string]string {
	return map[string]string{
		probes.LocalQueries:    "vllm:prefix_cache_queries",
		probes.LocalHits:       "vllm:prefix_cache_hits",
		probes.ExternalQueries: "vllm:external_prefix_cache_queries",
		probes.ExternalHits:    "vllm:external_prefix_cache_hits",
		probes.PromptTokens:    "vllm:prompt_tokens",
		probes.Computed:        `vllm:prompt_tokens_by_source{source="local_compute"}`,
		probes.CachedTokens:    "vllm:prompt_tokens_cached",
		probes.Preemptions:     "vllm:num_preemptions",
		probes.Evictions:       "kvladder_testbed_evictions",
		probes.Running:         "vllm:num_requests_running",
		probes.NullBlock:       "kvladder_testbed_null_block_checksum",
		probes.StoredChunks:    "kvladder_testbed_stored_chunks",
		probes.StoredBytes:     "vllm:kv_offload_store_bytes",
		probes.LoadedBytes:     "vllm:kv_offload_load_bytes",
	}
}

// CachedIs is "local" where there is no store; with one, the counters tell.
func (Testbed) CachedIs(preset string) string { return localAlone(preset) }

// InvariantPin: without noise the embedded engine computes the same bits whatever happens.
func (Testbed) InvariantPin() (name, value string) { return "noise", "none" }

// CannotTrace wants the pin; a draft beside it is refused by Spec.
func (Testbed) CannotTrace(pins map[string]string) string {
	if pins["trace_replay"] != on {
		return "its requests cannot name their reply: state trace_replay: on in pins"
	}
	return ""
}

// Cannot: the embedded engine runs every preset.
func (Testbed) Cannot(string) string { return "" }

// ReadPins reads the member "testbed" of /server_info, where the engine states each choice
// as it resolved it.
func (Testbed) ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error) {
	const path = "/server_info?config_format=json"
	r := newReading(pins)
	var info struct {
		Testbed map[string]any `json:"testbed"`
	}
	if err := askJSON(ctx, e, path, nil, &info); err != nil {
		return r.list(), err
	}
	const source = "/server_info testbed"
	for name, member := range map[string]string{
		"model_seed": "model_seed", "kv_cache_dtype": "kv_cache_dtype", "connector": "connector", "blocks": "blocks",
		"prefill_budget": "prefill_budget", "ranks": "data_parallel_size", "hash_seed": "hash_seed",
	} {
		switch v := info.Testbed[member].(type) {
		case string:
			r.read(name, v, source, nil)
		case json.Number:
			r.read(name, v.String(), source, nil)
		}
	}
	for _, o := range testbedOptions {
		switch v := info.Testbed[o.member].(type) {
		case string:
			r.read(o.pin, v, source, nil)
		case json.Number:
			r.read(o.pin, v.String(), source, nil)
		}
	}
	if g, ok := info.Testbed["geometry"].(map[string]any); ok {
		for name, member := range map[string]string{"block_size": "attention_block", "mamba_block_size": "recurrent_block"} {
			if v, ok := g[member].(json.Number); ok {
				r.read(name, v.String(), source, nil)
			}
		}
	}
	if v, ok := info.Testbed["enable_prefix_caching"].(bool); ok {
		r.read("prefix_caching", onOff(v), source, nil)
	}
	if v, ok := info.Testbed["enable_trace_replay"].(bool); ok {
		r.read("trace_replay", onOff(v), source, nil)
	}
	if v, ok := info.Testbed["faults"].([]any); ok {
		ids := make([]string, len(v))
		for i := range v {
			ids[i] = fmt.Sprint(v[i])
		}
		r.read("fault", strings.Join(ids, ","), source, sameFaults)
	}
	return r.list(), nil
}

// sameFaults compares two lists of identifiers whatever their order and letter case.
func sameFaults(a, b string) bool {
	set := func(s string) []string {
		ids := strings.FieldsFunc(strings.ToUpper(s), func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	return slices.Equal(set(a), set(b))
}

// Reset empties the local cache and leaves the store.
func (Testbed) Reset(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/reset_prefix_cache", struct{}{})
	return err
}

// Store counts the chunks of all ranks' file tiers, one file each. Of a tensor split each
// rank's share of a chunk is a file.
func (Testbed) Store(res arms.Resources) (probes.StoreFact, error) { return chunkFact(res.Store) }

// Save has nothing to do: the store keeps itself.
func (Testbed) Save(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error { return nil }

// Restore has nothing to do: the store is found again.
func (Testbed) Restore(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error {
	return nil
}

// Expect follows the engine's own rules, for requests that come one after another. Each
// rank has its own caches: a set that goes to several is to be given rank by rank.
func (Testbed) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	p, err := resolve("testbed", testbedPins, pins)
	if err != nil {
		return nil
	}
	blocks, _ := strconv.Atoi(p["blocks"])
	block, _ := strconv.Atoi(p["block_size"])
	recurrent, _ := strconv.Atoi(p["mamba_block_size"])
	if recurrent%block != 0 {
		return nil // Spec refuses it
	}
	return Paged{
		Block: block, Recurrent: recurrent, Chunk: recurrent, Blocks: blocks,
		Local: p["prefix_caching"] == on, Store: p["connector"] == "store", Shares: p["tensor_parallel"] == "2",
	}.Expect(s, steps)
}

// Death recognises the last words of the engine, which are vLLM's, and of a Go program.
func (Testbed) Death(line string) bool {
	return strings.HasPrefix(line, "EngineDeadError: ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIGSEGV")
}
