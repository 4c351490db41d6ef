package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/arms/testbed"
	"kvladder/arms/testbed/model"
	"kvladder/prompts"
	"kvladder/prompts/draw"
)

// Every frozen set comes again out of its own header.
func TestFrozenSetsAreWhatFreezeDraws(t *testing.T) {
	files, err := filepath.Glob("../../prompts/sets/*.jsonl")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d sets, %v", len(files), err)
	}
	for _, f := range files {
		s, err := prompts.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		if s.Tokenizer != testbed.DefaultName {
			continue // needs its server
		}
		again, err := draw.Draw(context.Background(), testbedTokenizer{}, draw.Spec{
			Kind: s.Kind, Name: s.Name, N: len(s.Prompts), Seed: s.Seed, Geometry: s.Geometry,
			Wire:      draw.Wire{Dialect: s.Dialect, Model: s.Model},
			MaxTokens: s.MaxTokens, Note: s.Note, Licence: s.Licence,
		})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), s.Bytes()) {
			t.Errorf("%s: drawn again it is %s, frozen is %s", f, again.Digest, s.Digest)
		}
	}
}

// Pieces of a text encode to what the whole text does, so that a server asked for the text
// would see the same prompt.
func TestPiecesAreTheTestbedsOwn(t *testing.T) {
	for _, k := range draw.Kinds() {
		if k.Name == "file" || strings.HasPrefix(k.Name, "slots") || k.Name == "turns" {
			continue // a file and a model say what they like, and a page of a slot ends where its tokens do
		}
		s, err := draw.Draw(context.Background(), testbedTokenizer{}, draw.Spec{
			Kind: k.Name, Name: k.Name, Seed: 3, Wire: draw.Wire{Dialect: "vllm", Model: "m"},
			Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Prompts {
			if text := model.Decode(p.Tokens); !slices.Equal(model.Encode(text), p.Tokens) {
				t.Errorf("%s, %s: another encoding than that of %q", k.Name, p.ID, text)
			}
		}
	}
}

// freezeAgainst runs the verb against a server and returns the set it wrote.
func freezeAgainst(t *testing.T, h http.Handler, args ...string) (*prompts.Set, error) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	out := filepath.Join(t.TempDir(), "set.jsonl")
	cmd := newFreezeCmd(io.Discard, io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{"--server", srv.URL, "--name", "set", "--out", out}, args...))
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		return nil, err
	}
	return prompts.Open(out)
}

// From the embedded engine's server come the same bytes as from its tokenizer.
func TestFreezeFromTestbedServer(t *testing.T) {
	tb, err := testbed.New(testbed.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close()
	got, err := freezeAgainst(t, tb, "--kind", "t1", "--seed", "1", "--name", "t1-48",
		"--note", "the divergent hit of hybrid models: seed, longer request and followers, needles around the boundary")
	if err != nil {
		t.Fatal(err)
	}
	want, err := prompts.Open("../../prompts/sets/t1-48.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != want.Digest {
		t.Errorf("got %s, frozen is %s", got.Digest, want.Digest)
	}
}

// words answers /tokenize the way a server does: a leading 1, then one id a word, mark or
// number, or a line end.
func words(t *testing.T, member string, seen map[string]int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		text, ok := body[member].(string)
		if !ok {
			http.Error(w, "no "+member, http.StatusBadRequest)
			return
		}
		out := []int{1}
		for _, f := range strings.Fields(strings.ReplaceAll(text, "\n", " \\n ")) {
			if _, ok := seen[f]; !ok {
				seen[f] = len(seen) + 2
			}
			out = append(out, seen[f])
		}
		json.NewEncoder(w).Encode(map[string]any{"tokens": out})
	}
}

func TestFreezeFromVLLM(t *testing.T) {
	metrics := `vllm:cache_config_info{block_size="%s",cache_dtype="auto, {fp8}",engine="0",mamba_block_size="%s",num_gpu_blocks="364"} 1.0` + "\n"
	server := func(block, mamba string) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"data":[{"id":"org/m"}]}`) })
		mux.HandleFunc("POST /tokenize", words(t, "prompt", map[string]int{}))
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "# TYPE vllm:cache_config_info gauge\n"+metrics, block, mamba)
		})
		return mux
	}
	s, err := freezeAgainst(t, server("128", "None"), "--kind", "needle", "--n", "3")
	if err != nil {
		t.Fatal(err)
	}
	p := s.Prompts[0]
	if s.Model != "org/m" || s.Tokenizer != "org/m" || s.Geometry != (prompts.Geometry{Mode: "paged", AttentionBlock: 128}) {
		t.Errorf("%+v", s.Header)
	}
	if p.Tokens[0] != 1 || slices.Contains(p.Tokens[1:], 1) {
		t.Errorf("leading id in %v", p.Tokens)
	}
	s, err = freezeAgainst(t, server("16", "528"), "--kind", "needle", "--n", "1", "--store-chunk", "1056")
	if err != nil {
		t.Fatal(err)
	}
	if s.Geometry != (prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 528, StoreChunk: 1056}) || len(s.Prompts[0].Tokens) < 3*1056 {
		t.Errorf("%+v, %d tokens", s.Geometry, len(s.Prompts[0].Tokens))
	}
	if _, err := freezeAgainst(t, server("None", "None"), "--n", "1"); err == nil || !strings.Contains(err.Error(), "has no block_size; say it with --attention-block") {
		t.Errorf("no block size: %v", err)
	}
	if s, err = freezeAgainst(t, server("None", "None"), "--kind", "needle", "--n", "1", "--attention-block", "32"); err != nil || s.Geometry.AttentionBlock != 32 {
		t.Errorf("block size by flag: %v", err)
	}
	if _, err := freezeAgainst(t, server("many", "None"), "--n", "1"); err == nil {
		t.Error("a block size that is no number")
	}
}

func TestFreezeFromLlamaServer(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"data":[{"id":"/srv/models/x.gguf"}]}`)
	})
	mux.HandleFunc("POST /tokenize", words(t, "content", map[string]int{}))
	s, err := freezeAgainst(t, mux, "--kind", "slots", "--dialect", "llamacpp", "--n", "4")
	if err != nil {
		t.Fatal(err)
	}
	if s.Model != "x.gguf" || s.Geometry.Mode != "slot" || s.Path != "/completion" {
		t.Errorf("%+v", s.Header)
	}
	for i, p := range s.Prompts {
		if len(p.Tokens)%64 != 1 || p.Tokens[0] != 1 || *p.Slot != i {
			t.Errorf("%s: %d tokens, slot %d", p.ID, len(p.Tokens), *p.Slot)
		}
	}
	if _, err := freezeAgainst(t, mux, "--dialect", "vllm", "--attention-block", "16"); err == nil || !strings.Contains(err.Error(), "/tokenize answers 400") {
		t.Errorf("wrong dialect: %v", err)
	}
}
