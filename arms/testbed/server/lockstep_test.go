package server_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"kvladder/arms/testbed"
)

// TestLockstepCalls has the engine wait for the second of two clients.
func TestLockstepCalls(t *testing.T) {
	url, _ := start(t, testbed.Config{NoiseSeed: 3})
	tell := func(n string) float64 {
		status, _, raw := post(t, url+"/testbed/lockstep?clients="+n, "")
		var v struct {
			Peak *float64 `json:"peak_running"`
		}
		if err := json.Unmarshal(raw, &v); err != nil || status != http.StatusOK || v.Peak == nil {
			t.Fatalf("lockstep: status %d, %s", status, raw)
		}
		return *v.Peak
	}
	tell("2")
	answered := make(chan struct{})
	go func() { ask(t, url, nil); close(answered) }()
	select {
	case <-answered:
		t.Error("the first request was answered before the second came")
	case <-time.After(100 * time.Millisecond):
	}
	second := make(chan struct{})
	go func() { // which of them ends first is the engine's to say, and the other then waits
		ask(t, url, nil)
		close(second)
	}()
	for range 2 {
		select {
		case <-answered:
			answered = nil
		case <-second:
			second = nil
		}
		tell("1")
	}
	if peak := tell("0"); peak != 2 {
		t.Errorf("at most %v requests ran at once, want 2", peak)
	}
	ask(t, url, nil) // and on its own again

	if status, _, raw := post(t, url+"/v1/completions", object{"prompt": "river stone", "max_tokens": 40, "ignore_eos": true, "temperature": 0}, "X-Abort-After-Steps", "3"); status != http.StatusServiceUnavailable {
		t.Errorf("aborted after steps: status %d, %s", status, raw)
	}
	if got := value(t, url, `vllm:request_success_total`); got < 0 {
		t.Error("no counter of ends")
	}
	for _, bad := range []string{"x", "0", "-1"} {
		if status, _, _ := post(t, url+"/v1/completions", object{"prompt": "river"}, "X-Abort-After-Steps", bad); status != http.StatusBadRequest {
			t.Errorf("abort after %q: status %d", bad, status)
		}
	}
	for _, bad := range []string{"", "?clients=x", "?clients=-1"} {
		if status, _, _ := post(t, url+"/testbed/lockstep"+bad, ""); status != http.StatusBadRequest {
			t.Errorf("lockstep%s: status %d", bad, status)
		}
	}
	ranks, _ := start(t, testbed.Config{Ranks: 2})
	if status, _, _ := post(t, ranks+"/testbed/lockstep?clients=1", ""); status != http.StatusBadRequest {
		t.Errorf("two ranks: status %d", status)
	}
}
