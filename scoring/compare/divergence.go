package compare

import (
	"fmt"
	"math"
)

// TokenLogprob is one candidate of the next-token distribution: its id and its
// natural-log probability as the engine returned it.
type TokenLogprob struct {
	ID      int
	Logprob float64
}

// Censored is the value vLLM writes for minus infinity. A logprob at or below it
// carries no number, only "very unlikely".
const Censored = -9999.0

// tailResolution is the mass float32 logprobs cannot tell from none.
const tailResolution = 1e-6

// Divergence compares two next-token distributions over the tokens visible in
// both, with everything else in one tail bucket each. All are in nats but TV.
type Divergence struct {
	KL      *float64 `json:"kl"`      // Σ p ln(p/q); nil when q leaves no room for mass of p
	Reverse *float64 `json:"reverse"` // Σ q ln(q/p); nil likewise
	JSD     float64  `json:"jsd"`     // Jensen-Shannon, at most ln 2
	TV      float64  `json:"tv"`      // total variation, at most 1
	Shared  int      `json:"shared"`  // reference tokens visible in both, each its own bucket
	Hidden  int      `json:"hidden"`  // reference tokens not visible in the arm, moved into the tail
}

// KLTopK compares the reference's top k tokens with the same tokens under the
// arm. Tokens the arm shows beyond those, and reference tokens it does not show
// (or shows as Censored), fall into the tail buckets: a coarser partition, so
// every value is at most that of the full distributions and never accuses by
// itself.
//
// A sum of probabilities above 1 by rounding is scaled back; beyond 1.001 it is an
// error, as are a NaN, a logprob above 0 by more than rounding and a token
// listed twice. An empty reference or arm is ErrUndefined, and so are two that
// share no token: one bucket against one bucket is 0 whatever happened. A tail of at most
// 1e-6 facing an empty one is below what float32 resolves and counts as empty.
//
// Kullback & Leibler, "On information and sufficiency" (Ann. Math. Stat. 1951),
// where theorem 4.1 is the inequality for coarser partitions; Lin, "Divergence
// measures based on the Shannon entropy" (IEEE Trans. Inf. Theory 1991).
func KLTopK(reference, arm []TokenLogprob) (Divergence, error) {
	ref, err := visible("reference", reference)
	if err != nil {
		return Divergence{}, err
	}
	other, err := visible("arm", arm)
	if err != nil {
		return Divergence{}, err
	}
	var d Divergence
	var p, q []float64
	for _, t := range reference { // in the given order, so sums are repeatable
		pr, ok := ref[t.ID]
		if !ok {
			continue
		}
		qr, ok := other[t.ID]
		if !ok {
			d.Hidden++
			continue
		}
		p, q = append(p, pr), append(q, qr)
		d.Shared++
	}
	if d.Shared == 0 {
		return Divergence{}, undefined("divergence: none of the reference's %d tokens has a logprob under the arm", len(reference))
	}
	p, q = closeTails(p, q)
	d.KL, d.Reverse = relativeEntropy(p, q), relativeEntropy(q, p)
	for i := range p {
		m := (p[i] + q[i]) / 2
		d.JSD += (excess(p[i], m) + excess(q[i], m)) / 2
		d.TV += math.Abs(p[i]-q[i]) / 2
	}
	d.JSD = math.Min(math.Max(0, d.JSD), math.Ln2)
	d.TV = math.Min(1, d.TV)
	return d, nil
}

// visible turns logprobs into probabilities, without the censored ones.
func visible(who string, tokens []TokenLogprob) (map[int]float64, error) {
	if len(tokens) == 0 {
		return nil, undefined("divergence: the %s has no logprobs", who)
	}
	probs := make(map[int]float64, len(tokens))
	seen := make(map[int]bool, len(tokens))
	sum := 0.0
	for _, t := range tokens {
		switch {
		case math.IsNaN(t.Logprob):
			return nil, undefined("divergence: %s token %d has a logprob that is not a number", who, t.ID)
		case t.Logprob > tailResolution:
			return nil, fmt.Errorf("compare: divergence: %s token %d has logprob %v above 0", who, t.ID, t.Logprob)
		case seen[t.ID]:
			return nil, fmt.Errorf("compare: divergence: %s token %d is listed twice", who, t.ID)
		}
		seen[t.ID] = true
		if t.Logprob <= Censored {
			continue
		}
		probs[t.ID] = math.Exp(t.Logprob)
		sum += probs[t.ID]
	}
	if sum > 1.001 {
		return nil, fmt.Errorf("compare: divergence: %s probabilities sum to %v: ask the engine for normalised logprobs", who, sum)
	}
	if sum > 1 {
		for id := range probs {
			probs[id] /= sum
		}
	}
	return probs, nil
}

// closeTails appends the tail buckets, 1 minus the rest.
func closeTails(p, q []float64) ([]float64, []float64) {
	pt, qt := tail(p), tail(q)
	if (pt == 0 || qt == 0) && pt <= tailResolution && qt <= tailResolution {
		return scaled(p, 1-pt), scaled(q, 1-qt)
	}
	return append(p, pt), append(q, qt)
}

func tail(p []float64) float64 {
	sum := 0.0
	for _, v := range p {
		sum += v
	}
	t := 1 - sum
	if t < 1e-15 { // what rescaling to 1 leaves behind
		return 0
	}
	return t
}

func scaled(p []float64, sum float64) []float64 {
	for i := range p {
		p[i] /= sum
	}
	return p
}

func excess(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a * math.Log(a/b)
}

func relativeEntropy(p, q []float64) *float64 {
	sum := 0.0
	for i := range p {
		if p[i] > 0 && q[i] == 0 {
			return nil
		}
		sum += excess(p[i], q[i])
	}
	return ptr(math.Max(0, sum))
}
