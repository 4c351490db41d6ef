package server

import (
	"math"
	"strconv"
	"unicode/utf8"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// number is a logprob on the wire: as many digits as make it the same float64
// again, null when it is not a number, and vLLM's floor of -9999 below that.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	x := float64(n)
	if math.IsNaN(x) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Max(x, -9999), 'g', -1, 64), nil
}

// ranking is one position's alternatives: an object from token to logprob in
// the order given, a token of the same name as an earlier one left out.
type ranking []named

type named struct {
	token   string
	logprob number
}

func (r ranking) MarshalJSON() ([]byte, error) {
	buf := []byte("{")
	seen := make(map[string]bool, len(r))
	for _, n := range r {
		key := encode(n.token)
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		if len(buf) > 1 {
			buf = append(buf, ',')
		}
		value, _ := n.logprob.MarshalJSON()
		buf = append(append(append(buf, key...), ':'), value...)
	}
	return append(buf, '}'), nil
}

// tokenName is how a token is written in logprobs.
func (p *params) tokenName(id int) string {
	if p.ReturnTokensAsTokenIDs {
		return "token_id:" + strconv.Itoa(id)
	}
	switch id { // tokens without text need a name all the same
	case model.BOS:
		return "<bos>"
	case model.EOS:
		return "<eos>"
	}
	return model.TokenString(id)
}

// legacyLogprobs is the logprobs member of a completion.
type legacyLogprobs struct {
	TextOffset    []int     `json:"text_offset"`
	TokenLogprobs []number  `json:"token_logprobs"`
	Tokens        []string  `json:"tokens"`
	TopLogprobs   []ranking `json:"top_logprobs"`
}

// add appends a position. The chosen token leads its ranking whether or not it
// is among the most likely, as in vLLM.
func (l *legacyLogprobs) add(p *params, ev sched.Event, offset int) {
	name := p.tokenName(ev.Token.ID)
	l.TextOffset = append(l.TextOffset, offset)
	l.TokenLogprobs = append(l.TokenLogprobs, number(ev.Token.Logprob))
	l.Tokens = append(l.Tokens, name)
	top := ranking{{name, number(ev.Token.Logprob)}}
	for _, a := range ev.Top {
		if a.ID != ev.Token.ID {
			top = append(top, named{p.tokenName(a.ID), number(a.Logprob)})
		}
	}
	l.TopLogprobs = append(l.TopLogprobs, top)
}

// chatLogprob is a token in the logprobs member of a chat choice.
type chatLogprob struct {
	Token   string `json:"token"`
	Logprob number `json:"logprob"`
	Bytes   []int  `json:"bytes"`
}

type chatLogprobs struct {
	Content []chatPosition `json:"content"`
}

// chatPosition is the token chosen and, perhaps none, its alternatives.
type chatPosition struct {
	chatLogprob
	Top []chatLogprob `json:"top_logprobs"`
}

func (p *params) chatPosition(ev sched.Event) chatPosition {
	one := func(a sched.Alternative) chatLogprob {
		text := model.TokenString(a.ID)
		raw := make([]int, len(text))
		for i := range len(text) {
			raw[i] = int(text[i])
		}
		return chatLogprob{Token: p.tokenName(a.ID), Logprob: number(a.Logprob), Bytes: raw}
	}
	pos := chatPosition{chatLogprob: one(ev.Token), Top: []chatLogprob{}}
	for _, a := range ev.Top {
		pos.Top = append(pos.Top, one(a))
	}
	return pos
}

// usage counts tokens. The details are always there, zero or not.
type usage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	PromptDetails    usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func usageOf(prompt, completion int, s sched.Split) *usage {
	return &usage{
		PromptTokens:     prompt,
		CompletionTokens: completion,
		TotalTokens:      prompt + completion,
		PromptDetails:    usageDetails{CachedTokens: s.Local + s.External},
	}
}

// shown returns the longest prefix of a growing text that may be sent: no
// unfinished UTF-8 sequence at its end, and nothing of its last hold bytes.
func shown(text string, hold int) string {
	text = text[:max(0, len(text)-hold)]
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		tail := text[len(text)-back:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return text[:len(text)-back]
			}
			break
		}
	}
	return text
}
