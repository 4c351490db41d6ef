package show

import (
	"fmt"

	"kvladder/scoring"
)

// forced says what a forced arm shows: how far the logprobs lie from the reference's at every
// position, and whether the server did as it was told.
func forced(f *scoring.ForcedFigures) []string {
	if f == nil {
		return nil
	}
	s := fmt.Sprintf("%s along the tokens of %s: %d of %d replies honoured, %d positions aligned, |Δ logprob| mean %s, p99 %s, max %s",
		f.Of, f.Reference, f.Honoured, f.Asked, f.Positions, short(f.Mean), short(f.P99), short(f.Max))
	if f.Where != nil {
		s += fmt.Sprintf(" (%s, position %d)", f.Where.Prompt, f.Where.Request)
	}
	if f.Bits > 0 {
		s += fmt.Sprintf("; %d of %d bitwise equal", f.BitEqual, f.Bits)
	}
	if f.Note != "" {
		s += "; " + f.Note
	}
	return []string{s}
}
