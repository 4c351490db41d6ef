package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
)

// vllmStore is one kind of external store: a connector of vLLM and what it needs.
type vllmStore struct {
	connector string // its name in vllm/distributed/kv_transfer/kv_connector/factory.py
	hybrid    bool   // it works with the hybrid cache manager on (SupportsHMA in its class); else the engine refuses to start
	cpu       bool   // it works with the CPU backend
	persists  bool   // it finds what an earlier process stored
	unit      int    // tokens of a chunk; 0 = a block
	why       string // what keeps it from the CPU backend
	wire      func(w *vllmWiring) (extra map[string]any, err error)
}

// chunk is what the store keeps at a time, in tokens.
func (s vllmStore) chunk(pins map[string]string) int {
	if s.unit == 0 {
		n, _ := strconv.Atoi(pins["block_size"])
		return n
	}
	return s.unit
}

// onlyAccelerators is what vllm/v1/kv_offload/cpu/spec.py raises on CPUs.
const onlyAccelerators = "CPU offloading is supported on CUDA-alike and XPU devices only"

// vllmStores are the connectors that the pin `store` may name; `multi:A+B` and MODULE:CLASS go
// beside them.
var vllmStores = map[string]vllmStore{
	// docs/features/disagg_prefill.md, v1/example_connector.py: one folder for each prompt's
	// whole blocks, named by its token ids and by nothing else, not even the model: a folder
	// for each arm. Before 0.12 it was called SharedStorageConnector.
	"example": {connector: "ExampleConnector", cpu: true, persists: true, wire: func(w *vllmWiring) (map[string]any, error) {
		return map[string]any{"shared_storage_path": w.res.Store}, w.folder()
	}},
	// docs/features/kv_offloading_usage.md: host memory of the engine process.
	"offloading": {connector: "OffloadingConnector", hybrid: true, why: onlyAccelerators, wire: func(w *vllmWiring) (map[string]any, error) {
		return map[string]any{"spec_name": "CPUOffloadingSpec", "cpu_bytes_to_use": vllmHostBytes}, nil
	}},
	// docs/features/kv_offloading_usage.md, "Tiered offloading": the host tier with a folder below it.
	"tiering": {connector: "OffloadingConnector", hybrid: true, persists: true, why: onlyAccelerators, wire: func(w *vllmWiring) (map[string]any, error) {
		return map[string]any{"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": vllmHostBytes,
			"secondary_tiers": []any{map[string]any{"type": "fs", "root_dir": w.res.Store, "n_read_threads": 16, "n_write_threads": 16}}}, w.folder()
	}},
	// v1/simple_cpu_offload_connector.py.
	"simple-cpu": {connector: "SimpleCPUOffloadConnector", hybrid: true, why: "its streams need an accelerator: type object '_StreamPlaceholder' has no attribute 'priority_range'",
		wire: func(w *vllmWiring) (map[string]any, error) {
			return map[string]any{"cpu_bytes_to_use": vllmHostBytes}, nil
		}},
	// LMCache docs/source/api_reference/configurations.rst: in the engine's process, set up
	// through the environment; LMCACHE_CONFIG_FILE would win over all of it and is not passed
	// on. Prompts shorter than a chunk store nothing. The remote serde "cachegen" is lossy;
	// without a remote store none is used.
	"lmcache": {connector: "LMCacheConnectorV1", persists: true, unit: lmcacheChunk, why: "LMCache has no connector for vLLM's CPU backend", wire: func(w *vllmWiring) (map[string]any, error) {
		maps.Copy(w.spec.Env, map[string]string{
			"LMCACHE_CHUNK_SIZE": strconv.Itoa(lmcacheChunk), "LMCACHE_LOCAL_CPU": "True", "LMCACHE_MAX_LOCAL_CPU_SIZE": "5.0",
			"LMCACHE_LOCAL_DISK": "file://" + w.res.Store, "LMCACHE_MAX_LOCAL_DISK_SIZE": "20.0",
			"LMCACHE_SAVE_DECODE_CACHE": "False", "LMCACHE_SAVE_UNFULL_CHUNK": "False", "LMCACHE_ENABLE_BLENDING": "False",
			"LMCACHE_REMOTE_SERDE": "naive", "LMCACHE_PRE_CACHING_HASH_ALGORITHM": "builtin", "LMCACHE_TRACK_USAGE": "false",
		})
		return map[string]any{}, w.folder()
	}},
	// LMCache docs/source/mp/quickstart.rst: in a process of its own, which outlives the engine's.
	"lmcache-mp": {connector: "LMCacheMPConnector", persists: true, unit: lmcacheChunk, why: "LMCache's server registers accelerator contexts only", wire: func(w *vllmWiring) (map[string]any, error) {
		if w.res.Beside.Port == 0 {
			return nil, errors.New("it needs the address of LMCache's server")
		}
		return map[string]any{"lmcache.mp.host": "tcp://" + w.res.Beside.Host, "lmcache.mp.port": w.res.Beside.Port}, nil
	}},
	// docs/features/nixl_connector_usage.md: from another engine, by way of a proxy; it stores nothing.
	"nixl": {connector: "NixlConnector", hybrid: true, cpu: true, wire: func(w *vllmWiring) (map[string]any, error) {
		w.spec.Env["VLLM_NIXL_SIDE_CHANNEL_HOST"] = w.at.Host
		w.spec.Env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = strconv.Itoa(w.at.Port + 1000) // the engine adds the rank
		return map[string]any{"backends": []any{"UCX"}}, nil
	}},
	// docs/features/mooncake_store_connector_usage.md: master and segments are described by a file.
	"mooncake": {connector: "MooncakeStoreConnector", hybrid: true, persists: true, why: "Mooncake's transfer engine is built for accelerators", wire: func(w *vllmWiring) (map[string]any, error) {
		w.spec.Env["MOONCAKE_CONFIG_PATH"] = filepath.Join(w.res.Store, "mooncake.json")
		w.spec.Files = append(w.spec.Files, w.spec.Env["MOONCAKE_CONFIG_PATH"])
		return map[string]any{"load_async": true, "discard_partial_chunks": true}, w.folder()
	}},
	// v1/decode_bench_connector.py: fills the cache with made-up values. An arm over it must be
	// found corrupt, or the scoring is blind.
	"decode-bench": {connector: "DecodeBenchConnector", hybrid: true, cpu: true, wire: func(w *vllmWiring) (map[string]any, error) {
		return map[string]any{}, nil
	}},
}

const (
	vllmHostBytes = 1 << 30 // of a host tier, where store_config says nothing else
	lmcacheChunk  = 256     // LMCACHE_CHUNK_SIZE, and --chunk-size of its server
)

// vllmStoreOf is the kind that a value of the pin names; a module's class is a store that
// takes its folder as "path" and persists.
func vllmStoreOf(value string) vllmStore {
	if kinds, ok := strings.CutPrefix(value, "multi:"); ok {
		s := vllmStore{connector: "MultiConnector", hybrid: true, cpu: true}
		for _, k := range strings.Split(kinds, "+") {
			child := vllmStoreOf(k)
			s.hybrid, s.cpu, s.persists = s.hybrid && child.hybrid, s.cpu && child.cpu, s.persists || child.persists
			if !child.cpu && s.why == "" {
				s.why = child.why
			}
			s.unit = max(s.unit, child.unit)
		}
		return s
	}
	if s, ok := vllmStores[value]; ok {
		return s
	}
	_, class, _ := strings.Cut(value, ":")
	return vllmStore{connector: class, hybrid: true, cpu: true, persists: true, wire: func(w *vllmWiring) (map[string]any, error) {
		return map[string]any{"path": w.res.Store}, w.folder()
	}}
}

// vllmStoreKnown accepts a kind, several of them as multi:A+B, and MODULE:CLASS.
func vllmStoreKnown(v string) error {
	kinds := []string{v}
	if rest, ok := strings.CutPrefix(v, "multi:"); ok {
		if kinds = strings.Split(rest, "+"); len(kinds) < 2 {
			return fmt.Errorf("%q names one connector: multi:A+B joins at least two", v)
		}
	}
	for _, k := range kinds {
		module, class, two := strings.Cut(k, ":")
		if _, ok := vllmStores[k]; !ok && !(two && module != "" && class != "" && !strings.ContainsAny(k, "/ ")) {
			return fmt.Errorf("%q is none of %s, multi:A+B, MODULE:CLASS", k, strings.Join(slices.Sorted(maps.Keys(vllmStores)), ", "))
		}
	}
	return nil
}

// vllmWiring is where a connector's settings go to.
type vllmWiring struct {
	pins    map[string]string
	at      arms.Address
	res     arms.Resources
	spec    *arms.Spec
	inCache func(string) string
}

// folder says what is wrong when the store needs a folder and has none.
func (w *vllmWiring) folder() error {
	if w.res.Store == "" {
		return errors.New("it needs a folder")
	}
	return nil
}

// config is the JSON of --kv-transfer-config (vllm/config/kv_transfer.py) without what every
// connector gets.
func (w *vllmWiring) config(value string) (map[string]any, error) {
	out := map[string]any{"kv_role": "kv_both"}
	s := vllmStoreOf(value)
	out["kv_connector"] = s.connector
	if kinds, ok := strings.CutPrefix(value, "multi:"); ok {
		// docs/features/disagg_prefill.md: the first that has something loads, all store
		var children []any
		for _, k := range strings.Split(kinds, "+") {
			c, err := w.config(k)
			if err != nil {
				return nil, err
			}
			children = append(children, c)
		}
		out["kv_connector_extra_config"] = map[string]any{"connectors": children}
		return out, nil
	}
	if _, known := vllmStores[value]; !known {
		module, _, _ := strings.Cut(value, ":")
		out["kv_connector_module_path"] = module
		if dir := w.inCache(w.pins["pythonpath"]); dir != "" {
			w.spec.Env["PYTHONPATH"] = dir
			w.spec.Files = append(w.spec.Files, dir)
		}
	}
	extra, err := s.wire(w)
	if err != nil {
		return nil, err
	}
	if len(extra) > 0 {
		out["kv_connector_extra_config"] = extra
	}
	return out, nil
}

// Beside is LMCache's server, where the store is one (LMCache docs/source/mp/configuration.rst).
// Its first level is memory; the second is the arm's folder, which outlives it.
func (VLLM) Beside(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	p, err := resolve("vllm", vllmPins, pins)
	if stored, _ := vllmAttached(p["connector"]); err != nil || !stored || !slices.Contains(strings.Split(strings.TrimPrefix(p["store"], "multi:"), "+"), "lmcache-mp") {
		return arms.Spec{}, err
	}
	if res.Store == "" {
		return arms.Spec{}, errors.New("engine vllm: LMCache's server needs a folder")
	}
	binary := p["binary"]
	if !filepath.IsAbs(binary) && res.Cache != "" {
		binary = filepath.Join(res.Cache, binary)
	}
	binary = filepath.Join(filepath.Dir(binary), "lmcache") // installed beside the engine's own command
	return arms.Spec{
		Argv: []string{binary, "server", "--host", at.Host, "--port", strconv.Itoa(at.Port), "--l1-size-gb", "4", "--eviction-policy", "LRU",
			"--chunk-size", strconv.Itoa(lmcacheChunk), "--hash-algorithm", "blake3", "--http-port", strconv.Itoa(at.Port + 1),
			"--l2-adapter", fmt.Sprintf(`{"type":"fs","base_path":%q}`, res.Store)},
		Env:   map[string]string{"PYTHONHASHSEED": p["hash_seed"], "PYTHONUNBUFFERED": "1", "LMCACHE_TRACK_USAGE": "false"},
		Files: []string{binary},
	}, nil
}

// BesideReady asks the HTTP side of LMCache's server once (docs/source/mp/http_api.rst: 503
// until its engine is ready).
func (VLLM) BesideReady(ctx context.Context, at arms.Address) error {
	_, err := ask(ctx, probes.Endpoint{URL: fmt.Sprintf("http://%s:%d", at.Host, at.Port+1)}, "/healthcheck", nil)
	return err
}
