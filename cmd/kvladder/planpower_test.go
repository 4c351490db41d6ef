package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/scoring/compare"
	"kvladder/scoring/simulate"
)

// simulated is how many ladders the power is measured on; `make bench-stats` asks for 20,000.
var simulated = flag.Int("ladders", 400, "simulated ladders that the printed power is compared with")

// The power that plan prints is what simulated ladders show: 38 requests of 38 geometries,
// three judged arms, and a defect that strikes 7 of 38. A ladder file, the program and its
// standard output; not the function behind it.
func TestPrintedPowerIsThePower(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		c := exec.Command(program, args...)
		c.Dir = dir
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	run("freeze", "--kind", "wide", "--n", "38", "--name", "wide-38", "--out", "wide-38.jsonl")
	const ladder = `ladder: power
question: how likely is a defect of 7 in 38 seen?
engine: testbed
set: wide-38.jsonl
subject: [fault]
arms: [C0, C1, REPLAY, WARM]
floors: {C0: 3, C1: 3}
`
	if err := os.WriteFile(filepath.Join(dir, "power.yaml"), []byte(ladder), 0o644); err != nil {
		t.Fatal(err)
	}
	var printed struct {
		Arms []struct {
			Name  string
			Power *planPower
			Tests []arms.Power
		}
	}
	if err := json.Unmarshal(run("plan", "--json", "power.yaml"), &printed); err != nil {
		t.Fatal(err)
	}
	var power float64
	for _, a := range printed.Arms {
		if a.Name == "WARM" {
			power = a.Power.Power
			for _, x := range a.Tests {
				if x.Geometries != 38 || x.N != 38 {
					t.Errorf("%s: n %d, %d geometries, want 38 of 38", x.Test, x.N, x.Geometries)
				}
				if x.Test == arms.TestFailures && (x.Needs != 7 || x.Sees95 == nil || math.Abs(*x.Sees95-0.288) > 5e-4) {
					t.Errorf("needs %d, sees %v, want 7 and 0.288", x.Needs, x.Sees95)
				}
			}
		}
	}
	lab, err := simulate.New(simulate.Corrupt(38, 3, 7./38))
	if err != nil {
		t.Fatal(err)
	}
	n := *simulated
	seen := lab.Repeat(n, 7).FirstArmF0
	got := float64(seen) / float64(n)
	iv, err := compare.ClopperPearson(seen, n, 0.95, compare.TwoSided)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("power at 7/38: %.4f printed, %d of %d ladders = %.4f [%.4f, %.4f]", power, seen, n, got, iv.Low, iv.High)
	if limit := math.Max(0.01, 4*math.Sqrt(power*(1-power)/float64(n))); math.Abs(got-power) > limit {
		t.Errorf("plan prints %.4f, %d of %d ladders show it: %.4f", power, seen, n, got)
	}
	if human := string(run("plan", "power.yaml")); !strings.Contains(human, fmt.Sprintf("power    %.3f to accuse an arm that corrupts 0.184 of the requests", power)) {
		t.Errorf("the table for people says otherwise:\n%s", human)
	}
}
