package scoring

import (
	"strings"
	"testing"

	"kvladder/probes"
)

// Where no counter tells, the times are told: as many requests as came back quickly, and two
// heaps where there are two. They never make an arm exercised, however clear they are.
func TestWitness(t *testing.T) {
	for _, c := range []struct {
		name  string
		quick int
		want  string
	}{{"all", 40, "40 of 40 requests took less than half"}, {"some", 25, "25 of 40 requests took less than half of their first time, and two heaps lie apart: 25 up to 0.10, 15 from 1.00"}, {"none", 0, "0 of 40"}} {
		l := newLab(t, 40, 40)
		l.mute["C1"] = true
		l.reply["C1"] = func(r *probes.Reply, i int) {
			took := int64(1000)
			if r.Pass == 2 && i < c.quick {
				took = 100
			}
			r.FirstByteAt = r.SentAt + took
			r.Usage.Cached = nil
		}
		l.write()
		a := want(t, l.assess(), "C1", NotExercised, 13, Unproven)
		if got := strings.Join(a.Warnings, "\n"); !strings.Contains(got, c.want) || !strings.Contains(got, "no proof") {
			t.Errorf("%s: want %q in\n%s", c.name, c.want, got)
		}
	}
	l := newLab(t, 40, 40) // counters tell: time is not asked
	l.reply["C1"] = func(r *probes.Reply, i int) { r.FirstByteAt = r.SentAt + 100 }
	l.write()
	if a := arm(t, l.assess(), "C1"); strings.Contains(strings.Join(a.Warnings, "\n"), "second witness") {
		t.Error("a witness was called although counters tell")
	}
}
