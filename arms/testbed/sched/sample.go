package sched

import (
	"math"
	"slices"

	"kvladder/arms/testbed/model"
)

// sample takes the next token of t from logits and ends t if it should end.
func (e *Engine) sample(t *task, logits []float32) {
	ev := Event{HasToken: true}
	if e.cfg.Flake != nil && len(t.output()) == 0 && e.cfg.Flake() {
		logits[argmax(logits)] -= 20
	}
	var logprobs []float64
	if t.Logprobs >= 0 || t.Temperature > 0 {
		logprobs = model.LogSoftmax(logits, e.scratch)
	}
	forced := len(t.output()) < len(t.Trace)
	if forced {
		ev.Token.ID = t.Trace[len(t.output())]
	} else if t.Temperature > 0 {
		ev.Token.ID = draw(logits, t.Temperature, t.rng.Float64())
	} else {
		ev.Token.ID = argmax(logits)
	}
	ev.Token.Logprob = math.NaN()
	if t.Logprobs >= 0 {
		ev.Token.Logprob = logprobs[ev.Token.ID]
		ev.Top = top(logprobs, t.Logprobs)
	}
	if !t.corrupted && slices.ContainsFunc(logits, func(x float32) bool { return x != x }) {
		t.corrupted = true
		e.count.Corrupted++
	}
	t.tokens = append(t.tokens, ev.Token.ID)
	e.count.GenerationTokens++
	switch {
	case forced && len(t.output()) < len(t.Trace): // an end within the trace ends nothing
	case forced:
		ev.Finish = FinishLength
	case ev.Token.ID == model.EOS && !t.IgnoreEOS, t.Stop != nil && t.Stop(t.output()):
		ev.Finish = FinishStop
	case len(t.output()) >= t.MaxTokens:
		ev.Finish = FinishLength
	}
	if ev.Finish != "" {
		e.finish(t, ev)
		return
	}
	t.ready = append(t.ready, ev)
}

// argmax returns the first maximum; 0 when nothing compares, as with NaN.
func argmax(logits []float32) int {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return best
}

// draw samples at a temperature with the uniform number u in [0, 1).
func draw(logits []float32, temperature, u float64) int {
	peak := float64(logits[argmax(logits)])
	weights := make([]float64, len(logits))
	sum := 0.0
	for i, x := range logits {
		weights[i] = math.Exp((float64(x) - peak) / temperature)
		sum += weights[i]
	}
	if math.IsNaN(sum) {
		return 0
	}
	u *= sum
	for i, w := range weights {
		if u -= w; u < 0 {
			return i
		}
	}
	return argmax(logits)
}

// top returns the k most likely tokens, the lower id first among equals. NaN
// sorts last, so that with nothing but NaN the lowest ids come out.
func top(logprobs []float64, k int) []Alternative {
	best := make([]Alternative, 0, min(k, len(logprobs)))
	for id, lp := range logprobs {
		at := len(best)
		for at > 0 && (lp > best[at-1].Logprob || math.IsNaN(best[at-1].Logprob) && !math.IsNaN(lp)) {
			at--
		}
		if at == cap(best) {
			continue
		}
		if len(best) < cap(best) {
			best = append(best, Alternative{})
		}
		copy(best[at+1:], best[at:])
		best[at] = Alternative{id, lp}
	}
	return best
}
