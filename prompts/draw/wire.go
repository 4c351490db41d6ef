package draw

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Wire builds the exact bytes of request bodies. Members come in a fixed order, without
// white space, and greedy sampling with a fixed seed is always spelled out: a server's
// default never decides.
type Wire struct {
	Dialect string // "vllm" (POST /v1/completions) or "llamacpp" (POST /completion)
	Model   string // vllm: the served model name
	Salt    string // vllm: cache_salt, a namespace of the prefix cache; "" sends none
	Image   string // testbed: mm_hash, the digest of the image that the prompt shows; "" sends none

	IgnoreEOS bool // vllm: the reply is as long as it may be
}

// Path is the URL path that bodies of the dialect go to.
func (w Wire) Path() (string, error) {
	switch w.Dialect {
	case "vllm":
		return "/v1/completions", nil
	case "llamacpp":
		return "/completion", nil
	}
	return "", fmt.Errorf("dialect %q is unknown: use vllm or llamacpp", w.Dialect)
}

// Body asks for up to n tokens after the prompt ids. slot is llama-server's id_slot; nil
// leaves the choice to the server.
//
// For llama-server neither samplers nor cache_prompt is sent: an empty sampler list turns
// greedy choice off, and caching is its default.
func (w Wire) Body(ids []int, n int, slot *int) string {
	b := []byte{'{'}
	if w.Dialect == "llamacpp" {
		b = member(b, "prompt", ids)
		b = member(b, "n_predict", n)
		b = append(b, `"temperature":0,"seed":1,"n_probs":20,"return_tokens":true,`...)
		if slot != nil {
			b = member(b, "id_slot", *slot)
		}
	} else {
		b = member(b, "model", w.Model)
		b = member(b, "prompt", ids)
		b = member(b, "max_tokens", n)
		b = append(b, `"temperature":0,"seed":0,"logprobs":20,"return_token_ids":true,`...)
		if w.Salt != "" {
			b = member(b, "cache_salt", w.Salt)
		}
		if w.Image != "" {
			b = member(b, "mm_hash", w.Image)
		}
		if w.IgnoreEOS {
			b = append(b, `"ignore_eos":true,`...)
		}
	}
	return string(append(b, `"stream":false}`...))
}

func member(b []byte, name string, v any) []byte {
	b = append(strconv.AppendQuote(b, name), ':')
	j, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, ints and lists of ints only
	}
	return append(append(b, j...), ',')
}
