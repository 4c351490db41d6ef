package selftest

import (
	"fmt"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/arms/testbed/fault"
	"kvladder/scoring"
)

// uncovered lists what is missing in a table: faults and decoys without a row, variants that
// the engine has and no row plants, rows that expect nothing but clean arms, and ladders that
// cannot be read in a geometry.
func uncovered(rows []Row, known []fault.Fault) (out []string) {
	faults, planted := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		faults[r.Fault] = true
		for _, id := range strings.Split(r.Plant["fault"], ",") {
			planted[id] = true
		}
		accuses := r.Decoy
		for name, e := range r.Expect {
			accuses = accuses || e.Verdict != scoring.CleanBounded
			if r.Decoy && (e.Verdict == scoring.EngineDied || strings.HasPrefix(e.Verdict, "CORRUPTION")) {
				out = append(out, r.ID+" "+name+": a decoy that is to be accused")
			}
		}
		if !accuses {
			out = append(out, r.ID+" expects clean arms alone")
		}
		for _, g := range []Geometry{DefaultGeometry, {32, 96}} {
			text, err := g.write(r.Ladder)
			if err == nil {
				_, err = arms.ParseLadder(r.ID, []byte("ladder: x\nengine: testbed\nset: drawn\n"+text))
			}
			if err != nil {
				out = append(out, err.Error())
			}
		}
	}
	for i := range 20 {
		if id := fmt.Sprintf("F%02d", i+1); !faults[id] {
			out = append(out, id+" has no row")
		}
	}
	for i := range 4 {
		if id := fmt.Sprintf("N%d", i+1); !faults[id] {
			out = append(out, id+" has no row")
		}
	}
	for _, f := range known {
		if !planted[f.ID] {
			out = append(out, "no row plants "+f.ID)
		}
	}
	return out
}

func TestTableCoversEveryFault(t *testing.T) {
	rows, err := ParseExpected(fault.Expected)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range uncovered(rows, fault.All()) {
		t.Error(what)
	}
	// and the check can fail
	for _, c := range []struct {
		want string
		edit func([]Row) []Row
	}{
		{"F20 has no row; no row plants F20", func(rs []Row) []Row {
			var out []Row
			for _, r := range rs {
				if r.Fault != "F20" {
					out = append(out, r)
				}
			}
			return out
		}},
		{"no row plants F02b", func(rs []Row) []Row {
			out := append([]Row(nil), rs...)
			for i := range out {
				if out[i].ID == "F02b" {
					out[i].Plant = map[string]string{"fault": "F02"}
				}
			}
			return out
		}},
		{"F12 expects clean arms alone", func(rs []Row) []Row {
			out := append([]Row(nil), rs...)
			for i := range out {
				if out[i].ID == "F12" {
					out[i].Expect = map[string]Expect{"RST": {Verdict: scoring.CleanBounded}}
				}
			}
			return out
		}},
	} {
		if got := strings.Join(uncovered(c.edit(rows), fault.All()), "; "); got != c.want {
			t.Errorf("uncovered: %q, want %q", got, c.want)
		}
	}
}

func TestGeometryWrites(t *testing.T) {
	for _, c := range []struct {
		g    Geometry
		want string
	}{{DefaultGeometry, "66 48"}, {Geometry{32, 96}, "99 36"}} {
		if got, err := c.g.write("{{tokens 1.03125}} {{blocks 12}}"); err != nil || got != c.want {
			t.Errorf("%v: %q, %v; want %q", c.g, got, err, c.want)
		}
	}
	if _, err := DefaultGeometry.write("{{pages 3}}"); err == nil {
		t.Error("an unknown measure was accepted")
	}
}
