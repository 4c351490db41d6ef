package identity

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/probes"
	"kvladder/probes/probetest"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func vllm(t *testing.T) *probetest.Server {
	return probetest.Start().
		Route("/health", probetest.JSON("")).
		Route("/v1/models", probetest.JSON(fixture(t, "models.json"))).
		Route("/version", probetest.JSON(fixture(t, "version.json")))
}

const props = `{"build_info":"b11669-Debian","model_path":"tiny.gguf","total_slots":2}`

func TestRead(t *testing.T) {
	n := 4096
	for _, c := range []struct {
		name string
		make func() *probetest.Server
		want State
	}{
		{"vllm", func() *probetest.Server { return vllm(t) },
			State{Alive: true, Health: 200, Models: []string{"m"}, Model: "m", Root: "$WORK/smollm2", Length: &n, Version: "0.32.0"}},
		{"llama-server", func() *probetest.Server {
			return probetest.Start().
				Route("/health", probetest.JSON(`{"status":"ok"}`)).
				Route("/v1/models", probetest.JSON(`{"data":[{"id":"tiny.gguf","meta":{"n_params":1}}]}`)).
				Route("/props", probetest.JSON(props))
		}, State{Alive: true, Health: 200, Models: []string{"tiny.gguf"}, Model: "tiny.gguf", Root: "tiny.gguf", Version: "b11669-Debian", Props: json.RawMessage(props)}},
		{"several models", func() *probetest.Server {
			return vllm(t).Route("/v1/models", probetest.JSON(`{"data":[{"id":"base"},{"id":"m","root":"r"}]}`))
		}, State{Alive: true, Health: 200, Models: []string{"base", "m"}, Model: "m", Root: "r", Version: "0.32.0"}},
		{"another model", func() *probetest.Server {
			return vllm(t).Route("/v1/models", probetest.JSON(`{"data":[{"id":"other"}]}`))
		}, State{Alive: true, Health: 200, Models: []string{"other"}, Model: "other", Version: "0.32.0"}},
		{"no health page", func() *probetest.Server {
			return vllm(t).Route("/health", probetest.Status(404, "text/plain", ""))
		}, State{Alive: true, Health: 404, Models: []string{"m"}, Model: "m", Root: "$WORK/smollm2", Length: &n, Version: "0.32.0"}},
		{"dead engine", func() *probetest.Server {
			return vllm(t).Route("/health", probetest.Status(503, "text/plain", ""))
		}, State{Health: 503, Models: []string{"m"}, Model: "m", Root: "$WORK/smollm2", Length: &n, Version: "0.32.0", Errors: []string{"/health: HTTP 503"}}},
		{"a proxy's page", func() *probetest.Server { return probetest.Start(probetest.HTML()) },
			State{Alive: true, Health: 200, Errors: []string{
				"/v1/models: not JSON: invalid character '<' looking for beginning of value", "/v1/models: no model is listed",
				"/version: not JSON: invalid character '<' looking for beginning of value",
				"/props: not JSON: invalid character '<' looking for beginning of value",
				"no version is stated: /version HTTP 200, /props HTTP 200"}}},
		{"nothing but 404", func() *probetest.Server { return probetest.Start() },
			State{Health: 404, Errors: []string{"/v1/models: HTTP 404", "no version is stated: /version HTTP 404, /props HTTP 404"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := c.make()
			defer srv.Close()
			got := Read(t.Context(), nil, probes.Endpoint{URL: srv.URL + "/", Model: "m", APIKey: "k"})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, q := range srv.Saw() {
				if q.Header.Get("Authorization") != "Bearer k" || q.Method != "GET" {
					t.Errorf("%s %s with %q", q.Method, q.Path, q.Header.Get("Authorization"))
				}
			}
		})
	}
}

func TestReadNobodyThere(t *testing.T) {
	srv := probetest.Start()
	srv.Close()
	s := Read(t.Context(), nil, probes.Endpoint{URL: srv.URL})
	if s.Alive || s.Health != 0 || len(s.Errors) != 3 || !strings.Contains(s.Error(), "refused") {
		t.Errorf("%+v", s)
	}
}

func TestServes(t *testing.T) {
	s := State{Models: []string{"a", "b"}}
	if !s.Serves("b") || s.Serves("c") {
		t.Error("served models are mistaken")
	}
}

func TestProbe(t *testing.T) {
	srv := vllm(t)
	defer srv.Close()
	zero := 0
	p := Probe{Phase: "after", Pass: 2, Process: "123", Start: "s", Restarts: &zero}
	var got []probes.Record
	err := probes.Observe(t.Context(), probes.Endpoint{URL: srv.URL, Model: "m"}, nil, func(r probes.Record) error { got = append(got, r); return nil }, p)
	if err != nil || len(got) != 1 || got[0].Fact == nil || got[0].Fact.Name != probes.FactIdentity || got[0].Fact.Error != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	var f probes.IdentityFact
	if err := json.Unmarshal(got[0].Fact.Value, &f); err != nil {
		t.Fatal(err)
	}
	want := probes.IdentityFact{Phase: "after", Pass: 2, Process: "123", Start: "s", Restarts: &zero, Alive: true, Model: "m", Version: "0.32.0"}
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	full := errors.New("disk full")
	if err := p.Observe(t.Context(), probes.Endpoint{URL: srv.URL}, nil, func(probes.Record) error { return full }); err != full {
		t.Errorf("%v: a record that was not written must end the observation", err)
	}
}
