package show

import (
	"fmt"
	"strings"

	"kvladder/scoring"
)

// floor says how far control processes lie apart, and what the registered formulas make of it.
func floor(f *scoring.FloorFigures) []string {
	if f == nil || f.Between.D0.N == 0 {
		return nil
	}
	s := fmt.Sprintf("floor: %s in %d processes, |Δ logprob| of the first token at most %s between them (%d values)", f.Of, f.Processes, short(f.Between.D0.Max), f.Between.D0.N)
	if f.Within.D0.N > 0 {
		s += fmt.Sprintf(", %s within one (%d)", short(f.Within.D0.Max), f.Within.D0.N)
	}
	var parts []string
	for _, t := range f.Thresholds {
		parts = append(parts, fmt.Sprintf("%s = %s = %s", t.Name, t.Formula, short(t.Value)))
	}
	return []string{s, "thresholds: " + strings.Join(parts, ", ")}
}

// clusters are the differences to the reference with their intervals. They decide nothing.
func clusters(cs []scoring.ClusterFigure) []string {
	var out []string
	for _, c := range cs {
		if c.Low == nil || c.High == nil {
			continue
		}
		out = append(out, fmt.Sprintf("%s against the reference %+.4g, %.4g to %.4g (95 %%, bootstrap over %d clusters by %s of %d requests, seed %d)",
			c.What, *c.Mean, *c.Low, *c.High, c.Clusters, c.By, c.N, c.Seed))
	}
	return out
}

// sound is whether a control holds by itself.
func sound(a scoring.ArmResult) string {
	if a.Sound == "" {
		return "-"
	}
	return a.Sound
}

func short(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g", *v)
}
