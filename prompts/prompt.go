package prompts

// Role says how a prompt is counted.
type Role string

const (
	// Target requests are the ones whose reuse path is under test.
	Target Role = "target"
	// Bystander requests share something with the targets but not the path under test;
	// they are scored too, since the damage of a misplaced write shows in them.
	Bystander Role = "bystander"
)

// Prompt is one frozen request: exact token ids, the exact bytes of its HTTP body, and
// what a right answer is.
type Prompt struct {
	ID       string `json:"id"`
	Role     Role   `json:"role"`
	Document string `json:"document"` // cluster: prompts cut from one text are not independent
	Class    Class  `json:"class"`
	Tokens   []int  `json:"tokens"` // prompt token ids as the engine sees them
	Body     string `json:"body"`   // the bytes that go on the wire
	Prime    *Prime `json:"prime,omitempty"`
	Slot     *int   `json:"slot,omitempty"` // server slot named in the body, where the engine has slots
	Salt     string `json:"salt,omitempty"` // cache identity named in the body

	Codewords []string `json:"codewords,omitempty"` // values that only prompts of the same Document hold: seen in another's reply, they name the owner

	Expect Expectation `json:"expect"`
}

// Cross says whether the prompt is one of an identity pair: its prime asks for all of it,
// under another identity.
func (p *Prompt) Cross() bool {
	return p.Prime != nil && p.Prime.Tokens == len(p.Tokens) && p.Prime.Body != p.Body
}

// Prime is a request for a prefix of the prompt, sent first: a strict one in partial-hit
// arms, so that the local cache holds less of the prompt than the store does; the whole
// prompt under another identity in a pair that must not share a cache.
type Prime struct {
	Tokens int    `json:"tokens"` // the first so many ids of the prompt
	Body   string `json:"body"`
}

// Class is the geometry label of a request; bounds are counted by class, since requests
// of one geometry exercise one case however often they are sent.
type Class struct {
	Label     string `json:"label"`      // equal labels are one class
	LengthMod int    `json:"length_mod"` // prompt length modulo the reuse boundary
	Local     int    `json:"local"`      // tokens meant to come from the local cache in partial-hit arms
	External  int    `json:"external"`   // tokens meant to come from the store beyond them
}

// Expectation is the ground truth of one reply, written before any run.
type Expectation struct {
	Needles []Needle `json:"needles,omitempty"`
	Script  string   `json:"script,omitempty"` // "" or "latin": printable ASCII and a few typographic runes; "any": not judged
	Empty   bool     `json:"empty,omitempty"`  // an empty reply is right
}

// Needle is a fact planted in the prompt that the reply must repeat.
type Needle struct {
	Key    string `json:"key"`             // what is asked, e.g. "K07"
	Answer string `json:"answer"`          // compared with the whole reply, both trimmed of white space
	Match  string `json:"match,omitempty"` // "" = whole reply equal; "field" = the line "<key>=<answer>", quotes trimmed, letter case ignored; "ints" = the line's integers equal
	Offset int    `json:"offset"`          // token position of the entity; -1 when not known
	End    int    `json:"end"`             // one past the last token that carries the answer; -1 when not known
	Rides  string `json:"rides,omitempty"` // which cache carries it: "attention", "recurrent", "window"
	Scored bool   `json:"scored"`          // false = diagnostic, reported and never a failure
}
