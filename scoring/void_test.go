package scoring

import (
	"testing"

	"kvladder/probes"
)

// A process that was started again in the middle of a pass answers in the other one's name.
// What it answered until that was seen is not the arm's: here five replies, two of them wrong.
func TestRestartVoidsWhatCameAfter(t *testing.T) {
	l := newLab(t, 40, 40)
	l.stop["WARM"] = 20
	var since int64
	l.reply["WARM"] = func(r *probes.Reply, i int) {
		if i == 14 {
			since = r.LastAt
		}
		if i == 16 || i == 17 {
			r.Text = "wrong"
		}
	}
	after := true
	l.fact["WARM"] = func(_ string, v any) any {
		if f, ok := v.(probes.DeathFact); ok {
			f.Sub = "RESTARTED"
			if after {
				f.After = since
			}
			return f
		}
		return v
	}
	l.write()
	a := want(t, l.assess(), "WARM", EngineDied, 2, "RESTARTED")
	if a.N != 15 || a.Failed != 0 {
		t.Errorf("%d rows, %d failed, want the 15 that came before and none failed", a.N, a.Failed)
	}
	after = false
	l.write()
	if a := arm(t, l.assess(), "WARM"); a.N != 20 || a.Failed != 2 {
		t.Errorf("%d rows, %d failed without a time, want all 20 and 2", a.N, a.Failed)
	}
}
