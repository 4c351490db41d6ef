package receipts

import (
	"math"

	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// Lifetime is how long an arm ran and how often its engine died meanwhile, by the clock
// that the comparison reads: partial hits where both sides have some, since that is what
// triggers, else requests.
type Lifetime struct {
	Events   int     `json:"events"`
	Exposure float64 `json:"exposure"`
}

// LifetimeChange compares two builds' deaths by the conditional binomial.
type LifetimeChange struct {
	Arm   string   `json:"arm"`
	Clock string   `json:"clock"` // of Clocks
	Old   Lifetime `json:"old"`
	New   Lifetime `json:"new"`
	P     float64  `json:"p"`     // two-sided
	Ratio *float64 `json:"ratio"` // new rate over old; nil where the old saw no event
	Low   float64  `json:"low"`   // of the ratio, 95 %
	High  *float64 `json:"high"`  // nil when unbounded
}

// lifetimeChanges lists the arms in which an engine died on either side.
func lifetimeChanges(a, b *Receipt) []LifetimeChange {
	var out []LifetimeChange
	for _, name := range resultNames(a) {
		x, _ := a.Arm(name)
		y, ok := b.Arm(name)
		if !ok {
			continue
		}
		if c, ok := lifetimeChange(x, y); ok {
			out = append(out, c)
		}
	}
	return out
}

func lifetimeChange(x, y *scoring.ArmResult) (LifetimeChange, bool) {
	for _, clock := range []string{"partial_hits", "requests"} {
		if _, ok := lifetimeOf(x, clock); !ok {
			continue
		}
		if _, ok := lifetimeOf(y, clock); !ok {
			continue
		}
		return lifetimeBy(x, y, clock)
	}
	return LifetimeChange{}, false
}

// lifetimeBy compares by one clock; false where either side does not have it or none died.
func lifetimeBy(x, y *scoring.ArmResult, clock string) (LifetimeChange, bool) {
	old, okx := lifetimeOf(x, clock)
	now, oky := lifetimeOf(y, clock)
	if !okx || !oky || old.Events+now.Events == 0 {
		return LifetimeChange{}, false
	}
	c, err := compare.ConditionalBinomial(compare.Events{Count: now.Events, Exposure: now.Exposure}, compare.Events{Count: old.Events, Exposure: old.Exposure}, 0.95)
	if err != nil {
		return LifetimeChange{}, false
	}
	return LifetimeChange{Arm: x.Name, Clock: clock, Old: old, New: now, P: round12(c.TwoSided), Ratio: c.Ratio, Low: c.Low, High: c.High}, true
}

// Clocks by which the life of an engine is counted. What triggers is the last of them.
var Clocks = []string{"minutes", "requests", "partial_hits"}

// Rate is how often an engine died by one clock, with the exact Poisson interval (Garwood,
// Biometrika 1936) of the rate and the lifetime that it leaves room for.
type Rate struct {
	Clock string `json:"clock"`
	Lifetime
	Low     float64  `json:"low"`      // of the rate, two-sided 95 %
	High    float64  `json:"high"`     //
	AtLeast *float64 `json:"at_least"` // mean lifetime, one-sided 95 %
}

// ratesOf are an arm's, by every clock that it has.
func ratesOf(a *scoring.ArmResult) []Rate {
	var out []Rate
	for _, clock := range Clocks {
		l, ok := lifetimeOf(a, clock)
		if !ok {
			continue
		}
		e := compare.Events{Count: l.Events, Exposure: l.Exposure}
		both, err1 := compare.PoissonRate(e, 0.95, compare.TwoSided)
		upper, err2 := compare.PoissonRate(e, 0.95, compare.UpperSided)
		if err1 != nil || err2 != nil || both.High == nil {
			continue
		}
		r := Rate{Clock: clock, Lifetime: l, Low: round12(both.Low), High: round12(*both.High)}
		if m := upper.MTBFAtLeast(); m != nil {
			v := round12(*m)
			r.AtLeast = &v
		}
		out = append(out, r)
	}
	return out
}

// lifetimeOf reads the numbers as they are before and after a journey through JSON.
func lifetimeOf(a *scoring.ArmResult, clock string) (Lifetime, bool) {
	events, ok1 := count(a.Lifetime["events"])
	exposure, ok2 := count(a.Lifetime[clock])
	if !ok1 || !ok2 || !(events >= 0 && events <= mostEvents && events == math.Trunc(events)) || !(exposure > 0 && exposure <= 1<<53) {
		return Lifetime{}, false
	}
	return Lifetime{Events: int(events), Exposure: exposure}, true
}

func count(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
