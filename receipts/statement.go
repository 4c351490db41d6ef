package receipts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// statement makes everything of a receipt that follows from the plan, the result and the
// transcript, so that a verifier makes it again and compares. The plan is the one that
// governs.
func statement(plan arms.Plan, res scoring.Result, pins []PinRead, times []Timing) (*Receipt, error) {
	pd, _, err := plan.Digest()
	if err != nil {
		return nil, err
	}
	preds, err := Predictions(plan.Predict, res)
	if err != nil {
		return nil, err
	}
	res.Receipt = ""
	return &Receipt{
		Type:          StatementType,
		PredicateType: PredicateType,
		Subject:       subjects(plan),
		Predicate: Predicate{
			Schema:      Schema,
			Prereg:      Prereg{Plan: pd, Set: plan.Set.Digest},
			Plan:        plan,
			PinsRead:    pins,
			Timings:     times,
			Result:      res,
			Exercise:    exercises(plan, res),
			Floors:      floors(plan, res),
			Thresholds:  thresholds(res),
			Tests:       tests(plan, res),
			Predictions: preds,
			Claims:      append([]arms.Claim{}, plan.Claims...),
			NotClaimed:  append([]string{}, plan.NotClaimed...),
			Unproven:    append([]string{}, plan.Unproven...),
			Evidence:    []Evidence{},
			Warnings:    []string{},
		},
	}, nil
}

// subjects are the values of the pins under test. A pin whose value is a digest stands for
// itself, any other is digested; one that is set to nothing together with its name, since
// the digest of no bytes fits every empty file. A plan that names no subject is about all of
// its pins, or, where it has none in common, about those of its arms.
func subjects(plan arms.Plan) []Resource {
	return subjectsAs(plan, func(name string) digest.Digest {
		d, _, _ := digest.OfJSON(map[string]string{name: ""})
		return d
	})
}

// olderSubjects are those of receipts from before pins set to nothing were named.
func olderSubjects(plan arms.Plan) []Resource {
	out := subjectsAs(plan, func(string) digest.Digest { return digest.OfNothing })
	if len(out) == 1 && out[0].Name == "pins" {
		d, _, _ := digest.OfJSON(plan.Pins)
		out[0].Digest = digestSet(d)
	}
	return out
}

func subjectsAs(plan arms.Plan, nothing func(name string) digest.Digest) []Resource {
	var out []Resource
	for _, name := range slices.Sorted(slices.Values(plan.Subject)) {
		seen := map[string]bool{}
		add := func(v string, ok bool) {
			if ok && !seen[v] {
				seen[v] = true
				d, err := digest.Parse(v)
				switch {
				case v == "":
					d = nothing(name)
				case err != nil:
					d = digest.Of([]byte(v))
				}
				out = append(out, Resource{Name: "pin/" + name, Digest: digestSet(d), Annotations: map[string]string{"value": v}})
			}
		}
		v, ok := plan.Pins[name]
		add(v, ok)
		for _, a := range plan.Design.Arms {
			v, ok := a.Pins[name]
			add(v, ok)
		}
	}
	if len(out) == 0 {
		// A map of texts always has a canonical form.
		d, _, _ := digest.OfJSON(plan.Pins)
		if len(plan.Pins) == 0 {
			pins := map[string]map[string]string{}
			for _, a := range plan.Design.Arms {
				pins[a.Name] = a.Pins
			}
			d, _, _ = digest.OfJSON(pins)
		}
		out = append(out, Resource{Name: "pins", Digest: digestSet(d)})
	}
	return out
}

// pinScan keeps the last reading of each pin in each arm. Which attempts are superseded is
// known at the end only, so that readings are kept by attempt until then.
type pinScan struct {
	last map[pinKey]pinAt
	n    int
	dead map[string]bool // attempts whose records are superseded
}

type pinKey struct{ attempt, arm, name string }

type pinAt struct {
	at  int
	pin PinRead
}

func newPinScan() *pinScan { return &pinScan{last: map[pinKey]pinAt{}, dead: map[string]bool{}} }

func (s *pinScan) record(r *probes.Record) {
	if r.Kind != probes.KindFact || r.Fact == nil {
		return
	}
	switch r.Fact.Name {
	case probes.FactAbandoned:
		var f probes.AbandonedFact
		if json.Unmarshal(r.Fact.Value, &f) == nil && f.Attempt != "" {
			s.dead[f.Attempt] = true
		}
	case probes.FactPins:
		var f probes.PinsFact
		if json.Unmarshal(r.Fact.Value, &f) != nil {
			return
		}
		for _, p := range f.Read {
			s.n++
			s.last[pinKey{r.Attempt, r.Arm, p.Name}] = pinAt{s.n, PinRead{Arm: r.Arm, PinRead: p}}
		}
	}
}

// read is what the pins came to, sorted by arm and name.
func (s *pinScan) read() []PinRead {
	type key struct{ arm, name string }
	last := map[key]pinAt{}
	for k, v := range s.last {
		if old, ok := last[key{k.arm, k.name}]; !s.dead[k.attempt] && (!ok || v.at > old.at) {
			last[key{k.arm, k.name}] = v
		}
	}
	out := []PinRead{}
	for _, p := range last {
		out = append(out, p.pin)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Arm != out[j].Arm {
			return out[i].Arm < out[j].Arm
		}
		return out[i].Name < out[j].Name
	})
	return out
}

func exercises(plan arms.Plan, res scoring.Result) []Exercise {
	out := []Exercise{}
	for _, a := range res.Arms {
		spec, ok := plan.Design.ByName(a.Name)
		if !ok || spec.Path == "" {
			continue
		}
		out = append(out, Exercise{Arm: a.Name, Rule: spec.Exercise, Path: spec.Path, Holds: a.Columns["X"],
			Requests: a.Exercised, Classes: a.Geometries, ExpectedLocal: a.ExpectedLocal, ExpectedExternal: a.ExpectedExternal,
			Local: a.LocalTokens, External: a.ExternalTokens, Computed: a.ComputedTokens, Unaccounted: a.Unaccounted, Trusted: a.CountersTrusted})
	}
	return out
}

func floors(plan arms.Plan, res scoring.Result) []Floor {
	out := []Floor{}
	for _, a := range res.Arms {
		if a.Role == scoring.Judged || a.Role == scoring.Forced {
			continue
		}
		f := Floor{Arm: a.Name, Processes: len(a.Incarnations), N: a.N, Failed: a.Failed}
		if spec, ok := plan.Design.ByName(a.Name); ok {
			f.Of, f.Split = spec.FloorOf, spec.Split
		}
		for _, o := range a.Outcomes {
			if o.D0 != nil {
				f.D0Values++
				if f.D0Max == nil || *o.D0 > *f.D0Max {
					f.D0Max = o.D0
				}
			}
		}
		out = append(out, f)
	}
	return out
}

func thresholds(res scoring.Result) []Thresholds {
	var out []Thresholds
	for _, a := range res.Arms {
		if a.Floor != nil {
			out = append(out, Thresholds{a.Name, *a.Floor})
		}
	}
	return out
}

func tests(plan arms.Plan, res scoring.Result) []Test {
	out := []Test{}
	for _, a := range res.Arms {
		if a.Role != scoring.Judged {
			continue
		}
		alpha := plan.Design.Rule.Alpha
		out = append(out,
			Test{Arm: a.Name, Name: "mcnemar", B: a.ControlOnly, C: a.ArmOnly, P: a.PMcNemar, Holm: a.PMcNemarHolm, Alpha: alpha.Failures},
			Test{Arm: a.Name, Name: "exceedance", K: a.ExceedanceK, M: a.FloorM, P: a.PExceedance, Holm: a.PExceedanceHolm, Alpha: alpha.Divergence})
	}
	return out
}

// Prediction is one registered prediction and what came of it.
type Prediction struct {
	Arm       string `json:"arm"`
	Member    string `json:"member"`
	Predicted any    `json:"predicted"` // as the ladder states it
	Measured  any    `json:"measured"`
	Held      bool   `json:"held"`
}

// Predictions judges every registered prediction, in the order of arm and member. An arm
// that the result lacks and a member or value that no arm can have are errors.
func Predictions(predict map[string]map[string]any, result scoring.Result) ([]Prediction, error) {
	out := []Prediction{}
	for _, arm := range sortedKeys(predict) {
		a, ok := armOf(&result, arm)
		if !ok {
			return nil, fmt.Errorf("prediction for arm %q: the ladder has no such arm", arm)
		}
		for _, member := range sortedKeys(predict[arm]) {
			p, err := scoring.ParsePrediction(member, predict[arm][member])
			if err != nil {
				return nil, fmt.Errorf("arm %s: %w", arm, err)
			}
			m := p.Measured(a)
			out = append(out, Prediction{Arm: arm, Member: member, Predicted: predict[arm][member], Measured: m, Held: p.Holds(m)})
		}
	}
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func unmarshal(b []byte, v any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if strict {
		dec.DisallowUnknownFields()
	}
	return dec.Decode(v)
}
