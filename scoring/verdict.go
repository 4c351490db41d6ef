package scoring

// Verdict is what the table makes of an arm's Columns. The zero Verdict says "cannot tell".
type Verdict struct {
	Word   string
	Row    int    // of the table, 1 to 17; 0 = decided before it, or no verdict
	Sub    string // finer word, "" when there is none
	Kind   string // of a corruption: "text", "bit", or the invariant
	Reason string
}

// Exit is the exit code of the verdict's word; a word that is not known exits like "cannot
// tell".
func (v Verdict) Exit() int {
	switch v.Word {
	case CleanBounded:
		return ExitClean
	case CorruptionAttributed, CorruptionUnattributed:
		return ExitCorrupt
	case EngineDied:
		return ExitDied
	case InvalidPrereg, HarnessError:
		return ExitInvalid
	}
	return ExitCannot
}

// Rows of the verdict table. The first row whose When holds gives the verdict: what is
// broken about the question comes before what was answered, an accusation needs a Yes or a
// No that was measured, and clean is what is left when nothing else can be said.
var table = []struct {
	Row  int
	When func(c Columns) bool
	Then func(c Columns) Verdict
}{
	{1, func(c Columns) bool { return c.P == No }, word(InvalidPrereg)},
	{2, func(c Columns) bool { return c.A == No },
		func(c Columns) Verdict { return Verdict{Word: EngineDied, Sub: c.Death} }},
	{3, func(c Columns) bool { return c.H == No }, word(HarnessError)},
	{4, func(c Columns) bool { return c.V == Yes && !(c.Leak && c.K == No) },
		func(c Columns) Verdict { return Verdict{Word: CorruptionAttributed, Kind: c.Invariant} }},
	{5, func(c Columns) bool {
		return c.K == No && !c.ReferenceCorrupt && !c.ControlDied && c.F == Yes && c.ControlsSilent
	}, func(c Columns) Verdict {
		return Verdict{Word: CorruptionUnattributed, Kind: "text", Reason: c.KReason}
	}},
	{6, func(c Columns) bool { return c.K == No },
		func(c Columns) Verdict { return Verdict{Word: ControlDirty, Reason: c.KReason} }},
	{7, func(c Columns) bool { return c.F == Yes && c.E == Yes }, corrupt("text")},
	{8, func(c Columns) bool { return c.F == Yes }, corrupt("text")},
	{9, func(c Columns) bool { return c.B == No }, corrupt("bit")},
	{10, func(c Columns) bool { return c.ArmOnly >= 1 || c.UnequalBit || c.Pending }, word(SuspectUnconfirmed)},
	{11, func(c Columns) bool { return c.D == Yes && c.TwinClean }, word(DivergentNumeric)},
	{12, func(c Columns) bool { return c.D == Yes || c.MarginsMoved }, word(SuspectDivergent)},
	{13, func(c Columns) bool { return c.X != Yes },
		func(c Columns) Verdict {
			sub := c.Exercise
			if sub == "" {
				sub = Unproven
			}
			return Verdict{Word: NotExercised, Sub: sub}
		}},
	{14, func(c Columns) bool { return c.D == Unknown && c.B != Yes && !c.UnequalSplit && !c.Inexact }, word(InconclusiveNoFloor)},
	{15, func(c Columns) bool { return c.missing() != "" },
		func(c Columns) Verdict { return Verdict{Word: InconclusiveUnknown, Sub: c.missing()} }},
	{16, func(c Columns) bool { return c.U != Yes }, word(InconclusivePower)},
	{17, func(Columns) bool { return true }, word(CleanBounded)},
}

// Subs of NOT_EXERCISED.
const (
	CannotHit = "CANNOT_HIT" // geometry expects no reuse
	ReuseLost = "REUSE_LOST" // expected and not measured
	Refused   = "REFUSED"    // the engine did not take back what it had stored
	Trivial   = "TRIVIAL"    // fewer than two geometries
	Unproven  = "UNPROVEN"   // no counter says so
)

// Judge applies the table. It is the only place where numbers become a decision.
func Judge(c Columns) Verdict {
	if c.ChainDied {
		return Verdict{Word: InconclusiveUnknown, Sub: "chain died"}
	}
	for _, r := range table {
		if r.When(c) {
			v := r.Then(c)
			v.Row = r.Row
			return v
		}
	}
	return Verdict{}
}

// missing names the first column without which nothing can be called clean, "" when all
// are known.
func (c Columns) missing() string {
	for _, l := range []letter{{"P", c.P}, {"A", c.A}, {"H", c.H}, {"K", c.K}, {"F", c.F}} {
		if l.value == Unknown {
			return l.name
		}
	}
	switch {
	case c.V == Unknown && c.Registered:
		return "V"
	case c.Imported:
		return "import"
	case c.Inexact:
		return "inexact"
	}
	return ""
}

func word(w string) func(Columns) Verdict {
	return func(Columns) Verdict { return Verdict{Word: w} }
}

func corrupt(kind string) func(Columns) Verdict {
	return func(Columns) Verdict { return Verdict{Word: CorruptionAttributed, Kind: kind} }
}
