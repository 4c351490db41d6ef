package scoring

import (
	"fmt"
	"slices"

	"kvladder/scoring/compare"
)

// Resampling registers the bootstrap over clusters: requests that are cut at the same places,
// or are about the same document, are drawn together. Nothing of it carries a verdict.
type Resampling struct {
	Seed      int    `json:"seed"`
	Resamples int    `json:"resamples"`
	By        string `json:"by"` // ByGeometry or ByDocument
}

// Clusters of requests.
const (
	ByGeometry = "geometry" // the class of the request
	ByDocument = "document"
)

// Check says what is wrong with the registration.
func (r Resampling) Check() error {
	switch {
	case r.Seed < 0:
		return fmt.Errorf("seed %d: want a whole number from 0", r.Seed)
	case r.Resamples < 100 || r.Resamples > 100_000:
		return fmt.Errorf("resamples %d: want 100 to 100000", r.Resamples)
	case r.By != ByGeometry && r.By != ByDocument:
		return fmt.Errorf("by %q: use %s or %s", r.By, ByGeometry, ByDocument)
	}
	return nil
}

// ClusterFigure is a difference between an arm and its reference over stable requests, with
// the percentile interval of the cluster bootstrap, 95 %. It is reported and decides nothing.
type ClusterFigure struct {
	What      string   `json:"what"` // "failure rate" or "d0"
	By        string   `json:"by"`
	Mean      *float64 `json:"mean"`
	Low       *float64 `json:"low"` // nil with Why: there is nothing to resample
	High      *float64 `json:"high"`
	N         int      `json:"n"`
	Clusters  int      `json:"clusters"`
	Resamples int      `json:"resamples"`
	Seed      int      `json:"seed"`
	Why       string   `json:"why,omitempty"`
}

// clusters gives the difference of the failure rates, and of d0 to that of the control
// processes at the same request.
func (s *scorer) clusters(j *judgement) []ClusterFigure {
	rule := s.in.Design.Rule.Bootstrap
	if rule == nil {
		return nil
	}
	r := j.readings[0]
	failures, d0 := newClusters(*rule), newClusters(*rule)
	floor := map[string][]float64{}
	for _, c := range r.processes {
		if c == r.ref {
			continue
		}
		for _, p := range s.pairs(c, r.refPass, r.ref, r.refPass) {
			if p.sameStart && p.d0 != nil {
				id := p.arm.prompt.ID
				floor[id] = append(floor[id], *p.d0)
			}
		}
	}
	for _, p := range r.stable {
		failures.add(p.arm, b2f(p.arm.failed)-b2f(p.ref.failed))
		if f := floor[p.arm.prompt.ID]; p.sameStart && p.d0 != nil && len(f) > 0 {
			m, err := compare.MeanSE(f)
			if err == nil {
				d0.add(p.arm, *p.d0-m.Value)
			}
		}
	}
	return []ClusterFigure{failures.figure("failure rate"), d0.figure("d0")}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// clustered values, clusters in the order in which the Set has them.
type clustered struct {
	rule  Resampling
	names []string
	of    map[string][]float64
}

func newClusters(r Resampling) *clustered { return &clustered{rule: r, of: map[string][]float64{}} }

func (c *clustered) add(w *row, v float64) {
	name := w.class()
	if c.rule.By == ByDocument {
		name = w.prompt.Document
	}
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	c.of[name] = append(c.of[name], v)
}

func (c *clustered) figure(what string) ClusterFigure {
	f := ClusterFigure{What: what, By: c.rule.By, Clusters: len(c.names), Resamples: c.rule.Resamples, Seed: c.rule.Seed}
	var all [][]float64
	var flat []float64
	for _, n := range c.names {
		all, flat = append(all, c.of[n]), append(flat, c.of[n]...)
	}
	f.N, f.Mean = len(flat), meanOf(flat)
	b, err := compare.ClusterBootstrap(all, 0.95, c.rule.Resamples, uint64(c.rule.Seed))
	if err != nil {
		f.Why = err.Error()
		return f
	}
	f.Low, f.High = rounded(b.Low), rounded(b.High)
	return f
}
