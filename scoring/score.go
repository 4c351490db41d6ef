// Package scoring says what Records mean. It is pure: no context, no clock, no network.
//
//  1. Detectors look at one reply each (scoring/detect).
//  2. Assess pairs each judged arm with its reference and counts (scoring/compare).
//  3. Judge turns the columns of an arm into a Verdict: the only place where a number
//     becomes a decision. The zero Verdict is "cannot tell".
package scoring

import (
	"kvladder/probes"
	"kvladder/prompts"
)

// Finding is what a Detector saw in one reply.
type Finding struct {
	Fired   bool
	Damaged bool     // the text itself is damaged (soup), whatever was asked
	Value   *float64 // the measured figure, where there is one
	Detail  string   // for people
}

// Detector looks at one reply. Specimen returns a record that must make it fire: a detector
// that stays silent on its own specimen is reported and trusted with nothing.
type Detector interface {
	Name() string
	Inspect(r *probes.Reply, e prompts.Expectation) Finding
	Specimen() (*probes.Reply, prompts.Expectation)
}
