package scoring

import (
	"fmt"
	"strconv"

	"kvladder/probes"
)

// lifetime is what one process said of itself first. A process does not change its start
// time, its model or its version: a second answer to any of these came from another one,
// whatever the first was worth.
type lifetime struct {
	start          *float64 // process_start_time_seconds as it was exported
	model, version string
}

// lifetimeOf finds what the process that a record belongs to said before, in whichever arm
// of the chain that was.
func (t *transcript) lifetimeOf(r *probes.Record, a *armRun) *lifetime {
	key := lifetimeKey{r.Run, a.spec.Chain, r.Incarnation}
	if key.incarnation == "" {
		key.chain += "\x00" + a.spec.Name
	}
	l := t.lives[key]
	if l == nil {
		l = &lifetime{}
		t.lives[key] = l
	}
	return l
}

type lifetimeKey struct {
	run                int
	chain, incarnation string
}

// began compares a start time with the first that the process gave; at names the reading.
func (t *transcript) began(r *probes.Record, a *armRun, start *float64, at string) {
	if start == nil {
		return
	}
	l := t.lifetimeOf(r, a)
	switch {
	case l.start == nil:
		l.start = start
	case *l.start != *start && a.replaced == "":
		a.replaced = fmt.Sprintf("the process start time that the engine exports went from %s to %s (%s): another process answers",
			seconds(*l.start), seconds(*start), at)
	}
}

func seconds(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// stated compares the model and the version that a server states with the first ones.
func (t *transcript) stated(r *probes.Record, a *armRun, f probes.IdentityFact) {
	l := t.lifetimeOf(r, a)
	for _, x := range []struct {
		what string
		have *string
		now  string
	}{{"model", &l.model, f.Model}, {"version", &l.version, f.Version}} {
		switch {
		case x.now == "":
		case *x.have == "":
			*x.have = x.now
		case *x.have != x.now && a.replaced == "":
			a.replaced = fmt.Sprintf("the %s that the server states went from %q to %q (%s pass %d): another process answers", x.what, *x.have, x.now, f.Phase, f.Pass)
		}
	}
}
