package scoring

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
)

// loadFailed writes that the engine spoke of a failed load while request i of WARM was under way.
func (l *lab) loadFailed(i int, recovered bool, line string) {
	at := slices.IndexFunc(l.recs, func(r probes.Record) bool { return r.Arm == "WARM" && r.Kind == probes.KindReply })
	where := l.recs[at]
	b, _ := json.Marshal(probes.LoadFailedFact{Pass: 1, Prompt: l.set.Prompts[i].ID, Recovered: recovered, Line: line})
	l.emit(probes.Record{Arm: where.Arm, Chain: where.Chain, Attempt: where.Attempt, Incarnation: where.Incarnation, Kind: probes.KindFact, Fact: &probes.Fact{Name: probes.FactLoadFailed, Value: b}})
}

// A request whose load failed and was computed after all hits nothing by right, and is told
// apart from the others; the same shortfall without a word from the engine is reuse that was lost.
func TestLoadFailures(t *testing.T) {
	lose := func(l *lab) {
		l.reply["WARM"] = func(r *probes.Reply, i int) {
			if i >= 25 {
				for k := range r.Counters {
					if c := &r.Counters[k]; c.Role == probes.ExternalHits && c.Before != nil {
						c.After = ptr(*c.Before)
					}
				}
				r.Usage.Cached = ptr(0)
			}
		}
	}
	l := newLab(t, 40, 40)
	lose(l)
	l.write()
	want(t, l.assess(), "WARM", NotExercised, 13, ReuseLost)

	l = newLab(t, 40, 40)
	lose(l)
	l.write()
	for i := 25; i < 40; i++ {
		l.loadFailed(i, true, "Recovered from KV load failure: 1 request(s) rescheduled")
	}
	a := arm(t, l.assess(), "WARM")
	if *a.Verdict == NotExercised {
		t.Errorf("requests that were recovered count as lost: %s %v", *a.Verdict, a.Warnings)
	}
	if !strings.Contains(strings.Join(a.Warnings, "\n"), "15 requests were computed after a load had failed, 15 of them answered") {
		t.Errorf("they are not told apart: %v", a.Warnings)
	}
}

// Requests that the engine ended because a load had failed, and said so, took nothing from the
// store and said nothing: the others are judged. Without its word they are the harness's failure.
func TestEndedByFailedLoads(t *testing.T) {
	for _, c := range []struct {
		ended         int
		said          bool
		verdict, sub  string
		row, answered int
	}{
		{5, false, HarnessError, "", 3, 35},
		{5, true, CleanBounded, "", 17, 35},
		{40, true, NotExercised, ReuseLost, 13, 0},
	} {
		l := newLab(t, 40, 40)
		l.reply["WARM"] = func(r *probes.Reply, i int) {
			if i < c.ended {
				refuse(r, 500, "http", "HTTP 500: Internal server error")
			}
		}
		l.write()
		for i := range c.ended {
			if c.said {
				l.loadFailed(i, false, "Failing 1 request(s) due to KV load failure (failure_policy=fail, 32 tokens affected)")
			}
		}
		r := l.assess()
		want(t, r, "WARM", c.verdict, c.row, c.sub)
		if a := arm(t, r, "WARM"); c.said && (a.Exercised == nil || *a.Exercised != c.answered || a.Failed != 0) {
			t.Errorf("%d ended: %v exercised and %d failed, want %d and 0", c.ended, a.Exercised, a.Failed, c.answered)
		}
	}
}
