package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kvladder/probes"
	"kvladder/probes/metrics"
)

// serverInfo is what /server_info?config_format=json says, of a release with that format
// (vllm/entrypoints/serve/dev/server_info/api_router.py). A nil member was not said.
type serverInfo struct {
	Config *struct {
		Model struct {
			Path   string `json:"model"`
			Dtype  string `json:"dtype"` // torch.float32
			Seed   *int   `json:"seed"`
			Len    *int   `json:"max_model_len"`
			Eager  *bool  `json:"enforce_eager"`
			Served any    `json:"served_model_name"` // a name or a list of them
		} `json:"model_config"`
		Cache struct {
			Block   *int   `json:"block_size"`
			Dtype   string `json:"cache_dtype"`
			Prefix  *bool  `json:"enable_prefix_caching"`
			Algo    string `json:"prefix_caching_hash_algo"`
			Blocks  *int   `json:"num_gpu_blocks_override"`
			Memory  *int64 `json:"kv_cache_memory_bytes"`
			Mamba   string `json:"mamba_cache_mode"`
			Resolve *int   `json:"num_gpu_blocks"`
			Tokens  *int   `json:"kv_cache_size_tokens"`
			State   *int   `json:"mamba_block_size"`
			Skip    []any  `json:"kv_cache_dtype_skip_layers"`
		} `json:"cache_config"`
		Parallel struct {
			Tensor *int `json:"tensor_parallel_size"`
			Data   *int `json:"data_parallel_size"`
		} `json:"parallel_config"`
		Scheduler struct {
			Tokens *int  `json:"max_num_batched_tokens"`
			Seqs   *int  `json:"max_num_seqs"`
			Hybrid *bool `json:"disable_hybrid_kv_cache_manager"`
			Async  *bool `json:"async_scheduling"`
		} `json:"scheduler_config"`
		Attention struct {
			Backend *string `json:"backend"`
		} `json:"attention_config"`
		Device struct {
			Device string `json:"device"`
		} `json:"device_config"`
		Transfer json.RawMessage `json:"kv_transfer_config"`
	} `json:"vllm_config"`
	Env map[string]any `json:"vllm_env"`
	Sys struct {
		Vars string `json:"env_vars"`
	} `json:"system_env"`
}

// transfer is the engine's kv_transfer_config.
type transfer struct {
	Connector string         `json:"kv_connector"`
	Module    string         `json:"kv_connector_module_path"`
	Policy    string         `json:"kv_load_failure_policy"`
	Extra     map[string]any `json:"kv_connector_extra_config"`
}

const serverInfoPath = "/server_info?config_format=json"

// ReadPins reads the configuration as the engine resolved it: /version, /server_info, and
// where that has no answer the labels of vllm:cache_config_info. Where both speak of a thing
// and differ, the pin reads as both. What neither says is left to ReadLog and ReadEnviron.
func (v VLLM) ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error) {
	r := newReading(pins)
	var version struct {
		Version string `json:"version"`
	}
	if err := askJSON(ctx, e, "/version", nil, &version); err != nil {
		return r.list(), err
	}
	if version.Version != "" {
		r.read("version", version.Version, "/version", sameRelease)
	}
	var info serverInfo
	err := askJSON(ctx, e, serverInfoPath, nil, &info)
	if err == nil && info.Config != nil {
		v.fromInfo(r, &info)
	}
	if labels, ok := v.cacheConfig(ctx, e); ok {
		v.fromLabels(r, labels)
	}
	return r.list(), nil
}

// sameRelease compares 0.32.0 with 0.32.0+cpu.
func sameRelease(asked, read string) bool {
	read, _, _ = strings.Cut(read, "+")
	return asked == read
}

func (VLLM) fromInfo(r *reading, info *serverInfo) {
	const source = "/server_info"
	c := info.Config
	text := func(pin, value string, same func(asked, read string) bool) {
		if value != "" {
			r.read(pin, value, source, same)
		}
	}
	number := func(pin string, n *int) {
		if n != nil {
			r.read(pin, strconv.Itoa(*n), source, nil)
		}
	}
	truth := func(pin string, b *bool) {
		if b != nil {
			r.read(pin, onOff(*b), source, nil)
		}
	}
	dtype := strings.TrimPrefix(c.Model.Dtype, "torch.")
	text("model", c.Model.Path, samePath)
	switch served := c.Model.Served.(type) {
	case string:
		text("served_model", served, nil)
	case []any:
		if len(served) > 0 {
			text("served_model", fmt.Sprint(served[0]), nil)
		}
	}
	text("dtype", dtype, nil)
	number("seed", c.Model.Seed)
	number("max_model_len", c.Model.Len)
	truth("eager", c.Model.Eager)
	text("kv_cache_dtype", resolvedDtype(c.Cache.Dtype, dtype), nil)
	number("block_size", c.Cache.Block)
	truth("prefix_caching", c.Cache.Prefix)
	text("hash_algo", c.Cache.Algo, nil)
	if c.Cache.Block != nil { // the section is there, so a null in it means none
		blocks, memory := 0, int64(0)
		if c.Cache.Blocks != nil {
			blocks = *c.Cache.Blocks
		}
		if c.Cache.Memory != nil {
			memory = *c.Cache.Memory
		}
		r.read("blocks", strconv.Itoa(blocks), source, nil)
		if asked := r.asked["kv_memory"]; asked != "0" || memory == 0 { // 0 leaves the size to the engine, whatever it says
			r.read("kv_memory", strconv.FormatInt(memory, 10), source, nil)
		}
	}
	text("mamba_cache", c.Cache.Mamba, nil)
	number("tensor_parallel", c.Parallel.Tensor)
	number("ranks", c.Parallel.Data)
	number("batch_tokens", c.Scheduler.Tokens)
	number("max_num_seqs", c.Scheduler.Seqs)
	truth("async", c.Scheduler.Async)
	if h := c.Scheduler.Hybrid; h != nil {
		r.read("hybrid_manager", onOff(!*h), source, nil)
	}
	if c.Attention.Backend != nil {
		r.read("attention", *c.Attention.Backend, source, func(asked, read string) bool { return asked == "" || strings.EqualFold(asked, read) })
	}
	text("device", c.Device.Device, nil)
	if inv, ok := info.Env["VLLM_BATCH_INVARIANT"]; ok {
		r.read("invariant", onOff(inv == true || fmt.Sprint(inv) == "1"), source, nil)
	}
	if dev, ok := info.Env["VLLM_SERVER_DEV_MODE"]; ok {
		r.read("dev_endpoints", onOff(dev == true || fmt.Sprint(dev) == "1"), source, nil)
	}
	for line := range strings.Lines(info.Sys.Vars) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "OMP_NUM_THREADS="); ok {
			r.read("threads", n, source+" env_vars", nil)
		}
	}
	readTransfer(r, c.Transfer, source)
}

// resolvedDtype says what a cache_dtype means beside the model's own type.
func resolvedDtype(cache, model string) string {
	if cache == "auto" {
		return model
	}
	return cache
}

// readTransfer reads the pins about the connector. A configuration of null is no connector.
func readTransfer(r *reading, raw json.RawMessage, source string) {
	var t *transfer
	if len(raw) == 0 || json.Unmarshal(raw, &t) != nil {
		return
	}
	if t == nil || t.Connector == "" {
		r.read("connector", "none", source, nil)
		return
	}
	stored, over := vllmAttached(r.asked["connector"])
	if !stored {
		r.read("connector", "store", source, nil)
		return
	}
	if got, ok := sameMembers(over, t.Extra); over == "" {
		r.read("connector", "store", source, nil)
	} else if ok {
		r.read("connector", "store "+got, source, func(asked, read string) bool {
			return sameJSON(strings.TrimPrefix(asked, "store "), strings.TrimPrefix(read, "store "))
		})
	}
	r.read("store", connectorWord(t), source, func(asked, read string) bool { return read == connectorWord(asKind(asked)) })
	if t.Policy != "" {
		r.read("load_policy", t.Policy, source, nil)
	}
	// what the connector's own members lie over shows in the connector
	base := map[string]any{}
	if json.Unmarshal([]byte(r.asked["store_config"]), &base) != nil {
		return
	}
	extra := maps.Clone(t.Extra)
	var above map[string]any
	if json.Unmarshal([]byte(over), &above) == nil {
		for k := range above {
			if v, both := base[k]; both && extra != nil {
				extra[k] = v
			}
		}
	}
	if got, ok := sameMembers(r.asked["store_config"], extra); ok {
		r.read("store_config", got, source, sameJSON)
	}
}

// sameMembers is what the engine has of the members of a JSON object.
func sameMembers(object string, has map[string]any) (string, bool) {
	var want map[string]any
	if json.Unmarshal([]byte(object), &want) != nil {
		return "", false
	}
	got := map[string]any{}
	for k := range want {
		if x, ok := has[k]; ok {
			got[k] = x
		}
	}
	b, err := json.Marshal(got)
	return string(b), err == nil
}

// asKind is the transfer that a value of the pin store asks for, as far as its words go.
func asKind(value string) *transfer {
	t := &transfer{Connector: vllmStoreOf(value).connector}
	if _, known := vllmStores[value]; !known && !strings.HasPrefix(value, "multi:") {
		t.Module, _, _ = strings.Cut(value, ":")
	}
	if kinds, ok := strings.CutPrefix(value, "multi:"); ok {
		var children []any
		for _, k := range strings.Split(kinds, "+") {
			c := asKind(k)
			children = append(children, map[string]any{"kv_connector": c.Connector, "kv_connector_module_path": c.Module})
		}
		t.Extra = map[string]any{"connectors": children}
	}
	return t
}

// connectorWord names a connector as the engine has it: module:Class, and the children of
// several joined.
func connectorWord(t *transfer) string {
	word := t.Connector
	if t.Module != "" {
		word = t.Module + ":" + word
	}
	children, _ := t.Extra["connectors"].([]any)
	for i, c := range children {
		m, _ := c.(map[string]any)
		name, _ := m["kv_connector"].(string)
		module, _ := m["kv_connector_module_path"].(string)
		word += map[bool]string{true: "(", false: "+"}[i == 0] + connectorWord(&transfer{Connector: name, Module: module})
	}
	if len(children) > 0 {
		word += ")"
	}
	return word
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return string(p) == string(q)
}

// cacheConfig reads the labels of vllm:cache_config_info, which are the members of the
// engine's CacheConfig (vllm/v1/metrics/loggers.py). Of several ranks the first is taken;
// they are made of one configuration.
func (VLLM) cacheConfig(ctx context.Context, e probes.Endpoint) (map[string]string, bool) {
	snap, err := metrics.Scrape(ctx, nil, strings.TrimRight(e.URL, "/")+"/metrics")
	if err != nil {
		return nil, false
	}
	for _, s := range snap.Series {
		if s.Name != "vllm:cache_config_info" {
			continue
		}
		labels := map[string]string{}
		for _, name := range []string{"block_size", "cache_dtype", "enable_prefix_caching", "num_gpu_blocks_override", "num_gpu_blocks",
			"prefix_caching_hash_algo", "mamba_cache_mode", "kv_cache_memory_bytes", "kv_cache_size_tokens"} {
			if v, ok := s.Label(name); ok {
				labels[name] = v
			}
		}
		return labels, len(labels) > 0
	}
	return nil, false
}

// fromLabels reads pins from the metric's labels: it is there without development endpoints.
func (VLLM) fromLabels(r *reading, labels map[string]string) {
	const source = "vllm:cache_config_info"
	put := func(pin, value string) {
		if asked, ok := r.asked[pin]; !ok || asked == value && r.reads[pin].Agrees != nil && !*r.reads[pin].Agrees {
			return // the other source disagrees already
		}
		if old := r.reads[pin].Read; old != nil && *old != value {
			r.read(pin, *old+" and "+value, r.reads[pin].Source+" and "+source, nil)
			return
		}
		if r.reads[pin].Read == nil {
			r.read(pin, value, source, nil)
		}
	}
	if v, ok := labels["block_size"]; ok {
		put("block_size", v)
	}
	if v, ok := labels["enable_prefix_caching"]; ok {
		put("prefix_caching", onOff(v == "True"))
	}
	if v, ok := labels["prefix_caching_hash_algo"]; ok {
		put("hash_algo", v)
	}
	if v, ok := labels["mamba_cache_mode"]; ok {
		put("mamba_cache", v)
	}
	if v, ok := labels["num_gpu_blocks_override"]; ok {
		put("blocks", map[bool]string{true: "0", false: v}[v == "None"])
	}
	if v, ok := labels["cache_dtype"]; ok && v != "auto" {
		put("kv_cache_dtype", v)
	}
}

// vllmConnectorLine is printed by every role of a connector (kv_connector/factory.py).
var (
	vllmConnectorLine = regexp.MustCompile(`Creating v1 connector with name: (\w+)`)
	vllmArgsLine      = regexp.MustCompile(`non-default args: (\{.*)`)
)

// ReadLog fills in what the engine prints while it starts: the connector that was really
// made, where /server_info did not say, and that cached tokens are accounted for.
func (VLLM) ReadLog(log io.Reader, reads []probes.PinRead) error {
	sc := bufio.NewScanner(log)
	sc.Buffer(nil, 1<<20)
	made, details := map[string]bool{}, ""
	for sc.Scan() {
		if m := vllmConnectorLine.FindStringSubmatch(sc.Text()); m != nil {
			made[m[1]] = true
		}
		if m := vllmArgsLine.FindStringSubmatch(sc.Text()); m != nil {
			details = onOff(strings.Contains(m[1], "'enable_prompt_tokens_details': True"))
		}
	}
	if err := sc.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return err
	}
	for i, r := range reads {
		if r.Name == "prompt_details" && details != "" {
			agrees := details == r.Asked
			reads[i].Read, reads[i].Agrees, reads[i].Source = &details, &agrees, "log, non-default args"
		}
		if r.Name != "store" || len(made) == 0 {
			continue
		}
		want := vllmStoreOf(r.Asked).connector
		got := strings.Join(slices.Sorted(maps.Keys(made)), "+")
		agrees := made[want] && (r.Agrees == nil || *r.Agrees)
		if r.Read != nil {
			got = *r.Read + "; made: " + got
			reads[i].Source += " and log"
		} else {
			reads[i].Source = "log"
		}
		reads[i].Read, reads[i].Agrees = &got, &agrees
	}
	return nil
}

// ReadEnviron fills in the pins that only the process's environment shows.
func (VLLM) ReadEnviron(env map[string]string, reads []probes.PinRead) {
	for i, r := range reads {
		var name string
		switch r.Name {
		case "hash_seed":
			name = "PYTHONHASHSEED"
		case "preload":
			name = "LD_PRELOAD"
		case "pythonpath":
			name = "PYTHONPATH"
		default:
			continue
		}
		value, there := env[name]
		if r.Read != nil || !there && name != "PYTHONHASHSEED" {
			continue
		}
		agrees := value == r.Asked || name != "PYTHONHASHSEED" && strings.HasSuffix(value, "/"+filepath.Clean(r.Asked))
		reads[i].Read, reads[i].Agrees, reads[i].Source = &value, &agrees, "environment "+name
	}
}

// Pool reads what the engine made of the memory that it was given: the blocks of one rank,
// without the one that stands for nothing.
func (v VLLM) Pool(ctx context.Context, e probes.Endpoint) (probes.PoolFact, error) {
	labels, ok := v.cacheConfig(ctx, e)
	if !ok {
		return probes.PoolFact{}, errors.New("/metrics has no vllm:cache_config_info")
	}
	blocks, err := strconv.Atoi(labels["num_gpu_blocks"])
	size, err2 := strconv.Atoi(labels["block_size"])
	if err := errors.Join(err, err2); err != nil || blocks < 2 || size < 1 {
		return probes.PoolFact{}, fmt.Errorf("vllm:cache_config_info: num_gpu_blocks %q of block_size %q tokens: no pool", labels["num_gpu_blocks"], labels["block_size"])
	}
	return probes.PoolFact{Blocks: blocks, Tokens: (blocks - 1) * size}, nil
}

// CannotIdentify: a request names a salt, or a served adapter behind the model's name.
func (VLLM) CannotIdentify(kind string) string {
	switch kind {
	case "salt", "config":
		return ""
	case "adapter":
		return "its adapters are loaded under names of their own: --enable-lora and --lora-modules in args, and a set whose bodies name them"
	}
	return "its requests carry no " + kind
}
