package scoring

import (
	"hash/fnv"
	"math"

	"kvladder/probes"
	"kvladder/scoring/compare"
)

// pair is one request in the arm and in the reference.
type pair struct {
	arm, ref *row

	comparedTokens bool
	identical      bool
	fork           int // first differing position, or the shorter length; -1 = identical
	exposure       int // positions at risk
	bit            *bool

	d0       *float64
	censored bool     // d0 is only a bound, or the value was clamped
	margin   *float64 // of the flip: how near a tie it was
	prefix   []float64
	zipped   []float64

	sameStart     bool // computing began at the same token
	startKnown    bool
	startMeasured bool
}

// newPair compares token by token up to the first difference. Positions after it are other
// contexts: they go nowhere but into the zipped figures, which are kept to show what others
// print.
func newPair(arm, ref *row, as, rs *ArmSpec) *pair {
	p := &pair{arm: arm, ref: ref, fork: -1}
	x, xm, xok := arm.start(as)
	y, ym, yok := ref.start(rs)
	p.startKnown, p.startMeasured = xok && yok, xm && ym
	p.sameStart = p.startKnown && x == y
	a, r := arm.reply.Tokens, ref.reply.Tokens
	if len(a) == 0 || len(r) == 0 {
		return p
	}
	p.comparedTokens = true
	n := min(len(a), len(r))
	for i := range n {
		if !sameToken(a[i], r[i]) {
			p.fork = i
			break
		}
	}
	if p.fork < 0 && len(a) != len(r) {
		p.fork = n
	}
	p.identical = p.fork < 0
	before := n
	p.exposure = len(r)
	if !p.identical {
		before, p.exposure = p.fork, p.fork+1
	}
	p.d0, p.censored = firstToken(a[0], r[0])
	for i := range n {
		if d, ok := chosenDiff(a[i], r[i]); ok {
			p.zipped = append(p.zipped, d)
			if i < before {
				p.prefix = append(p.prefix, d)
			}
		}
	}
	p.bit = bitEqual(a, r, p.fork)
	if !p.identical && p.fork < n {
		p.margin = flipMargin(a[p.fork], r[p.fork])
	}
	return p
}

// kld gives the divergence over the reference's top-k, one value per aligned position.
func (p *pair) kld() []float64 {
	a, r := p.arm.reply.Tokens, p.ref.reply.Tokens
	var out []float64
	for i := range min(len(a), len(r)) {
		if d, err := compare.KLTopK(candidates(r[i]), candidates(a[i])); err == nil && d.KL != nil {
			out = append(out, *d.KL)
		}
		if i == p.fork {
			break
		}
	}
	return out
}

// sameToken compares ids, or texts where a server gave no ids.
func sameToken(a, b probes.Token) bool {
	if a.ID >= 0 && b.ID >= 0 {
		return a.ID == b.ID
	}
	return a.Text == b.Text
}

func chosenDiff(a, b probes.Token) (float64, bool) {
	if !usable(a.Logprob) || !usable(b.Logprob) {
		return 0, false
	}
	return math.Abs(*a.Logprob - *b.Logprob), true
}

// usable is a logprob that carries a number: vLLM writes -9999 for minus infinity.
func usable(v *float64) bool {
	return v != nil && *v > compare.Censored && !math.IsNaN(*v) && !math.IsInf(*v, 0)
}

// lookup finds a token's logprob at a position: as the chosen token or among its top-k.
// When it is not visible, bound is the last one that is.
func lookup(at, token probes.Token) (lp, bound *float64) {
	if sameToken(at, token) {
		return at.Logprob, nil
	}
	for _, c := range at.Top {
		same := c.Text == token.Text
		if c.ID >= 0 && token.ID >= 0 {
			same = c.ID == token.ID
		}
		if same {
			return c.Logprob, nil
		}
	}
	if len(at.Top) > 0 {
		return nil, at.Top[len(at.Top)-1].Logprob
	}
	return nil, nil
}

// firstToken is |lp_arm(t) - lp_ref(t)| at output position 0 for the reference's token t.
// Where t is not among the arm's top-k, or is there with a clamped logprob, its logprob is at
// most the last visible number, and the difference to that is a lower bound. Where only chosen tokens have logprobs, theirs are
// compared and a differing token makes the value censored.
func firstToken(a, r probes.Token) (*float64, bool) {
	if !usable(r.Logprob) {
		return nil, true
	}
	lp, bound := lookup(a, r)
	switch {
	case usable(lp):
		return ptr(math.Abs(*lp - *r.Logprob)), false
	case lp != nil: // clamped: not a number to average, and no likelier than what is listed before it
		if least := leastUsable(a.Top); least != nil {
			return ptr(math.Max(0, *r.Logprob-*least)), true
		}
		return nil, true
	case usable(bound):
		return ptr(math.Max(0, *r.Logprob-*bound)), true
	case len(a.Top) == 0 && usable(a.Logprob):
		return ptr(math.Abs(*a.Logprob - *r.Logprob)), true
	}
	return nil, true
}

// leastUsable is the last listed logprob that is a number.
func leastUsable(top []probes.Candidate) *float64 {
	for i := len(top) - 1; i >= 0; i-- {
		if usable(top[i].Logprob) {
			return top[i].Logprob
		}
	}
	return nil
}

func candidates(t probes.Token) []compare.TokenLogprob {
	var out []compare.TokenLogprob
	seen := map[int]bool{}
	for _, c := range t.Top {
		id := c.ID
		if id < 0 {
			id = textID(c.Text)
		}
		if c.Logprob == nil || seen[id] {
			continue
		}
		seen[id] = true
		out = append(out, compare.TokenLogprob{ID: id, Logprob: *c.Logprob})
	}
	return out
}

// textID stands for the id of a token that a server gave the text of alone: below all ids.
func textID(text string) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return -2 - int(h.Sum32())
}

// bitEqual says whether ids and logprobs are equal at the aligned positions, the first
// difference included; nil where the server gave no ids or no logprobs.
func bitEqual(a, r []probes.Token, fork int) *bool {
	n := min(len(a), len(r))
	for i := range n {
		if a[i].ID < 0 || r[i].ID < 0 || a[i].Logprob == nil && !a[i].NonFinite || r[i].Logprob == nil && !r[i].NonFinite {
			return nil
		}
	}
	if fork >= 0 {
		return ptr(false)
	}
	for i := range n {
		if !sameBits(a[i].Logprob, r[i].Logprob) || a[i].NonFinite != r[i].NonFinite || !sameTop(a[i].Top, r[i].Top) {
			return ptr(false)
		}
	}
	return ptr(true)
}

func sameBits(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameTop(a, b []probes.Candidate) bool {
	if len(a) != len(b) {
		return len(a) == 0 || len(b) == 0 // one side was not asked for it
	}
	for i := range a {
		if a[i].ID != b[i].ID || !sameBits(a[i].Logprob, b[i].Logprob) {
			return false
		}
	}
	return true
}

// flipMargin is the smaller of the two preferences at the first difference: near zero at a
// tie, large where both sides were sure of different tokens. Nil when a token is not
// visible on the other side.
func flipMargin(a, r probes.Token) *float64 {
	inRef, _ := lookup(r, a)
	inArm, _ := lookup(a, r)
	if !usable(inRef) || !usable(inArm) || !usable(a.Logprob) || !usable(r.Logprob) {
		return nil
	}
	return ptr(math.Min(*r.Logprob-*inRef, *a.Logprob-*inArm))
}

// pairs joins two passes in Set order; requests that either side lacks are left out.
func (s *scorer) pairs(arm *armRun, pass int, ref *armRun, refPass int) []*pair {
	if arm == nil || ref == nil {
		return nil
	}
	key := pairKey{arm, pass, ref, refPass}
	if have, ok := s.pairCache[key]; ok {
		return have
	}
	var out []*pair
	other := ref.passes[refPass]
	for _, w := range arm.rows(s.in.Set, pass) {
		if r := other[w.prompt.ID]; r != nil && w.answered && r.answered {
			out = append(out, newPair(w, r, arm.spec, ref.spec))
		}
	}
	s.pairCache[key] = out
	return out
}

type pairKey struct {
	arm     *armRun
	pass    int
	ref     *armRun
	refPass int
}
