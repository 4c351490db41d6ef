// Package identity asks a server who it is, before and after each pass: another model,
// another version or a server that is no longer alive in the middle of an arm ends it.
//
// What a server says of itself proves nothing about its process; a launcher adds the
// process id, its start time and its restarts.
package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"kvladder/probes"
	"kvladder/prompts"
)

// State is what a server stated about itself. A member that it did not state is empty,
// and Errors says why.
type State struct {
	Alive   bool            // /health is 200; where there is no /health, the models are listed
	Health  int             // status of /health, 0 when no reply came
	Models  []string        // ids listed by /v1/models
	Model   string          // the Endpoint's model where it is listed, else the first one
	Root    string          // where that model's weights came from, as vLLM states it
	Length  *int            // longest context in tokens, as vLLM states it
	Version string          // /version, or llama-server's build_info
	Props   json.RawMessage // llama-server's /props, as it was sent
	Errors  []string        // in the order of asking
}

// timeout bounds each of the questions: a server that hangs must not hang the pass.
const timeout = 10 * time.Second

// limit bounds each answer.
const limit = 8 << 20

// Read asks /health, /v1/models, /version and, where there is no version, llama-server's
// /props. It has no error: a question without an answer is part of the State. A nil client
// means http.DefaultClient.
func Read(ctx context.Context, client *http.Client, e probes.Endpoint) State {
	if client == nil {
		client = http.DefaultClient
	}
	a := asker{ctx: ctx, client: client, endpoint: e}
	var s State

	s.Health, _ = a.get("/health", nil)
	s.Alive = s.Health == http.StatusOK
	switch s.Health {
	case http.StatusOK, http.StatusNotFound, 0:
	default:
		a.note("/health: HTTP %d", s.Health)
	}

	var models struct {
		Data []struct {
			ID     string `json:"id"`
			Root   string `json:"root"`
			Length *int   `json:"max_model_len"`
		} `json:"data"`
	}
	if code, _ := a.get("/v1/models", &models); code == http.StatusOK {
		at := 0
		for i, m := range models.Data {
			s.Models = append(s.Models, m.ID)
			if m.ID == e.Model {
				at = i
			}
		}
		if len(models.Data) > 0 {
			s.Model, s.Root, s.Length = models.Data[at].ID, models.Data[at].Root, models.Data[at].Length
			s.Alive = s.Alive || s.Health == http.StatusNotFound
		} else {
			a.note("/v1/models: no model is listed")
		}
	} else if code != 0 {
		a.note("/v1/models: HTTP %d", code)
	}

	var version struct{ Version string }
	code, _ := a.get("/version", &version)
	if s.Version = version.Version; s.Version == "" && code != 0 {
		var props struct {
			Build string `json:"build_info"`
			Path  string `json:"model_path"`
		}
		pcode, raw := a.get("/props", &props)
		if pcode == http.StatusOK && json.Valid(raw) {
			s.Props = raw
			s.Version = props.Build
			if s.Root == "" {
				s.Root = props.Path
			}
		}
		if s.Version == "" && pcode != 0 {
			a.note("no version is stated: /version HTTP %d, /props HTTP %d", code, pcode)
		}
	}
	s.Errors = a.errors
	return s
}

// Serves reports whether the model is among those that are listed.
func (s State) Serves(model string) bool { return slices.Contains(s.Models, model) }

// Fact is the part of an IdentityFact that the server knows; the launcher fills in the
// rest.
func (s State) Fact(phase string, pass int) probes.IdentityFact {
	return probes.IdentityFact{Phase: phase, Pass: pass, Alive: s.Alive, Model: s.Model, Version: s.Version}
}

// Error is everything that could not be read, "" when nothing was missing.
func (s State) Error() string { return strings.Join(s.Errors, "; ") }

type asker struct {
	ctx      context.Context
	client   *http.Client
	endpoint probes.Endpoint
	errors   []string
}

func (a *asker) note(format string, args ...any) {
	a.errors = append(a.errors, fmt.Sprintf(format, args...))
}

// get reads path and, with status 200, its JSON into v. It returns the status, 0 when no
// reply came, and the body.
func (a *asker) get(path string, v any) (int, []byte) {
	ctx, cancel := context.WithTimeout(a.ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(a.endpoint.URL, "/")+path, nil)
	if err != nil {
		a.note("%s: %v", path, err)
		return 0, nil
	}
	if a.endpoint.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+a.endpoint.APIKey)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.note("%s: %v", path, err)
		return 0, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		a.note("%s: %v", path, err)
		return resp.StatusCode, nil
	}
	if v != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, v); err != nil {
			a.note("%s: not JSON: %v", path, err)
		}
	}
	return resp.StatusCode, b
}

// Probe emits one identity fact. Process, Start and Restarts come from whoever launched
// the server.
type Probe struct {
	HTTP     *http.Client
	Phase    string
	Pass     int
	Process  string
	Start    string
	Restarts *int
}

var _ probes.Probe = Probe{}

// Name implements probes.Probe.
func (Probe) Name() string { return "identity" }

// Observe implements probes.Probe. Its only errors are those of emit.
func (p Probe) Observe(ctx context.Context, e probes.Endpoint, _ *prompts.Set, emit func(probes.Record) error) error {
	s := Read(ctx, p.HTTP, e)
	f := s.Fact(p.Phase, p.Pass)
	f.Process, f.Start, f.Restarts = p.Process, p.Start, p.Restarts
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return emit(probes.Record{Kind: probes.KindFact, Fact: &probes.Fact{
		Name: probes.FactIdentity, Source: "/health, /v1/models, /version, /props", Value: b, Error: s.Error(),
	}})
}
