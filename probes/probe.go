package probes

import (
	"context"

	"kvladder/prompts"
)

// Endpoint is one server that answers for an arm.
type Endpoint struct {
	URL      string   // http://host:port, without a path
	RankURLs []string // one URL per data-parallel rank, where ranks are separate servers
	APIKey   string   // sent as a bearer token and never written down
	Model    string
}

// Probe looks at an Endpoint and emits what it sees. Emit writes the Record to disk before
// it returns; an error from it must end the observation.
type Probe interface {
	Name() string
	Observe(ctx context.Context, e Endpoint, s *prompts.Set, emit func(Record) error) error
}

// Observe drives probes in order and stops at the first error.
func Observe(ctx context.Context, e Endpoint, s *prompts.Set, emit func(Record) error, ps ...Probe) error {
	for _, p := range ps {
		if err := p.Observe(ctx, e, s, emit); err != nil {
			return err
		}
	}
	return nil
}
