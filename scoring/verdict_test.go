package scoring

import "testing"

// sound is an arm with nothing against it.
func sound() Columns {
	return Columns{P: Yes, A: Yes, H: Yes, V: No, K: Yes, F: No, E: Unknown, B: Yes, D: No, X: Yes, U: Yes}
}

func TestEveryRow(t *testing.T) {
	check := func(row int, wantWord, wantSub string, wantExit int, change func(*Columns)) {
		t.Helper()
		c := sound()
		change(&c)
		v := Judge(c)
		if v.Row != row || v.Word != wantWord || v.Sub != wantSub || v.Exit() != wantExit {
			t.Errorf("row %d %s %s exit %d, want row %d %s %s exit %d", v.Row, v.Word, v.Sub, v.Exit(), row, wantWord, wantSub, wantExit)
		}
	}
	check(1, InvalidPrereg, "", 3, func(c *Columns) { c.P = No; c.A = No; c.F = Yes })
	check(2, EngineDied, "RESTARTED", 4, func(c *Columns) { c.A = No; c.Death = "RESTARTED"; c.H = No })
	check(3, HarnessError, "", 3, func(c *Columns) { c.H = No; c.V = Yes; c.F = Yes })
	check(4, CorruptionAttributed, "", 1, func(c *Columns) { c.V = Yes; c.Invariant = "stored"; c.K = No })
	check(5, CorruptionUnattributed, "", 1, func(c *Columns) { c.K = No; c.F = Yes; c.ControlsSilent = true })
	check(6, ControlDirty, "", 2, func(c *Columns) { c.K = No; c.F = Yes })
	check(6, ControlDirty, "", 2, func(c *Columns) { c.K = No; c.F = Yes; c.ControlsSilent = true; c.ReferenceCorrupt = true })
	check(6, ControlDirty, "", 2, func(c *Columns) { c.K = No; c.F = Yes; c.ControlsSilent = true; c.ControlDied = true })
	check(6, ControlDirty, "", 2, func(c *Columns) { c.V = Yes; c.Leak = true; c.K = No })
	check(7, CorruptionAttributed, "", 1, func(c *Columns) { c.F = Yes; c.E = Yes; c.ArmOnly = 7 })
	check(8, CorruptionAttributed, "", 1, func(c *Columns) { c.F = Yes; c.E = No; c.ArmOnly = 7 })
	check(8, CorruptionAttributed, "", 1, func(c *Columns) { c.F = Yes; c.E = Unknown; c.X = No })
	check(9, CorruptionAttributed, "", 1, func(c *Columns) { c.B = No; c.ArmOnly = 2 })
	check(10, SuspectUnconfirmed, "", 2, func(c *Columns) { c.ArmOnly = 1 })
	check(10, SuspectUnconfirmed, "", 2, func(c *Columns) { c.B = Unknown; c.UnequalBit = true })
	check(10, SuspectUnconfirmed, "", 2, func(c *Columns) { c.D = Unknown; c.Pending = true })
	check(11, DivergentNumeric, "", 2, func(c *Columns) { c.D = Yes; c.TwinClean = true })
	check(12, SuspectDivergent, "", 2, func(c *Columns) { c.D = Yes })
	check(12, SuspectDivergent, "", 2, func(c *Columns) { c.MarginsMoved = true })
	check(13, NotExercised, "TRIVIAL", 2, func(c *Columns) { c.X = No; c.Exercise = Trivial; c.D = Unknown })
	check(13, NotExercised, "UNPROVEN", 2, func(c *Columns) { c.X = Unknown })
	check(14, InconclusiveNoFloor, "", 2, func(c *Columns) { c.D = Unknown; c.B = Unknown })
	check(15, InconclusiveUnknown, "A", 2, func(c *Columns) { c.A = Unknown; c.K = Unknown; c.U = No })
	check(15, InconclusiveUnknown, "V", 2, func(c *Columns) { c.V = Unknown; c.Registered = true })
	check(15, InconclusiveUnknown, "import", 2, func(c *Columns) { c.Imported = true })
	check(16, InconclusivePower, "", 2, func(c *Columns) { c.U = Unknown })
	check(17, CleanBounded, "", 0, func(c *Columns) {})
	check(17, CleanBounded, "", 0, func(c *Columns) { c.D = Unknown }) // the bit twin stands in for the floor
	check(17, CleanBounded, "", 0, func(c *Columns) { c.D = Unknown; c.B = Unknown; c.UnequalSplit = true })
	check(0, InconclusiveUnknown, "chain died", 2, func(c *Columns) { c.ChainDied = true; c.P = No })
}

func TestTableIsInOrder(t *testing.T) {
	if len(table) != 17 {
		t.Fatalf("%d rows, want 17", len(table))
	}
	for i, r := range table {
		if r.Row != i+1 {
			t.Errorf("row %d stands at place %d", r.Row, i+1)
		}
	}
}

func TestZeroVerdictCannotTell(t *testing.T) {
	var v Verdict
	if v.Word != CannotTell || v.Exit() != ExitCannot {
		t.Errorf("the zero verdict is %q, exit %d", v.Word, v.Exit())
	}
	if got := Judge(Columns{}); got.Exit() != ExitCannot || got.Word == CleanBounded {
		t.Errorf("nothing known gives %s, exit %d", got.Word, got.Exit())
	}
}

// Over every combination of the eleven columns and of what stands beside them: an unknown
// column accuses nobody and cleans nobody.
func TestUnknownIsNeverAnAnswer(t *testing.T) {
	values := []Column{Unknown, Yes, No}
	var c Columns
	at := []*Column{&c.P, &c.A, &c.H, &c.V, &c.K, &c.F, &c.E, &c.B, &c.D, &c.X, &c.U}
	total := 1
	for range at {
		total *= 3
	}
	for n := range total {
		for k, left := 0, n; k < len(at); k, left = k+1, left/3 {
			*at[k] = values[left%3]
		}
		for side := range 16 {
			c.UnequalSplit, c.ControlsSilent, c.Registered, c.ReferenceCorrupt = side&1 != 0, side&2 != 0, side&4 != 0, side&8 != 0
			v := Judge(c)
			bad := false
			switch v.Row {
			case 1:
				bad = c.P != No
			case 2:
				bad = c.A != No
			case 3:
				bad = c.H != No
			case 4:
				bad = c.V != Yes
			case 5, 6:
				bad = c.K != No
			case 7:
				bad = c.F != Yes || c.E != Yes
			case 8:
				bad = c.F != Yes || c.E == Yes
			case 9:
				bad = c.B != No || c.F == Yes
			case 11, 12:
				bad = c.D != Yes
			case 17:
				bad = c.P != Yes || c.A != Yes || c.H != Yes || c.K != Yes || c.F != No || c.X != Yes || c.U != Yes ||
					c.B == No || c.D == Yes || c.V == Yes || c.V == Unknown && c.Registered ||
					c.D == Unknown && c.B != Yes && !c.UnequalSplit
			}
			if bad || v.Row == 0 {
				t.Fatalf("%v with side %d gives row %d %s", c.Map(), side, v.Row, v.Word)
			}
			if (v.Word == CleanBounded) != (v.Exit() == ExitClean) {
				t.Fatalf("%s exits %d", v.Word, v.Exit())
			}
		}
	}
}
