package arms

import (
	"fmt"

	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// Problem codes that lint gives.
const (
	CannotHit   = "CANNOT_HIT"   // geometry expects no reuse in an arm that is about reuse
	PowerBound  = "POWER_BOUND"  // not even a perfect run could reach the ladder's own p_max
	PowerCount  = "POWER_COUNT"  // fewer requests or classes than the rule asks for
	PowerTest   = "POWER_TEST"   // every request failing would not be significant
	FloorFew    = "FLOOR_FEW"    // fewer than three control processes
	OneGeometry = "ONE_GEOMETRY" // all requests of an arm have one geometry
)

// lint lists what is known to be wrong before anything is started.
func (r *resolver) lint() {
	rule, set := r.plan.Design.Rule, r.plan.Set
	add := func(arm, code string, fatal bool, format string, args ...any) {
		r.plan.Problems = append(r.plan.Problems, Problem{Arm: arm, Code: code, Fatal: fatal, What: fmt.Sprintf(format, args...)})
	}
	if set.Requests < rule.NMin {
		add("", PowerCount, true, "set %s has %d requests, the rule asks for n_min %d exercised: freeze a larger set or register a smaller n_min", set.Name, set.Requests, rule.NMin)
	}
	if set.Classes < rule.GMin {
		add("", PowerCount, true, "set %s has %d geometry classes, the rule asks for g_min %d: freeze a more varied set or register a smaller g_min", set.Name, set.Classes, rule.GMin)
	}
	if u := compare.Upper95(0, set.Classes); u != nil && *u > rule.PMax {
		add("", PowerBound, true, "with %d geometry classes a run without any failure bounds the rate at %.4f, above p_max %.4f: freeze more classes or register p_max %.2f",
			set.Classes, *u, rule.PMax, ceil2(*u))
	}
	if u := compare.Upper95(0, rule.GMin); u != nil && *u > rule.PMax {
		add("", PowerBound, true, "g_min %d classes bound the rate at %.4f at best, above p_max %.4f: register a larger g_min or p_max %.2f", rule.GMin, *u, rule.PMax, ceil2(*u))
	}
	judged := r.plan.JudgedArms()
	if need := r.plan.NeedArmOnly(); need > set.Requests {
		add("", PowerTest, true, "with %d judged arms a failure count is significant from %d requests on, the set has %d", r.plan.family(), need, set.Requests)
	}
	if r.l.Floors.C0 < 3 {
		add("C0", FloorFew, false, "%d control processes of C0: the floor between processes wants 3 (floors: {C0: 3})", max(1, r.l.Floors.C0))
	}
	if _, ok := r.plan.Design.ByName("C1"); ok && r.l.Floors.C1 < 3 {
		add("C1", FloorFew, false, "%d control processes of C1: the floor between processes wants 3 (floors: {C1: 3})", max(1, r.l.Floors.C1))
	}
	for _, a := range judged {
		hit := len(exercisable(&a, r.s))
		switch {
		case len(a.Expected) == 0:
		case hit == 0:
			add(a.Name, CannotHit, false, "%s cannot hit: by geometry no request of set %s reuses anything on the %s path (boundary %d tokens)", a.Name, set.Name, a.Path, set.Geometry.Boundary())
		case hit < rule.NMin:
			add(a.Name, PowerCount, false, "%s: geometry lets %d requests be exercised, the rule asks for n_min %d", a.Name, hit, rule.NMin)
		}
	}
}

func ceil2(x float64) float64 { return float64(int(x*100+0.999999)) / 100 }

// JudgedArms are the arms that get a verdict.
func (p *Plan) JudgedArms() []scoring.ArmSpec {
	var out []scoring.ArmSpec
	for _, a := range p.Design.Arms {
		if a.Role == scoring.Judged {
			out = append(out, a)
		}
	}
	return out
}

// family is how many judged arms share the corrections of one ladder: its twin is another.
func (p *Plan) family() int {
	n := 0
	for _, a := range p.JudgedArms() {
		if a.TwinOf == "" {
			n++
		}
	}
	return max(1, n)
}

// NeedArmOnly is the count of arm-only failures, with none in the control, from which the
// paired test is significant in the worst place of the Holm family: 2^-c <= alpha / judged.
func (p *Plan) NeedArmOnly() int {
	return compare.MinArmOnly(p.Design.Rule.Alpha.Failures / float64(p.family()))
}

// SeesRate is the smallest true defect rate that n requests show with the given power, nil
// when no rate does.
func (p *Plan) SeesRate(n int, power float64) *float64 {
	return compare.SmallestRate(n, p.NeedArmOnly(), power)
}
