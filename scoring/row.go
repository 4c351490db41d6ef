package scoring

import (
	"fmt"
	"math"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
)

// row is one request of one pass with what was made of it.
type row struct {
	prompt *prompts.Prompt
	reply  *probes.Reply
	seq    int64

	answered    bool   // something came back that can be judged
	why         string // why not
	odd         bool   // what the server says of it cannot be true
	claimed     int    // tokens that some cache gave it, by an account that is not believed
	substantive bool   // and it says something
	failed      bool
	alone       bool // it fails by what it says alone, whatever the reference says
	damaged     bool
	fired       []string
	right       map[string]bool // needle -> answered right

	split
}

// split says where the tokens of the prompt came from; nil = not known.
type split struct {
	local, external, computed, unaccounted *int
	tokens                                 *int     // of the prompt
	queries                                *int     // local cache queries of this request
	stored                                 *float64 // chunks written during this request
	weaker                                 string   // where a number came from, when not from counters
	unreadable                             []string // counters that were there and are no count
}

// counted says whether any token of the prompt was accounted for.
func (s *split) counted() bool {
	for _, v := range []*int{s.local, s.external, s.computed} {
		if v != nil && *v > 0 {
			return true
		}
	}
	return false
}

func newRow(s *ArmSpec, p *prompts.Prompt, r *probes.Reply, seq int64) *row {
	w := &row{prompt: p, reply: r, seq: seq, split: splitOf(s, p, r)}
	w.why = unanswered(r)
	w.answered = w.why == ""
	w.substantive = w.answered && (len(r.Tokens) > 0 || strings.TrimSpace(r.Text) != "" || strings.TrimSpace(r.Reasoning) != "")
	return w
}

// inspect runs the trusted detectors.
func (w *row) inspect(ds []Detector) {
	w.right = map[string]bool{}
	for _, d := range ds {
		if !w.answered {
			break // a request without an answer is no wrong answer
		}
		f := d.Inspect(w.reply, w.prompt.Expect)
		if !f.Fired {
			continue
		}
		w.fired = append(w.fired, d.Name())
		w.failed = true
		w.damaged = w.damaged || f.Damaged
	}
	w.alone = w.failed
	for _, n := range w.prompt.Expect.Needles {
		w.right[answerName(n)] = w.answered && AnswerRight(n, w.reply.Text)
	}
}

// answerName groups right answers: a field by its key, a planted fact by the cache that
// carries it, else by its key.
func answerName(n prompts.Needle) string {
	if n.Match == "" && n.Rides != "" {
		return n.Rides
	}
	return n.Key
}

func (w *row) target() bool { return w.prompt.Role != prompts.Bystander }

func (w *row) class() string {
	if w.prompt.Class.Label != "" {
		return w.prompt.Class.Label
	}
	return fmt.Sprintf("mod %d", w.prompt.Class.LengthMod)
}

// splitOf reads the four-way split of one request: from the counters of the request where
// they are there, else from what the reply says was cached, else not at all. Where no
// store is attached nothing comes from one.
func splitOf(s *ArmSpec, p *prompts.Prompt, r *probes.Reply) split {
	var out split
	sums := map[string]float64{}
	broken := map[string]bool{}
	for _, c := range r.Counters {
		if d, ok := c.Delta(); ok {
			sums[c.Role] += d
			continue
		}
		switch c.Role { // a series that came, went, fell or is no count: the sum over ranks is not known
		case probes.LocalQueries, probes.LocalHits, probes.ExternalQueries, probes.ExternalHits, probes.PromptTokens, probes.Computed, probes.CachedTokens:
			if !broken[c.Role] {
				out.unreadable = append(out.unreadable, fmt.Sprintf("%s (%s)", c.Role, c.Series))
			}
		}
		broken[c.Role] = true
	}
	get := func(role string) *int {
		v, ok := sums[role]
		if !ok || broken[role] {
			return nil
		}
		return ptr(int(math.Round(v)))
	}
	out.tokens = r.Usage.Prompt
	if out.tokens == nil {
		out.tokens = get(probes.PromptTokens)
	}
	if out.tokens == nil && len(p.Tokens) > 0 {
		out.tokens = ptr(len(p.Tokens))
	}
	out.queries = get(probes.LocalQueries)
	if v, ok := sums[probes.StoredChunks]; ok && !broken[probes.StoredChunks] {
		out.stored = &v
	}
	out.local, out.external = get(probes.LocalHits), get(probes.ExternalHits)
	if !s.Connector && s.CachedIs != "external" && out.external == nil && s.Preset != "import" {
		out.external = ptr(0)
	}
	cached := get(probes.CachedTokens)
	if cached == nil {
		cached = r.Usage.Cached
	}
	lost := broken[probes.LocalHits] || broken[probes.ExternalHits]
	if cached != nil {
		switch {
		case lost && s.Connector && (out.local == nil && out.external == nil || s.CachedIs == "local"):
			// two sources, and what would tell them apart cannot be read: cached tokens do not
		case out.local == nil && out.external == nil && s.CachedIs == "external":
			out.external, out.weaker = cached, "cached tokens, taken as external"
		case out.local == nil && s.CachedIs == "local":
			out.local, out.weaker = cached, "cached tokens, taken as local"
		case out.local == nil && out.external != nil && *cached >= *out.external:
			out.local, out.weaker = ptr(*cached-*out.external), "cached tokens less the external ones"
		case out.local != nil && out.external == nil && *cached >= *out.local:
			out.external, out.weaker = ptr(*cached-*out.local), "cached tokens less the local ones"
		}
	}
	out.computed = get(probes.Computed)
	if out.computed == nil {
		out.computed = r.Usage.Computed
	}
	if out.computed == nil && out.tokens != nil && out.local != nil && out.external != nil {
		if c := *out.tokens - *out.local - *out.external; c >= 0 {
			out.computed = &c
		}
	}
	if out.tokens != nil && out.local != nil && out.external != nil && out.computed != nil {
		out.unaccounted = ptr(*out.tokens - *out.local - *out.external - *out.computed)
	}
	return out
}

// reuse is the measured reuse, false when a part of it is not known.
func (w *row) reuse() (Reuse, bool) {
	if w.local == nil || w.external == nil {
		return Reuse{}, false
	}
	return Reuse{*w.local, *w.external}, true
}

// start is where computing began: the tokens that were not computed, measured or (where
// nothing was measured) as geometry expects.
func (w *row) start(s *ArmSpec) (tokens int, measured, ok bool) {
	switch {
	case w.computed != nil && w.tokens != nil:
		return *w.tokens - *w.computed, true, true
	case w.local != nil && w.external != nil:
		return *w.local + *w.external, true, true
	}
	if e, have := s.Expected[w.prompt.ID]; have {
		return e.Local + e.External, false, true
	}
	if isC0(s) {
		return 0, false, true
	}
	return 0, false, false
}
