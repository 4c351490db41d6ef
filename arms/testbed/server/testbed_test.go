package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvladder/arms/testbed"
)

// long is a prompt of some hundred tokens that ends with a question.
var long = strings.Repeat("river stone bridge forest hill valley road field .\n", 12) + story +
	strings.Repeat("river stone bridge forest hill valley road field .\n", 12) + "question: key K07 ?"

func ask(t *testing.T, url string, more object, header ...string) object {
	t.Helper()
	body := object{"prompt": long, "temperature": 0, "max_tokens": 6}
	for k, v := range more {
		body[k] = v
	}
	return complete(t, url, body, header...)
}

func ok(t *testing.T, url string) {
	t.Helper()
	if status, _, raw := post(t, url, ""); status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, raw)
	}
}

// TestLoads reads back what a load wrote: behind a local hit of 128 the table
// positions from 8 on, and one state.
func TestLoads(t *testing.T) {
	url, _ := start(t, testbed.Config{Connector: true})
	ask(t, url, nil)
	ok(t, url+"/reset_prefix_cache")
	prompt := decode(t, must(post(t, url+"/tokenize", object{"prompt": long})))["tokens"].([]any)
	complete(t, url, object{"prompt": prompt[:130], "temperature": 0, "max_tokens": 1})
	ask(t, url, nil, "X-Request-Id", "second")
	loads := decode(t, get(t, url+"/testbed/loads"))["loads"].([]any)
	last := loads[len(loads)-1].(object)
	if last["request_id"] != "second" || last["local_tokens"] != 128.0 || last["failed"] != false || last["rank"] != 0.0 {
		t.Errorf("record %v", last)
	}
	ext := int(last["external_tokens"].(float64))
	want := make([]any, 0)
	for i := 128 / 16; i < (128+ext)/16; i++ {
		want = append(want, float64(i))
	}
	if ext == 0 || ext%64 != 0 || fmt.Sprint(last["attention"].(object)["positions"]) != fmt.Sprint(want) {
		t.Errorf("external %d, positions %v", ext, last["attention"])
	}
	if fmt.Sprint(last["recurrent"].(object)["positions"]) != fmt.Sprint([]int{(128+ext)/64 - 1}) {
		t.Errorf("states %v", last["recurrent"])
	}
}

func must(status int, _ http.Header, raw []byte) []byte {
	if status != http.StatusOK {
		panic(string(raw))
	}
	return raw
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return []byte(b.String())
		}
	}
}

// value reads one sample of /metrics; -1 when there is none.
func value(t *testing.T, url, name string) float64 {
	t.Helper()
	for line := range strings.Lines(string(get(t, url+"/metrics"))) {
		if rest, found := strings.CutPrefix(line, name+"{"); found {
			var v float64
			fmt.Sscan(rest[strings.LastIndex(rest, "} ")+2:], &v)
			return v
		}
	}
	return -1
}

// TestStoreCalls expires the store, loses one rank's share of it, and fails
// loads; each time the reply is right and the counters say what happened.
func TestStoreCalls(t *testing.T) {
	url, _ := start(t, testbed.Config{Connector: true, TensorParallel: 2, NoiseSeed: 3})
	null := value(t, url, "kvladder_testbed_null_block_checksum")
	cold := ask(t, url, nil)
	again := func(call string, hits bool) {
		t.Helper()
		ok(t, url+"/reset_prefix_cache")
		if call != "" {
			ok(t, url+call)
		}
		got := ask(t, url, nil)
		if choice(got)["text"] != choice(cold)["text"] || (cached(got) > 0) != hits {
			t.Errorf("%s: %q, %v tokens reused", call, choice(got)["text"], cached(got))
		}
	}
	again("", true)
	again("/testbed/expire", false)
	again("", true)
	again("/testbed/evict_rank?rank=1", false)
	again("", true)
	again("/testbed/fail_loads?n=1000", false)
	if got := value(t, url, "kvladder_testbed_load_failures_total"); got < 1 {
		t.Errorf("%v load failures", got)
	}
	if got := value(t, url, "kvladder_testbed_null_block_checksum"); got != null || null <= 0 {
		t.Errorf("checksum of the null blocks went from %v to %v", null, got)
	}
	if got := value(t, url, "kvladder_testbed_offered_null_blocks_total"); got != 0 {
		t.Errorf("%v null blocks stored", got)
	}
	for _, call := range []string{"/testbed/evict_rank", "/testbed/evict_rank?rank=2", "/testbed/fail_loads?n=x", "/testbed/fail_loads?n=-1"} {
		if status, _, _ := post(t, url+call, ""); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", call, status)
		}
	}
}

// TestLoadPolicyFail ends a request whose load fails.
func TestLoadPolicyFail(t *testing.T) {
	url, _ := start(t, testbed.Config{Connector: true, FailOnLoad: true, NoiseSeed: 3})
	ask(t, url, nil)
	ok(t, url+"/reset_prefix_cache")
	ok(t, url+"/testbed/fail_loads?n=1")
	status, _, raw := post(t, url+"/v1/completions", object{"prompt": long, "temperature": 0})
	if status < 500 {
		t.Errorf("status %d: %s", status, raw)
	}
	if got := ask(t, url, nil); choice(got)["text"] != " 4821" { // the chunk is gone
		t.Errorf("afterwards %q", choice(got)["text"])
	}
}

// TestIdentities asks an adapter and an image: each answers right, neither reuses
// what another identity computed, and both reuse their own.
func TestIdentities(t *testing.T) {
	url, _ := start(t, testbed.Config{Connector: true, Adapters: []string{"adapter-a"}})
	for _, who := range []object{nil, {"model": testbed.DefaultName + ":adapter-a"}, {"mm_hash": "c0ffee"}} {
		for pass := range 2 {
			got := ask(t, url, who)
			if choice(got)["text"] != " 4821" || (cached(got) > 0) != (pass == 1) {
				t.Errorf("%v, pass %d: %q, %v tokens reused", who, pass, choice(got)["text"], cached(got))
			}
			if m, named := who["model"]; named && got["model"] != m {
				t.Errorf("the reply names %v", got["model"])
			}
		}
	}
	models := string(get(t, url+"/v1/models"))
	if !strings.Contains(models, `"id":"kvladder-testbed:adapter-a"`) || !strings.Contains(models, `"parent":"kvladder-testbed"`) {
		t.Errorf("models %s", models)
	}
	if status, _, _ := post(t, url+"/v1/completions", object{"prompt": "x", "model": testbed.DefaultName + ":adapter-b"}); status != http.StatusNotFound {
		t.Errorf("an adapter nobody serves: status %d", status)
	}
}

// TestDraftCounters drafts a text that repeats itself.
func TestDraftCounters(t *testing.T) {
	url, _ := start(t, testbed.Config{Draft: 3})
	complete(t, url, object{"prompt": long, "temperature": 0, "max_tokens": 80, "ignore_eos": true})
	drafted, accepted := value(t, url, "vllm:spec_decode_num_draft_tokens_total"), value(t, url, "vllm:spec_decode_num_accepted_tokens_total")
	if drafted <= 0 || accepted <= 0 || accepted > drafted {
		t.Errorf("accepted %v of %v", accepted, drafted)
	}
	plain, _ := start(t, testbed.Config{})
	if got := value(t, plain, "vllm:spec_decode_num_draft_tokens_total"); got != -1 {
		t.Errorf("an engine that does not draft counts %v", got)
	}
}

// TestAbortByClosing closes a connection: the request is over at once.
func TestAbortByClosing(t *testing.T) {
	url, _ := start(t, testbed.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions",
		strings.NewReader(`{"prompt": "river", "max_tokens": 4000, "ignore_eos": true, "temperature": 0}`))
	done := make(chan struct{})
	go func() { http.DefaultClient.Do(req); close(done) }()
	running := func() float64 { return value(t, url, "vllm:num_requests_running") }
	for running() != 1 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	for began := time.Now(); running() != 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 2*time.Second {
			t.Fatal("still running")
		}
	}
}
