package arms

import (
	"hash/fnv"

	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// PlanSchema names the form of a Plan.
const PlanSchema = "kvladder/plan/1"

// Plan is a ladder with everything resolved. The digest of its canonical JSON is the
// pre-registration: whatever is decided before the run is in here, and nothing that is
// only known afterwards.
type Plan struct {
	Schema   string            `json:"schema"`
	Ladder   string            `json:"ladder"`
	Question string            `json:"question"`
	Engine   string            `json:"engine"`
	Launcher string            `json:"launcher"`
	Set      PlanSet           `json:"set"`
	Subject  []string          `json:"subject"` // pins of the build under test: a gate lets them differ
	Pins     map[string]string `json:"pins"`    // shared by all arms
	Design   scoring.Design    `json:"design"`
	Chains   []Chain           `json:"chains"` // independent of each other; sorted by a digest over the rest of the plan
	Replay   Replay            `json:"replay"`

	Predict    map[string]map[string]any `json:"predict"` // arm -> member of its JSON -> literal or comparison
	NotClaimed []string                  `json:"not_claimed"`
	Unproven   []string                  `json:"unproven"`
	Claims     []Claim                   `json:"claims"`
	Problems   []Problem                 `json:"problems"` // what lint found and the ladder may still run with
	Source     string                    `json:"source"`   // the ladder file, verbatim
}

// PlanSet is the Set that a plan is bound to.
type PlanSet struct {
	Name     string           `json:"name"`
	Digest   digest.Digest    `json:"digest"`
	Requests int              `json:"requests"`
	Classes  int              `json:"classes"`
	Geometry prompts.Geometry `json:"geometry"`
	Dialect  string           `json:"dialect"`
	Path     string           `json:"path"`
}

// Replay says how requests are sent.
type Replay struct {
	Concurrency int    `json:"concurrency"`
	Ranks       int    `json:"ranks"`      // 0 = not pinned
	RankBy      string `json:"rank_by"`    // "", "header", "body", "url"
	RankField   string `json:"rank_field"` // header or body member
	TimeoutSecs int    `json:"timeout_seconds"`
	Parallel    int    `json:"parallel"`           // independent chains side by side
	Lockstep    bool   `json:"lockstep,omitempty"` // the engine takes no step while a client is between two requests
}

// Rank is the rank that a prompt is pinned to, 0 without ranks. It comes from a digest of the
// prompt's id, so that a server that takes turns and ignores the pin is found out: it would
// agree with ranks that are dealt in turn.
func (r Replay) Rank(prompt string) int {
	if r.Ranks < 2 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(digest.Of([]byte(prompt))))
	return int(h.Sum32() % uint32(r.Ranks))
}

// Chain is a run of steps over one process or one store: the unit of order and of resume.
type Chain struct {
	Name  string      `json:"name"`
	Group string      `json:"group,omitempty"`
	Arms  []string    `json:"arms"`
	Steps []ChainStep `json:"steps"`
}

// ChainStep is one step, and the arm that its records belong to.
type ChainStep struct {
	Do   string   `json:"do"`
	Arm  string   `json:"arm"`
	Pass int      `json:"pass,omitempty"`
	Args []string `json:"args,omitempty"`

	Concurrency int `json:"concurrency,omitempty"` // clients, where not the plan's
}

// Claim is something said about the outcome, with its standing.
type Claim struct {
	Text       string          `json:"text"`
	Status     string          `json:"status"` // asserted, measured, refuted, withdrawn
	Evidence   []digest.Digest `json:"evidence,omitempty"`
	Supersedes string          `json:"supersedes,omitempty"`
}

// Problem is something that lint found.
type Problem struct {
	Arm   string `json:"arm,omitempty"`
	Code  string `json:"code"` // CANNOT_HIT, POWER, ...
	What  string `json:"what"`
	Fatal bool   `json:"fatal"` // the ladder is refused
}

// Digest is the pre-registration digest and the canonical bytes that it is of.
func (p *Plan) Digest() (digest.Digest, []byte, error) { return digest.OfJSON(p) }
