package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kvladder/arms/testbed"
	tb "kvladder/arms/testbed/model"
)

const story = "river stone bridge forest hill valley .\nfact: key K07 is 4821 .\nnote: tag T03 is 772 .\n"

// start serves an engine and returns its address and its log.
func start(t *testing.T, cfg testbed.Config) (string, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	bed, err := testbed.New(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(bed)
	t.Cleanup(func() { srv.Close(); bed.Close() })
	return srv.URL, log
}

type object = map[string]any

// post sends a JSON body and returns status, headers and the raw reply.
func post(t *testing.T, url string, body any, header ...string) (int, http.Header, []byte) {
	t.Helper()
	var raw []byte
	if s, ok := body.(string); ok {
		raw = []byte(s)
	} else {
		raw, _ = json.Marshal(body)
	}
	req, err := http.NewRequest("POST", url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, out
}

func decode(t *testing.T, raw []byte) object {
	t.Helper()
	var v object
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

func complete(t *testing.T, url string, body object, header ...string) object {
	t.Helper()
	status, _, raw := post(t, url+"/v1/completions", body, header...)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, raw)
	}
	return decode(t, raw)
}

func choice(v object) object { return v["choices"].([]any)[0].(object) }

func cached(v object) float64 {
	return v["usage"].(object)["prompt_tokens_details"].(object)["cached_tokens"].(float64)
}

// keys checks that a JSON object has exactly these members, in this order.
func keys(t *testing.T, what string, raw json.RawMessage, want ...string) map[string]json.RawMessage {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	var got []string
	dec.Token()
	members := map[string]json.RawMessage{}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		got = append(got, k.(string))
		members[k.(string)] = v
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has members\n%v, want\n%v", what, got, want)
	}
	return members
}

func first(raw json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	json.Unmarshal(raw, &list)
	return list[0]
}

// TestCompletionShape holds the reply against the members that vLLM 0.32 sends.
func TestCompletionShape(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	status, header, raw := post(t, url+"/v1/completions", object{
		"model": testbed.DefaultName, "prompt": story + "question: key K07 ?", "max_tokens": 8, "temperature": 0,
		"logprobs": 3, "return_token_ids": true,
	}, "X-Request-Id", "abc")
	if status != 200 || header.Get("X-Request-Id") != "abc" || header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, headers %v", status, header)
	}
	top := keys(t, "reply", raw, "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage", "kv_transfer_params")
	if string(top["id"]) != `"cmpl-abc"` || string(top["object"]) != `"text_completion"` {
		t.Errorf("id %s, object %s", top["id"], top["object"])
	}
	c := keys(t, "choice", first(top["choices"]), "index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts")
	if string(c["text"]) != `" 4821"` || string(c["finish_reason"]) != `"stop"` || string(c["stop_reason"]) != "null" {
		t.Errorf("text %s, finished by %s, %s", c["text"], c["finish_reason"], c["stop_reason"])
	}
	var ids, prompt []int
	json.Unmarshal(c["token_ids"], &ids)
	json.Unmarshal(c["prompt_token_ids"], &prompt)
	if tb.Decode(ids) != " 4821" || ids[len(ids)-1] != tb.EOS || !slices.Equal(prompt, tb.Encode(story+"question: key K07 ?")) {
		t.Errorf("token ids %v, prompt %v", ids, prompt)
	}
	lp := keys(t, "logprobs", c["logprobs"], "text_offset", "token_logprobs", "tokens", "top_logprobs")
	if string(lp["tokens"]) != `[" 4","8","2","1","<eos>"]` || string(lp["text_offset"]) != "[0,2,3,4,5]" {
		t.Errorf("tokens %s at %s", lp["tokens"], lp["text_offset"])
	}
	var tops []map[string]float64
	var own []float64
	json.Unmarshal(lp["top_logprobs"], &tops)
	json.Unmarshal(lp["token_logprobs"], &own)
	for i, top := range tops {
		sum := 0.0
		for _, v := range top {
			sum += math.Exp(v)
		}
		if len(top) != 3 || sum > 1 || !(own[i] < 0) {
			t.Errorf("position %d: %v", i, top)
		}
	}
	u := keys(t, "usage", top["usage"], "prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details")
	keys(t, "details", u["prompt_tokens_details"], "cached_tokens")
	if string(u["completion_tokens"]) != "5" || string(u["prompt_tokens"]) != strconv.Itoa(len(prompt)) {
		t.Errorf("usage %v", u)
	}

	// Without asking, none of it.
	bare := choice(complete(t, url, object{"prompt": story, "max_tokens": 2, "temperature": 0}))
	if bare["logprobs"] != nil || bare["token_ids"] != nil || bare["prompt_token_ids"] != nil || bare["finish_reason"] != "length" {
		t.Errorf("bare choice %v", bare)
	}
}

// TestPromptForms asks one question in every way it can be written.
func TestPromptForms(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	text := story + "question: tag T03 ?"
	ids := tb.Encode(text)
	for _, prompt := range []any{text, []string{text}, ids, [][]int{ids}} {
		got := choice(complete(t, url, object{"prompt": prompt, "temperature": 0, "return_tokens_as_token_ids": true, "logprobs": 0}))
		if got["text"] != " 772" {
			t.Errorf("%T: %q", prompt, got["text"])
		}
		lp := got["logprobs"].(object)
		if name := lp["tokens"].([]any)[0]; name != "token_id:265" {
			t.Errorf("token is named %v", name)
		}
		if top := lp["top_logprobs"].([]any)[0].(object); len(top) != 1 || top["token_id:265"] == nil {
			t.Errorf("logprobs 0 ranks %v", top)
		}
	}
}

// TestLogprobsSurviveTheWire asks twice, the second time over a cache hit, and
// compares the raw text of the logprobs, which must parse to what float64 made.
func TestLogprobsSurviveTheWire(t *testing.T) {
	url, _ := start(t, testbed.Config{DType: tb.FP8})
	body := object{"prompt": strings.Repeat(story, 4) + "question: key K07 ?", "temperature": 0, "max_tokens": 8, "logprobs": 20, "return_tokens_as_token_ids": true}
	grab := func() (json.RawMessage, float64) {
		_, _, raw := post(t, url+"/v1/completions", body)
		var v struct {
			Choices []struct {
				Logprobs json.RawMessage `json:"logprobs"`
			} `json:"choices"`
		}
		json.Unmarshal(raw, &v)
		return v.Choices[0].Logprobs, cached(decode(t, raw))
	}
	cold, c0 := grab()
	warm, c1 := grab()
	if c0 != 0 || c1 != 128 {
		t.Errorf("cached %v and then %v tokens, want 0 and 128", c0, c1)
	}
	if !bytes.Equal(cold, warm) {
		t.Errorf("logprobs differ:\n%s\n%s", cold, warm)
	}
	for _, m := range strings.FieldsFunc(string(cold), func(r rune) bool { return strings.ContainsRune(`,:{}[]"`, r) }) {
		x, err := strconv.ParseFloat(m, 64)
		if err == nil && x < 0 && strconv.FormatFloat(x, 'g', -1, 64) != m {
			t.Errorf("%s is not the shortest text of its float64", m)
		}
	}
}

// events splits a stream into its chunks and checks its end.
func events(t *testing.T, raw []byte) []object {
	t.Helper()
	var out []object
	parts := strings.Split(strings.TrimSuffix(string(raw), "\n\n"), "\n\n")
	for i, p := range parts {
		data, ok := strings.CutPrefix(p, "data: ")
		if !ok {
			t.Fatalf("not an event: %q", p)
		}
		if i == len(parts)-1 {
			if data != "[DONE]" {
				t.Fatalf("stream ends with %q", data)
			}
			break
		}
		out = append(out, decode(t, []byte(data)))
	}
	return out
}

// TestStreamSaysTheSame streams what was also asked for whole.
func TestStreamSaysTheSame(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	for _, stop := range []any{nil, "8", []string{"21", "zz"}} {
		body := object{"prompt": story + "question: key K07 ?", "temperature": 0, "max_tokens": 8, "logprobs": 2, "return_token_ids": true, "stop": stop}
		whole := complete(t, url, body)
		body["stream"], body["stream_options"] = true, object{"include_usage": true}
		status, header, raw := post(t, url+"/v1/completions", body)
		if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("%d %v", status, header)
		}
		chunks := events(t, raw)
		text, tokens, logprobs, offsets := "", []any{}, []any{}, []any{}
		for _, c := range chunks[:len(chunks)-1] {
			ch := choice(c)
			text += ch["text"].(string)
			tokens = append(tokens, ch["token_ids"].([]any)...)
			logprobs = append(logprobs, ch["logprobs"].(object)["token_logprobs"].([]any)...)
			offsets = append(offsets, ch["logprobs"].(object)["text_offset"].([]any)...)
		}
		w := choice(whole)
		if text != w["text"] || fmt.Sprint(tokens) != fmt.Sprint(w["token_ids"]) || fmt.Sprint(logprobs) != fmt.Sprint(w["logprobs"].(object)["token_logprobs"]) {
			t.Errorf("stop %v: streamed %q %v, whole %v", stop, text, tokens, w)
		}
		if whole := w["logprobs"].(object)["text_offset"]; fmt.Sprint(offsets) != fmt.Sprint(whole) {
			t.Errorf("stop %v: streamed offsets %v, whole %v", stop, offsets, whole)
		}
		last := choice(chunks[len(chunks)-2])
		if last["finish_reason"] != w["finish_reason"] || last["stop_reason"] != w["stop_reason"] {
			t.Errorf("stop %v: ends with %v, whole with %v", stop, last, w)
		}
		if u := chunks[len(chunks)-1]; len(u["choices"].([]any)) != 0 || u["usage"].(object)["completion_tokens"] != whole["usage"].(object)["completion_tokens"] {
			t.Errorf("usage chunk %v", u)
		}
		if choice(chunks[0])["prompt_token_ids"] == nil || choice(chunks[1])["prompt_token_ids"] != nil {
			t.Error("the prompt's ids belong in the first chunk only")
		}
		switch s := stop.(type) {
		case string:
			if w["text"] != " 4" || w["stop_reason"] != s {
				t.Errorf("stopped at %v: %v", s, w)
			}
		case []string:
			if w["text"] != " 48" || w["stop_reason"] != "21" {
				t.Errorf("stopped at %v: %v", s, w)
			}
		}
	}
}

func TestChat(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	body := object{
		"messages": []object{
			{"role": "system", "content": strings.TrimSuffix(story, "\n")},
			{"role": "user", "content": []object{{"type": "text", "text": "question: key K07 ?"}}},
		},
		"temperature": 0, "logprobs": true, "top_logprobs": 2, "return_token_ids": true,
	}
	status, _, raw := post(t, url+"/v1/chat/completions", body)
	if status != 200 {
		t.Fatalf("%d %s", status, raw)
	}
	v := decode(t, raw)
	c := choice(v)
	if c["message"].(object)["content"] != " 4821" || c["message"].(object)["role"] != "assistant" || !strings.HasPrefix(v["id"].(string), "chatcmpl-") {
		t.Errorf("reply %v", v)
	}
	if fmt.Sprint(v["prompt_token_ids"]) != fmt.Sprint(tb.Encode(story+"question: key K07 ?")) {
		t.Errorf("the template made %v", v["prompt_token_ids"])
	}
	content := c["logprobs"].(object)["content"].([]any)
	if len(content) != 5 || len(content[0].(object)["top_logprobs"].([]any)) != 2 || fmt.Sprint(content[0].(object)["bytes"]) != "[32 52]" {
		t.Errorf("logprobs %v", content)
	}
	body["stream"] = true
	_, _, raw = post(t, url+"/v1/chat/completions", body)
	text := ""
	chunks := events(t, raw)
	for i, ch := range chunks {
		d := choice(ch)["delta"].(object)
		if (d["role"] == "assistant") != (i == 0) {
			t.Errorf("chunk %d has role %v", i, d["role"])
		}
		text += d["content"].(string)
	}
	if text != " 4821" || choice(chunks[len(chunks)-1])["finish_reason"] != "stop" {
		t.Errorf("streamed %q", text)
	}
}

// TestRefusals sends what cannot be answered and reads the error object.
func TestRefusals(t *testing.T) {
	url, _ := start(t, testbed.Config{Ranks: 2, Blocks: 20})
	long := make([]int, 4096)
	for _, c := range []struct {
		path   string
		body   any
		status int
		says   string
	}{
		{"completions", `{`, 400, "not valid JSON"},
		{"completions", object{}, 400, "must not be empty"},
		{"completions", object{"prompt": []int{}}, 400, "must not be empty"},
		{"completions", object{"prompt": []string{"a", "b"}}, 400, "one prompt per request"},
		{"completions", object{"prompt": 7}, 400, "prompt must be"},
		{"completions", object{"prompt": []int{639}}, 400, "out of vocabulary"},
		{"completions", object{"prompt": []int{-1}}, 400, "out of vocabulary"},
		{"completions", object{"prompt": long}, 400, "maximum context length is 4096"},
		{"completions", object{"prompt": "a", "max_tokens": 4096}, 400, "maximum context length is 4096"},
		{"completions", object{"prompt": "a", "max_tokens": 0}, 400, "at least 1"},
		{"completions", object{"prompt": "a", "max_tokens": 400}, 400, "the pool has 20"},
		{"completions", object{"prompt": "a", "max_tokens": "x"}, 400, "max_tokens"},
		{"completions", object{"prompt": "a", "logprobs": 21}, 400, "max allowed: 20"},
		{"completions", object{"prompt": "a", "logprobs": -1}, 400, "non-negative"},
		{"completions", object{"prompt": "a", "echo": true}, 400, "echo is not supported"},
		{"completions", object{"prompt": "a", "n": 2}, 400, "n is not supported"},
		{"completions", object{"prompt": "a", "top_p": 0.9}, 400, "top_p is not supported"},
		{"completions", object{"prompt": "a", "temperature": -1}, 400, "non-negative"},
		{"completions", object{"prompt": "a", "cache_salt": ""}, 400, "cache_salt"},
		{"completions", object{"prompt": "a", "stop": ""}, 400, "stop"},
		{"completions", object{"prompt": "a", "stop": 3}, 400, "stop must be"},
		{"completions", object{"prompt": "a", "stream_options": object{}}, 400, "stream=True"},
		{"completions", object{"prompt": "a", "model": "other"}, 404, "does not exist"},
		{"chat/completions", object{"messages": []object{}}, 400, "messages"},
		{"chat/completions", object{"messages": []object{{"role": "user", "content": []object{{"type": "image_url"}}}}}, 400, "image_url"},
		{"chat/completions", object{"messages": []object{{"role": "user", "content": "a"}}, "top_logprobs": 2}, 400, "logprobs"},
	} {
		status, _, raw := post(t, url+"/v1/"+c.path, c.body)
		if status != c.status {
			t.Errorf("%v: status %d, %s", c.body, status, raw)
			continue
		}
		e := decode(t, raw)["error"].(object)
		if !strings.Contains(e["message"].(string), c.says) || e["code"] != float64(c.status) || e["type"] == "" {
			t.Errorf("%v: %v, want %q", c.body, e, c.says)
		}
	}
	for header, says := range map[string]string{"2": "data_parallel_rank 2 is out of range [0, 2).", "-1": "out of range", "one": "integer"} {
		status, _, raw := post(t, url+"/v1/completions", object{"prompt": "a"}, "x-DATA-parallel-RANK", header)
		if status != 400 || !strings.Contains(string(raw), says) {
			t.Errorf("rank %s: %d %s", header, status, raw)
		}
	}
}

// scrape reads /metrics, refusing what is not a sample of the family named
// above it, and returns the value of a series.
func scrape(t *testing.T, url string) func(name string, labels ...string) (float64, bool) {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	type series struct {
		labels map[string]string
		value  float64
	}
	found := map[string][]series{}
	line := regexp.MustCompile(`^([a-z_:]+)(?:\{([^}]*)\})? (\S+)$`)
	pair := regexp.MustCompile(`^([a-z_]+)="(.*)"$`)
	typed := ""
	for l := range strings.Lines(string(page)) {
		l = strings.TrimSuffix(l, "\n")
		if f := strings.Fields(l); f[0] == "#" {
			typed = f[2]
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil || m[1] != typed {
			t.Fatalf("not a sample of %s: %q", typed, l)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		s := series{map[string]string{}, v}
		for _, p := range strings.Split(m[2], ",") {
			if kv := pair.FindStringSubmatch(p); kv != nil {
				s.labels[kv[1]] = kv[2]
			} else if p != "" {
				t.Fatalf("not a label: %q", p)
			}
		}
		found[m[1]] = append(found[m[1]], s)
	}
	return func(name string, labels ...string) (float64, bool) {
	next:
		for _, s := range found[name] {
			for i := 0; i < len(labels); i += 2 {
				if s.labels[labels[i]] != labels[i+1] {
					continue next
				}
			}
			return s.value, true
		}
		return 0, false
	}
}

// TestMetrics follows the counters of one rank through cold, warm and a store.
func TestMetrics(t *testing.T) {
	url, _ := start(t, testbed.Config{Connector: true, Ranks: 2, StorePath: t.TempDir()})
	get := scrape(t, url)
	for _, name := range []string{"vllm:prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total", "vllm:num_preemptions_total"} {
		for _, rank := range []string{"0", "1"} {
			if v, ok := get(name, "engine", rank, "model_name", testbed.DefaultName); !ok || v != 0 {
				t.Errorf("%s of rank %s is %v, %t before any request", name, rank, v, ok)
			}
		}
	}
	if _, ok := get("vllm:kv_offload_store_bytes_total"); ok {
		t.Error("a labelled counter exists before its first use")
	}
	if v, ok := get("vllm:prefix_cache_hits_created", "engine", "0"); !ok || v < 1.5e9 {
		t.Errorf("created is %v, %t", v, ok)
	}
	if v, _ := get("vllm:cache_config_info", "block_size", "16", "cache_dtype", "bf16", "enable_prefix_caching", "True", "num_gpu_blocks", "2048", "mamba_block_size", "64"); v != 1 {
		t.Error("cache_config_info does not say what was asked for")
	}

	prompt := append([]int{tb.BOS}, make([]int, 199)...)
	ask := func() {
		complete(t, url, object{"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": true}, "X-Data-Parallel-Rank", "1")
	}
	ask() // cold: 200 asked of both, none found, 3 chunks stored
	ask() // 192 local
	if status, _, _ := post(t, url+"/reset_prefix_cache", ""); status != 200 {
		t.Fatal(status)
	}
	get = scrape(t, url)
	if v, _ := get("kvladder_testbed_pool_blocks", "engine", "1", "group", "attention", "state", "cached"); v != 0 {
		t.Errorf("%v blocks are cached after the reset", v)
	}
	ask() // 192 external
	get = scrape(t, url)
	for _, c := range []struct {
		name  string
		label []string
		want  float64
	}{
		{"vllm:prefix_cache_queries_total", nil, 600},
		{"vllm:prefix_cache_hits_total", nil, 192},
		{"vllm:external_prefix_cache_queries_total", nil, 200 + 8 + 200},
		{"vllm:external_prefix_cache_hits_total", nil, 192},
		{"vllm:prompt_tokens_total", nil, 600},
		{"vllm:prompt_tokens_by_source_total", []string{"source", "local_compute"}, 200 + 8 + 8},
		{"vllm:prompt_tokens_by_source_total", []string{"source", "local_cache_hit"}, 192},
		{"vllm:prompt_tokens_by_source_total", []string{"source", "external_kv_transfer"}, 192},
		{"vllm:prompt_tokens_cached_total", nil, 384},
		{"vllm:generation_tokens_total", nil, 6},
		{"vllm:request_success_total", []string{"finished_reason", "length"}, 3},
		{"vllm:request_success_total", []string{"finished_reason", "stop"}, 0},
		{"vllm:num_requests_running", nil, 0},
		{"vllm:kv_cache_usage_perc", nil, 0},
		{"kvladder_testbed_store_chunks", nil, 3},
		{"kvladder_testbed_stored_chunks_total", nil, 3},
		{"kvladder_testbed_loaded_chunks_total", nil, 3},
		{"kvladder_testbed_pool_blocks", []string{"group", "attention", "state", "used"}, 0},
		{"kvladder_testbed_pool_blocks", []string{"group", "attention", "state", "cached"}, 12},
	} {
		if v, ok := get(c.name, append(c.label, "engine", "1")...); !ok || v != c.want {
			t.Errorf("%s%v of rank 1 is %v (%t), want %v", c.name, c.label, v, ok, c.want)
		}
	}
	if v, _ := get("vllm:prompt_tokens_total", "engine", "0"); v != 0 {
		t.Errorf("rank 0 was asked %v tokens", v)
	}
	stored, _ := get("vllm:kv_offload_store_bytes_total", "engine", "1")
	loaded, _ := get("vllm:kv_offload_load_bytes_total", "engine", "1")
	if stored == 0 || stored != loaded {
		t.Errorf("stored %v bytes, loaded %v", stored, loaded)
	}
	post(t, url+"/reset_prefix_cache?reset_external=true", "")
	if v, _ := scrape(t, url)("kvladder_testbed_store_chunks", "engine", "1"); v != 0 {
		t.Errorf("%v chunks after reset_external", v)
	}
}

// TestRoundRobin asks four times without naming a rank.
func TestRoundRobin(t *testing.T) {
	url, _ := start(t, testbed.Config{Ranks: 2})
	for range 4 {
		complete(t, url, object{"prompt": "a", "max_tokens": 1, "ignore_eos": true})
	}
	get := scrape(t, url)
	for _, rank := range []string{"0", "1"} {
		if v, _ := get("vllm:request_success_total", "engine", rank, "finished_reason", "length"); v != 2 {
			t.Errorf("rank %s answered %v of 4", rank, v)
		}
	}
}

// TestSampling: the same seed says the same, and over 8 seeds not all agree.
func TestSampling(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	say := func(seed int) string {
		return choice(complete(t, url, object{"prompt": "river stone bridge", "seed": seed, "temperature": 1, "max_tokens": 12}))["text"].(string)
	}
	seen := map[string]bool{}
	for seed := range 8 {
		text := say(seed)
		if again := say(seed); again != text {
			t.Errorf("seed %d says %q and then %q", seed, text, again)
		}
		seen[text] = true
	}
	if len(seen) < 2 {
		t.Error("every seed says the same")
	}
}

// TestNaN lets a fault of the test's own making reach the wire: a NaN code in
// every stored chunk. The reply must stay JSON.
func TestNaN(t *testing.T) {
	dir := t.TempDir()
	cfg := testbed.Config{DType: tb.FP8, Connector: true, StorePath: dir}
	prompt := strings.Repeat(story, 4) + "question: key K07 ?"
	body := object{"prompt": prompt, "temperature": 0, "max_tokens": 2, "logprobs": 2, "return_token_ids": true, "ignore_eos": true}
	url, _ := start(t, cfg)
	complete(t, url, body)
	poison(t, dir)
	url, _ = start(t, cfg)
	v := complete(t, url, body)
	c := choice(v)
	if cached(v) == 0 || fmt.Sprint(c["token_ids"]) != "[0 0]" || fmt.Sprint(c["logprobs"].(object)["token_logprobs"]) != "[<nil> <nil>]" {
		t.Errorf("reply %v", v)
	}
	if n, _ := scrape(t, url)("vllm:corrupted_requests_total"); n != 1 {
		t.Errorf("%v requests are counted as corrupted", n)
	}
}

func TestOperatorCalls(t *testing.T) {
	seed := uint64(3)
	url, log := start(t, testbed.Config{ModelSeed: &seed, DType: tb.FP8, Connector: true, HashSeed: "7", Faults: []string{"f03", "F02"}, Name: "m"})
	get := func(path string) object {
		t.Helper()
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, raw)
		}
		if len(raw) == 0 {
			return nil
		}
		return decode(t, raw)
	}
	get("/health")
	if v := get("/version")["version"]; !strings.HasPrefix(v.(string), "0.32.0+") {
		t.Errorf("version %v", v)
	}
	m := get("/v1/models")["data"].([]any)[0].(object)
	if m["id"] != "m" || m["max_model_len"] != float64(4096) {
		t.Errorf("model %v", m)
	}
	info := get("/server_info?config_format=json")
	bed := info["testbed"].(object)
	for name, want := range map[string]any{
		"model_seed": 3.0, "kv_cache_dtype": "fp8", "enable_prefix_caching": true, "connector": "store", "hash_seed": "7",
		"faults": []any{"F02", "F03"}, "blocks": 2048.0, "prefill_budget": 127.0, "data_parallel_size": 1.0,
		"geometry": object{"attention_block": 16.0, "recurrent_block": 64.0, "store_chunk": 64.0, "window": 48.0},
	} {
		if fmt.Sprint(bed[name]) != fmt.Sprint(want) {
			t.Errorf("server_info %s is %v, want %v", name, bed[name], want)
		}
	}
	if cc := info["vllm_config"].(object)["cache_config"].(object); cc["cache_dtype"] != "fp8" || cc["mamba_cache_mode"] != "align" {
		t.Errorf("cache_config %v", cc)
	}

	_, _, raw := post(t, url+"/tokenize", object{"prompt": "fact: key K07 ?"})
	tok := decode(t, raw)
	if fmt.Sprint(tok["tokens"]) != "[256 380 388 275 391]" || tok["count"] != 5.0 || tok["max_model_len"] != 4096.0 {
		t.Errorf("tokenize: %v", tok)
	}
	_, _, raw = post(t, url+"/tokenize", object{"prompt": "fact: key K07 ?", "add_special_tokens": false})
	if tok := decode(t, raw); fmt.Sprint(tok["tokens"]) != "[380 388 275 391]" {
		t.Errorf("tokenize without special tokens: %v", tok)
	}
	_, _, raw = post(t, url+"/detokenize", object{"tokens": []int{256, 380, 388, 275, 391}})
	if got := decode(t, raw)["prompt"]; got != "fact: key K07 ?" {
		t.Errorf("detokenize: %v", got)
	}
	if status, _, _ := post(t, url+"/detokenize", object{"tokens": []int{9999}}); status != 400 {
		t.Errorf("detokenize of no token: %d", status)
	}
	if resp, _ := http.Get(url + "/nothing"); resp.StatusCode != 404 {
		t.Errorf("unknown path: %d", resp.StatusCode)
	}
	if status, _, _ := post(t, url+"/reset_prefix_cache?reset_external=perhaps", ""); status != 400 {
		t.Errorf("reset_external=perhaps: %d", status)
	}
	complete(t, url, object{"prompt": "a", "max_tokens": 1, "ignore_eos": true}, "X-Request-Id", "seven")
	if !strings.Contains(log.String(), "request id=seven api=completions rank=0 prompt=2 local=0 external=0 computed=2 output=1 finish=length") {
		t.Errorf("log: %s", log)
	}
}
