package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"kvladder/arms/testbed/model"
)

// message is one turn. Its content is a string or a list of text parts.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func (m message) text() (string, error) {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", badRequest("message content must be a string or a list of text parts")
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if p.Type != "text" {
			return "", badRequest("message part of type %q is not supported by the embedded engine", p.Type)
		}
		texts[i] = p.Text
	}
	return strings.Join(texts, "\n"), nil
}

// template is the chat template: the contents one below the other and nothing
// else. The model answers right behind a question, so nothing may follow it.
func template(messages []message) (string, error) {
	if len(messages) == 0 {
		return "", badRequest("messages must not be empty")
	}
	texts := make([]string, len(messages))
	for i, m := range messages {
		var err error
		if texts[i], err = m.text(); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, "\n"), nil
}

// chat is POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	const api = "chat"
	var body struct {
		params
		Messages            []message `json:"messages"`
		Logprobs            bool      `json:"logprobs"`
		TopLogprobs         *int      `json:"top_logprobs"`
		MaxCompletionTokens *int      `json:"max_completion_tokens"`
	}
	err := readJSON(r, &body)
	if err == nil {
		err = body.check(s.cfg.Name, s.cfg.Adapters, s.cfg.Facts.TraceReplay)
	}
	var text string
	if err == nil {
		text, err = template(body.Messages)
	}
	logprobs := -1
	if body.Logprobs {
		logprobs = 0
	}
	if n := body.TopLogprobs; err == nil && n != nil {
		switch {
		case *n < 0:
			err = badRequest("`top_logprobs` must be a non-negative value, got %d.", *n)
		case *n > 0 && !body.Logprobs:
			err = badRequest("when using `top_logprobs`, `logprobs` must be set to true.")
		case body.Logprobs:
			logprobs = *n
		}
	}
	if err != nil {
		s.refuse(w, r, api, err)
		return
	}
	if body.MaxCompletionTokens != nil {
		body.MaxTokens = body.MaxCompletionTokens
	}
	if body.Model == nil {
		body.Model = &s.cfg.Name
	}
	prompt := model.Encode(text)
	req, err := body.request(prompt, s.cfg.MaxModelLen-len(prompt), logprobs, s.cfg.MaxModelLen)
	if err != nil {
		s.refuse(w, r, api, err)
		return
	}
	s.serve(w, r, &job{params: &body.params, request: req, id: "chatcmpl-" + idOf(r), api: api, form: chatForm{}})
}

// chatForm writes what chat replies.
type chatForm struct{}

func (chatForm) object() string { return "chat.completion.chunk" }

type chatMessage struct {
	Role         string     `json:"role"`
	Content      string     `json:"content"`
	Refusal      any        `json:"refusal"`
	Annotations  any        `json:"annotations"`
	Audio        any        `json:"audio"`
	FunctionCall any        `json:"function_call"`
	ToolCalls    []struct{} `json:"tool_calls"`
	Reasoning    any        `json:"reasoning"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason any           `json:"finish_reason"`
	StopReason   any           `json:"stop_reason"`
	TokenIDs     []int         `json:"token_ids"`
}

func (chatForm) whole(j *job, out *output) any {
	c := chatChoice{
		Message:      chatMessage{Role: "assistant", Content: out.text, ToolCalls: []struct{}{}},
		FinishReason: out.finish,
		StopReason:   out.stopReason,
	}
	if j.request.Logprobs >= 0 {
		c.Logprobs = &chatLogprobs{Content: []chatPosition{}}
		for _, ev := range out.events {
			c.Logprobs.Content = append(c.Logprobs.Content, j.params.chatPosition(ev))
		}
	}
	var prompt []int
	if j.params.ReturnTokenIDs {
		c.TokenIDs, prompt = tokenIDs(out.events), j.request.Prompt
	}
	return struct {
		head
		Choices []chatChoice `json:"choices"`
		tail
		PromptLogprobs   any   `json:"prompt_logprobs"`
		PromptTokenIDs   []int `json:"prompt_token_ids"`
		KVTransferParams any   `json:"kv_transfer_params"`
	}{j.head("chat.completion"), []chatChoice{c}, j.tail(out), nil, prompt, nil}
}

func (chatForm) open(j *job) any {
	var prompt []int
	if j.params.ReturnTokenIDs {
		prompt = j.request.Prompt
	}
	type choice struct {
		Index        int               `json:"index"`
		Delta        map[string]string `json:"delta"`
		Logprobs     any               `json:"logprobs"`
		FinishReason any               `json:"finish_reason"`
	}
	return struct {
		head
		Choices        []choice `json:"choices"`
		PromptTokenIDs []int    `json:"prompt_token_ids"`
	}{
		j.head("chat.completion.chunk"),
		[]choice{{Delta: map[string]string{"role": "assistant", "content": ""}}},
		prompt,
	}
}

type chatDelta struct {
	Index int `json:"index"`
	Delta struct {
		Content string `json:"content"`
	} `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason any           `json:"finish_reason"`
	StopReason   any           `json:"stop_reason,omitempty"`
	TokenIDs     []int         `json:"token_ids"`
}

func (chatForm) chunk(j *job, p *piece) any {
	c := chatDelta{FinishReason: p.finish, StopReason: p.stopReason}
	c.Delta.Content = p.text
	if j.request.Logprobs >= 0 {
		c.Logprobs = &chatLogprobs{Content: []chatPosition{}}
		for _, ev := range p.events {
			c.Logprobs.Content = append(c.Logprobs.Content, j.params.chatPosition(ev))
		}
	}
	if j.params.ReturnTokenIDs {
		c.TokenIDs = tokenIDs(p.events)
	}
	return struct {
		head
		Choices []chatDelta `json:"choices"`
	}{j.head("chat.completion.chunk"), []chatDelta{c}}
}
