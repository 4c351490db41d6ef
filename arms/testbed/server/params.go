package server

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// params is what completions and chat have in common.
type params struct {
	Model       *string  `json:"model"`
	MaxTokens   *int     `json:"max_tokens"`
	Temperature *float64 `json:"temperature"`
	Seed        *int64   `json:"seed"`
	Stream      bool     `json:"stream"`
	IgnoreEOS   bool     `json:"ignore_eos"`
	CacheSalt   *string  `json:"cache_salt"`
	MMHash      *string  `json:"mm_hash"` // digest of the image that placeholder tokens stand for
	Stop        stops    `json:"stop"`
	adapter     string   // that Model names
	StopIDs     []int    `json:"stop_token_ids"`

	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	Trace                  []int `json:"trace_decode_token_ids"` // the reply, token by token
	ReturnTokenIDs         bool  `json:"return_token_ids"`
	ReturnTokensAsTokenIDs bool  `json:"return_tokens_as_token_ids"`

	// What changes answers and is not done here. Each is refused unless it has
	// the value that changes nothing.
	N                 *int            `json:"n"`
	BestOf            *int            `json:"best_of"`
	Echo              bool            `json:"echo"`
	Suffix            *string         `json:"suffix"`
	TopP              *float64        `json:"top_p"`
	TopK              *int            `json:"top_k"`
	MinP              *float64        `json:"min_p"`
	MinTokens         *int            `json:"min_tokens"`
	PresencePenalty   *float64        `json:"presence_penalty"`
	FrequencyPenalty  *float64        `json:"frequency_penalty"`
	RepetitionPenalty *float64        `json:"repetition_penalty"`
	LogitBias         json.RawMessage `json:"logit_bias"`
	PromptLogprobs    *int            `json:"prompt_logprobs"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	Tools             json.RawMessage `json:"tools"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params"`
	TruncatePrompt    *int            `json:"truncate_prompt_tokens"`
	ResponseFormat    *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

// stops is a string or a list of strings.
type stops []string

func (s *stops) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		if *s = nil; string(b) != "null" {
			*s = stops{one}
		}
		return nil
	}
	var many []string
	if err := json.Unmarshal(b, &many); err != nil {
		return badRequest("stop must be a string or a list of strings")
	}
	*s = many
	return nil
}

// check refuses what this engine would have to ignore.
func (p *params) check(name string, adapters []string, traces bool) error {
	adapter, found := "", true
	if p.Model != nil && *p.Model != name {
		adapter, found = strings.CutPrefix(*p.Model, name+":")
		found = found && slices.Contains(adapters, adapter)
	}
	p.adapter = adapter
	if !found {
		return &apiError{
			status: http.StatusNotFound, kind: "NotFoundError", param: "model",
			message: "The model `" + *p.Model + "` does not exist.",
		}
	}
	given := func(raw json.RawMessage) bool {
		raw = bytes.TrimSpace(raw)
		return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && !bytes.Equal(raw, []byte("{}")) && !bytes.Equal(raw, []byte("[]"))
	}
	differs := func(v *float64, neutral float64) bool { return v != nil && *v != neutral }
	for _, u := range []struct {
		name string
		used bool
	}{
		{"n", p.N != nil && *p.N != 1},
		{"best_of", p.BestOf != nil && *p.BestOf != 1},
		{"echo", p.Echo},
		{"suffix", p.Suffix != nil && *p.Suffix != ""},
		{"top_p", differs(p.TopP, 1)},
		{"top_k", p.TopK != nil && *p.TopK > 0},
		{"min_p", differs(p.MinP, 0)},
		{"min_tokens", p.MinTokens != nil && *p.MinTokens > 0},
		{"presence_penalty", differs(p.PresencePenalty, 0)},
		{"frequency_penalty", differs(p.FrequencyPenalty, 0)},
		{"repetition_penalty", differs(p.RepetitionPenalty, 1)},
		{"logit_bias", given(p.LogitBias)},
		{"prompt_logprobs", p.PromptLogprobs != nil},
		{"structured_outputs", given(p.StructuredOutputs)},
		{"tools", given(p.Tools)},
		{"kv_transfer_params", given(p.KVTransferParams)},
		{"truncate_prompt_tokens", p.TruncatePrompt != nil},
		{"response_format", p.ResponseFormat != nil && p.ResponseFormat.Type != "text"},
	} {
		if u.used {
			e := badRequest("%s is not supported by the embedded engine", u.name)
			e.param = u.name
			return e
		}
	}
	if p.Trace != nil {
		e := badRequest("trace_decode_token_ids is off: start the server with --enable-trace-replay")
		switch {
		case traces && len(p.Trace) == 0:
			e = badRequest("trace_decode_token_ids must not be empty")
		case traces:
			e = nil
		}
		if e != nil {
			e.param = "trace_decode_token_ids"
			return e
		}
	}
	if p.StreamOptions != nil && !p.Stream {
		return badRequest("Stream options can only be defined when `stream=True`.")
	}
	if p.Temperature != nil && !(*p.Temperature >= 0) {
		return badRequest("temperature must be non-negative, got %v.", *p.Temperature)
	}
	if p.CacheSalt != nil && *p.CacheSalt == "" {
		return badRequest("Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	for _, stop := range p.Stop {
		if stop == "" {
			return badRequest("stop cannot contain an empty string.")
		}
	}
	return nil
}

// request turns checked parameters into work. maxTokens is the default and
// logprobs the number of alternatives, negative for none.
func (p *params) request(prompt []int, maxTokens, logprobs, maxLen int) (sched.Request, error) {
	if len(prompt) == 0 {
		return sched.Request{}, badRequest("prompt must not be empty")
	}
	for i, id := range prompt {
		if id < 0 || id >= model.Vocab {
			return sched.Request{}, badRequest("Token id %d is out of vocabulary (prompt position %d, vocabulary of %d)", id, i, model.Vocab)
		}
	}
	if p.MaxTokens != nil {
		maxTokens = *p.MaxTokens
	}
	trace := p.Trace[:max(0, min(len(p.Trace), maxLen-len(prompt)))]
	for i, id := range trace {
		if id < 0 || id >= model.Vocab {
			return sched.Request{}, badRequest("Token id %d is out of vocabulary (trace_decode_token_ids position %d, vocabulary of %d)", id, i, model.Vocab)
		}
	}
	if len(trace) > 0 {
		maxTokens = len(trace) // as vLLM's documentation has it, whatever was asked for
	}
	if len(prompt) >= maxLen {
		return sched.Request{}, badRequest("This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", maxLen, len(prompt))
	}
	if maxTokens < 1 {
		return sched.Request{}, badRequest("max_tokens must be at least 1, got %d.", maxTokens)
	}
	if len(prompt)+maxTokens > maxLen {
		return sched.Request{}, badRequest("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the prompt, %d in the completion). Please reduce the length of the prompt or of the completion.", maxLen, len(prompt)+maxTokens, len(prompt), maxTokens)
	}
	if logprobs > maxLogprobs {
		return sched.Request{}, badRequest("Requested sample logprobs of %d, which is greater than max allowed: %d", logprobs, maxLogprobs)
	}
	r := sched.Request{
		Prompt:      prompt,
		MaxTokens:   maxTokens,
		IgnoreEOS:   p.IgnoreEOS,
		Logprobs:    logprobs,
		Temperature: 1, // vLLM's default, a sampled one
		Seed:        rand.Uint64(),
		Trace:       trace,
	}
	if p.Temperature != nil {
		r.Temperature = *p.Temperature
	}
	if r.Temperature > 0 {
		// vLLM raises smaller temperatures, among them the stand-ins for 0 that
		// some clients send, to a hundredth, and samples.
		r.Temperature = max(r.Temperature, 0.01)
	}
	if p.Seed != nil {
		r.Seed = uint64(*p.Seed)
	}
	r.Who.Adapter = p.adapter
	if p.CacheSalt != nil {
		r.Who.Salt = *p.CacheSalt
	}
	if p.MMHash != nil {
		r.Who.Image = *p.MMHash
	}
	if len(p.Stop)+len(p.StopIDs) > 0 {
		var text strings.Builder
		r.Stop = func(output []int) bool {
			last := output[len(output)-1]
			text.WriteString(model.Decode([]int{last}))
			reason, _ := p.stopped(text.String(), last)
			return reason != nil
		}
	}
	return r, nil
}

// stopped returns what ended an output, a string or a token id, and how much of
// the text is to be shown; nil when nothing did.
func (p *params) stopped(text string, last int) (reason any, shown int) {
	shown = len(text)
	for _, stop := range p.Stop {
		if i := strings.Index(text, stop); i >= 0 && i < shown {
			reason, shown = stop, i
		}
	}
	if reason != nil {
		return reason, shown
	}
	for _, id := range p.StopIDs {
		if id == last {
			return id, shown
		}
	}
	return nil, shown
}

// holdBack returns how many bytes of a growing text may not be shown yet,
// because they may turn out to begin a stop string.
func (p *params) holdBack() int {
	n := 0
	for _, stop := range p.Stop {
		n = max(n, len(stop)-1)
	}
	return n
}

// ids is a prompt: a string, token ids, or a list of exactly one of either.
type ids struct {
	text   string
	tokens []int
	isText bool
}

func (p *ids) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil && string(b) != "null" {
		*p = ids{text: text, isText: true}
		return nil
	}
	var tokens []int
	if json.Unmarshal(b, &tokens) == nil {
		*p = ids{tokens: tokens}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return badRequest("prompt must be a string, a list of token ids, or a list of one of them")
	}
	if len(list) != 1 {
		return badRequest("prompt has %d parts: the embedded engine takes one prompt per request", len(list))
	}
	var inner ids
	if list[0][0] == '[' || list[0][0] == '"' {
		if err := inner.UnmarshalJSON(list[0]); err != nil {
			return err
		}
		*p = inner
		return nil
	}
	return badRequest("prompt must be a string, a list of token ids, or a list of one of them")
}

// resolve returns the token ids. Text gets its <bos>; ids are taken as they are.
func (p *ids) resolve() []int {
	if p.isText {
		return model.Encode(p.text)
	}
	return p.tokens
}
