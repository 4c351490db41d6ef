package scoring

import (
	"fmt"
	"maps"
	"slices"
)

// FloorFigures are the controls behind a judged arm in numbers: how far processes of its
// reference's configuration lie from one another, and what the registered formulas make of it.
type FloorFigures struct {
	Of         string      `json:"of"`        // the reference, whose further processes these are
	Processes  int         `json:"processes"` // the reference among them
	Within     FloorSample `json:"within"`    // W: passes of one process against each other; gates nothing
	Between    FloorSample `json:"between"`   // P: processes against each other
	Thresholds []Threshold `json:"thresholds"`
}

// FloorSample is what two control passes differ in over stable requests with equal splits.
type FloorSample struct {
	D0     Spread `json:"d0"`     // |Δ logprob| of the reference's first token, nats
	Margin Spread `json:"margin"` // of flips, nats
}

// Spread is a sample in a few numbers, nil where there is none.
type Spread struct {
	N    int      `json:"n"`
	Mean *float64 `json:"mean"`
	P99  *float64 `json:"p99"`
	Max  *float64 `json:"max"`
}

func spreadOf(x []float64) Spread {
	return Spread{N: len(x), Mean: meanOf(x), P99: percentile(x, 0.99), Max: maxOf(x)}
}

// Threshold is a registered formula and the number that the controls gave it.
type Threshold struct {
	Name    string   `json:"name"`
	Formula string   `json:"formula"`
	Value   *float64 `json:"value"`
	Why     string   `json:"why,omitempty"` // there is none
}

// samples of the reading's floor.
func (r *reading) samples() samples {
	return samples{"P.d0": r.floorD0, "P.margin": r.marginsFloor}
}

// threshold is the number of one of the registered formulas, false where the controls give none.
func (s *scorer) threshold(r *reading, f Formula) (float64, bool) {
	v, _ := f.value(r.samples())
	if v == nil {
		return 0, false
	}
	return *v, true
}

// floorFigures of a judged arm's registered reading.
func (s *scorer) floorFigures(j *judgement) *FloorFigures {
	r := j.readings[0]
	f := &FloorFigures{Of: j.spec.Reference, Processes: len(r.processes)}
	var d0, margins []float64
	stable := r.stableIDs()
	for _, a := range r.processes {
		passes := slices.Sorted(maps.Keys(a.passes))
		for i, p := range passes {
			for _, q := range passes[i+1:] {
				d, m := s.apart(a, q, a, p, stable)
				d0, margins = append(d0, d...), append(margins, m...)
			}
		}
	}
	f.Within = FloorSample{spreadOf(d0), spreadOf(margins)}
	f.Between = FloorSample{spreadOf(r.floorD0), spreadOf(r.marginsFloor)}
	t := s.in.Design.Rule.thresholds()
	for _, x := range []struct {
		name    string
		formula Formula
	}{{"d0_gate", t.D0Gate}, {"d0_flag", t.D0Flag}, {"near_tie", t.NearTie}} {
		v, why := x.formula.value(r.samples())
		f.Thresholds = append(f.Thresholds, Threshold{x.name, string(x.formula), roundedPtr(v), why})
	}
	return f
}

func (r *reading) stableIDs() map[string]bool {
	out := map[string]bool{}
	for _, p := range r.stable {
		out[p.arm.prompt.ID] = true
	}
	return out
}

// noFloor says why an arm that the plan lists as a further process of a configuration is none,
// "" where it is one. A floor with the pin under test would measure the treatment and call it
// noise.
func (s *scorer) noFloor(f *ArmSpec) string {
	root, ok := s.in.Design.ByName(f.FloorOf)
	switch {
	case !ok:
		return fmt.Sprintf("floor %s repeats %s, which is not there", f.Name, f.FloorOf)
	case f.Connector != root.Connector:
		return fmt.Sprintf("floor %s is no process of %s: one of them has the connector and the other has none", f.Name, root.Name)
	}
	if s.in.Design.Imported {
		return "" // pins are declared there, one word an arm
	}
	for _, name := range slices.Sorted(maps.Keys(merged(f.Pins, root.Pins))) {
		if f.Pins[name] != root.Pins[name] && !(f.Split && name == f.Pin.Name) {
			return fmt.Sprintf("floor %s is no process of %s: its pin %s is %q, not %q; a floor is taken from the reference's configuration, never from the arm under test",
				f.Name, root.Name, name, f.Pins[name], root.Pins[name])
		}
	}
	return ""
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// badFloor says why the floors of a judged arm are not to be used, "" where they are.
func (s *scorer) badFloor(j *judgement) string {
	if j.spec.Reference == j.spec.Name {
		return fmt.Sprintf("arm %s is its own reference: a floor is never taken from the arm under test", j.spec.Name)
	}
	root := s.rootOf(j.spec.Reference)
	for i := range s.in.Design.Arms {
		f := &s.in.Design.Arms[i]
		if f.FloorOf != "" && f.FloorOf == root && f.Name != root {
			if why := s.noFloor(f); why != "" {
				return why
			}
		}
	}
	return ""
}
