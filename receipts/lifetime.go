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
	Clock string   `json:"clock"` // "partial_hits" or "requests"
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
		old, okx := lifetimeOf(x, clock)
		now, oky := lifetimeOf(y, clock)
		if !okx || !oky {
			continue
		}
		if old.Events+now.Events == 0 {
			return LifetimeChange{}, false
		}
		c, err := compare.ConditionalBinomial(compare.Events{Count: now.Events, Exposure: now.Exposure}, compare.Events{Count: old.Events, Exposure: old.Exposure}, 0.95)
		if err != nil {
			continue
		}
		return LifetimeChange{Arm: x.Name, Clock: clock, Old: old, New: now, P: round12(c.TwoSided), Ratio: c.Ratio, Low: c.Low, High: c.High}, true
	}
	return LifetimeChange{}, false
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
