package receipts

import (
	"fmt"

	"kvladder/arms"
	"kvladder/scoring"
)

// lint finds what a receipt must never say, whatever the evidence: each is a way in which a
// published result has been empty while looking full.
func lint(rep *Report, r *Receipt, plan *arms.Plan) {
	p := &r.Predicate
	for _, e := range p.Evidence {
		switch {
		case e.Empty != (e.Size == 0) || e.Empty != e.Digest.Digest().Empty():
			rep.add(e.Name, "size, digest and the mark of emptiness contradict each other")
		case e.Empty && e.Required:
			rep.add(e.Name, "required evidence is empty: its digest is that of nothing")
		}
	}
	known := map[string]bool{}
	for _, e := range p.Evidence {
		known[e.Digest.SHA256] = true
	}
	lintClaims(rep, p.Claims)
	for i, c := range p.Claims {
		for _, d := range c.Evidence {
			if !known[d.Hex()] {
				rep.warn("predicate.claims[%d]: its evidence %s is not in the folder", i, d.Short())
			}
		}
	}
	for _, spec := range plan.Design.Arms {
		a, ok := r.Arm(spec.Name)
		if !ok {
			if spec.Role == scoring.Judged {
				rep.add(fmt.Sprintf("predicate.result.arms[%s]", spec.Name), "a judged arm of the plan has no result")
			}
			continue
		}
		fail := func(member, format string, args ...any) {
			rep.add(fmt.Sprintf("predicate.result.arms[%s].%s", spec.Name, member), format, args...)
		}
		if spec.Role == scoring.Judged && spec.Reference != "" && a.Columns["P"] == "y" && len(spec.PinsDiffer) != 1 {
			fail("columns", "P is y, and %d pins differ from the reference", len(spec.PinsDiffer))
		}
		lintArm(a, &spec, plan.Design.Imported, fail)
	}
	for i := range p.Result.Arms {
		if _, ok := plan.Design.ByName(p.Result.Arms[i].Name); !ok {
			rep.add(fmt.Sprintf("predicate.result.arms[%s]", p.Result.Arms[i].Name), "the plan has no such arm")
		}
	}
}

func lintArm(a *scoring.ArmResult, spec *scoring.ArmSpec, imported bool, fail func(member, format string, args ...any)) {
	if a.PMcNemar != nil && (a.ArmOnly == nil || a.ControlOnly == nil) {
		fail("p_mcnemar", "a p-value without its integers")
	}
	if a.PExceedance != nil && (a.ExceedanceK == nil || a.FloorM == nil) {
		fail("p_exceedance", "a p-value without its integers")
	}
	// Where nobody knows which requests took the path, the bound is over all that were judged.
	if a.Upper95 != nil && (a.Exercised != nil && *a.Exercised == 0 || a.Exercised == nil && a.N == 0) {
		fail("upper95", "a bound on a share of nothing: no request is counted")
	}
	if a.Upper95Geometry != nil && a.Geometries == 0 {
		fail("upper95_geometry", "a bound on a share of nothing: no class is counted")
	}
	if a.Upper95 != nil && a.Exercised != nil && *a.Exercised > a.N {
		fail("upper95", "%d requests are exercised of %d", *a.Exercised, a.N)
	}
	if (a.PrefixMean != nil || a.PrefixP99 != nil || a.PrefixMax != nil) && a.Exposure == nil {
		fail("prefix_mean", "a mean over positions whose count is not given: positions past the fork may be in it")
	}
	if a.Columns["X"] == "y" {
		local, external, both := 0, 0, 0
		for _, o := range a.Outcomes {
			l, e := o.Local != nil && *o.Local > 0, o.External != nil && *o.External > 0
			if l {
				local++
			}
			if e {
				external++
			}
			if l && e {
				both++
			}
		}
		// COLD stores and need not load, so its outcomes owe nothing.
		missing := map[string]bool{"C1": local == 0, "REPLAY": local == 0, "WARM": external == 0, "RST": external == 0, "PART": both == 0}
		if missing[spec.Exercise] {
			fail("columns", "X is y, and no request shows a token by the path %q", spec.Path)
		}
	}
	if a.Verdict != nil && *a.Verdict == scoring.CleanBounded {
		switch {
		case imported:
			fail("verdict", "imported rows cannot be clean: nobody read their pins")
		case a.Upper95 == nil || a.Upper95Geometry == nil || a.Exercised == nil:
			fail("verdict", "clean without a bound")
		case *a.Upper95Geometry > a.PMax:
			fail("verdict", "clean with a bound of %v over the registered %v", *a.Upper95Geometry, a.PMax)
		case a.ArmOnly == nil || *a.ArmOnly > 0:
			fail("verdict", "clean with arm-only failures, or without their count")
		case a.Substantive == 0:
			fail("verdict", "clean over replies with nothing in them")
		}
	}
}
