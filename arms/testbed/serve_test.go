package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Example asks one question twice. The second answer is made from cached KV and
// is the same answer.
func Example() {
	tb, err := New(Config{Connector: true}, io.Discard)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tb.Close()
	filler := strings.Repeat(" river stone bridge forest hill valley", 12) + " .\n"
	body, _ := json.Marshal(map[string]any{
		"prompt":      filler + "fact: key K07 is 4821 .\n" + filler + "question: key K07 ?",
		"temperature": 0,
	})
	for range 2 {
		rec := httptest.NewRecorder()
		tb.ServeHTTP(rec, httptest.NewRequest("POST", "/v1/completions", bytes.NewReader(body)))
		var reply struct {
			Choices []struct{ Text string }
			Usage   struct {
				PromptTokens int `json:"prompt_tokens"`
				Details      struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &reply); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s, %d of %d prompt tokens from the cache\n", reply.Choices[0].Text, reply.Usage.Details.Cached, reply.Usage.PromptTokens)
	}
	// Output:
	//  4821, 0 of 163 prompt tokens from the cache
	//  4821, 128 of 163 prompt tokens from the cache
}

// TestServe stops a server while it answers: the answer is finished, Serve
// returns without an error, and nobody listens any more.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, served := make(chan struct{}), make(chan error, 1)
	cfg := Config{Ready: func() { close(ready) }}
	go func() { served <- Serve(ctx, cfg, ln, io.Discard) }()
	select {
	case <-ready:
	case err := <-served:
		t.Fatal(err)
	}
	url := "http://" + ln.Addr().String()
	resp, err := http.Post(url+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt": "river", "max_tokens": 300, "ignore_eos": true, "temperature": 0, "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stop()
	all, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(all), "data: [DONE]\n\n") {
		t.Errorf("the reply in flight was cut: %v", err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * grace):
		t.Fatal("Serve does not return")
	}
	if _, err := http.Get(url + "/health"); err == nil {
		t.Error("somebody still listens")
	}
}

func TestServeRefuses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), Config{Blocks: 1}, ln, io.Discard); err == nil {
		t.Error("a pool of one block was accepted")
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the listener was left open")
	}
}

// TestConfig checks each refusal.
func TestConfig(t *testing.T) {
	for says, cfg := range map[string]Config{
		"must hold at least 4":       {Blocks: 3},
		"must be at least 1":         {PrefillBudget: -1},
		"smaller than the recurrent": {PrefillBudget: 63},
		"must be 1 to 64":            {Ranks: -1},
		"needs the store connector":  {StorePath: "x"},
		"unknown fault":              {Faults: []string{"N1"}},
	} {
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", cfg, err, says)
		}
	}
	for _, cfg := range []Config{{}, {PrefillBudget: 1, NoPrefixCaching: true}, {Ranks: 2, Connector: true}} {
		if err := cfg.Check(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
