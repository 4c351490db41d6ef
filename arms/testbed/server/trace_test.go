package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kvladder/arms/testbed"
	tb "kvladder/arms/testbed/model"
)

// told asks for a completion whose reply is named, and gives its ids and logprobs.
func told(t *testing.T, url string, trace []int) (ids []int, lps []float64, top []object, finish string) {
	t.Helper()
	body := object{"prompt": tb.Encode(story + "question: key K07 ?"), "max_tokens": 6, "temperature": 0, "logprobs": 20, "return_token_ids": true, "return_tokens_as_token_ids": true}
	if trace != nil {
		body["trace_decode_token_ids"] = trace
	}
	c := choice(complete(t, url, body))
	for _, x := range c["token_ids"].([]any) {
		ids = append(ids, int(x.(float64)))
	}
	l := c["logprobs"].(object)
	for i, x := range l["token_logprobs"].([]any) {
		lps = append(lps, x.(float64))
		top = append(top, l["top_logprobs"].([]any)[i].(object))
	}
	return ids, lps, top, c["finish_reason"].(string)
}

// A reply that is named comes back as it was named, with the logprobs that the model gives: the
// same bits where the tokens are those that it says by itself.
func TestTraceReplay(t *testing.T) {
	url, _ := start(t, testbed.Config{TraceReplay: true})
	free, lps, top, _ := told(t, url, nil)
	ids, same, _, finish := told(t, url, free)
	if !slices.Equal(ids, free) || !slices.Equal(same, lps) || finish != "length" {
		t.Errorf("along its own tokens %v %v: %v %v, %s", free, lps, ids, same, finish)
	}
	// Another first token: the model's own logprob of it, as the free reply ranks it.
	other := -1
	for name, lp := range top[0] {
		if name != "token_id:"+strconv.Itoa(free[0]) && name != "token_id:"+strconv.Itoa(tb.EOS) {
			other = 0
			if _, err := fmt.Sscanf(name, "token_id:%d", &other); err != nil {
				t.Fatal(err)
			}
			trace := append([]int{other, tb.EOS}, free...)
			got, l, _, finish := told(t, url, trace)
			if !slices.Equal(got, trace) || finish != "length" {
				t.Fatalf("named %v, got %v, %s: an end inside ends nothing, and max_tokens is the trace's length", trace, got, finish)
			}
			if l[0] != lp.(float64) {
				t.Errorf("token %d has logprob %v, the free reply ranks it at %v", other, l[0], lp)
			}
			break
		}
	}
	if other < 0 {
		t.Fatal("no other token to force")
	}
	// Sampling has nothing to say then, and streams carry the same.
	status, _, raw := post(t, url+"/v1/completions", object{"prompt": tb.Encode(story), "temperature": 1, "return_token_ids": true, "trace_decode_token_ids": []int{7, 8, 9}, "stream": true})
	if status != http.StatusOK || strings.Count(string(raw), `"token_ids":[`) != 3 || !strings.Contains(string(raw), `"token_ids":[9]`) {
		t.Errorf("stream: status %d: %s", status, raw)
	}
}

func TestTraceReplayRefuses(t *testing.T) {
	on, _ := start(t, testbed.Config{TraceReplay: true})
	off, _ := start(t, testbed.Config{})
	check := func(url string, extra object, want string) {
		t.Helper()
		body := object{"prompt": tb.Encode(story), "max_tokens": 2}
		for k, v := range extra {
			body[k] = v
		}
		status, _, raw := post(t, url+"/v1/completions", body)
		if status != http.StatusBadRequest || !strings.Contains(string(raw), want) {
			t.Errorf("%v: status %d: %s, want 400 with %q", extra, status, raw, want)
		}
	}
	check(off, object{"trace_decode_token_ids": []int{1}}, "--enable-trace-replay")
	check(on, object{"trace_decode_token_ids": []int{}}, "must not be empty")
	check(on, object{"trace_decode_token_ids": []int{tb.Vocab}}, "out of vocabulary")
	check(on, object{"trace_decode_token_ids": []int{1}, "n": 2}, "n is not supported")
	check(on, object{"trace_decode_token_ids": []int{1}, "prompt_logprobs": 1}, "prompt_logprobs is not supported")
	if _, err := testbed.New(testbed.Config{TraceReplay: true, Draft: 2}, nil); err == nil || !strings.Contains(err.Error(), "speculative") {
		t.Errorf("beside drafts: %v", err)
	}
}
