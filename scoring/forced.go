package scoring

import (
	"fmt"
	"math"
	"slices"

	"kvladder/probes"
)

// TraceNotHonoured says that a server was asked to decode along given tokens and answered with
// others: it sampled as usual, so positions are aligned only up to the first difference.
const TraceNotHonoured = "TRACE_NOT_HONOURED"

// ForcedFigures are what a forced arm shows: a judged arm climbed once more with each reply
// decoded along the reference's tokens, so that every position is aligned and the logprobs are
// the model's own (vLLM's trace replay). Answers are the reference's by force and say nothing:
// there is no verdict here, and none is changed by it.
type ForcedFigures struct {
	Of        string   `json:"of"`        // the judged arm
	Reference string   `json:"reference"` // whose tokens
	Asked     int      `json:"asked"`     // requests that named tokens
	Honoured  int      `json:"honoured"`  // of them, replies made of exactly these
	Note      string   `json:"note"`      // TRACE_NOT_HONOURED, or ""
	Positions int      `json:"positions"` // aligned and compared: all of a reply that is honoured, else those before its first difference
	Mean      *float64 `json:"mean"`      // |Δ logprob| of the reference's token, nats
	P99       *float64 `json:"p99"`
	Max       *float64 `json:"max"`
	Where     *Spot    `json:"where"` // of the largest; Request counts positions of the reply from 1
	KLDMean   *float64 `json:"kld_mean"`
	D0Max     *float64 `json:"d0_max"`
	Bits      int      `json:"bits"`      // honoured replies with ids and logprobs on both sides and equal splits
	BitEqual  int      `json:"bit_equal"` // of them, equal in every bit
}

// forced compares a forced arm with the reference whose tokens it was given.
func (s *scorer) forced(r *ArmResult, spec *ArmSpec, a *armRun) {
	ref := s.t.arm(0, spec.Reference)
	pass := judgedPass(spec)
	f := &ForcedFigures{Of: spec.ForcedOf, Reference: spec.Reference}
	r.Forced = f
	if a == nil || ref == nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("nothing to compare with: %s or %s has no records", spec.Name, spec.Reference))
		return
	}
	var diffs, kld, d0 []float64
	untold := 0
	for _, p := range s.pairs(a, pass, ref, referencePass(spec)) {
		trace := p.arm.reply.Trace()
		if trace == nil {
			untold++
			continue
		}
		f.Asked++
		honoured := slices.EqualFunc(p.arm.reply.Tokens, trace, func(t probes.Token, id int) bool { return t.ID == id })
		if honoured && !p.identical {
			// It did as it was told, and was not told the reference's tokens.
			r.Warnings = append(r.Warnings, fmt.Sprintf("request %s was given other tokens than those of %s", p.arm.prompt.ID, spec.Reference))
			f.Asked--
			untold++
			continue
		}
		if honoured {
			f.Honoured++
			if p.bit != nil && p.sameStart {
				f.Bits++
				if *p.bit {
					f.BitEqual++
				}
			}
		}
		if p.d0 != nil && !p.censored {
			d0 = append(d0, *p.d0)
		}
		for i, d := range p.prefix {
			if f.Max == nil || d > *f.Max {
				f.Max, f.Where = ptr(d), &Spot{Request: i + 1, Pass: pass, Prompt: p.arm.prompt.ID}
			}
		}
		diffs, kld = append(diffs, p.prefix...), append(kld, p.kld()...)
	}
	f.Positions = len(diffs)
	f.Mean, f.P99, f.Max, f.KLDMean, f.D0Max = meanOf(diffs), percentile(diffs, 0.99), maxOf(diffs), meanOf(kld), maxOf(d0)
	if f.Max != nil && math.Abs(*f.Max) == 0 {
		f.Where = nil
	}
	if f.Honoured < f.Asked {
		f.Note = TraceNotHonoured
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %d of %d replies are not the tokens that were asked for: first tokens and what comes before the first difference are compared alone", TraceNotHonoured, f.Asked-f.Honoured, f.Asked))
	}
	if untold > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d requests named no tokens of the reference: they are left out", untold))
	}
}
