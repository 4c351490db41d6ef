package server

import (
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/sched"
)

// exposition builds a Prometheus text page the way Python's client prints one:
// a counter x has a sample x_total and a gauge x_created, a point in time that
// looks like a large count; a family with labels of its own has no samples
// before their first use.
type exposition struct {
	b       strings.Builder
	created float64
}

// sample is one line: labels as labelSet writes them, and a value.
type sample struct {
	labels string
	value  float64
}

func (x *exposition) family(name, kind, help string, samples []sample) {
	for _, w := range []string{"# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"} {
		x.b.WriteString(w)
	}
	for _, s := range samples {
		x.b.WriteString(name)
		x.b.WriteString(s.labels)
		x.b.WriteByte(' ')
		x.b.WriteString(pythonFloat(s.value))
		x.b.WriteByte('\n')
	}
}

// counter prints a counter and when each of its samples began.
func (x *exposition) counter(name, help string, samples []sample) {
	x.family(name+"_total", "counter", help, samples)
	born := make([]sample, len(samples))
	for i, s := range samples {
		born[i] = sample{s.labels, x.created}
	}
	x.family(name+"_created", "gauge", help, born)
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labelSet writes labels, given as name, value, name, value…
func labelSet(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(labels)/2)
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+`="`+escape.Replace(labels[i+1])+`"`)
	}
	sort.Strings(pairs)
	return "{" + strings.Join(pairs, ",") + "}"
}

// labels are the label sets of one server, each written once: a page has dozens of samples,
// and a harness reads it after every request.
type labels struct {
	name   string   // served model
	config []string // of cache_config_info, for each rank

	mu    sync.Mutex
	known map[labelKey]string
}

type labelKey struct {
	rank int
	more [4]string
}

// of returns the label set of a rank with up to two labels more.
func (l *labels) of(rank int, more ...string) string {
	key := labelKey{rank: rank}
	copy(key.more[:], more)
	l.mu.Lock()
	defer l.mu.Unlock()
	set, ok := l.known[key]
	if !ok {
		set = labelSet(append([]string{"engine", strconv.Itoa(rank), "model_name", l.name}, more...))
		if l.known == nil {
			l.known = map[labelKey]string{}
		}
		l.known[key] = set
	}
	return set
}

// pythonFloat prints a number with a point or an exponent, like Python's repr.
func pythonFloat(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

// metrics is GET /metrics.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	stats := make([]sched.Stats, len(s.cfg.Ranks))
	for k, e := range s.cfg.Ranks {
		stats[k] = e.Stats()
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write([]byte(s.exposition(stats)))
}

func (s *Server) exposition(stats []sched.Stats) string {
	started := float64(s.cfg.Facts.Started.UnixNano()) / 1e9
	x := &exposition{created: started}
	x.family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", []sample{{"", started}})

	base := s.labels.of
	each := func(value func(*sched.Stats) int) []sample {
		out := make([]sample, len(stats))
		for k := range stats {
			out[k] = sample{base(k), float64(value(&stats[k]))}
		}
		return out
	}
	// by spreads one family over the values of a label.
	by := func(label string, names []string, value func(*sched.Stats, string) int) []sample {
		var out []sample
		for k := range stats {
			for _, n := range names {
				out = append(out, sample{base(k, label, n), float64(value(&stats[k], n))})
			}
		}
		return out
	}
	// used keeps the samples that somebody has counted on.
	used := func(samples []sample) []sample {
		var out []sample
		for _, s := range samples {
			if s.value != 0 {
				out = append(out, s)
			}
		}
		return out
	}

	x.family("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.",
		each(func(t *sched.Stats) int { return t.Running }))
	x.family("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.",
		each(func(t *sched.Stats) int { return t.Waiting }))
	usage := make([]sample, len(stats))
	for k, t := range stats {
		usage[k] = sample{base(k), float64(t.Attention.Used) / float64(s.cfg.Facts.Blocks)}
	}
	x.family("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", usage)

	x.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.",
		each(func(t *sched.Stats) int { return t.LocalQueries }))
	x.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
		each(func(t *sched.Stats) int { return t.LocalHits }))
	x.counter("vllm:external_prefix_cache_queries", "External prefix cache queries from KV connector, in terms of number of queried tokens.",
		each(func(t *sched.Stats) int { return t.ExternalQueries }))
	x.counter("vllm:external_prefix_cache_hits", "External prefix cache hits from KV connector, in terms of number of cached tokens.",
		each(func(t *sched.Stats) int { return t.ExternalHits }))
	x.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.",
		each(func(t *sched.Stats) int { return t.Preemptions }))
	x.counter("vllm:corrupted_requests", "Corrupted requests, in terms of total number of requests with NaNs in logits.",
		each(func(t *sched.Stats) int { return t.Corrupted }))
	x.counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
		each(func(t *sched.Stats) int { return t.PromptTokens }))
	x.counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.",
		by("source", []string{"local_compute", "local_cache_hit", "external_kv_transfer"}, func(t *sched.Stats, source string) int {
			switch source {
			case "local_compute":
				return t.ComputedTokens
			case "local_cache_hit":
				return t.LocalTokens
			default:
				return t.ExternalTokens
			}
		}))
	x.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
		each(func(t *sched.Stats) int { return t.LocalTokens + t.ExternalTokens }))
	x.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		each(func(t *sched.Stats) int { return t.GenerationTokens }))
	x.counter("vllm:request_success", "Count of successfully processed requests.",
		by("finished_reason", []string{"stop", "length", "abort", "error", "repetition"}, func(t *sched.Stats, reason string) int {
			return t.Finished[reason]
		}))

	config := make([]sample, len(stats))
	for k := range stats {
		config[k] = sample{s.labels.config[k], 1}
	}
	x.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", config)

	if s.cfg.Facts.Connector != "none" {
		x.counter("vllm:kv_offload_store_bytes", "Bytes written by the KV connector to the store.",
			used(each(func(t *sched.Stats) int { return int(t.StoreBytes) })))
		x.counter("vllm:kv_offload_load_bytes", "Bytes read by the KV connector from the store.",
			used(each(func(t *sched.Stats) int { return int(t.LoadBytes) })))
		x.family("kvladder_testbed_store_chunks", "gauge", "Chunks the store holds.",
			each(func(t *sched.Stats) int { return t.ChunksPresent }))
		x.counter("kvladder_testbed_stored_chunks", "Chunks written to the store.",
			each(func(t *sched.Stats) int { return t.ChunksStored }))
		x.counter("kvladder_testbed_loaded_chunks", "Chunks read from the store.",
			each(func(t *sched.Stats) int { return t.ChunksLoaded }))
		x.counter("kvladder_testbed_offered_null_blocks", "Null blocks written to the store.",
			each(func(t *sched.Stats) int { return t.OfferedNull }))
		x.family("kvladder_testbed_loads_under_way", "gauge", "Loads from the store that are not done.",
			each(func(t *sched.Stats) int { return t.Loading }))
		x.family("kvladder_testbed_stores_under_way", "gauge", "Copies to the store that are not done.",
			each(func(t *sched.Stats) int { return t.Copying }))
		x.counter("kvladder_testbed_store_failures", "Chunks that could not be written to the store.",
			each(func(t *sched.Stats) int { return t.StoreFailures }))
		x.counter("kvladder_testbed_load_failures", "Chunks that the store had and that could not be read.",
			each(func(t *sched.Stats) int { return t.LoadFailures }))
	}
	x.counter("kvladder_testbed_evictions", "Findable KV blocks recycled, all cache groups.",
		each(func(t *sched.Stats) int { return t.Evictions }))
	x.counter("kvladder_testbed_steps", "Scheduler steps.",
		each(func(t *sched.Stats) int { return t.Steps }))
	x.family("kvladder_testbed_null_block_checksum", "gauge", "CRC-32 over the null blocks of all cache groups.",
		each(func(t *sched.Stats) int { return int(t.NullChecksum) }))
	if s.cfg.Facts.Draft > 0 {
		x.counter("vllm:spec_decode_num_drafts", "Number of spec decoding drafts.",
			each(func(t *sched.Stats) int { return t.Drafts }))
		x.counter("vllm:spec_decode_num_draft_tokens", "Number of draft tokens.",
			each(func(t *sched.Stats) int { return t.DraftTokens }))
		x.counter("vllm:spec_decode_num_accepted_tokens", "Number of accepted tokens.",
			each(func(t *sched.Stats) int { return t.AcceptedTokens }))
	}
	x.family("kvladder_testbed_pool_blocks", "gauge", "KV blocks by cache group and state.", poolSamples(stats, base))
	return x.b.String()
}

// poolSamples spreads the pools over group and state.
func poolSamples(stats []sched.Stats, base func(int, ...string) string) []sample {
	var out []sample
	for k := range stats {
		t := &stats[k]
		for _, g := range []struct {
			name string
			c    cache.Counts
		}{{"attention", t.Attention}, {"window", t.Window}, {"recurrent", t.States}} {
			for _, st := range []struct {
				name string
				n    int
			}{{"free", g.c.Free}, {"used", g.c.Used}, {"cached", g.c.Cached}} {
				out = append(out, sample{base(k, "group", g.name, "state", st.name), float64(st.n)})
			}
		}
	}
	return out
}

// pythonRepr prints a config value as Python's str would.
func pythonRepr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return fmt.Sprint(v)
}
