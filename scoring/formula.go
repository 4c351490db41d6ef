package scoring

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kvladder/scoring/compare"
)

// Formula is a threshold as it is registered: what is to be computed from the controls, before
// anybody knows what they will show. Its grammar is
//
//	formula = term { ("+" | "-") term }
//	term    = factor { ("*" | "/") factor }
//	factor  = NUMBER | STATISTIC "(" SAMPLE ")" | "(" formula ")"
//
// STATISTIC is max, mean or a percentile p1 to p99 (linear interpolation at q(n-1)). SAMPLE is
// of the floor: P.d0 and P.margin are the first-token differences and the flip margins between
// processes of the reference's configuration. W.d0 and W.margin, within one process, are
// reported and may gate nothing: an arm is another process. What the arm under test showed is
// no floor at all.
type Formula string

// Thresholds are the formulas of a ladder.
type Thresholds struct {
	D0Gate  Formula `json:"d0_gate"`  // the exceedance counts values strictly above it
	D0Flag  Formula `json:"d0_flag"`  // a request above it is flagged, which decides nothing
	NearTie Formula `json:"near_tie"` // a flip whose margin is above it is a hard one
}

// DefaultThresholds are those of a ladder that states none.
func DefaultThresholds() Thresholds {
	return Thresholds{D0Gate: "max(P.d0)", D0Flag: "3 * max(P.d0)", NearTie: "p99(P.margin)"}
}

// thresholds of the rule: a plan from before they were written down has the usual ones.
func (r *Rule) thresholds() Thresholds {
	if r.Thresholds == nil {
		return DefaultThresholds()
	}
	return *r.Thresholds
}

// Check says what is wrong with the formulas. That of the gate is fixed: the exceedance is the
// chance that values lie above all others, and above nothing less.
func (t Thresholds) Check() error {
	for _, f := range []struct {
		name    string
		formula Formula
	}{{"d0_gate", t.D0Gate}, {"d0_flag", t.D0Flag}, {"near_tie", t.NearTie}} {
		if _, err := f.formula.read(nil); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if d := DefaultThresholds().D0Gate; strings.ReplaceAll(string(t.D0Gate), " ", "") != string(d) {
		return fmt.Errorf("d0_gate: %q: the exact test counts values above %s", string(t.D0Gate), d)
	}
	return nil
}

// samples of a floor by their names in formulas.
type samples map[string][]float64

var gating = []string{"P.d0", "P.margin"}

// value computes the formula, nil with the reason where a sample has nothing in it.
func (f Formula) value(s samples) (*float64, string) {
	v, err := f.read(s)
	if err != nil {
		return nil, err.Error()
	}
	return v, ""
}

// longestFormula bounds what is read of a formula, whose parentheses are read by a function
// that calls itself: a plan may be somebody else's.
const longestFormula = 1000

// read parses the formula, and computes it where samples are given.
func (f Formula) read(s samples) (*float64, error) {
	if len(f) > longestFormula {
		return nil, fmt.Errorf("a formula of %d bytes, which begins with %.40q: %d are the most", len(f), string(f), longestFormula)
	}
	p := &formulaParser{text: string(f), samples: s}
	v, err := p.sum()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("%q: %q stands where nothing may follow", string(f), p.peek())
	}
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, nil
	}
	return &v, nil
}

type formulaParser struct {
	text    string
	at      int
	samples samples // nil: the form alone is read
}

// peek is the next word: a name, a number or one sign; "" at the end.
func (p *formulaParser) peek() string {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	end := p.at
	for end < len(p.text) && strings.IndexByte(" +-*/()", p.text[end]) < 0 {
		end++
	}
	if end == p.at && end < len(p.text) {
		end++
	}
	return p.text[p.at:end]
}

func (p *formulaParser) next() string {
	w := p.peek()
	p.at += len(w)
	return w
}

func (p *formulaParser) want(sign string) error {
	if w := p.next(); w != sign {
		return fmt.Errorf("%q: %q is wanted, got %q", p.text, sign, w)
	}
	return nil
}

func (p *formulaParser) sum() (float64, error) {
	return p.chain("+-", p.product)
}

func (p *formulaParser) product() (float64, error) {
	return p.chain("*/", p.factor)
}

// chain reads parts joined by one of two signs, from left to right.
func (p *formulaParser) chain(signs string, part func() (float64, error)) (float64, error) {
	v, err := part()
	for err == nil {
		w := p.peek()
		if w == "" || !strings.Contains(signs, w) {
			break
		}
		p.next()
		var x float64
		if x, err = part(); err != nil {
			break
		}
		switch w {
		case "+":
			v += x
		case "-":
			v -= x
		case "*":
			v *= x
		case "/":
			if x == 0 && p.samples != nil {
				return 0, fmt.Errorf("%q divides by 0", p.text)
			}
			v /= x
		}
	}
	return v, err
}

func (p *formulaParser) factor() (float64, error) {
	w := p.next()
	switch {
	case w == "(":
		v, err := p.sum()
		if err != nil {
			return 0, err
		}
		return v, p.want(")")
	case w == "":
		return 0, fmt.Errorf("%q: it ends where a number or a statistic is wanted", p.text)
	case w[0] >= '0' && w[0] <= '9' || w[0] == '.':
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %q is no number", p.text, w)
		}
		return v, nil
	}
	stat, ok := statistic(w)
	if !ok {
		return 0, fmt.Errorf("%q: %q is no statistic: use max, mean or p1 to p99", p.text, w)
	}
	if err := p.want("("); err != nil {
		return 0, err
	}
	name := p.next()
	switch {
	case strings.HasPrefix(name, "W."):
		return 0, fmt.Errorf("%q: %s is the floor within one process, and an arm is another process: use %s", p.text, name, strings.Join(gating, " or "))
	case !slices.Contains(gating, name):
		return 0, fmt.Errorf("%q: a threshold is made of control data alone, and %q is none: use %s", p.text, name, strings.Join(gating, " or "))
	}
	if err := p.want(")"); err != nil {
		return 0, err
	}
	if p.samples == nil {
		return 1, nil
	}
	if len(p.samples[name]) == 0 {
		return 0, fmt.Errorf("no %s: the controls show none", name)
	}
	return stat(p.samples[name])
}

func statistic(name string) (func([]float64) (float64, error), bool) {
	switch name {
	case "max":
		return func(x []float64) (float64, error) { return slices.Max(x), nil }, true
	case "mean":
		return func(x []float64) (float64, error) {
			m, err := compare.MeanSE(x)
			return m.Value, err
		}, true
	}
	if q, err := strconv.Atoi(strings.TrimPrefix(name, "p")); err == nil && strings.HasPrefix(name, "p") && q >= 1 && q <= 99 {
		return func(x []float64) (float64, error) { return compare.Percentile(x, float64(q)/100) }, true
	}
	return nil, false
}
