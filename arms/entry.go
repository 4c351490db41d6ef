package arms

import (
	"fmt"
	"slices"
	"strings"
)

// Identities are the kinds of identity that XID knows.
var Identities = []string{"salt", "adapter", "image", "config"}

// bases are the presets that CONC and SOAK can run.
var bases = []string{"COLD", "REPLAY", "WARM", "RST", "PART"}

// check says what is wrong with the members of an entry taken alone, and what to do.
func (e *Entry) check() (what, hint string) {
	only := func(member string, set bool, presets ...string) bool {
		if set && !slices.Contains(presets, e.Preset) {
			what, hint = fmt.Sprintf("%s is not for preset %s", member, e.Preset), "it belongs to "+strings.Join(presets, ", ")
		}
		return what != ""
	}
	custom := e.Preset == "custom"
	switch {
	case presets[e.Preset].twin:
		return "a twin comes with the arm it belongs to", "leave it out"
	case only("base", e.Base != "", "CONC", "SOAK"),
		only("concurrency", e.Concurrency != 0, "CONC", "PRESS", "SOAK", "custom"),
		only("clients", e.Clients != 0, "CONC"),
		only("identity", e.Identity != "", "XID"),
		only("from", len(e.From) > 0, "XID"),
		only("passes", e.Passes != 0, "SOAK"),
		only("minutes", e.Minutes != 0, "SOAK"),
		only("trace", e.Trace, storeOrder...),
		only("stop", e.Stop != nil, "SOAK"),
		only("flood", e.Flood != 0, "PRESS", "C0-late"),
		only("steps", len(e.Steps) > 0, "custom"),
		only("config", e.Config != "", "custom"),
		only("reference", e.Reference != "" || e.ReferencePass != 0, "custom"),
		only("exercise", e.Exercise != "", "custom"),
		only("path", e.Path != "", "custom"):
		return what, hint
	}
	if why := betweenOnly(append(append([]StepLine{}, e.Before...), e.After...)); why != "" {
		return why, ""
	}
	switch {
	case e.Concurrency < 0 || e.Concurrency > 512:
		return fmt.Sprintf("concurrency %d is not between 1 and 512", e.Concurrency), ""
	case e.Clients != 0 && (e.Clients < e.Concurrency || e.Clients > 512):
		return fmt.Sprintf("clients %d is not between the concurrency and 512", e.Clients), ""
	case e.Passes < 0 || e.Passes > 10000:
		return fmt.Sprintf("passes %d is not between 1 and 10000", e.Passes), ""
	case e.Minutes < 0:
		return "minutes is negative", ""
	case e.Flood < 0:
		return "flood is negative", ""
	case e.Base != "" && !slices.Contains(bases, e.Base):
		return fmt.Sprintf("base %q cannot be run by %s", e.Base, e.Preset), "use one of " + strings.Join(bases, ", ")
	}
	switch e.Preset {
	case "CONC":
		if e.Concurrency < 2 {
			return "it needs a concurrency of at least 2", "add concurrency: 8"
		}
	case "SOAK":
		if e.Passes == 0 {
			return "it needs a number of passes", "add passes: 20; minutes: M spreads them over at least M minutes"
		}
		if e.Stop != nil {
			if err := e.Stop.stop(1).Check(); err != nil {
				return "stop: " + err.Error(), "stop: {rule: sprt, p0: 0.001, p1: 0.05, alpha: 0.05, beta: 0.05}"
			}
		}
	case "XID":
		if !slices.Contains(Identities, e.Identity) {
			return fmt.Sprintf("identity %q is unknown", e.Identity), "use one of " + strings.Join(Identities, ", ")
		}
		if (e.Identity == "config") != (len(e.From) > 0) {
			return "from and identity config belong together", "from: {model_seed: 12} are the pins of the process that fills the store"
		}
	case "custom":
		if !custom {
			break
		}
		switch {
		case !slices.Contains([]string{"C0", "C1", "store"}, e.Config):
			return fmt.Sprintf("config %q is unknown", e.Config), "use C0, C1 or store"
		case e.Reference == "":
			return "it names no reference", "add reference: C1"
		case !slices.Contains([]string{"local", "external", "mixed"}, e.Path):
			return fmt.Sprintf("path %q is unknown", e.Path), "use local, external or mixed"
		case !slices.Contains([]string{"C1", "COLD", "REPLAY", "WARM", "RST", "PART", "PRESS", "XID"}, e.Exercise):
			return fmt.Sprintf("exercise %q is unknown", e.Exercise), "use C1, COLD, REPLAY, WARM, RST, PART, PRESS or XID"
		case len(e.Steps) == 0 || e.Steps[0][0] != "launch":
			return "its steps do not begin with launch", "steps: [launch, replay, drain, reset, replay]"
		}
		passes := 0
		for _, s := range e.Steps {
			if s[0] == "replay" || s[0] == "prime" {
				passes++
			}
		}
		if passes == 0 {
			return "its steps send no prompt", "add a replay"
		}
	}
	return "", ""
}

// base is the preset whose schedule CONC and SOAK run.
func (e *Entry) base() string {
	if e.Base == "" {
		return "WARM"
	}
	return e.Base
}
