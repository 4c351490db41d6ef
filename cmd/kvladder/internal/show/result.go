package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"kvladder/scoring"
)

// Result writes a judged ladder: the verdict, one row per judged arm with its counts and its
// bounds, the controls, and every warning as a footnote. A figure that does not exist is "-".
func Result(w io.Writer, r scoring.Result) {
	fmt.Fprintf(w, "ladder   %s\nverdict  %s (exit %d)\n", r.Ladder, r.Verdict, r.Exit)
	if r.Plan != "" {
		fmt.Fprintf(w, "plan     %s, order %s\n", r.Plan, r.Order)
	}
	if r.Receipt != "" {
		fmt.Fprintf(w, "receipt  %s\n", r.Receipt)
	}
	fmt.Fprintln(w)
	var rows, controls [][]string
	for _, a := range r.Arms {
		if a.Role != scoring.Judged {
			controls = append(controls, []string{a.Name, a.Role, fmt.Sprintf("%d/%d", a.Failed, a.N), sound(a), num(a.LocalTokens), num(a.ExternalTokens), num(a.ComputedTokens)})
			continue
		}
		rows = append(rows, []string{a.Name, Verdict(a), fmt.Sprintf("%d/%d", a.Failed, a.N-len(a.Unstable)), ab(a), bound(a), num(a.LocalTokens), num(a.ExternalTokens), num(a.ComputedTokens), bits(a), columns(a.Columns)})
	}
	Table(w, []string{"arm", "verdict", "failed", "arm/ref only", "rate ≤ (95 %)", "local", "external", "computed", "bit equal", "PAHVKFEBDXU"}, rows)
	if len(controls) > 0 {
		fmt.Fprintln(w)
		Table(w, []string{"control", "role", "failed", "sound", "local", "external", "computed"}, controls)
	}
	fmt.Fprintln(w, "\nlocal, external and computed are prompt tokens of the judged pass; rate is the class bound with its count of classes")
	for _, a := range r.Arms {
		for _, s := range detail(a) {
			fmt.Fprintf(w, "%s: %s\n", a.Name, s)
		}
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", s)
	}
	for _, a := range r.Arms {
		for _, s := range a.Warnings {
			fmt.Fprintf(w, "warning: %s: %s\n", a.Name, s)
		}
	}
}

// Verdict is the verdict with its sub, for people.
func Verdict(a scoring.ArmResult) string {
	if a.Verdict == nil || *a.Verdict == scoring.CannotTell {
		return "-"
	}
	s := *a.Verdict
	if a.Sub != nil && *a.Sub != "" {
		s += "/" + *a.Sub
	}
	return s
}

func detail(a scoring.ArmResult) []string {
	if a.Verdict == nil {
		return forced(a.Forced)
	}
	var out []string
	if a.Variable != nil {
		s := "variable " + *a.Variable
		if a.Path != nil {
			s += ", path " + *a.Path
		}
		if len(a.OnlyUnder) > 0 {
			for _, k := range slices.Sorted(maps.Keys(a.OnlyUnder)) {
				s += fmt.Sprintf(", only under %s=%s", k, a.OnlyUnder[k])
			}
		}
		out = append(out, s)
	}
	if a.Reason != nil && *a.Reason != "" {
		out = append(out, "reason: "+*a.Reason)
	}
	if a.PMcNemarHolm != nil && (a.Failed > 0) {
		out = append(out, fmt.Sprintf("McNemar one-sided p %.3g, Holm %.3g", *a.PMcNemar, *a.PMcNemarHolm))
	}
	out = append(out, floor(a.Floor)...)
	out = append(out, clusters(a.Clusters)...)
	out = append(out, soak(a.Soak)...)
	for _, inv := range a.Invariants {
		if inv.Held != nil && !*inv.Held {
			out = append(out, fmt.Sprintf("invariant %s violated: %s", inv.Name, inv.Seen))
		}
	}
	if len(a.FailedIDs) > 0 {
		ids := a.FailedIDs
		more := ""
		if len(ids) > 12 {
			more = fmt.Sprintf(" and %d more", len(ids)-12)
			ids = ids[:12]
		}
		out = append(out, "failed "+strings.Join(ids, " ")+more)
	}
	return out
}

func ab(a scoring.ArmResult) string {
	if a.ArmOnly == nil || a.ControlOnly == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", *a.ArmOnly, *a.ControlOnly)
}

func bound(a scoring.ArmResult) string {
	if a.Upper95Geometry == nil {
		return "-"
	}
	return fmt.Sprintf("%.4f (%d)", *a.Upper95Geometry, a.Geometries)
}

func bits(a scoring.ArmResult) string {
	if a.BitEqual == nil || a.Comparable == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", *a.BitEqual, *a.Comparable)
}

func num(p *int) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(*p)
}

func columns(m map[string]string) string {
	var b strings.Builder
	for _, c := range "PAHVKFEBDXU" {
		v := m[string(c)]
		if v == "" {
			v = "-"
		}
		b.WriteString(v)
	}
	return b.String()
}
