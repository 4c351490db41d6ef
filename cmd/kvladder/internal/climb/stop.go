package climb

import (
	"fmt"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// follow begins to watch the arm that was entered, where a stopping rule was registered for
// it.
func (r *chainRun) follow() (err error) {
	r.soak = nil
	if r.arm.Stop == nil {
		return nil
	}
	if r.soak, err = scoring.NewWatch(*r.arm.Stop, r.c.Detectors); err != nil {
		return fmt.Errorf("plan: arm %s: its stopping rule: %w", r.arm.Name, err)
	}
	return nil
}

// keep appends a reply, and shows it to the stopping rule in the order of the transcript, in
// which a verifier will follow it again.
func (r *chainRun) keep(rec probes.Record, p *prompts.Prompt) error {
	if r.soak == nil {
		return r.c.append(rec)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.c.append(rec); err != nil {
		return err
	}
	r.soak.Reply(rec.Reply, p)
	return nil
}

// enough ends a soak behind the round in which its registered rule has decided: what is left
// of its rounds is skipped, what stands behind the last of them is done.
func (r *chainRun) enough(at int, st arms.ChainStep) error {
	if r.soak == nil || st.Do != "replay" && st.Do != "prime" {
		return nil
	}
	decision, n, ok := r.soak.Decided()
	last := at
	for i, s := range r.job.chain.Steps {
		if s.Arm == r.arm.Name && (s.Do == "replay" || s.Do == "prime") {
			last = max(last, i)
		}
	}
	if !ok || last == at {
		return nil
	}
	r.goOn = last + 1
	r.c.say("chain %s: arm %s ends after pass %d: its rule (%s) says %s after %d requests", r.attempt, r.arm.Name, st.Pass, r.arm.Stop.Rule, decision, n)
	return r.fact(probes.FactStop, "registered rule", probes.StopFact{Rule: r.arm.Stop.Rule, Decision: decision, Requests: n, Pass: st.Pass})
}
