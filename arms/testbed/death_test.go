package testbed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"kvladder/arms/testbed/model"
)

// TestDeath lets a planted assertion end a served engine: the log ends in vLLM's
// manner, /health fails before nobody listens any more, and Serve says what the
// exit status is.
func TestDeath(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := new(safeBuffer)
	ready, served := make(chan struct{}), make(chan error, 1)
	cfg := Config{Connector: true, Faults: []string{"F06"}, Ready: func() { close(ready) }}
	go func() { served <- Serve(t.Context(), cfg, ln, log) }()
	<-ready
	url := "http://" + ln.Addr().String()
	post := func(path string, prompt []int) (int, string) {
		t.Helper()
		body := fmt.Sprintf(`{"prompt": %s, "temperature": 0, "max_tokens": 2}`, strings.ReplaceAll(fmt.Sprint(prompt), " ", ","))
		resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw)
	}
	p := scene(model.Geometry{}, 1, 4)
	post("/v1/completions", p.tokens)
	post("/reset_prefix_cache", nil)
	post("/v1/completions", p.tokens[:130])
	if status, raw := post("/v1/completions", p.tokens); status < 500 {
		t.Errorf("the request that killed the engine got %d %s", status, raw)
	}
	resp, err := http.Get(url + "/health")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("health: %v %v", resp, err)
	}
	select {
	case err := <-served:
		var dead *DeadError
		if !errors.As(err, &dead) || dead.ExitCode() != 1 {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve goes on")
	}
	for _, line := range []string{"\nAssertionError: ", "\nEngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
}
