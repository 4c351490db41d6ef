// Package selftest is the mutation test of the whole harness: it plants every fault of the
// embedded engine, climbs the ladder that should see it, and compares what the ladder says
// with what is expected of it; and it climbs the same ladders on a healthy engine, where no
// verdict may accuse.
//
//  1. ParseExpected reads the table of faults: for each, the Set to draw, the ladder to climb,
//     and the verdict, sub, variable and path expected of each arm.
//  2. Run climbs each row with its fault and without.
//  3. Healthy climbs many small healthy ladders with random seeds and sizes.
//
// A fault may have several rows, for its variants and for the ladders that see it. It is
// caught when in each of them some arm leaves CLEAN_BOUNDED with a verdict that the table
// lists for it, and attributed when verdict, sub, variable and path of every arm of every row
// are the table's. A ladder that says nothing of a healthy engine detects nothing: every
// judged arm has to be CLEAN_BOUNDED without the fault, but for those that the table names.
package selftest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"kvladder/scoring"
)

// Row is one fault, or a variant of one, or a decoy, and what its ladder must say.
type Row struct {
	ID      string            `yaml:"id"`
	Fault   string            `yaml:"fault"` // that it is a row of; "" = ID
	About   string            `yaml:"about"`
	Decoy   bool              `yaml:"decoy"`   // not a fault: no arm may accuse
	Plant   map[string]string `yaml:"plant"`   // pins that plant it; nil = {fault: ID}
	Kind    string            `yaml:"kind"`    // of prompts/draw; "" = mixed
	N       int               `yaml:"n"`       // requests; 0 = the kind's own number
	Tokens  int               `yaml:"tokens"`  // of a reply, at most; 0 = the kind's own number
	Ladder  string            `yaml:"ladder"`  // the rest of a ladder file, a template: see Geometry.write
	Expect  map[string]Expect `yaml:"expect"`  // arm -> what it must say with the fault planted
	Healthy map[string]Expect `yaml:"healthy"` // arm -> what it must say without, where that is not CLEAN_BOUNDED
	Crash   bool              `yaml:"crash"`   // the engine may end its process: real processes are needed
}

// Expect is what one arm must say. An empty member is one that the verdict does not name;
// an empty kind is not compared.
type Expect struct {
	Verdict  string `yaml:"verdict"`
	Sub      string `yaml:"sub"`
	Variable string `yaml:"variable"`
	Path     string `yaml:"path"`
	Kind     string `yaml:"kind"`
}

// ParseExpected reads the table, strictly.
func ParseExpected(b []byte) ([]Row, error) {
	var rows []Row
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict(), yaml.DisallowUnknownField())
	if err := dec.Decode(&rows); err != nil {
		return nil, fmt.Errorf("expected.yaml: %w", err)
	}
	seen := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		switch {
		case r.ID == "":
			return nil, fmt.Errorf("expected.yaml: row %d has no id", i+1)
		case seen[r.ID]:
			return nil, fmt.Errorf("expected.yaml: %s is there twice", r.ID)
		case len(r.Expect) == 0:
			return nil, fmt.Errorf("expected.yaml: %s expects nothing", r.ID)
		}
		seen[r.ID] = true
		if r.Plant == nil {
			r.Plant = map[string]string{"fault": r.ID}
		}
		if r.Kind == "" {
			r.Kind = "mixed"
		}
		if r.Fault == "" {
			r.Fault = r.ID
		}
		if _, err := DefaultGeometry.write(r.Ladder); err != nil {
			return nil, fmt.Errorf("expected.yaml: %s: %w", r.ID, err)
		}
	}
	return rows, nil
}

// said is what an arm of a result says, in the form of an Expect.
func said(a scoring.ArmResult) Expect {
	s := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return Expect{Verdict: s(a.Verdict), Sub: s(a.Sub), Variable: s(a.Variable), Path: s(a.Path), Kind: s(a.Kind)}
}

func (e Expect) String() string {
	out := []string{e.Verdict}
	for _, m := range []struct{ name, value string }{{"sub", e.Sub}, {"kind", e.Kind}, {"variable", e.Variable}, {"path", e.Path}} {
		if m.value != "" {
			out = append(out, m.name+" "+m.value)
		}
	}
	return strings.Join(out, ", ")
}

// accuses says whether a result accuses: exit 1 or 4.
func accuses(r scoring.Result) bool {
	return r.Exit == scoring.ExitCorrupt || r.Exit == scoring.ExitDied
}

// ids lists the rows' ids, sorted.
func ids(rows []Row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}
