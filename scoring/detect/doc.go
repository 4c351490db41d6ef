// Package detect looks at one reply at a time and says what is wrong with it on its face.
//
//  1. All gives the detectors of a rule, each with its thresholds.
//  2. Assess first shows every detector its own specimen: one that stays silent there is
//     reported and trusted with nothing.
//  3. Whoever fires makes the request fail. The detectors of damaged text (replacement,
//     script, repeated, ngram5) fire whatever was asked; needle, empty and nonfinite need
//     the expectation or the numbers.
//
// A detector never looks at a second reply: what only shows beside a reference (fewer
// tokens, other logprobs) is counted where the two are paired.
package detect

import (
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// All is every detector with the thresholds of rule, in the order they are reported.
func All(rule scoring.Rule) []scoring.Detector {
	return []scoring.Detector{
		Needle{},
		Replacement{AtLeast: rule.Replacement},
		Script{Above: rule.OutOfScript},
		Repeated{AtLeast: rule.Repeated},
		NGram5{AtLeast: rule.NGram, Words: rule.NGramWords},
		Empty{},
		NonFinite{},
	}
}

// said is the text that is judged: the reply, and what the model wrote as its reasoning.
func said(r *probes.Reply) string {
	switch {
	case r.Reasoning == "":
		return r.Text
	case r.Text == "":
		return r.Reasoning
	}
	return r.Reasoning + "\n" + r.Text
}

// text makes the reply of a specimen.
func text(s string) *probes.Reply {
	return &probes.Reply{Status: 200, Decoded: probes.Decoded{Text: s, Finish: "stop"}}
}

// judged says whether there is a text to judge: a request that got no reply says nothing.
func judged(r *probes.Reply) bool {
	return r.ErrorKind == "" && (r.Status == 0 || r.Status == 200)
}

func value(v float64) *float64 { return &v }

var english = prompts.Expectation{}

func many(s string, n int) string { return strings.Repeat(s, n) }
