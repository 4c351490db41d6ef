package server

import (
	"net/http"
	"unicode/utf8"

	"kvladder/arms/testbed/model"
)

// completions is POST /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	const api = "completions"
	var body struct {
		params
		Prompt   ids  `json:"prompt"`
		Logprobs *int `json:"logprobs"`
	}
	err := readJSON(r, &body)
	if err == nil {
		err = body.check(s.cfg.Name, s.cfg.Adapters, s.cfg.Facts.TraceReplay)
	}
	logprobs := -1
	if err == nil && body.Logprobs != nil {
		if logprobs = *body.Logprobs; logprobs < 0 {
			err = badRequest("`logprobs` must be a non-negative value, got %d.", logprobs)
		}
	}
	if err != nil {
		s.refuse(w, r, api, err)
		return
	}
	if body.Model == nil {
		body.Model = &s.cfg.Name
	}
	req, err := body.request(body.Prompt.resolve(), 16, logprobs, s.cfg.MaxModelLen)
	if err != nil {
		s.refuse(w, r, api, err)
		return
	}
	s.serve(w, r, &job{params: &body.params, request: req, id: "cmpl-" + idOf(r), api: api, form: completionForm{}})
}

// completionForm writes what completions reply.
type completionForm struct{}

func (completionForm) object() string { return "text_completion" }

func (completionForm) open(*job) any { return nil }

type completionChoice struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	Logprobs       *legacyLogprobs `json:"logprobs"`
	FinishReason   any             `json:"finish_reason"`
	StopReason     any             `json:"stop_reason"`
	TokenIDs       []int           `json:"token_ids"`
	PromptLogprobs any             `json:"prompt_logprobs"`
	PromptTokenIDs []int           `json:"prompt_token_ids"`
	RoutedExperts  any             `json:"routed_experts"`
}

func (completionForm) whole(j *job, out *output) any {
	c := completionChoice{Text: out.text, FinishReason: out.finish, StopReason: out.stopReason}
	if j.request.Logprobs >= 0 {
		c.Logprobs = new(legacyLogprobs)
		offset := 0
		for _, ev := range out.events {
			c.Logprobs.add(j.params, ev, offset)
			offset += utf8.RuneCountInString(model.Decode([]int{ev.Token.ID}))
		}
	}
	if j.params.ReturnTokenIDs {
		c.TokenIDs = tokenIDs(out.events)
		c.PromptTokenIDs = j.request.Prompt
	}
	return struct {
		head
		Choices []completionChoice `json:"choices"`
		tail
		KVTransferParams any `json:"kv_transfer_params"`
	}{j.head("text_completion"), []completionChoice{c}, j.tail(out), nil}
}

type completionDelta struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	Logprobs       *legacyLogprobs `json:"logprobs"`
	FinishReason   any             `json:"finish_reason"`
	StopReason     any             `json:"stop_reason"`
	PromptTokenIDs []int           `json:"prompt_token_ids"`
	TokenIDs       []int           `json:"token_ids"`
}

func (completionForm) chunk(j *job, p *piece) any {
	c := completionDelta{Text: p.text, FinishReason: p.finish, StopReason: p.stopReason}
	if j.request.Logprobs >= 0 && len(p.events) > 0 {
		c.Logprobs = new(legacyLogprobs)
		offset := p.offset
		for _, ev := range p.events {
			c.Logprobs.add(j.params, ev, offset)
			offset += utf8.RuneCountInString(model.Decode([]int{ev.Token.ID}))
		}
	}
	if j.params.ReturnTokenIDs {
		c.TokenIDs = tokenIDs(p.events)
		if p.first {
			c.PromptTokenIDs = j.request.Prompt
		}
	}
	return struct {
		head
		Choices []completionDelta `json:"choices"`
	}{j.head("text_completion"), []completionDelta{c}}
}
