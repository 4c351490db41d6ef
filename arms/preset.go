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
	twin      bool // comes with another arm and is never named in a file
	own       bool // a connector arm with a process and a store of its own
	doc       string
}

// presets are the arms with a usual meaning. PART, PRESS, CONC, XID and C0-late bring their
// twins by themselves.
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

	"PRESS": {config: "store", role: "judged", path: "external", exercise: "PRESS", own: true, doc: "a pool smaller than what is asked: fill, flood, replay; its twins have the same pool"},
	"CONC":  {config: "store", role: "judged", path: "external", own: true, doc: "another connector arm (base) by n clients at once, against the local cache alone at the same concurrency"},
	"XID":   {config: "store", role: "judged", path: "external", exercise: "XID", own: true, doc: "the same tokens under another identity: salt, adapter, image or config; hits across identities must be 0"},
	"SOAK":  {config: "store", role: "judged", own: true, doc: "rounds of another connector arm (base), for its fault-free lifetime"},

	"C1-PRESS": {config: "C1", role: "judged", path: "local", exercise: "C1", twin: true, doc: "twin of PRESS without a connector"},
	"C0-PRESS": {config: "C0", role: "control", exercise: "none", twin: true, doc: "twin of PRESS without reuse"},
	"C1-CONC":  {config: "C1", role: "judged", path: "local", exercise: "C1", twin: true, doc: "twin of CONC without a connector"},
	"C0-CONC":  {config: "C0", role: "control", exercise: "none", twin: true, doc: "twin of CONC without reuse"},
	"C1-XID":   {config: "C1", role: "judged", path: "local", exercise: "XID", twin: true, doc: "twin of XID without a connector"},

	"C0-late":  {config: "C0", role: "control", exercise: "none", doc: "no reuse, asked on a fresh pool (C0-early) and again after a flood through all of it; if it fails no connector is to blame"},
	"C0-early": {config: "C0", role: "control", exercise: "none", twin: true, doc: "the fresh half of C0-late"},

	"custom": {role: "judged", doc: "steps, config, reference, exercise and path as the file states them"},
}

// storeOrder is the order of connector arms inside their chain.
var storeOrder = []string{"COLD", "REPLAY", "WARM", "RST", "PART"}

// PresetNames lists the presets that a ladder file may name.
func PresetNames() []string {
	return slices.DeleteFunc(sortedKeys(presets), func(n string) bool { return presets[n].twin })
}

// PresetDoc is one line on what a preset does.
func PresetDoc(name string) string { return presets[name].doc }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
