package server

import (
	"net/http"

	"kvladder/arms/testbed/model"
)

// tokenize is POST /tokenize, of a prompt or of messages.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model            *string   `json:"model"`
		Prompt           *string   `json:"prompt"`
		Messages         []message `json:"messages"`
		AddSpecialTokens *bool     `json:"add_special_tokens"`
		ReturnTokenStrs  bool      `json:"return_token_strs"`
	}
	err := readJSON(r, &body)
	text := ""
	switch {
	case err != nil:
	case body.Prompt != nil:
		text = *body.Prompt
	case body.Messages != nil:
		text, err = template(body.Messages)
	default:
		err = badRequest("either prompt or messages must be given")
	}
	if err != nil {
		fail(w, err)
		return
	}
	tokens := model.Encode(text)
	if body.AddSpecialTokens != nil && !*body.AddSpecialTokens {
		tokens = tokens[1:] // Encode leads with <bos>, the only special token it makes
	}
	var names []string
	if body.ReturnTokenStrs {
		names = make([]string, len(tokens))
		for i, id := range tokens {
			names[i] = model.TokenString(id)
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int    `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(tokens), s.cfg.MaxModelLen, tokens, names})
}

// detokenize is POST /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Tokens []int `json:"tokens"`
	}
	if err := readJSON(r, &body); err != nil {
		fail(w, err)
		return
	}
	for i, id := range body.Tokens {
		if id < 0 || id >= model.Vocab {
			fail(w, badRequest("Token id %d is out of vocabulary (position %d)", id, i))
			return
		}
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": model.Decode(body.Tokens)})
}
