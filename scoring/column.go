package scoring

// Column is one question about an arm: yes, no, or (the zero value) not known. Not known
// is never read as yes or as no.
type Column int8

const (
	Unknown Column = iota
	Yes
	No
)

// String is "-", "y" or "n".
func (c Column) String() string {
	switch c {
	case Yes:
		return "y"
	case No:
		return "n"
	}
	return "-"
}

func columnOf(b bool) Column {
	if b {
		return Yes
	}
	return No
}

// worst of two answers about soundness: no before unknown before yes.
func worst(a, b Column) Column {
	if a == No || b == No {
		return No
	}
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return Yes
}

// Columns is an arm as the verdict table sees it.
type Columns struct {
	P Column // plan and pins intact
	A Column // alive throughout
	H Column // harness complete up to the arm's end or its death
	V Column // a registered invariant is violated here and not in the reference
	K Column // control sound
	F Column // fails more than its reference
	E Column // the registered path carried tokens in every arm-only failing request
	B Column // bit twin: comparable requests equal the reference bit for bit
	D Column // first-token distribution moved, confirmed
	X Column // path exercised
	U Column // enough of it to bound

	ChainDied        bool // the chain died before the arm started: it was not run
	Leak             bool // the violated invariant is a leak
	Registered       bool // at least one invariant is registered
	ReferenceCorrupt bool // K = n because the reference is itself judged corrupt
	ControlDied      bool // K = n because a control died
	ControlsSilent   bool // the detectors that fired in the arm fired in no control
	ArmOnly          int  // c: requests that fail in the arm only
	UnequalBit       bool // a comparable request differs, not (yet) confirmed by the replicate
	Pending          bool // a significant exceedance, not (yet) replicated or confirmed
	MarginsMoved     bool // the exceedance of flip margins is significant and replicated
	TwinClean        bool // the deterministic twin ladder has B = y
	UnequalSplit     bool // floors exist and D is unknown only because the computed-token splits differ
	Imported         bool // rows of somebody else: never clean
	Inexact          bool // its reuse is documented as inexact: B and D are not asked, and it is never clean

	Death     string // sub of A = n: DIED, RESTARTED, HUNG
	KReason   string // why K = n
	Exercise  string // sub of X != y: CANNOT_HIT, REUSE_LOST, REFUSED, TRIVIAL, UNPROVEN
	Invariant string // the violated one
}

// Map gives the letters, as they are printed.
func (c Columns) Map() map[string]string {
	m := make(map[string]string, 11)
	for _, l := range c.letters() {
		m[l.name] = l.value.String()
	}
	return m
}

type letter struct {
	name  string
	value Column
}

func (c Columns) letters() [11]letter {
	return [11]letter{{"P", c.P}, {"A", c.A}, {"H", c.H}, {"V", c.V}, {"K", c.K}, {"F", c.F}, {"E", c.E}, {"B", c.B}, {"D", c.D}, {"X", c.X}, {"U", c.U}}
}
