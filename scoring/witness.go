package scoring

import (
	"fmt"
	"math"
	"slices"
)

// quicker is how much sooner a request has to answer than the same request did the first time
// to count as quick.
const quicker = 0.5

// witness says what the times to the first token, or to the first byte where nothing was
// streamed, tell of reuse where no counter tells: how many requests of the judged pass answered
// in less than half the time that they took in the first pass, and where between quick and slow
// ones the widest gap lies. Time is a second witness and no proof: a busy machine and another
// request's end look the same, so it is told and never weighed. "" where the times are not known.
func (s *scorer) witness(j *judgement) string {
	judged := judgedPass(j.spec)
	if judged < 2 {
		return ""
	}
	first := map[string]float64{}
	for _, w := range j.arm.rows(s.in.Set, 1) {
		if t := toFirst(w); t > 0 {
			first[w.prompt.ID] = t
		}
	}
	var ratios []float64
	for _, w := range j.arm.rows(s.in.Set, judged) {
		if t, before := toFirst(w), first[w.prompt.ID]; t > 0 && before > 0 {
			ratios = append(ratios, t/before)
		}
	}
	if len(ratios) < 4 {
		return ""
	}
	slices.Sort(ratios)
	quick := 0
	for _, r := range ratios {
		if r < quicker {
			quick++
		}
	}
	gap, at := 0.0, 0
	for i := 1; i < len(ratios); i++ {
		if d := math.Log(ratios[i] / ratios[i-1]); d > gap {
			gap, at = d, i
		}
	}
	what := fmt.Sprintf("time to the first token: %d of %d requests took less than half of their first time", quick, len(ratios))
	if gap > math.Log(1.5) && at > 0 {
		what += fmt.Sprintf(", and two heaps lie apart: %d up to %.2f, %d from %.2f", at, ratios[at-1], len(ratios)-at, ratios[at])
	}
	return what + "; a second witness of reuse, and no proof"
}

// toFirst is the microseconds to a reply's first token, or first byte, 0 where not known.
func toFirst(w *row) float64 {
	r := w.reply
	if r == nil || !w.answered {
		return 0
	}
	at := r.FirstTokenAt
	if at == 0 {
		at = r.FirstByteAt
	}
	return math.Max(0, float64(at-r.SentAt))
}
