package scoring

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
)

// contradiction is one way in which what a server says of its requests cannot be true.
type contradiction struct {
	first string   // in words, of the first request or of a whole pass
	ids   []string // the requests it shows in
}

// asked is the model that a frozen body names, "" where it names none.
func asked(body string) string {
	var b struct {
		Model string `json:"model"`
	}
	if json.Unmarshal([]byte(body), &b) != nil {
		return ""
	}
	return b.Model
}

// answeredBy compares the model that a reply names with the one its body asks for, and with
// the one that answered the same question before. llama-server names a reply after its file
// or alias whatever was asked, so there only a change counts; an arm whose schedule launches
// another model changes it on purpose, from one process to the next.
func (a *armRun) answeredBy(set *prompts.Set, p *prompts.Prompt, r *probes.Reply, incarnation string) {
	if r.Model == "" || a.otherModel != "" {
		return
	}
	body := p.Body
	if r.Prime && p.Prime != nil {
		body = p.Prime.Body
	}
	want := asked(body)
	if a.models == nil {
		a.models = map[string]string{}
	}
	key := want
	if a.spec.launchesModels() {
		key += "\x00" + incarnation
	}
	before, seen := a.models[key]
	switch {
	case want != "" && set.Dialect != "llamacpp" && r.Model != want:
		a.otherModel = fmt.Sprintf("request %s (pass %d) asks for model %q and %q answered", p.ID, max(1, r.Pass), want, r.Model)
	case seen && before != r.Model:
		a.otherModel = fmt.Sprintf("request %s (pass %d) was answered by model %q, the ones before it by %q", p.ID, max(1, r.Pass), r.Model, before)
	case !seen:
		a.models[key] = r.Model
	}
}

// launchesModels says whether the schedule has a launch under another model.
func (s *ArmSpec) launchesModels() bool {
	return slices.ContainsFunc(s.ScheduleDiff, func(d string) bool {
		words := strings.Fields(d)
		return len(words) > 1 && words[0] == "launch" &&
			slices.ContainsFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "model=") })
	})
}

// otherTokens says that the server saw other prompts than the frozen ones: every reply that
// counts its prompt counts other tokens than the prompt has. "" where that is not so.
func (a *armRun) otherTokens(set *prompts.Set) string {
	stated, first := 0, ""
	for _, w := range a.allRows(set) {
		n := w.reply.Usage.Prompt
		if !w.answered || n == nil || len(w.prompt.Tokens) == 0 {
			continue
		}
		if *n == len(w.prompt.Tokens) {
			return ""
		}
		if stated++; first == "" {
			first = fmt.Sprintf("request %s has %d prompt tokens and the reply counts %d", w.prompt.ID, len(w.prompt.Tokens), *n)
		}
	}
	if stated == 0 {
		return ""
	}
	return fmt.Sprintf("the server saw other tokens in all %d requests: %s", stated, first)
}

// contradict finds what cannot be true in an arm's own account. An account that contradicts
// itself is believed in nothing: the splits of all its requests become unknown, so that
// neither an accusation nor a clean bill can be built on them.
func (s *scorer) contradict(a *armRun) {
	found := map[string]*contradiction{}
	var order []string
	note := func(kind string, w *row, format string, args ...any) {
		c := found[kind]
		if c == nil {
			c = &contradiction{first: fmt.Sprintf(format, args...)}
			found[kind] = c
			order = append(order, kind)
		}
		if w != nil && !slices.Contains(c.ids, w.prompt.ID) {
			c.ids = append(c.ids, w.prompt.ID)
			w.odd = true
		}
	}
	rows := a.allRows(s.in.Set)
	for _, w := range rows {
		if w.answered {
			w.contradict(a.spec, note)
		}
	}
	for pass := 1; pass <= max(1, a.spec.Passes); pass++ {
		for _, x := range [][2]string{{probes.LocalHits, probes.LocalQueries}, {probes.ExternalHits, probes.ExternalQueries}} {
			hits, queries := a.total(x[0], pass), a.total(x[1], pass)
			if hits != nil && queries != nil && *hits > *queries {
				note(x[0], nil, "pass %d: %s rose by %.0f and %s by %.0f, and no cache gives more than it is asked for", pass, x[0], *hits, x[1], *queries)
			}
		}
	}
	for _, kind := range order {
		c := found[kind]
		more := ""
		if len(c.ids) > 1 {
			more = fmt.Sprintf(" (and %d more requests)", len(c.ids)-1)
		}
		a.odd = append(a.odd, c.first+more)
	}
	if len(a.odd) == 0 {
		return
	}
	for _, w := range rows {
		w.claimed = max(w.claimed, w.cachedAny())
		w.local, w.external, w.computed, w.unaccounted, w.weaker = nil, nil, nil, nil, ""
		w.stored = nil
	}
}

// contradict compares what a reply says of its prompt with the prompt, and with what the
// counters say of the same request. A preemption makes the engine ask and count again, and
// of a load that failed the tokens are computed after all: nothing follows there.
func (w *row) contradict(spec *ArmSpec, note func(kind string, w *row, format string, args ...any)) {
	id, u := w.prompt.ID, w.reply.Usage
	length := len(w.prompt.Tokens)
	if length > 0 && u.Prompt != nil && *u.Prompt != length {
		note("prompt", w, "request %s has %d prompt tokens and the reply counts %d", id, length, *u.Prompt)
	}
	if length == 0 && u.Prompt != nil {
		length = *u.Prompt
	}
	if length > 0 && u.Cached != nil && *u.Cached > length {
		note("cached", w, "the reply to %s counts %d cached tokens of a prompt of %d", id, *u.Cached, length)
	}
	d := func(role string) *float64 {
		var sum *float64
		for _, c := range w.reply.Counters {
			if c.Role != role {
				continue
			}
			v, ok := c.Delta()
			if !ok {
				return nil
			}
			if sum == nil {
				sum = new(float64)
			}
			*sum += v
		}
		return sum
	}
	if p := d(probes.Preemptions); p != nil && *p > 0 {
		return
	}
	local, external, queries := d(probes.LocalHits), d(probes.ExternalHits), d(probes.LocalQueries)
	// A scheduler that cannot place a request asks its cache again at each step and counts
	// each time: the queries show it, and countersTrusted weighs them.
	again := queries != nil && length > 0 && *queries > 1.05*float64(length)
	for _, x := range []struct {
		role, asked string
		hits        *float64
	}{{probes.LocalHits, probes.LocalQueries, local}, {probes.ExternalHits, probes.ExternalQueries, external}} {
		q := d(x.asked)
		switch {
		case x.hits == nil:
		case q != nil && *x.hits > *q:
			note(x.role, w, "request %s: %s rose by %.0f and %s by %.0f, and no cache gives more than it is asked for", id, x.role, *x.hits, x.asked, *q)
		case length > 0 && *x.hits > float64(length) && !(again && x.role == probes.LocalHits):
			note(x.role, w, "request %s: %s rose by %.0f for a prompt of %d tokens", id, x.role, *x.hits, length)
		}
	}
	if external == nil && !spec.Connector {
		external = new(float64)
	}
	// One token less: an engine computes the last one of a prompt that a cache holds whole.
	if u.Cached != nil && local != nil && external != nil && spec.FailLoads == 0 && !again {
		if gap := *local + *external - float64(*u.Cached); gap > 1 || gap < -1 {
			note("sum", w, "the reply to %s counts %d cached tokens, the counters %.0f local and %.0f external ones", id, *u.Cached, *local, *external)
		}
	}
}
