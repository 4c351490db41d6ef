package scoring

// Result is what a whole ladder came to: a pure function of Design, Set and Records. It is
// the document that the verbs print and the receipt seals.
type Result struct {
	Schema   string      `json:"schema"`
	Ladder   string      `json:"ladder"`
	Plan     string      `json:"plan"`
	Set      string      `json:"set"`
	Receipt  string      `json:"receipt"` // digest of the sealed receipt, "" inside the receipt itself
	Verdict  string      `json:"verdict"`
	Exit     int         `json:"exit"`
	Order    string      `json:"order"`
	Warnings []string    `json:"warnings"`
	Arms     []ArmResult `json:"arms"`
}

// ResultSchema names the form of Result.
const ResultSchema = "kvladder/result/1"

// ArmResult is one arm. A number that does not exist is nil and its reason is in Warnings.
// Probabilities and divergences are rounded to 12 significant digits.
type ArmResult struct {
	Name         string        `json:"name"`
	Preset       string        `json:"preset"`
	Role         string        `json:"role"`
	Group        *string       `json:"group"`
	Reference    *string       `json:"reference"`
	Pin          *Pin          `json:"pin"`
	ScheduleDiff []string      `json:"schedule_diff"`
	Incarnations []Incarnation `json:"incarnations"`

	Verdict    *string           `json:"verdict"`
	Columns    map[string]string `json:"columns"` // P A H V K F E B D X U: "y", "n", "-"
	Row        *int              `json:"row"`
	Sub        *string           `json:"sub"`
	Kind       *string           `json:"kind"`
	Reason     *string           `json:"reason"`
	Exit       *int              `json:"exit"`
	Variable   *string           `json:"variable"`
	Path       *string           `json:"path"`
	OnlyUnder  map[string]string `json:"only_under"`
	Invariants []Invariant       `json:"invariants"`

	N           int            `json:"n"`           // requests of the judged pass
	Substantive int            `json:"substantive"` // of them, those with a reply that has something to judge
	Failed      int            `json:"failed"`      // stable requests that fail
	FailedIDs   []string       `json:"failed_ids"`
	Unstable    []string       `json:"unstable"`
	ArmOnly     *int           `json:"arm_only"`     // c
	ControlOnly *int           `json:"control_only"` // b
	Damaged     int            `json:"damaged"`      // requests whose text is damaged (soup), whatever they answer
	Detectors   map[string]int `json:"detectors"`    // detector -> requests in which it fired

	AnswersRight    map[string]int `json:"answers_right"` // needle key or kind -> right
	BystanderN      int            `json:"bystander_n"`
	BystanderFailed int            `json:"bystander_failed"`

	PMcNemar        *float64 `json:"p_mcnemar"`
	PMcNemarHolm    *float64 `json:"p_mcnemar_holm"`
	PExceedance     *float64 `json:"p_exceedance"`
	PExceedanceHolm *float64 `json:"p_exceedance_holm"`
	ExceedanceK     *int     `json:"exceedance_k"`
	FloorM          *int     `json:"floor_m"`
	ProcessRank     *string  `json:"process_rank"`

	Identical  *int     `json:"identical"`
	Forks      *int     `json:"forks"`
	HardFlips  *int     `json:"hard_flips"`
	Exposure   *int     `json:"exposure"`
	D0Mean     *float64 `json:"d0_mean"`
	D0Max      *float64 `json:"d0_max"`
	PrefixMean *float64 `json:"prefix_mean"`
	PrefixP99  *float64 `json:"prefix_p99"`
	PrefixMax  *float64 `json:"prefix_max"`
	ZippedMean *float64 `json:"zipped_mean"`
	ZippedMax  *float64 `json:"zipped_max"`
	KLDMean    *float64 `json:"kld_mean"`
	Censored   *int     `json:"censored"`
	BitEqual   *int     `json:"bit_equal"` // comparable requests bitwise equal to the reference

	Comparable      *int     `json:"comparable"` // requests that the bit twin may judge
	Upper95         *float64 `json:"upper95"`
	Upper95Geometry *float64 `json:"upper95_geometry"`
	Geometries      int      `json:"geometries"` // exercised classes
	PMax            float64  `json:"p_max"`
	Exercised       *int     `json:"exercised"` // stable exercised requests

	ExpectedLocal    *int  `json:"expected_local"`
	ExpectedExternal *int  `json:"expected_external"`
	LocalTokens      *int  `json:"local_tokens"`
	ExternalTokens   *int  `json:"external_tokens"`
	ComputedTokens   *int  `json:"computed_tokens"`
	Unaccounted      *int  `json:"unaccounted_tokens"`
	CountersTrusted  *bool `json:"counters_trusted"`

	FlaggedIDs []string       `json:"flagged_ids"` // requests whose counters or numbers deserve a look
	Ranks      *Ranks         `json:"ranks"`
	Replicates int            `json:"replicates"`            // replicates that were run, each paired with a fresh control pass
	Registered int            `json:"replicates_registered"` // how many the rule asks for on a suspicion
	Lifetime   map[string]any `json:"lifetime"`
	Soak       *Soak          `json:"soak,omitempty"` // of SOAK

	Forced   *ForcedFigures  `json:"forced,omitempty"`   // of forced arms
	Floor    *FloorFigures   `json:"floor,omitempty"`    // of judged arms: the controls in numbers, and the thresholds they give
	Clusters []ClusterFigure `json:"clusters,omitempty"` // of judged arms: differences with intervals by clusters, which decide nothing
	Sound    string          `json:"sound,omitempty"`    // of controls: "y", "n" or "-", its failures alone against the rule's most
	DiedAt   *string         `json:"died_at"`
	Outcomes []Outcome       `json:"outcomes"` // one per request of the judged pass, in Set order
	Warnings []string        `json:"warnings"`
}

// Incarnation is one lifetime of an engine process as the arm saw it.
type Incarnation struct {
	ID       string  `json:"id"`
	Start    string  `json:"start"`
	End      *string `json:"end"`
	Exit     *int    `json:"exit"`
	Restarts *int    `json:"restarts"`
}

// Invariant is a registered statement that must hold in the arm.
type Invariant struct {
	Name string `json:"name"`
	Held *bool  `json:"held"`
	Seen string `json:"seen"`
}

// Ranks counts the requests whose rank was asked for, and those whose per-rank counters
// prove that the asked rank served them.
type Ranks struct {
	Asked  int `json:"asked"`
	Proven int `json:"proven"`
}

// Outcome is what one request came to: enough to diff and gate without the run folder.
type Outcome struct {
	ID        string   `json:"id"`
	Class     string   `json:"class"`
	Failed    bool     `json:"failed"`
	Fired     []string `json:"fired,omitempty"`
	Unstable  bool     `json:"unstable,omitempty"`
	Answered  bool     `json:"answered"`       // a reply was received
	Identical *bool    `json:"identical"`      // token ids equal to the reference
	BitEqual  *bool    `json:"bit_equal"`      // and logprobs
	D0        *float64 `json:"d0"`             //
	Fork      *int     `json:"fork,omitempty"` // first differing position
	Local     *int     `json:"local"`
	External  *int     `json:"external"`
	Computed  *int     `json:"computed"`
}

// Verdict words.
const (
	CannotTell             = "" // the zero value: no verdict by default
	CleanBounded           = "CLEAN_BOUNDED"
	CorruptionAttributed   = "CORRUPTION_ATTRIBUTED"
	CorruptionUnattributed = "CORRUPTION_UNATTRIBUTED"
	ControlDirty           = "CONTROL_DIRTY"
	EngineDied             = "ENGINE_DIED"
	HarnessError           = "HARNESS_ERROR"
	InvalidPrereg          = "INVALID_PREREG"
	SuspectUnconfirmed     = "SUSPECT_UNCONFIRMED"
	SuspectDivergent       = "SUSPECT_DIVERGENT"
	DivergentNumeric       = "DIVERGENT_NUMERIC"
	NotExercised           = "NOT_EXERCISED"
	InconclusiveNoFloor    = "INCONCLUSIVE_NO_FLOOR"
	InconclusiveUnknown    = "INCONCLUSIVE_UNKNOWN"
	InconclusivePower      = "INCONCLUSIVE_POWER"
)

// Exit codes, the same for every verb that judges.
const (
	ExitClean   = 0
	ExitCorrupt = 1
	ExitCannot  = 2
	ExitInvalid = 3
	ExitDied    = 4
)
