package scoring

import (
	"testing"

	"kvladder/probes"
)

// withTwin adds every arm once more as one of a twin ladder.
func withTwin(l *lab) {
	const suffix = "@invariant"
	for _, a := range l.design.Arms[:len(l.design.Arms):len(l.design.Arms)] {
		a.TwinOf, a.Name, a.Group, a.Chain, a.Process = a.Name, a.Name+suffix, "invariant", a.Chain+suffix, a.Process+suffix
		if a.Reference != "" {
			a.Reference += suffix
		}
		if a.FloorOf != "" {
			a.FloorOf += suffix
		}
		l.design.Arms = append(l.design.Arms, a)
	}
}

// First tokens move beyond the floor in two processes: suspect. Where the twin ladder equals
// its own reference bit for bit, what was cached is right and the kernels' arithmetic moved
// them.
func TestTwinTellsNumericsFromCache(t *testing.T) {
	moved := func() *lab {
		l := newLab(t, 40, 40)
		withTwin(l)
		l.reply["C1-b"], l.reply["C1-c"] = shift(0.001), shift(-0.0005)
		l.reply["WARM"] = shift(0.01)
		return l
	}
	l := moved()
	l.write("store")
	r := l.assess()
	want(t, r, "WARM", DivergentNumeric, 11, "")
	if a := want(t, r, "WARM@invariant", CleanBounded, 17, ""); a.Columns["B"] != "y" {
		t.Errorf("twin: %v", a.Columns)
	}
	// A twin whose own control passes differ says nothing: it has to pass its control first.
	l = moved()
	l.reply["C1-b@invariant"] = shift(0.001)
	l.write("store")
	r = l.assess()
	want(t, r, "WARM", SuspectDivergent, 12, "")
	if b := arm(t, r, "WARM@invariant").Columns["B"]; b != "-" {
		t.Errorf("twin: B %s", b)
	}
	// And a twin that differs too is no excuse.
	l = moved()
	l.reply["WARM@invariant"] = func(r *probes.Reply, i int) {
		if i == 0 {
			r.Tokens[1].Logprob = ptr(*r.Tokens[1].Logprob - 1e-9)
		}
	}
	l.write("store")
	want(t, l.assess(), "WARM", SuspectDivergent, 12, "")
}

// A twin ladder is a ladder of its own: its arms do not thin the corrections of the other.
func TestTwinHasAFamilyOfItsOwn(t *testing.T) {
	plain := newLab(t, 40, 40)
	plain.reply["WARM"] = wrong(7)
	plain.write()
	with := newLab(t, 40, 40)
	withTwin(with)
	with.reply["WARM"] = wrong(7)
	with.write()
	a, b := arm(t, plain.assess(), "WARM"), arm(t, with.assess(), "WARM")
	if *a.PMcNemarHolm != *b.PMcNemarHolm || *a.PMcNemarHolm != 4*0.0078125 {
		t.Errorf("Holm %v without a twin, %v with one, want 4·2^-7", *a.PMcNemarHolm, *b.PMcNemarHolm)
	}
	if len(b.OnlyUnder) != 0 {
		t.Errorf("only under %v: the twin is another mode and no other dtype", b.OnlyUnder)
	}
}
