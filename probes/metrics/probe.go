package metrics

import (
	"context"
	"net/http"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
)

// Probe emits one sample of an engine's counters. A scrape that fails is emitted too, with
// its error.
type Probe struct {
	HTTP  *http.Client
	Path  string // "" = /metrics
	Phase string
	Pass  int
	Roles map[string]string // as Select reads them
}

var _ probes.Probe = Probe{}

// Name implements probes.Probe.
func (Probe) Name() string { return "metrics" }

// Observe implements probes.Probe. Its only errors are those of emit.
func (p Probe) Observe(ctx context.Context, e probes.Endpoint, _ *prompts.Set, emit func(probes.Record) error) error {
	path := p.Path
	if path == "" {
		path = "/metrics"
	}
	s, err := Scrape(ctx, p.HTTP, strings.TrimRight(e.URL, "/")+path)
	if s.Source == "" {
		s.Source = path
	}
	sample := s.Sample(p.Phase, p.Pass, p.Roles, err)
	return emit(probes.Record{Kind: probes.KindSample, Sample: &sample})
}
