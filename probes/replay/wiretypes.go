package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"
)

// chunk is any JSON object that an engine sends: a whole reply, one event of a stream, or
// an error. go-openai's own response types would lose what matters here: they read an
// absent count and a null log-probability as 0, and do not know token_ids or reasoning.
type chunk struct {
	Object  string          `json:"object"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message json.RawMessage `json:"message"` // of an error object without a wrapping

	// llama-server's own reply
	Content         *string        `json:"content"`
	Tokens          tokenIDs       `json:"tokens"`
	Probabilities   []tokenLogprob `json:"completion_probabilities"`
	Timings         *timings       `json:"timings"`
	TokensEvaluated *int           `json:"tokens_evaluated"` // the whole prompt
	TokensPredicted *int           `json:"tokens_predicted"`
	Stop            *bool          `json:"stop"`
	Slot            *int           `json:"id_slot"`
	StopType        string         `json:"stop_type"`
}

type choice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Message  *message            `json:"message"`
	Delta    *message            `json:"delta"`
	Logprobs *logprobs           `json:"logprobs"`
	Finish   openai.FinishReason `json:"finish_reason"`
	TokenIDs tokenIDs            `json:"token_ids"`
}

// message is go-openai's delta, which a whole message also fits, with the member that
// vLLM renamed; calls of functions are not read.
type message struct {
	openai.ChatCompletionStreamChoiceDelta
	Reasoning    string          `json:"reasoning"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	FunctionCall json.RawMessage `json:"function_call"`
}

type usage struct {
	Prompt        *int `json:"prompt_tokens"`
	Completion    *int `json:"completion_tokens"`
	PromptDetails *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type timings struct {
	CacheN     *int `json:"cache_n"`
	PromptN    *int `json:"prompt_n"`
	PredictedN *int `json:"predicted_n"`
}

// logprobs is either of the two forms that completions come with.
type logprobs struct {
	Tokens        []string         `json:"tokens"`
	TokenLogprobs []number         `json:"token_logprobs"`
	Top           []candidates     `json:"top_logprobs"`
	Content       []tokenLogprob   `json:"content"`
	Offsets       *json.RawMessage `json:"text_offset"`
}

type tokenLogprob struct {
	ID      *int           `json:"id"`
	Token   string         `json:"token"`
	Logprob number         `json:"logprob"`
	Top     []tokenLogprob `json:"top_logprobs"`
}

// failure is what an error object says, "" for anything else.
func (c *chunk) failure() string {
	if len(c.Error) > 0 && string(c.Error) != "null" {
		var e openai.APIError
		if err := json.Unmarshal(c.Error, &e); err == nil && e.Message != "" {
			return e.Message
		}
		return unquote(c.Error)
	}
	if c.Object == "error" {
		return unquote(c.Message)
	}
	return ""
}

// hasToken reports whether the event brings a part of the answer: the first event of a
// chat names the role only.
func (c *chunk) hasToken() bool {
	if len(c.Tokens) > 0 || (c.Content != nil && *c.Content != "") {
		return true
	}
	for i := range c.Choices {
		ch := &c.Choices[i]
		if ch.Text != "" || len(ch.TokenIDs) > 0 || ch.Logprobs != nil {
			return true
		}
		if d := ch.Delta; d != nil && (d.Content != "" || d.Reasoning != "" || d.ReasoningContent != "") {
			return true
		}
	}
	return false
}

// unquote is the string that b is, or b itself.
func unquote(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) == nil {
		return s
	}
	return excerpt(b)
}

// number is a number that may be absent, null, or not finite.
type number struct {
	v   float64
	set bool // a finite number came
	odd bool // something came, and it was not a finite number
}

func (n *number) value() *float64 {
	if !n.set {
		return nil
	}
	return &n.v
}

// UnmarshalJSON takes numbers, null, and the strings that some servers write for numbers
// that are not finite.
func (n *number) UnmarshalJSON(b []byte) error {
	*n = number{odd: true}
	if string(b) == "null" {
		return nil
	}
	s := string(b)
	if b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return err
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	*n = number{v: v, set: true}
	return nil
}

// tokenIDs is a list of ids. Some servers put objects in a member of that name when they
// are asked for pieces; those carry the id as id.
type tokenIDs []int

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	var ids []int
	if err := json.Unmarshal(b, &ids); err == nil {
		*t = ids
		return nil
	}
	var objs []struct {
		ID int `json:"id"`
	}
	if err := json.Unmarshal(b, &objs); err != nil {
		return err
	}
	*t = nil
	for _, o := range objs {
		*t = append(*t, o.ID)
	}
	return nil
}

// candidates is a JSON object from token to log-probability, in the engine's order: equal
// numbers are ranked by it, and a map would forget it.
type candidates []candidate

type candidate struct {
	token   string
	logprob number
}

// UnmarshalJSON implements json.Unmarshaler. It walks the object by hand, since a decoder
// for each of them took most of the time of a reply; encoding/json has
// checked the syntax before it calls this.
func (cs *candidates) UnmarshalJSON(b []byte) error {
	*cs = nil
	if string(b) == "null" {
		return nil
	}
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return errors.New("candidates are not an object")
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; {
		var c candidate
		end := stringEnd(b, i)
		if key := b[i+1 : max(i+1, end-1)]; bytes.IndexByte(key, '\\') < 0 && utf8.Valid(key) {
			c.token = string(key)
		} else if err := json.Unmarshal(b[i:end], &c.token); err != nil {
			return err
		}
		i = space(b, end)
		if i == len(b) || b[i] != ':' {
			return errors.New("candidates are not an object")
		}
		i = space(b, i+1)
		end = i
		if i < len(b) && b[i] == '"' {
			end = stringEnd(b, i)
		} else {
			for end < len(b) && b[end] != ',' && b[end] != '}' && b[end] > ' ' {
				end++
			}
		}
		if end == i {
			return errors.New("a candidate has no number")
		}
		if err := c.logprob.UnmarshalJSON(b[i:end]); err != nil {
			return err
		}
		*cs = append(*cs, c)
		if i = space(b, end); i < len(b) && b[i] == ',' {
			i = space(b, i+1)
		}
	}
	if i == len(b) || b[i] != '}' {
		return errors.New("candidates are not an object of numbers")
	}
	return nil
}

// space is the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the index behind the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(b))
}

// unmarshal is json.Unmarshal that takes NaN, Infinity and -Infinity for null.
func unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if fixed, ok := withoutNaN(b); ok {
			return json.Unmarshal(fixed, v)
		}
	}
	return err
}

// withoutNaN puts null in the place of the literals that JSON does not have, outside of
// strings, and reports whether there were any.
func withoutNaN(b []byte) ([]byte, bool) {
	var out []byte
	last := 0
	for i := 0; i < len(b); {
		if b[i] == '"' {
			i = stringEnd(b, i)
			continue
		}
		n := 0
		if !strings.ContainsRune("NIni-", rune(b[i])) {
			i++
			continue
		}
		for _, lit := range []string{"NaN", "Infinity", "-Infinity", "nan", "-nan", "inf", "-inf"} {
			if n == 0 && strings.HasPrefix(string(b[i:min(len(b), i+len("-Infinity"))]), lit) {
				n = len(lit)
			}
		}
		if n == 0 || (i > 0 && isWord(b[i-1])) || (i+n < len(b) && isWord(b[i+n])) {
			i++
			continue
		}
		out = append(append(out, b[last:i]...), "null"...)
		i += n
		last = i
	}
	if out == nil {
		return b, false
	}
	return append(out, b[last:]...), true
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '+'
}
