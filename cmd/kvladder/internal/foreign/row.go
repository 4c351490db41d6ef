package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"kvladder/probes"
)

// row is one request of one arm, as far as it can be read.
type row struct {
	raw []byte

	arm       string // that it says it belongs to
	requestID string
	pass      string
	expected  []answer

	promptTokens *int
	promptMod    *int // the prompt's length modulo the engine's block
	prefix       *int // tokens of the shared document that the prompt begins with
	counters     []probes.Counter

	decoded probes.Decoded
	failure string   // what the row says went wrong with the request
	status  int      // HTTP status that a failed row states; 0 = none
	notes   []string // what of the row could not be used, and why
}

// answer is a right answer by name.
type answer struct {
	key, value string
	list       bool // a list of integers
}

// Names of members, newest first.
var (
	idNames      = []string{"request_id", "id", "prompt_id"}
	passNames    = []string{"pass", "phase"}
	textNames    = []string{"response_text", "text", "response", "output"}
	tokenNames   = []string{"response_tokens", "tokens", "output_tokens"}
	tokenIDNames = []string{"response_token_ids", "output_token_ids", "token_ids"}
	logprobNames = []string{"chosen_token_logprobs", "token_logprobs"}
)

// counterRoles says what the members of a row's metric_delta count.
var counterRoles = map[string]string{
	"prefix_cache_queries":          probes.LocalQueries,
	"prefix_cache_hits":             probes.LocalHits,
	"external_prefix_cache_queries": probes.ExternalQueries,
	"external_prefix_cache_hits":    probes.ExternalHits,
	"prompt_tokens":                 probes.PromptTokens,
	"preemptions":                   probes.Preemptions,
}

// looksLikeRow says whether a value names a request and holds a reply, or why there is none.
func looksLikeRow(n node) bool {
	o, err := n.object()
	if err != nil || o.word(idNames...) == "" {
		return false
	}
	_, text := o.first(append(slices.Clone(textNames), tokenNames...)...)
	return text || o.word("error") != ""
}

// Decode reads the reply out of the bytes of one row. It is a pure function of them. A row
// that says that its request failed has no reply: that is the error.
func Decode(raw []byte) (probes.Decoded, error) {
	ns, err := parse(raw)
	if err != nil {
		return probes.Decoded{}, err
	}
	if len(ns) != 1 {
		return probes.Decoded{}, fmt.Errorf("%d values where one row is expected", len(ns))
	}
	r, err := readRow(ns[0])
	if err != nil {
		return probes.Decoded{}, err
	}
	if r.failure != "" {
		return r.decoded, errors.New(r.failure)
	}
	return r.decoded, nil
}

func readRow(n node) (*row, error) {
	if !n.isObject() {
		return nil, errors.New("a row must be a JSON object")
	}
	o, err := n.object()
	if err != nil {
		return nil, err
	}
	r := &row{raw: n.raw, arm: o.word("arm"), requestID: o.word(idNames...), pass: o.word(passNames...)}
	if r.requestID == "" {
		return nil, fmt.Errorf("it has no %s", strings.Join(idNames, ", "))
	}
	if v, ok := o.first("error"); ok {
		r.failure = o.word("error")
		if r.failure == "" && !v.is('f') {
			r.failure = string(v.raw)
		}
		if n := o.count("http_status", "status_code", "status"); n != nil && r.failure != "" {
			r.status = *n
		}
	}
	d := &r.decoded
	tv, hasText := o.first(textNames...)
	if hasText {
		if d.Text, hasText = tv.text(); !hasText {
			return nil, fmt.Errorf("the reply's text is no text but %s", excerpt(tv.raw))
		}
	}
	d.Finish, d.Model = o.word("finish_reason", "finish"), o.word("model")
	if err := r.readTokens(o); err != nil {
		return nil, err
	}
	if !hasText {
		if len(d.Tokens) == 0 && r.failure == "" {
			return nil, fmt.Errorf("it has no reply: none of %s", strings.Join(textNames, ", "))
		}
		for _, t := range d.Tokens {
			d.Text += t.Text
		}
	}
	if err := r.readUsage(o); err != nil {
		return nil, err
	}
	if r.expected, err = readExpected(o); err != nil {
		return nil, err
	}
	r.prefix = o.count("doc_prefix_tokens")
	for name := range o {
		if strings.HasPrefix(name, "prompt_tokens_mod_") {
			r.promptMod = o.count(name)
		}
	}
	return r, r.readCounters(o)
}

// readTokens reads the tokens with their log probabilities. Lists that do not fit each other
// are not used: values that belong to other positions would be compared.
func (r *row) readTokens(o object) error {
	texts, haveTexts, err := list(o, tokenNames)
	if err != nil {
		return err
	}
	ids, haveIDs, err := list(o, tokenIDNames)
	if err != nil {
		return err
	}
	logprobs, haveLogprobs, err := list(o, logprobNames)
	if err != nil {
		return err
	}
	n := len(texts)
	switch {
	case haveTexts && haveIDs && len(ids) != n:
		haveIDs = false
		r.notes = append(r.notes, fmt.Sprintf("%d token ids for %d tokens: the ids are not used", len(ids), n))
	case !haveTexts && haveIDs:
		n = len(ids)
	case !haveTexts:
		if haveLogprobs && len(logprobs) > 0 {
			r.notes = append(r.notes, "log probabilities without tokens are not used")
		}
		return nil
	}
	if haveLogprobs && len(logprobs) != n {
		haveLogprobs = false
		r.notes = append(r.notes, fmt.Sprintf("%d log probabilities for %d tokens: they are not used", len(logprobs), n))
	}
	for i := range n {
		t := probes.Token{ID: -1}
		if haveTexts {
			switch {
			case texts[i].isText:
				t.Text = texts[i].text
			case !texts[i].isNone && texts[i].number == math.Trunc(texts[i].number) && texts[i].number >= 0:
				t.ID = int(texts[i].number) // a list of ids under the name of the texts
			default:
				return fmt.Errorf("token %d is neither a text nor an id", i)
			}
		}
		if haveIDs {
			if v := ids[i]; v.isText || v.isNone || v.number != math.Trunc(v.number) || v.number < 0 {
				return fmt.Errorf("token id %d is not a whole number", i)
			}
			t.ID = int(ids[i].number)
		}
		if haveLogprobs {
			switch v := logprobs[i]; {
			case v.isText:
				return fmt.Errorf("log probability %d is a text", i)
			case v.isNone || math.IsNaN(v.number) || math.IsInf(v.number, 0):
				t.NonFinite = true
			default:
				t.Logprob = &v.number
			}
		}
		r.decoded.Tokens = append(r.decoded.Tokens, t)
	}
	return nil
}

// list reads a list that is written as JSON, or as a text that holds a Python list.
func list(o object, names []string) ([]literal, bool, error) {
	v, ok := o.first(names...)
	if !ok {
		return nil, false, nil
	}
	what := ""
	for _, name := range names {
		if x, have := o[name]; have && !x.isNull() {
			what = name
			break
		}
	}
	if s, ok := v.text(); ok {
		var again []literal
		ns, jerr := parse([]byte(s))
		if jerr == nil && len(ns) == 1 && ns[0].isList() {
			again, jerr = literals(ns[0])
		}
		if jerr == nil && again != nil {
			return again, true, nil
		}
		out, err := pythonList(s)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", what, err)
		}
		return out, true, nil
	}
	if !v.isList() {
		return nil, false, fmt.Errorf("%s is not a list but %s", what, excerpt(v.raw))
	}
	out, err := literals(v)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", what, err)
	}
	return out, true, nil
}

func literals(n node) ([]literal, error) {
	es, err := n.elements()
	if err != nil {
		return nil, err
	}
	out := make([]literal, 0, len(es))
	for i, e := range es {
		if s, ok := e.text(); ok {
			out = append(out, literal{text: s, isText: true})
			continue
		}
		if e.isNull() {
			out = append(out, literal{isNone: true})
			continue
		}
		v, finite, ok := e.number()
		if !ok {
			return nil, fmt.Errorf("item %d is %s", i, excerpt(e.raw))
		}
		if !finite {
			v = math.NaN()
		}
		out = append(out, literal{number: v})
	}
	return out, nil
}

// readUsage takes the prompt's length from what the server said, and where it said nothing
// from the row.
func (r *row) readUsage(o object) error {
	r.promptTokens = o.count("prompt_tokens")
	u, err := o["usage"].object()
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	use := &r.decoded.Usage
	use.Prompt, use.Completion = u.count("prompt_tokens"), u.count("completion_tokens")
	if use.Prompt == nil {
		use.Prompt = r.promptTokens
	}
	if r.promptTokens == nil {
		r.promptTokens = use.Prompt
	}
	details, err := u["prompt_tokens_details"].object()
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	use.Cached = details.count("cached_tokens")
	return nil
}

// readCounters reads the counters that rose over this request and no other.
func (r *row) readCounters(o object) error {
	m, ok := o["metric_delta"]
	if !ok || m.isNull() {
		return nil
	}
	if scope := o.word("metric_delta_scope"); scope != "" && scope != "this request" {
		r.notes = append(r.notes, fmt.Sprintf("the counters are those of %q and not of this request: they are not used", scope))
		return nil
	}
	ms, err := m.members()
	if err != nil {
		return fmt.Errorf("metric_delta: %w", err)
	}
	zero := 0.0
	for _, c := range ms {
		role, known := counterRoles[c.name]
		v, finite, _ := c.value.number()
		if !known || !finite {
			continue
		}
		before, after := zero, v
		r.counters = append(r.counters, probes.Counter{Role: role, Series: "metric_delta." + c.name, Before: &before, After: &after})
	}
	return nil
}

func readExpected(o object) ([]answer, error) {
	ms, err := o["expected"].members()
	if err != nil {
		return nil, fmt.Errorf("expected: %w", err)
	}
	var out []answer
	for _, m := range ms {
		a := answer{key: m.name, list: m.name == "A3" || m.value.isList()}
		switch {
		case m.value.isNull():
			continue
		case m.value.isList():
			es, err := m.value.elements()
			if err != nil {
				return nil, err
			}
			var parts []string
			for _, e := range es {
				v, ok := answerText(e)
				if !ok {
					return nil, fmt.Errorf("expected: %s holds %s", m.name, excerpt(e.raw))
				}
				parts = append(parts, v)
			}
			a.value = strings.Join(parts, ",")
		default:
			v, ok := answerText(m.value)
			if !ok {
				return nil, fmt.Errorf("expected: %s is %s", m.name, excerpt(m.value.raw))
			}
			a.value = v
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b answer) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

func answerText(n node) (string, bool) {
	if s, ok := n.text(); ok {
		return s, true
	}
	if n.isObject() || n.isList() || n.isNull() || !json.Valid(n.raw) {
		return "", false
	}
	return string(n.raw), true
}

func excerpt(b []byte) string {
	s := strings.ToValidUTF8(string(b[:min(len(b), 40)]), "?")
	if len(b) > 40 {
		s += "…"
	}
	return strings.Join(strings.Fields(s), " ")
}
