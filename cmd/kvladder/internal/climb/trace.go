package climb

import (
	"encoding/json"

	"kvladder/probes"
	"kvladder/scoring"
)

// findTraces reads from the transcript what the references of forced arms answered. A reply
// without token ids gives nothing to decode along: its request goes out as it is, and the
// scoring says so.
func (c *Climb) findTraces() error {
	recs, err := probes.ReadAll(c.Folder.Transcript())
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, r := range recs {
		var f probes.AbandonedFact
		if r.Fact != nil && r.Fact.Name == probes.FactAbandoned && json.Unmarshal(r.Fact.Value, &f) == nil {
			gone[f.Attempt] = true
		}
	}
	c.traces = map[string]map[string][]int{}
	for i := range c.Plan.Design.Arms {
		a := &c.Plan.Design.Arms[i]
		if a.Role != scoring.Forced {
			continue
		}
		c.traces[a.Name] = map[string][]int{}
		for _, r := range recs {
			if r.Reply == nil || r.Run != 0 || r.Arm != a.Reference || gone[r.Attempt] || r.Reply.Prime || max(1, r.Reply.Pass) != max(1, a.ReferencePass) {
				continue
			}
			if ids := idsOf(r.Reply); ids != nil {
				c.traces[a.Name][r.Reply.Prompt] = ids
			}
		}
	}
	return nil
}

// idsOf are the token ids of a reply, nil where one is not known.
func idsOf(r *probes.Reply) []int {
	var ids []int
	for _, t := range r.Tokens {
		if t.ID < 0 {
			return nil
		}
		ids = append(ids, t.ID)
	}
	return ids
}
