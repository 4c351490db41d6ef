package receipts

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml"

	"kvladder/arms"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// PolicySchema names the form of a policy.
const PolicySchema = "kvladder/policy/1"

// Policy is what a project tolerates of a patch and what it asks beyond the gate. It decides
// the exit and never the outcome: a tolerated CANNOT_TELL is printed as CANNOT_TELL.
//
//	schema: kvladder/policy/1
//	tolerate:
//	  outcomes: [CANNOT_TELL]              # any arm
//	  arms: {RST: [IMPROVED_NOT_CLEAN]}    # this arm
//	require:
//	  order: O1                            # of both receipts
//	  reverted: true                       # a receipt of the fix taken out again
//	  no_flags: [REGIME_CHANGED]
//	  no_amendments: true                  # of the patched ladder
type Policy struct {
	Schema   string        `yaml:"schema"`
	Tolerate PolicyPardons `yaml:"tolerate"`
	Require  PolicyDemands `yaml:"require"`

	digest digest.Digest
}

// PolicyPardons are outcomes that do not fail a build.
type PolicyPardons struct {
	Outcomes []string            `yaml:"outcomes"`
	Arms     map[string][]string `yaml:"arms"`
}

// PolicyDemands are conditions whose breach fails a build that the gate would pass.
type PolicyDemands struct {
	Order        string   `yaml:"order"`
	Reverted     bool     `yaml:"reverted"`
	NoFlags      []string `yaml:"no_flags"`
	NoAmendments bool     `yaml:"no_amendments"`
}

// PolicyUse is what a policy did to a gate.
type PolicyUse struct {
	Digest    digest.Digest `json:"digest"` // of the policy file's bytes
	Exit      int           `json:"gate_exit"`
	Tolerated []string      `json:"tolerated"` // arms
	Breached  []string      `json:"breached"`
}

// ReadPolicy reads a policy file: strict YAML, or JSON.
func ReadPolicy(path string) (*Policy, error) {
	b, err := readFile(path, mostPolicy)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p, err := ParsePolicy(b)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy checks a policy. REFUTED_WORSE, REFUTED_SAME and NOT_COMPARABLE cannot be
// tolerated: who wants to ignore those has no use for a gate.
func ParsePolicy(b []byte) (*Policy, error) {
	p := &Policy{digest: digest.Of(b)}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, fmt.Errorf("it is empty: its schema must be %q", PolicySchema)
	}
	if arms.TooDeep(b) {
		return nil, fmt.Errorf("it is nested deeper than a policy can be")
	}
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(p); err != nil {
		return nil, fmt.Errorf("%s", firstLine(err.Error()))
	}
	if p.Schema != PolicySchema {
		return nil, fmt.Errorf("its schema is %q, want %q", p.Schema, PolicySchema)
	}
	pardons := slices.Clone(p.Tolerate.Outcomes)
	for _, arm := range sortedKeys(p.Tolerate.Arms) {
		pardons = append(pardons, p.Tolerate.Arms[arm]...)
	}
	for _, o := range pardons {
		if o != GateCannotTell && o != ImprovedNotClean {
			return nil, fmt.Errorf("outcome %q cannot be tolerated; only %s and %s can", o, GateCannotTell, ImprovedNotClean)
		}
	}
	for _, f := range p.Require.NoFlags {
		if f != RegimeChanged {
			return nil, fmt.Errorf("there is no flag %q; flags: %s", f, RegimeChanged)
		}
	}
	if o := p.Require.Order; o != "" && o != O0 && o != O1 {
		return nil, fmt.Errorf("order %q: a receipt alone says %s or %s", o, O0, O1)
	}
	return p, nil
}

func firstLine(s string) string {
	line, _, _ := bytes.Cut([]byte(s), []byte("\n"))
	return string(line)
}

// Apply lets the policy decide the exit of a gate over these receipts.
func (p *Policy) Apply(rep *GateReport, base, patched *Receipt) {
	use := &PolicyUse{Digest: p.digest, Exit: rep.Exit, Tolerated: []string{}, Breached: []string{}}
	rep.Policy = use
	exit := scoring.ExitClean
	for _, a := range rep.Arms {
		if slices.Contains(p.Tolerate.Outcomes, a.Outcome) || slices.Contains(p.Tolerate.Arms[a.Arm], a.Outcome) {
			use.Tolerated = append(use.Tolerated, a.Arm)
			continue
		}
		exit = worstExit(exit, a.Exit)
	}
	// What no judged arm explains (an arm that nobody predicted, a fix that is none) is
	// tolerated only as an outcome of the whole.
	whole := rep.Outcome == NotComparable || !slices.ContainsFunc(rep.Arms, func(a GateArm) bool { return a.Outcome == rep.Outcome })
	if whole && !slices.Contains(p.Tolerate.Outcomes, rep.Outcome) {
		exit = worstExit(exit, rep.Exit)
	}
	// A corrupt or dead arm outside the predictions is not forgiven with the word CANNOT_TELL.
	if rep.Outcome == GateCannotTell && rep.Exit == scoring.ExitCorrupt {
		exit = worstExit(exit, rep.Exit)
	}
	breach := func(format string, args ...any) {
		use.Breached = append(use.Breached, fmt.Sprintf(format, args...))
		exit = worstExit(exit, scoring.ExitCorrupt)
	}
	if o := p.Require.Order; o != "" {
		for _, r := range []struct {
			name string
			*Receipt
		}{{"base", base}, {"patched", patched}} {
			if r.Predicate.Order.Level < o {
				breach("order %s is required, the %s receipt says %s", o, r.name, r.Predicate.Order.Level)
			}
		}
	}
	if p.Require.Reverted && rep.Reverted == nil {
		breach("a receipt of the fix reverted is required")
	} else if p.Require.Reverted && !rep.Reverted.Red {
		breach("the fix reverted must be red, it is %s", orNone(rep.Reverted.Verdict))
	}
	for _, f := range rep.Flags {
		if slices.Contains(p.Require.NoFlags, f.Name) {
			breach("%s in arm %s: %s went from %d to %d", f.Name, f.Arm, f.Counter, f.Base, f.Patched)
		}
	}
	if n := len(patched.Predicate.Amendments); p.Require.NoAmendments && n > 0 {
		breach("the patched ladder was amended %d times", n)
	}
	rep.Exit = exit
}
