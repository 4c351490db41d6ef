package selftest

import (
	"testing"

	"kvladder/scoring"
)

func result(exit int, arms ...scoring.ArmResult) scoring.Result {
	return scoring.Result{Verdict: "v", Exit: exit, Arms: arms}
}

func arm(name, verdict, variable, path string) scoring.ArmResult {
	a := scoring.ArmResult{Name: name, Role: scoring.Judged, Verdict: &verdict}
	if variable != "" {
		a.Variable = &variable
	}
	if path != "" {
		a.Path = &path
	}
	return a
}

const table = `
- id: F99
  ladder: x
  expect:
    WARM: {verdict: CORRUPTION_ATTRIBUTED, variable: connector, path: external}
`

// The judge of the harness has to be able to say no as well.
func TestJudge(t *testing.T) {
	rows, err := ParseExpected([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	corrupt, clean := scoring.CorruptionAttributed, scoring.CleanBounded
	healthy := result(0, arm("WARM", clean, "", ""))
	for _, c := range []struct {
		name                              string
		planted, healthy                  scoring.Result
		caught, attributed, accused, dull bool
	}{
		{"as listed", result(1, arm("C1", clean, "", ""), arm("WARM", corrupt, "connector", "external")), healthy, true, true, false, false},
		{"missed", result(0, arm("WARM", clean, "", "")), healthy, false, false, false, false},
		{"another path", result(1, arm("WARM", corrupt, "connector", "local")), healthy, true, false, false, false},
		{"another variable", result(1, arm("WARM", corrupt, "dtype", "external")), healthy, true, false, false, false},
		{"an innocent arm accused too", result(1, arm("C1", corrupt, "x", "local"), arm("WARM", corrupt, "connector", "external")), healthy, true, false, false, false},
		{"the arm is not there", result(0), healthy, false, false, false, false},
		{"healthy accused", result(1, arm("WARM", corrupt, "connector", "external")), result(1, arm("WARM", corrupt, "connector", "external")), true, true, true, true},
		{"healthy died", result(1, arm("WARM", corrupt, "connector", "external")), result(4, arm("WARM", scoring.EngineDied, "", "")), true, true, true, true},
		{"healthy says nothing", result(1, arm("WARM", corrupt, "connector", "external")), result(2, arm("WARM", scoring.NotExercised, "", "")), true, true, false, true},
	} {
		f := judge(row, c.planted, c.healthy)
		if f.Caught != c.caught || f.Attributed != c.attributed || f.Accused != c.accused || f.Dull != c.dull {
			t.Errorf("%s: caught %v attributed %v accused %v dull %v, want %v %v %v %v", c.name, f.Caught, f.Attributed, f.Accused, f.Dull, c.caught, c.attributed, c.accused, c.dull)
		}
	}
}

// A fault of two rows is caught only if both are.
func TestReportCountsFaultsNotRows(t *testing.T) {
	var rep Report
	rep.add("F08", Case{ID: "F08-strict", Caught: true, Attributed: true})
	rep.add("F08", Case{ID: "F08-lenient", Caught: true, Dull: true})
	rep.add("F09", Case{ID: "F09", Caught: true, Attributed: true, Accused: true})
	if len(rep.Faults) != 2 || !rep.Faults[0].Caught || rep.Faults[0].Attributed || !rep.Faults[1].Attributed || rep.Dull != 1 || rep.FalseAlarms != 1 {
		t.Errorf("report: %+v", rep)
	}
}

// Rows that share a ladder and a Set share the healthy climb, and no others do.
func TestSameLadder(t *testing.T) {
	rows := []Row{{Ladder: "a", Kind: "t1"}, {Ladder: "a", Kind: "mixed"}, {Ladder: "a", Kind: "t1", N: 8}, {Ladder: "a", Kind: "t1"}}
	for i, want := range []int{0, 1, 2, 0} {
		if got := sameLadder(rows, i); got != want {
			t.Errorf("row %d: %d, want %d", i, got, want)
		}
	}
}

func TestParseExpectedRefuses(t *testing.T) {
	for _, bad := range []string{"- id: F1\n  ladder: x\n", "- ladder: x\n  expect: {A: {verdict: B}}\n", table + table, "- id: F1\n  lader: x\n"} {
		if _, err := ParseExpected([]byte(bad)); err == nil {
			t.Errorf("accepted:\n%s", bad)
		}
	}
}
