package arms

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"

	"kvladder/prompts"
	"kvladder/scoring"
)

// called refuses an arm whose name another one has: floors and twins are named by the program,
// and the records of two arms of one name could not be told apart.
func (r *resolver) called(name, preset string, e Entry, suffix string) error {
	at := []any{"arms", e.at - 1}
	from := fmt.Sprintf("an arm of preset %s that the program adds for %s", preset, e.Name)
	if e.at > 0 {
		stated := r.l.Arms[e.at-1]
		from = fmt.Sprintf("an arm of preset %s that comes with %s (%s)", preset, stated.Name, r.l.place(at...))
		if name == stated.Name+suffix {
			from = fmt.Sprintf("the arm of preset %s at %s", preset, r.l.place(at...))
		}
	}
	if other, twice := r.origin[name]; twice {
		return r.l.wrong(at, "give the one that the file names another name", "two arms would be called %s: %s, and %s", name, other, from)
	}
	if len(name) > prompts.MaxName {
		return r.l.wrong(at, "give the arm or the dtype a shorter name", "arm %s has a name of %d characters, %d are the most: %s", name, len(name), prompts.MaxName, from)
	}
	r.origin[name] = from
	return nil
}

// nowhere is where nothing is launched: a command line is made of it only to have the engine
// look at the pins.
var nowhere = struct {
	at  Address
	res Resources
}{Address{Host: "127.0.0.1", Port: 1}, Resources{Self: "kvladder", Cache: "cache", Store: "store", Slots: "slots", Beside: Address{Host: "127.0.0.1", Port: 1}}}

// engine is pins without those of the launcher.
func (r *resolver) engine(pins map[string]string) map[string]string {
	engine, _ := LauncherPins(r.l.by, pins)
	return engine
}

// tried asks engine and launcher whether they would start with these pins.
func (r *resolver) tried(pins map[string]string) error {
	engine, own := LauncherPins(r.l.by, maps.Clone(pins))
	if _, err := r.eng.Spec(engine, nowhere.at, nowhere.res); err != nil {
		return err
	}
	if p, ok := r.l.by.(Pinned); ok {
		_, err := p.With(own)
		return err
	}
	return nil
}

// legal asks whether a process would be started with these pins.
func (r *resolver) legal(name string, pins map[string]string, g Dtype, e Entry) error {
	err := r.tried(pins)
	if err == nil {
		return nil
	}
	// Which of the stated pins is it? The one that the engine refuses beside its defaults.
	at := []any{"arms", e.at - 1}
	if always := r.tried(r.known); always != nil && always.Error() == err.Error() {
		return r.l.wrong(at, "state a value that is taken", "arm %s: %v", name, err) // a pin that has to be stated is missing
	}
	for _, k := range sortedKeys(pins) {
		if path := r.stated(k, g, e); path != nil {
			alone := maps.Clone(r.known)
			alone[k] = pins[k]
			if refused := r.tried(alone); refused != nil && refused.Error() == err.Error() {
				at = path
				break
			}
		}
	}
	return r.l.wrong(at, "state a value that the engine takes", "arm %s: %v", name, err)
}

// stated is where the file states the value that a pin has in an arm, nil when nowhere.
func (r *resolver) stated(pin string, g Dtype, e Entry) []any {
	if _, ok := e.Pins[pin]; ok && e.at > 0 {
		return []any{"arms", e.at - 1, "pins", pin}
	}
	if _, ok := g.Pins[pin]; ok {
		for i, d := range r.l.DT {
			if d.Name == g.Name {
				return []any{"dt", i, "pins", pin}
			}
		}
	}
	if _, ok := r.l.Pins[pin]; ok {
		return []any{"pins", pin}
	}
	return nil
}

// legalLaunches asks the same of launches under other pins.
func (r *resolver) legalLaunches() error {
	for _, ch := range r.plan.Chains {
		for _, st := range ch.Steps {
			if st.Do != "launch" || len(st.Args) == 0 {
				continue
			}
			a, ok := r.plan.Design.ByName(st.Arm)
			if !ok {
				continue
			}
			pins := maps.Clone(a.Pins)
			maps.Copy(pins, overrides(st.Args))
			if err := r.tried(pins); err != nil {
				return r.l.wrong(r.entryOf(a), "state a value that the engine takes", "arm %s: launch %s: %v", a.Name, strings.Join(st.Args, " "), err)
			}
		}
	}
	return nil
}

// entryOf is where the file states an arm.
func (r *resolver) entryOf(a *scoring.ArmSpec) []any {
	for i, e := range r.l.Arms {
		if a.Name == e.Name || a.Group != "" && a.Name == e.Name+"@"+a.Group {
			return []any{"arms", i}
		}
	}
	return []any{"arms"}
}

// shares are the members of an arm that lie between 0 and 1.
var shares = map[string]bool{
	"p_mcnemar": true, "p_mcnemar_holm": true, "p_exceedance": true, "p_exceedance_holm": true,
	"upper95": true, "upper95_geometry": true, "p_max": true,
}

// counts says whether a member counts something, and so is never below 0. What is unaccounted
// for is a difference.
func counts(member string) bool {
	name, key, _ := strings.Cut(member, ".")
	t := reflect.TypeFor[scoring.ArmResult]()
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag != name || name == "unaccounted_tokens" {
			continue
		}
		f := t.Field(i).Type
		if f.Kind() == reflect.Pointer || f.Kind() == reflect.Map && key != "" {
			f = f.Elem()
		}
		return f.Kind() == reflect.Int
	}
	return false
}

// meetable refuses a prediction that no run can meet: whoever registers one has written
// something else than was meant.
func meetable(p scoring.Prediction) error {
	v := reflect.ValueOf(p.Measured(&scoring.ArmResult{}))
	if p.Value == nil {
		// a member that is no pointer is measured in every arm
		if v.IsValid() && (v.Kind() == reflect.Float64 || v.Kind() == reflect.Int || v.Kind() == reflect.Bool || v.Kind() == reflect.String) && p.Op == "==" {
			return fmt.Errorf("nothing can never be met: %s is measured in every arm; write a number such as 0, or leave it out", p.Member)
		}
		return nil
	}
	x, ok := p.Value.(float64)
	if !ok || !shares[p.Member] && !counts(p.Member) {
		return nil
	}
	hi := math.Inf(1)
	if shares[p.Member] {
		hi = 1
	}
	met := true
	switch p.Op {
	case "==":
		met = x >= 0 && x <= hi
	case "<":
		met = x > 0
	case "<=":
		met = x >= 0
	case ">":
		met = x < hi
	case ">=":
		met = x <= hi
	}
	if !met {
		if math.IsInf(hi, 1) {
			return fmt.Errorf("%s %v can never be met: %s is never below 0", p.Op, x, p.Member)
		}
		return fmt.Errorf("%s %v can never be met: %s lies between 0 and 1", p.Op, x, p.Member)
	}
	return nil
}

// legalRanks refuses pins to more ranks than an arm has.
func (r *resolver) legalRanks() error {
	by := r.plan.Replay.RankBy
	if r.plan.Replay.Ranks == 0 || by != "header" && by != "body" {
		return nil
	}
	for _, a := range r.plan.Design.Arms {
		if n, err := strconv.Atoi(a.Pins["ranks"]); err == nil && n < r.plan.Replay.Ranks {
			return r.l.wrong([]any{"replay", "ranks"}, fmt.Sprintf("state pins: {ranks: %d}, or replay.ranks: %d", r.plan.Replay.Ranks, n),
				"replay.ranks: requests are pinned to %d ranks and arm %s has %d", r.plan.Replay.Ranks, a.Name, n)
		}
	}
	return nil
}
