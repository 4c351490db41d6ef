package server

import (
	"maps"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"
)

// Version is what /version states: the release of vLLM whose dialect is spoken,
// and that it is spoken by something else.
const Version = "0.32.0+kvladder.testbed"

// fingerprint is the system_fingerprint of replies.
const fingerprint = "kvladder-testbed-" + Version

// Facts is what the engine states about itself: every choice, as resolved.
type Facts struct {
	ModelSeed       uint64    `json:"model_seed"`
	CacheDType      string    `json:"kv_cache_dtype"`
	PrefixCaching   bool      `json:"enable_prefix_caching"`
	Connector       string    `json:"connector"`
	StorePath       string    `json:"store_path"`
	Blocks          int       `json:"blocks"`
	PrefillBudget   int       `json:"prefill_budget"`
	Ranks           int       `json:"data_parallel_size"`
	TensorParallel  int       `json:"tensor_parallel_size"`
	StoreScope      string    `json:"store_scope"`
	StoreSteps      int       `json:"store_steps"`
	LoadSteps       int       `json:"load_steps"`
	LoadPolicy      string    `json:"kv_load_failure_policy"`
	Draft           int       `json:"num_speculative_tokens"`
	TraceReplay     bool      `json:"enable_trace_replay"`
	Epoch           int       `json:"config_epoch"`
	Adapters        string    `json:"adapters"`
	Noise           string    `json:"noise"`
	NoiseSeed       uint64    `json:"noise_seed"`
	NoiseSeedDrawn  uint64    `json:"noise_seed_drawn"` // itself, unless it is 0
	Flake           float64   `json:"flake"`
	HashSeed        string    `json:"hash_seed"`
	HashRoot        string    `json:"hash_root"`
	Faults          []string  `json:"faults"`
	ServedModelName string    `json:"served_model_name"`
	MaxModelLen     int       `json:"max_model_len"`
	Geometry        Geometry  `json:"geometry"`
	Incarnation     string    `json:"incarnation"` // random, new in every process
	Started         time.Time `json:"started"`
}

// Geometry is the sizes of the KV path in tokens.
type Geometry struct {
	AttentionBlock int `json:"attention_block"`
	RecurrentBlock int `json:"recurrent_block"`
	StoreChunk     int `json:"store_chunk"`
	Window         int `json:"window"`
}

// cacheConfig returns the members of vLLM's CacheConfig that mean something
// here, under their names there.
func (f *Facts) cacheConfig() map[string]any {
	c := map[string]any{
		"block_size":                f.Geometry.AttentionBlock,
		"user_specified_block_size": false,
		"cache_dtype":               f.CacheDType,
		"enable_prefix_caching":     f.PrefixCaching,
		"prefix_caching_hash_algo":  "sha256",
		"num_gpu_blocks":            f.Blocks,
		"num_cpu_blocks":            nil,
		"sliding_window":            f.Geometry.Window,
		"mamba_block_size":          f.Geometry.RecurrentBlock,
		"mamba_cache_mode":          "none",
		"mamba_ssm_cache_dtype":     "float32",
		"is_attention_free":         false,
	}
	if f.PrefixCaching {
		c["mamba_cache_mode"] = "align"
	}
	return c
}

// serverInfo is GET /server_info: the shape of vLLM's, and a member of our own.
func (s *Server) serverInfo(w http.ResponseWriter, r *http.Request) {
	f := &s.cfg.Facts
	var transfer any
	if f.Connector != "none" {
		transfer = map[string]any{
			"kv_connector": "TestbedStoreConnector",
			"kv_role":      "kv_both",
			"kv_connector_extra_config": map[string]any{
				"block_size": f.Geometry.StoreChunk,
				"path":       f.StorePath,
			},
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"vllm_config": map[string]any{
			"model_config": map[string]any{
				"model":             f.ServedModelName,
				"served_model_name": f.ServedModelName,
				"dtype":             "float32",
				"seed":              f.ModelSeed,
				"max_model_len":     f.MaxModelLen,
				"max_logprobs":      maxLogprobs,
				"logprobs_mode":     "raw_logprobs",
			},
			"cache_config":       f.cacheConfig(),
			"parallel_config":    map[string]any{"data_parallel_size": f.Ranks, "tensor_parallel_size": f.TensorParallel},
			"scheduler_config":   map[string]any{"max_num_batched_tokens": f.PrefillBudget, "enable_chunked_prefill": true},
			"kv_transfer_config": transfer,
		},
		"vllm_env": map[string]any{},
		"system_env": map[string]any{
			"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "pid": os.Getpid(),
		},
		"testbed": f,
	})
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": Version})
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	created := s.cfg.Facts.Started.Unix()
	base := map[string]any{
		"id": s.cfg.Name, "object": "model", "created": created, "owned_by": "kvladder",
		"root": s.cfg.Name + "-seed-" + strconv.FormatUint(s.cfg.Facts.ModelSeed, 10), "parent": nil, "max_model_len": s.cfg.MaxModelLen,
		"permission": []any{},
	}
	data := []any{base}
	for _, a := range s.cfg.Adapters {
		m := maps.Clone(base)
		m["id"], m["root"], m["parent"] = s.cfg.Name+":"+a, a, s.cfg.Name
		data = append(data, m)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}
