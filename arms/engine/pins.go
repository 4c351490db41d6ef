package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kvladder/probes"
)

// pin is one setting of an engine.
type pin struct {
	def   string             // value when nobody says otherwise
	check func(string) error // nil = anything goes
}

// defaults are the values that nobody has to state.
func defaults(ps map[string]pin) map[string]string {
	out := make(map[string]string, len(ps))
	for name, p := range ps {
		out[name] = p.def
	}
	return out
}

// resolve puts asked over the defaults, refusing pins and values that are not known.
func resolve(engine string, ps map[string]pin, asked map[string]string) (map[string]string, error) {
	out := defaults(ps)
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		p, ok := ps[name]
		if !ok {
			return nil, fmt.Errorf("engine %s has no pin %q; its pins: %s", engine, name, strings.Join(slices.Sorted(maps.Keys(ps)), ", "))
		}
		if p.check != nil {
			if err := p.check(asked[name]); err != nil {
				return nil, fmt.Errorf("engine %s: pin %s: %w", engine, name, err)
			}
		}
		out[name] = asked[name]
	}
	return out, nil
}

// oneOf accepts the listed words.
func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q is not one of %s", v, strings.Join(words, ", "))
		}
		return nil
	}
}

// atLeast accepts whole numbers from least on.
func atLeast(least int) func(string) error {
	return func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < least {
			return fmt.Errorf("%q is not a whole number of at least %d", v, least)
		}
		return nil
	}
}

// within accepts whole numbers from least to most.
func within(least, most int) func(string) error {
	return func(v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, least, most)
		}
		return nil
	}
}

// shareOfOne accepts numbers from 0 to 1.
func shareOfOne(v string) error {
	if x, err := strconv.ParseFloat(v, 64); err != nil || !(x >= 0 && x <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", v)
	}
	return nil
}

// some accepts anything but nothing.
func some(v string) error {
	if v == "" {
		return fmt.Errorf("it must not be empty")
	}
	return nil
}

// unsigned accepts what fits into 64 bits without a sign.
func unsigned(v string) error {
	if _, err := strconv.ParseUint(v, 10, 64); err != nil {
		return fmt.Errorf("%q is not a whole number from 0 to 2^64-1", v)
	}
	return nil
}

const (
	on  = "on"
	off = "off"
)

func onOff(yes bool) string {
	if yes {
		return on
	}
	return off
}

// reading collects pins read back. What is not read stays nil: not known is neither
// agreement nor the opposite.
type reading struct {
	asked map[string]string
	reads map[string]probes.PinRead
}

func newReading(asked map[string]string) *reading {
	r := &reading{asked: asked, reads: map[string]probes.PinRead{}}
	for name, v := range asked {
		r.reads[name] = probes.PinRead{Name: name, Asked: v}
	}
	return r
}

// read enters what source says of a pin; same nil compares the text. Pins that were not
// asked for are left out.
func (r *reading) read(name, value, source string, same func(asked, read string) bool) {
	asked, ok := r.asked[name]
	if !ok {
		return
	}
	agrees := asked == value
	if same != nil {
		agrees = same(asked, value)
	}
	r.reads[name] = probes.PinRead{Name: name, Asked: asked, Read: &value, Source: source, Agrees: &agrees}
}

// list is everything that was asked for, by name.
func (r *reading) list() []probes.PinRead {
	out := make([]probes.PinRead, 0, len(r.reads))
	for _, name := range slices.Sorted(maps.Keys(r.reads)) {
		out = append(out, r.reads[name])
	}
	return out
}

// switches are the pins of a role where one pin, on or off, is the engine's own cache and
// connector is the store: C0 and C1 differ in the first alone, C1 and store in the second.
func switches(engine, caching, role string) (map[string]string, error) {
	switch role {
	case "C0":
		return map[string]string{caching: off, "connector": "none"}, nil
	case "C1":
		return map[string]string{caching: on, "connector": "none"}, nil
	case "store":
		return map[string]string{caching: on, "connector": "store"}, nil
	}
	return nil, fmt.Errorf("engine %s has no configuration %q", engine, role)
}

// localAlone is "local" in the presets that run without a store, where nothing else can have
// cached a token, and "" in the others.
func localAlone(preset string) string {
	if strings.HasPrefix(preset, "C0") || strings.HasPrefix(preset, "C1") {
		return "local"
	}
	return ""
}
