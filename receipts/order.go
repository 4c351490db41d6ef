package receipts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Order says how far the order of plan and data is shown.
type Order struct {
	Level   string        `json:"level"`   // "O0" or "O1"
	Entries int           `json:"entries"` // of the ledger
	Ledger  digest.Digest `json:"ledger"`  // of its last line, "" without one
	Why     string        `json:"why"`     // what is shown, or what is missing
}

// Levels of order. O0: nothing is shown, dates were typed. O1: the data depend on the plan,
// since ledger, transcript and request ids all name its digest; that stops a quiet edit and
// not a full rewrite. O2: the plan is not later than a moment, since a witness outside the
// folder has cosigned the ledger that registers it. O3: the data are not earlier than a moment,
// since every request id, which the server's own log has too, is derived from a public random
// value that nobody could know before (see Beacon). O4: both, the plan before the data: a
// witness had seen the registration, and every amendment that governs, before the beacon's
// round was published.
//
// A sealed receipt says O0 or O1. The others hang on clocks of third parties, and Verify finds
// them: O2 and O4 need the key of a witness, which a receipt cannot vouch for. None of them
// holds against somebody who writes replies of another day under new ids; for that, lay the
// server's log beside the transcript.
const (
	O0 = "O0"
	O1 = "O1"
	O2 = "O2"
	O3 = "O3"
	O4 = "O4"
)

// orderOf finds the level that a run folder shows. transcriptPlan is what the transcript's
// first record names as its plan.
func orderOf(imported bool, ledger []LedgerEntry, ledgerErr error, plan, transcriptPlan digest.Digest) Order {
	o := Order{Level: O0, Entries: len(ledger)}
	if n := len(ledger); n > 0 {
		if b, err := digest.Canonical(ledger[n-1]); err == nil {
			o.Ledger = digest.Of(append(b, '\n'))
		}
	}
	switch {
	case imported:
		o.Why = "imported rows: nothing shows that they were made after a plan"
	case ledgerErr != nil:
		o.Why = "there is no ledger that holds"
	case len(ledger) == 0:
		o.Why = "the ledger is empty"
	case ledger[0].Object.Plan != plan:
		o.Why = "the ledger registers another plan"
	case transcriptPlan != plan:
		o.Why = "the transcript does not open with this plan"
	default:
		for _, e := range ledger {
			if e.Object.Plan != plan {
				o.Why = fmt.Sprintf("ledger entry %d is of another plan", e.Seq)
				return o
			}
		}
		o.Level, o.Why = O1, "ledger and transcript carry the digest of the plan from their first line on"
	}
	return o
}

// timed is the level of a run whose data depend on the plan, by the clocks of others. A
// witness's time is of whole seconds, and the same second shows no order.
func timed(seen []Sighting, beacon *Beacon, as []Amendment) string {
	switch {
	case beacon == nil && len(seen) == 0:
		return O1
	case beacon == nil:
		return O2
	}
	governs := int64(1) // entries up to the last one that the verdict hangs on
	for _, a := range as {
		if a.Class != ClassC {
			governs = max(governs, a.Entry+1)
		}
	}
	for _, s := range seen {
		if at, err := time.Parse(time.RFC3339, s.UTC); err == nil && s.Size >= governs && at.Before(beacon.Time()) {
			return O4
		}
	}
	return O3
}

// chainOrder derives from the plan's own bytes in which order its independent chains are to
// be climbed: with the chains sorted by name, each chain's key is the digest of the plan's
// digest, a zero byte and its name, and they go by key; those with a forced arm stand last. Which arms were attached to running
// servers is known later and does not count. It returns the order that the plan has, too.
func chainOrder(plan json.RawMessage) (derived, have []string, err error) {
	var p map[string]any
	if err := json.Unmarshal(plan, &p); err != nil {
		return nil, nil, err
	}
	chains, _ := p["chains"].([]any)
	name := func(c any) string {
		m, _ := c.(map[string]any)
		s, _ := m["name"].(string)
		return s
	}
	for _, c := range chains {
		have = append(have, name(c))
	}
	design, _ := p["design"].(map[string]any)
	arms, _ := design["arms"].([]any)
	last := map[string]int{} // chains that decode along what references of others said
	for _, a := range arms {
		if m, ok := a.(map[string]any); ok {
			delete(m, "attached")
			if chain, _ := m["chain"].(string); m["role"] == scoring.Forced {
				last[chain] = 1
			}
		}
	}
	slices.SortFunc(chains, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	d, _, err := digest.OfJSON(p)
	if err != nil {
		return nil, nil, err
	}
	derived = slices.Clone(have)
	key := func(n string) string { return string(digest.Of([]byte(string(d) + "\x00" + n))) }
	slices.SortFunc(derived, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	slices.SortStableFunc(derived, func(a, b string) int { return last[a] - last[b] })
	return derived, have, nil
}
