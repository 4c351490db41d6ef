package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"kvladder/probes"
)

// Servers that each call themselves engine 0 are told apart by their address.
func TestScrapeRanks(t *testing.T) {
	var urls []string
	for k := range 2 {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "process_start_time_seconds 10\nvllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} %d\nplain_total 1", 100*(k+1))
		}))
		defer srv.Close()
		urls = append(urls, srv.URL)
	}
	s, err := ScrapeRanks(context.Background(), nil, urls)
	if err != nil {
		t.Fatal(err)
	}
	vs, err := Select(s, map[string]string{probes.PromptTokens: "vllm:prompt_tokens", probes.Computed: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, v := range vs {
		got[v.Role+"/"+v.Rank] = v.Value
	}
	want := map[string]float64{"prompt_tokens/0": 100, "prompt_tokens/1": 200, "computed/0": 1, "computed/1": 1, "process_start/": 20}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := Parse(s.Raw); err != nil {
		t.Errorf("the kept text cannot be read: %v", err)
	}
	if _, err := ScrapeRanks(context.Background(), nil, append(urls, "http://127.0.0.1:1")); err == nil {
		t.Error("a rank that does not answer was passed over")
	}
}
