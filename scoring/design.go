package scoring

import "kvladder/prompts"

// Design is a ladder as scoring sees it: which arms are judged, against what, by which
// rule. It is plain data, fixed before the run, and part of the plan that is digested.
type Design struct {
	Ladder   string    `json:"ladder"`
	Question string    `json:"question"`
	Rule     Rule      `json:"rule"`
	Arms     []ArmSpec `json:"arms"`
	Imported bool      `json:"imported,omitempty"` // rows of somebody else: order unproven, pins declared and not read
}

// Rule holds every threshold, written before the run.
type Rule struct {
	Alpha struct {
		Failures   float64 `json:"failures"`   // McNemar, Holm over judged arms
		Divergence float64 `json:"divergence"` // exceedance on d0 and on flip margins, Holm over judged arms
	} `json:"alpha"`
	NMin        int     `json:"n_min"`         // exercised stable requests
	GMin        int     `json:"g_min"`         // exercised classes
	PMax        float64 `json:"p_max"`         // on the class bound
	ControlMax  float64 `json:"control_max"`   // one-sided 95 % lower bound of a control's failure rate above which it is dirty
	HitShare    float64 `json:"hit_share"`     // of the requests that geometry says must hit, those that must have hit
	Replicates  int     `json:"replicates"`    // fresh chains on a SUSPECT
	Table       string  `json:"verdict_table"` // version of the verdict table
	OutOfScript float64 `json:"out_of_script"` // share of runes above which a text is damaged
	Replacement int     `json:"replacement"`   // U+FFFD count from which a text is damaged
	Repeated    int     `json:"repeated"`      // longest repeated block, characters
	NGram       float64 `json:"ngram"`         // 5-gram repetition ratio
	NGramWords  int     `json:"ngram_words"`   // from this many words
	StallSecs   float64 `json:"stall_seconds"` // without progress an engine is HUNG

	Thresholds *Thresholds `json:"thresholds,omitempty"` // formulas over the floor; nil: the usual ones
	Bootstrap  *Resampling `json:"bootstrap,omitempty"`  // nil: no interval by clusters
}

// TableVersion names the verdict table that this program judges by.
const TableVersion = "kvladder/verdicts/1"

// DefaultRule is the rule of a ladder that states none.
func DefaultRule() Rule {
	r := Rule{NMin: 24, GMin: 29, PMax: 0.10, ControlMax: 0.05, HitShare: 0.90, Replicates: 1, Table: TableVersion,
		OutOfScript: 0.02, Replacement: 1, Repeated: 80, NGram: 0.5, NGramWords: 30, StallSecs: 120}
	r.Alpha.Failures, r.Alpha.Divergence = 0.04, 0.01
	return r
}

// Roles of an arm.
const (
	Judged  = "judged"
	Control = "control" // C0, C0 twins: judged only as controls
	Forced  = "forced"  // the judged arm of ForcedOf once more, decoding along its reference's tokens: reported, never judged
	Floor   = "floor"   // a further process of a control or reference configuration
)

// ArmSpec is one arm: records carry its name. One process may serve several arms (COLD,
// REPLAY, WARM), and one arm may hold several passes (C1: the first is the reference of
// COLD, the second is judged).
type ArmSpec struct {
	Name      string `json:"name"`
	Preset    string `json:"preset"` // C0, C0-split, C1, COLD, REPLAY, WARM, RST, PART, PRESS, CONC, XID, SOAK, their twins (C1-PRESS ...), C0-early, C0-late, custom, import
	Role      string `json:"role"`
	Group     string `json:"group,omitempty"` // the DT value ("fp8"), "" without DT
	Chain     string `json:"chain"`
	Process   string `json:"process"`   // arms with one Process share an engine process (until a restart step)
	Passes    int    `json:"passes"`    // passes over the Set
	Judge     int    `json:"judge"`     // the pass that is judged (1-based); 0 = none
	Connector bool   `json:"connector"` // an external store is attached

	Reference     string `json:"reference,omitempty"`      // arm name
	ReferencePass int    `json:"reference_pass,omitempty"` // its pass
	FloorOf       string `json:"floor_of,omitempty"`       // for floors and control twins of further processes: the arm whose configuration and schedule they repeat
	Split         bool   `json:"split,omitempty"`          // another prefill budget than FloorOf: the only pin a floor may change

	Pin           Pin               `json:"pin"`                     // the one pin that differs from the reference
	PinsDiffer    []Pin             `json:"pins_differ"`             // all that differ; more or fewer than one is INVALID_PREREG
	ScheduleDiff  []string          `json:"schedule_diff,omitempty"` // steps the reference does not have
	Path          string            `json:"path"`                    // registered path: local, external, mixed; "" for C0 and its floors
	Exercise      string            `json:"exercise"`                // which X rule applies: "none", "C1", "COLD", "REPLAY", "WARM", "RST", "PART", "PRESS", "XID"; CONC and SOAK have that of their base
	CachedIs      string            `json:"cached_is,omitempty"`     // where per-request `cached` tokens come from when no counter splits them: "local", "external", "" = not known
	Counters      map[string]string `json:"counters,omitempty"`      // role -> series name asked of the engine
	NeedDrain     bool              `json:"need_drain,omitempty"`
	Expected      map[string]Reuse  `json:"expected,omitempty"`       // prompt id -> expected reuse in the judged pass (all passes of floors alike)
	LastChunk     map[string]int    `json:"last_chunk,omitempty"`     // prompt id -> length of the last computed prefill chunk, where geometry tells it
	FirstExpected map[string]Reuse  `json:"first_expected,omitempty"` // of the first pass, where a later one is judged
	FirstChunk    map[string]int    `json:"first_chunk,omitempty"`    // likewise
	Pins          map[string]string `json:"pins"`                     // every pin of the arm, as asked
	Attached      bool              `json:"attached,omitempty"`       // a server that was not started here: pins that cannot be read are unknown
	Why           string            `json:"why,omitempty"`

	Inexact     string `json:"inexact,omitempty"`     // which reuse of the arm the engine documents as inexact: its numbers neither accuse nor absolve
	Concurrency int    `json:"concurrency,omitempty"` // clients of the judged pass; 0 = one
	Identity    string `json:"identity,omitempty"`    // XID: what differs between the identities: salt, adapter, image, config
	TwinOf      string `json:"twin_of,omitempty"`     // the arm that this one repeats in the engine's batch-invariant mode
	ForcedOf    string `json:"forced_of,omitempty"`   // of forced arms: the judged arm that they repeat
	Stop        *Stop  `json:"stop,omitempty"`        // SOAK: the rule by which it may end early; nil: it runs its length
	FailLoads   int    `json:"fail_loads,omitempty"`  // loads that the schedule makes fail before the judged pass
}

// Reuse is how much of a request's prompt comes from where, in tokens.
type Reuse struct {
	Local    int `json:"local"`
	External int `json:"external"`
}

// Pin is one setting that differs between an arm and its reference.
type Pin struct {
	Name      string `json:"name"`
	Arm       string `json:"arm"`
	Reference string `json:"reference"`
}

// ByName finds an arm.
func (d *Design) ByName(name string) (*ArmSpec, bool) {
	for i := range d.Arms {
		if d.Arms[i].Name == name {
			return &d.Arms[i], true
		}
	}
	return nil, false
}

// Input is everything Assess reads beside the records and the detectors.
type Input struct {
	Design Design
	Set    *prompts.Set

	PlanDigest string          // as registered; "" = not compared with the transcript
	SetDigest  string          // as registered; "" = not compared with the transcript
	Order      string          // order level that is shown, O0 to O4
	TwinClean  map[string]bool // arms whose deterministic twin ladder has B = y
}
