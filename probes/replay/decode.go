package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"kvladder/probes"
)

// Dialects name how an engine words its replies.
const (
	// VLLM is the OpenAI wire form with vLLM's members: token_ids, reasoning, token_id:N.
	VLLM = "vllm"
	// LlamaCPP is llama-server's own /completion, and its form of /v1/completions.
	LlamaCPP = "llamacpp"
)

// Error kinds of a probes.Reply.
const (
	KindTransport = "transport" // no whole reply came
	KindTimeout   = "timeout"   // it did not come in time
	KindHTTP      = "http"      // a status other than 2xx
	KindDecode    = "decode"    // 2xx, and the body is not a reply of the dialect
	KindModel     = "model"     // 2xx, and the engine reports an error in the body
)

// DecodeError says why a body is not a good reply.
type DecodeError struct {
	Kind string // KindHTTP, KindDecode or KindModel
	What string
}

func (e *DecodeError) Error() string { return e.What }

func decodeErrorf(kind, format string, args ...any) *DecodeError {
	return &DecodeError{Kind: kind, What: fmt.Sprintf(format, args...)}
}

// Decode reads a reply body: JSON, or a stream of server-sent events, whichever the bytes
// are. It is a pure function of its arguments, so that a verifier can decode a transcript
// again and compare. Its error is a *DecodeError; what could be read before the error
// comes with it.
//
// Unknown and repeated members are tolerated. NaN and the infinities, which some servers
// write although JSON has no such literals, count as null, and a null log-probability is
// marked NonFinite: llama-server reports NaN logits in this way, with status 200.
func Decode(dialect string, status int, raw []byte) (probes.Decoded, error) {
	switch dialect {
	case VLLM, LlamaCPP:
	default:
		return probes.Decoded{}, decodeErrorf(KindDecode, "no decoder for the dialect %q: use %q or %q", dialect, VLLM, LlamaCPP)
	}
	if status < 200 || status > 299 {
		return probes.Decoded{}, decodeErrorf(KindHTTP, "HTTP %d: %s", status, refusal(raw))
	}
	b := bytes.TrimLeft(raw, " \t\r\n\ufeff")
	d := decoder{llama: dialect == LlamaCPP}
	var err error
	switch {
	case len(b) == 0:
		err = decodeErrorf(KindDecode, "the body is empty")
	case b[0] == '<':
		err = decodeErrorf(KindDecode, "the body is not JSON but a page: %s", excerpt(b))
	case b[0] == '{':
		err = d.whole(b)
	case isStream(b):
		err = d.stream(b)
	default:
		err = decodeErrorf(KindDecode, "the body is neither a JSON object nor an event stream: %s", excerpt(b))
	}
	return d.out, err
}

// decoder gathers a reply from one body or from many chunks of it.
type decoder struct {
	llama   bool
	out     probes.Decoded
	replied bool // something of a reply came
	ended   bool // the engine said that this is the end
}

// whole reads a body that is one JSON object.
func (d *decoder) whole(b []byte) error {
	var c chunk
	if err := unmarshal(b, &c); err != nil {
		return decodeErrorf(KindDecode, "the body is not JSON: %v: %s", err, excerpt(b))
	}
	if err := d.add(&c); err != nil {
		return err
	}
	if !d.replied {
		return decodeErrorf(KindDecode, "the body is JSON, and not a reply in the dialect: %s", excerpt(b))
	}
	return nil
}

// stream reads a body of server-sent events.
func (d *decoder) stream(b []byte) error {
	n := 0
	for field, data := range events(b) {
		if field == "data" && bytes.Equal(data, []byte("[DONE]")) {
			d.ended = true
			break
		}
		n++
		var c chunk
		if err := unmarshal(data, &c); err != nil {
			return decodeErrorf(KindDecode, "event %d of the stream is not JSON: %v: %s", n, err, excerpt(data))
		}
		if field == "error" && c.failure() == "" {
			return decodeErrorf(KindModel, "the engine reported in event %d: %s", n, excerpt(data))
		}
		if err := d.add(&c); err != nil {
			var de *DecodeError
			if errors.As(err, &de) {
				de.What = fmt.Sprintf("event %d of the stream: %s", n, de.What)
			}
			return err
		}
	}
	if !d.replied {
		return decodeErrorf(KindDecode, "the stream holds no reply in the dialect: %s", excerpt(b))
	}
	if !d.ended {
		return decodeErrorf(KindDecode, "the stream ended after event %d without saying that it was the end", n)
	}
	return nil
}

// add takes in one JSON object.
func (d *decoder) add(c *chunk) error {
	if what := c.failure(); what != "" {
		return decodeErrorf(KindModel, "the engine reported: %s", what)
	}
	if c.Model != "" {
		d.out.Model = c.Model
	}
	if u := c.Usage; u != nil {
		keep(&d.out.Usage.Prompt, u.Prompt)
		keep(&d.out.Usage.Completion, u.Completion)
		if u.PromptDetails != nil {
			keep(&d.out.Usage.Cached, u.PromptDetails.Cached)
		}
	}
	if d.llama {
		if err := d.addLlama(c); err != nil {
			return err
		}
	}
	d.replied = d.replied || len(c.Choices) > 0 || (d.llama && c.Content != nil)
	for i := range c.Choices {
		ch := &c.Choices[i]
		if i > 0 || ch.Index != 0 {
			return decodeErrorf(KindDecode, "the reply has more than one choice (index %d), and one was asked for: which of them is the answer is not known", ch.Index)
		}
		if err := d.addChoice(ch); err != nil {
			return err
		}
	}
	if d.out.Finish == "error" {
		return decodeErrorf(KindModel, "the engine gave up: finish reason is error")
	}
	return nil
}

// addLlama takes in the members of llama-server's own reply. timings.cache_n counts the
// prompt tokens taken from a slot or a checkpoint and timings.prompt_n those evaluated;
// tokens_cached is neither: it counts what the slot holds afterwards.
func (d *decoder) addLlama(c *chunk) error {
	if t := c.Timings; t != nil {
		keep(&d.out.Usage.Cached, t.CacheN)
		keep(&d.out.Usage.Computed, t.PromptN)
		keep(&d.out.Usage.Completion, t.PredictedN)
	}
	keep(&d.out.Slot, c.Slot)
	keep(&d.out.Usage.Prompt, c.TokensEvaluated)
	keep(&d.out.Usage.Completion, c.TokensPredicted)
	if c.Content != nil {
		d.out.Text += *c.Content
	}
	if c.Stop != nil && *c.Stop {
		d.ended = true
	}
	switch c.StopType {
	case "":
	case "eos", "word":
		d.out.Finish = string(openai.FinishReasonStop)
	case "limit":
		d.out.Finish = string(openai.FinishReasonLength)
	default:
		d.out.Finish = c.StopType
	}
	return d.addTokens(c.Tokens, fromContent(c.Probabilities))
}

func (d *decoder) addChoice(c *choice) error {
	d.out.Text += c.Text
	for _, m := range []*message{c.Message, c.Delta} {
		if m != nil {
			d.out.Text += m.Content
			// Engines that renamed the member send both for a while.
			if m.Reasoning != "" {
				d.out.Reasoning += m.Reasoning
			} else {
				d.out.Reasoning += m.ReasoningContent
			}
		}
	}
	if c.Finish != "" {
		d.out.Finish = string(c.Finish)
	}
	var ts []probes.Token
	if l := c.Logprobs; l != nil {
		if len(l.Content) > 0 {
			ts = fromContent(l.Content)
		} else {
			var err error
			if ts, err = fromArrays(l); err != nil {
				return err
			}
		}
	}
	return d.addTokens(c.TokenIDs, ts)
}

// addTokens joins the ids and the log-probabilities of the same tokens.
func (d *decoder) addTokens(ids []int, ts []probes.Token) error {
	switch {
	case len(ids) == 0:
	case len(ts) == 0:
		ts = make([]probes.Token, len(ids))
		for i, id := range ids {
			ts[i].ID = id
		}
	case len(ts) != len(ids):
		return decodeErrorf(KindDecode, "%d token ids came with %d log-probabilities", len(ids), len(ts))
	default:
		for i, id := range ids {
			if ts[i].ID >= 0 && ts[i].ID != id {
				return decodeErrorf(KindDecode, "token %d is %d by its id and %d by its log-probability", len(d.out.Tokens)+i, id, ts[i].ID)
			}
			ts[i].ID = id
		}
	}
	d.out.Tokens = append(d.out.Tokens, ts...)
	return nil
}

// fromContent reads chat-style log-probabilities, which llama-server also uses in its own
// replies.
func fromContent(content []tokenLogprob) []probes.Token {
	var ts []probes.Token
	for i := range content {
		c := &content[i]
		t := probes.Token{Logprob: c.Logprob.value(), NonFinite: c.Logprob.odd}
		t.ID, t.Text = identify(c.ID, c.Token)
		for j := range c.Top {
			cand := probes.Candidate{Logprob: c.Top[j].Logprob.value()}
			cand.ID, cand.Text = identify(c.Top[j].ID, c.Top[j].Token)
			t.Top = append(t.Top, cand)
		}
		best(t.Top)
		ts = append(ts, t)
	}
	return ts
}

// fromArrays reads the legacy parallel arrays of /v1/completions.
func fromArrays(l *logprobs) ([]probes.Token, error) {
	n := len(l.Tokens)
	if len(l.TokenLogprobs) != n || (len(l.Top) > 0 && len(l.Top) != n) {
		return nil, decodeErrorf(KindDecode, "%d tokens came with %d log-probabilities and %d lists of candidates", n, len(l.TokenLogprobs), len(l.Top))
	}
	var ts []probes.Token
	for i, text := range l.Tokens {
		t := probes.Token{Logprob: l.TokenLogprobs[i].value(), NonFinite: l.TokenLogprobs[i].odd}
		t.ID, t.Text = identify(nil, text)
		if len(l.Top) > 0 {
			for _, e := range l.Top[i] {
				cand := probes.Candidate{Logprob: e.logprob.value()}
				cand.ID, cand.Text = identify(nil, e.token)
				t.Top = append(t.Top, cand)
			}
			best(t.Top)
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// identify is a token's id and text: "token_id:N" is what vLLM writes for the text when
// it is asked to return tokens as token ids.
func identify(id *int, text string) (int, string) {
	if s, ok := strings.CutPrefix(text, "token_id:"); ok {
		if n, err := strconv.Atoi(s); err == nil && n >= 0 {
			return n, ""
		}
	}
	if id != nil && *id >= 0 {
		return *id, text
	}
	return -1, text
}

// best sorts candidates by falling log-probability. Ties keep the engine's order, and
// those without a number go last.
func best(cs []probes.Candidate) {
	slices.SortStableFunc(cs, func(a, b probes.Candidate) int {
		switch {
		case a.Logprob == nil && b.Logprob == nil:
			return 0
		case a.Logprob == nil:
			return 1
		case b.Logprob == nil:
			return -1
		case *a.Logprob > *b.Logprob:
			return -1
		case *a.Logprob < *b.Logprob:
			return 1
		}
		return 0
	})
}

func keep(dst **int, v *int) {
	if v != nil {
		*dst = v
	}
}

// refusal is what an error body says.
func refusal(raw []byte) string {
	var c chunk
	if err := unmarshal(raw, &c); err == nil {
		if what := c.failure(); what != "" {
			return what
		}
		var m struct{ Message, Detail json.RawMessage }
		if json.Unmarshal(raw, &m) == nil {
			for _, b := range [][]byte{m.Message, m.Detail} {
				if len(b) > 0 {
					return unquote(b)
				}
			}
		}
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return "no body"
	}
	return excerpt(raw)
}

// excerpt is the beginning of b, fit to stand in an error.
func excerpt(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), 200)]), "\ufffd")), " ")
	if len(b) > 200 {
		s += "…"
	}
	return s
}
