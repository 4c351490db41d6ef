package main

import (
	"context"
	"fmt"
	"math"

	"kvladder/prompts"
	"kvladder/prompts/draw"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// sized says what a set was made large enough for.
type sized struct {
	Rate     float64 `json:"rate"`     // share of the geometry classes that a defect strikes
	Power    float64 `json:"power"`    // chance to see it
	Arms     int     `json:"arms"`     // judged arms of the ladder; 0 = for the bound alone
	Failures int     `json:"failures"` // classes that have to fail in an arm alone
	Bound    int     `json:"bound"`    // classes without a failure that bound the rate, one-sided 95 %
	Need     int     `json:"need"`     // classes asked for
	Classes  int     `json:"classes"`  // classes drawn
}

// sizeFor says how many geometry classes show a defect that strikes a share rate of them:
// so many that, with 95 % power, enough of them fail for the paired test at its strictest
// place among the judged arms. Without arms it is the number that bounds the rate when none
// fails. Classes are counted and not requests: a hundred requests cut at one place in a
// block ask one question.
func sizeFor(rate float64, arms int) (sized, error) {
	s := sized{Rate: rate, Power: 0.95, Arms: arms, Failures: 1}
	if !(rate >= 0.0001 && rate < 1) {
		return s, fmt.Errorf("--for-rate %v: want a share of at least 0.0001 and under 1, such as 0.01", rate)
	}
	if arms < 0 || arms > 1000 {
		return s, fmt.Errorf("--for-arms %d: want the number of judged arms, or 0 to size for the bound alone", arms)
	}
	s.Bound = compare.SmallestN(rate, 1, s.Power)
	if arms > 0 {
		s.Failures = compare.MinArmOnly(scoring.DefaultRule().Alpha.Failures / float64(arms))
	}
	s.Need = compare.SmallestN(rate, s.Failures, s.Power)
	return s, nil
}

// drawFor draws sets of growing size until one has the classes that are asked for. Requests
// come in eights, since some kinds draw them in groups.
func drawFor(ctx context.Context, tok draw.Tokenizer, spec draw.Spec, want *sized) (*prompts.Set, error) {
	best := 0
	if want.Need > draw.MaxN {
		return nil, fmt.Errorf("--for-rate %v: %d classes are needed and a set has at most %d requests; choose a larger rate", want.Rate, want.Need, draw.MaxN)
	}
	for n := (want.Need + 7) / 8 * 8; ; {
		spec.N = n
		s, err := draw.Draw(ctx, tok, spec)
		if err != nil {
			return nil, err
		}
		want.Classes = s.Classes()
		if want.Classes >= want.Need {
			return s, nil
		}
		// More requests of the same few geometries show no more of them.
		if 10*want.Classes < 11*best || n == draw.MaxN {
			reach := ""
			if r := compare.SmallestRate(want.Classes, want.Failures, want.Power); r != nil {
				reach = fmt.Sprintf(" (these show %.3g or more)", math.Ceil(*r*1000)/1000)
			}
			return nil, fmt.Errorf("kind %s has too few geometries for --for-rate %v: its lengths and spans come from ranges of their own, so %d requests fall in %d classes%s and %d are needed; use --kind wide, no two of whose requests are cut alike, or a larger rate",
				spec.Kind, want.Rate, n, want.Classes, reach, want.Need)
		}
		best = want.Classes
		grown := n * want.Need / max(1, want.Classes)
		n = min((min(max(grown+grown/10, n+n/4), 3*n)+7)/8*8, draw.MaxN)
	}
}
