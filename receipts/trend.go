package receipts

import (
	"fmt"
	"slices"
	"strings"

	"kvladder/receipts/digest"
)

// TrendReport is what a row of builds came to, in the order given. Exit is the worst of its
// steps: 0 where no build differs from the one before in anything but notes and pins under
// test, 1 where one does, 3 where two are not comparable.
type TrendReport struct {
	Comparable bool         `json:"comparable"`
	Exit       int          `json:"exit"`
	Builds     []TrendBuild `json:"builds"`
	Arms       []TrendArm   `json:"arms"`
	Steps      []DiffReport `json:"steps"` // of each build against the one before
}

// TrendBuild is one receipt of a trend.
type TrendBuild struct {
	Receipt digest.Digest     `json:"receipt"`
	Subject map[string]string `json:"subject"` // the pins under test
	Verdict string            `json:"verdict"`
	Exit    int               `json:"exit"`
}

// TrendArm is one arm over the builds.
type TrendArm struct {
	Arm    string       `json:"arm"`
	Points []TrendPoint `json:"points"` // one for each build

	// ToLast compares the deaths of every build with those of the last one, by each clock.
	ToLast []TrendLifetime `json:"to_last,omitempty"`
}

// TrendLifetime is the change from a build, counted from 0, to the last.
type TrendLifetime struct {
	Build int `json:"build"`
	LifetimeChange
}

// TrendPoint is one arm in one build. Numbers that were not measured are nil.
type TrendPoint struct {
	Verdict  string   `json:"verdict"` // "" where the arm was not run or has none
	N        *int     `json:"n"`       // nil where the arm was not run
	Failed   *int     `json:"failed"`
	External *int     `json:"external_tokens"`
	Bound    *float64 `json:"upper95_geometry"`
	Events   *int     `json:"events"`   // deaths of the engine
	Requests *int     `json:"requests"` // asked in its lifetime
	Rates    []Rate   `json:"rates,omitempty"`
}

// Trend lines up two or more receipts of one question.
func Trend(rs ...*Receipt) TrendReport {
	t := TrendReport{Comparable: true, Builds: []TrendBuild{}, Arms: []TrendArm{}, Steps: []DiffReport{}}
	var armsSeen []string
	for i, r := range rs {
		b := TrendBuild{Receipt: r.Digest(), Subject: map[string]string{}, Verdict: r.Predicate.Result.Verdict, Exit: r.Predicate.Result.Exit}
		for _, s := range r.Subject {
			name := strings.TrimPrefix(s.Name, "pin/")
			if v, ok := s.Annotations["value"]; ok {
				b.Subject[name] = strings.TrimPrefix(b.Subject[name]+", "+v, ", ")
			} else {
				b.Subject[name] = s.Digest.Digest().Short()
			}
		}
		t.Builds = append(t.Builds, b)
		armsSeen = armNames(armsSeen, resultNames(r))
		if i == 0 {
			continue
		}
		d := Diff(rs[i-1], r)
		t.Steps = append(t.Steps, d)
		t.Comparable = t.Comparable && d.Comparable
		t.Exit = max(t.Exit, d.Exit)
	}
	for _, name := range armsSeen {
		a := TrendArm{Arm: name}
		for _, r := range rs {
			a.Points = append(a.Points, pointOf(r, name))
		}
		if last, ok := rs[len(rs)-1].Arm(name); ok {
			for i, r := range rs[:len(rs)-1] {
				x, ok := r.Arm(name)
				for _, clock := range Clocks {
					if !ok {
						break
					}
					if c, ok := lifetimeBy(x, last, clock); ok {
						a.ToLast = append(a.ToLast, TrendLifetime{i, c})
					}
				}
			}
		}
		t.Arms = append(t.Arms, a)
	}
	return t
}

func pointOf(r *Receipt, name string) TrendPoint {
	a, ok := r.Arm(name)
	if !ok {
		return TrendPoint{}
	}
	p := TrendPoint{N: &a.N, Failed: &a.Failed, External: a.ExternalTokens, Bound: a.Upper95Geometry}
	if a.Verdict != nil {
		p.Verdict = *a.Verdict
	}
	p.Rates = ratesOf(a)
	if l, ok := lifetimeOf(a, "requests"); ok {
		n := int(l.Exposure)
		p.Events, p.Requests = &l.Events, &n
	}
	return p
}

// Refusal names the first two builds that do not ask the same question, and the keys.
func (t TrendReport) Refusal() string {
	i := slices.IndexFunc(t.Steps, func(d DiffReport) bool { return !d.Comparable })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("builds %d and %d: %s", i+1, i+2, t.Steps[i].Refusal())
}
