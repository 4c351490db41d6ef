package arms

import (
	"maps"
	"slices"
)

// preset is the usual meaning of an arm name: how it is configured, what it is judged
// against, and what it does after the arm before it in its chain.
type preset struct {
	config    string // role asked of Engine.Configure: C0, C1, store
	role      string
	reference string // preset name
	refPass   int
	path      string
	exercise  string
	twin      bool // runs in the process of its base configuration, after its passes
	doc       string
}

// presets are the arms that need no schedule of their own. PART brings its twins C1-PART
// and C0-PART by itself.
var presets = map[string]preset{
	"C0":      {config: "C0", role: "control", exercise: "none", doc: "no reuse at all; in at least 3 processes, one with another prefill budget"},
	"C1":      {config: "C1", role: "judged", reference: "C0", refPass: 2, path: "local", exercise: "C1", doc: "local prefix cache, no connector; its second pass is judged against C0"},
	"COLD":    {config: "store", role: "judged", reference: "C1", refPass: 1, path: "external", exercise: "COLD", doc: "connector attached, store proved empty"},
	"REPLAY":  {config: "store", role: "judged", reference: "C1", refPass: 2, path: "external", exercise: "REPLAY", doc: "the same process once more, as it is"},
	"WARM":    {config: "store", role: "judged", reference: "C1", refPass: 2, path: "external", exercise: "WARM", doc: "drain, drop the local cache alone, replay: hits must come from the store"},
	"RST":     {config: "store", role: "judged", reference: "C1", refPass: 2, path: "external", exercise: "RST", doc: "new process over the same store"},
	"PART":    {config: "store", role: "judged", reference: "C1-PART", refPass: 1, path: "mixed", exercise: "PART", doc: "prime a prefix locally, then ask the whole: local and external in one request"},
	"C1-PART": {config: "C1", role: "judged", reference: "C0-PART", refPass: 1, path: "local", exercise: "C1", twin: true, doc: "twin of PART without a connector"},
	"C0-PART": {config: "C0", role: "control", exercise: "none", twin: true, doc: "twin of PART without reuse"},
}

// storeOrder is the order of connector arms inside their chain.
var storeOrder = []string{"COLD", "REPLAY", "WARM", "RST", "PART"}

// PresetNames lists the presets that a ladder file may name.
func PresetNames() []string { return sortedKeys(presets) }

// PresetDoc is one line on what a preset does.
func PresetDoc(name string) string { return presets[name].doc }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
