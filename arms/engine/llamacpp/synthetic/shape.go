package main

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// shape is the architecture of a model. Heads have 32 dimensions, the fewest that a KV
// cache in q8_0 or q4_0 takes.
type shape struct {
	arch    string
	layers  int
	dim     int
	heads   int
	kvHeads int
	ffn     int
	conv    int   // length of the convolution of recurrent layers, lfm2
	recur   []int // layers that hold a recurrent state instead of keys and values, lfm2
}

// shapes are small on purpose: a prompt of 500 tokens takes a few hundredths of a second.
var shapes = map[string]shape{
	// all layers attend, as in Llama
	"llama": {arch: "llama", layers: 4, dim: 128, heads: 4, kvHeads: 2, ffn: 256},
	// two layers fewer: a file of slots saved by the other does not fit
	"llama-2": {arch: "llama", layers: 2, dim: 128, heads: 4, kvHeads: 2, ffn: 256},
	// attention beside short convolutions, as in LFM2 (Liquid AI): the state of a convolution
	// cannot be cut back to a shorter prefix
	"lfm2": {arch: "lfm2", layers: 4, dim: 128, heads: 4, kvHeads: 2, ffn: 256, conv: 3, recur: []int{0, 1, 3}},
}

const context = 4096

// vocabulary: three control tokens, the printable ASCII characters and the line feed, each a
// token of its own, so that whatever a random model says is plain text. A space is written
// as the tokenizer of SentencePiece writes it.
func vocabulary() (tokens []string, scores []float32, types []int32) {
	const control, normal = 3, 1
	add := func(s string, score float32, kind int32) {
		tokens, scores, types = append(tokens, s), append(scores, score), append(types, kind)
	}
	add("<unk>", 0, 2)
	add("<s>", 0, control)
	add("</s>", 0, control)
	add("\n", -1, normal)
	add("\u2581", -1, normal)
	for c := '!'; c <= '~'; c++ {
		add(string(c), -1, normal)
	}
	return tokens, scores, types
}

// model draws the weights of a shape. Equal seeds give equal files.
func model(name string, seed uint64) (*gguf, error) {
	s, ok := shapes[name]
	if !ok {
		return nil, fmt.Errorf("shape %q is unknown: use llama, llama-2 or lfm2", name)
	}
	recurrent := map[int]bool{}
	for _, l := range s.recur {
		recurrent[l] = true
	}
	tokens, scores, types := vocabulary()
	g := &gguf{}
	key := func(name string, v any) { g.set(s.arch+"."+name, v) }
	g.set("general.architecture", s.arch)
	g.set("general.name", fmt.Sprintf("synthetic-%s-seed-%d", name, seed))
	key("context_length", uint32(context))
	key("embedding_length", uint32(s.dim))
	key("block_count", uint32(s.layers))
	key("feed_forward_length", uint32(s.ffn))
	key("attention.head_count", uint32(s.heads))
	key("attention.layer_norm_rms_epsilon", float32(1e-5))
	key("rope.freq_base", float32(10000))
	key("vocab_size", uint32(len(tokens)))
	if len(s.recur) == 0 {
		key("attention.head_count_kv", uint32(s.kvHeads))
		key("rope.dimension_count", uint32(s.dim/s.heads))
	} else {
		kv := make([]int32, s.layers)
		for l := range kv {
			if !recurrent[l] {
				kv[l] = int32(s.kvHeads)
			}
		}
		key("attention.head_count_kv", kv)
		key("shortconv.l_cache", uint32(s.conv))
	}
	g.set("tokenizer.ggml.model", "llama")
	g.set("tokenizer.ggml.tokens", tokens)
	g.set("tokenizer.ggml.scores", scores)
	g.set("tokenizer.ggml.token_type", types)
	g.set("tokenizer.ggml.unknown_token_id", uint32(0))
	g.set("tokenizer.ggml.bos_token_id", uint32(1))
	g.set("tokenizer.ggml.eos_token_id", uint32(2))
	g.set("tokenizer.ggml.add_bos_token", true)
	g.set("tokenizer.ggml.add_space_prefix", false)

	rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
	// matrix maps in dimensions to out of them and keeps the size of what it maps, times gain.
	matrix := func(name string, gain float64, in, out int) {
		data := make([]float32, in*out)
		for i := range data {
			data[i] = float32(rng.NormFloat64() * gain / math.Sqrt(float64(in)))
		}
		g.add(name, data, in, out)
	}
	ones := func(name string, n int) {
		data := make([]float32, n)
		for i := range data {
			data[i] = 1
		}
		g.add(name, data, n)
	}
	head := s.dim / s.heads
	matrix("token_embd.weight", math.Sqrt(float64(s.dim)), s.dim, len(tokens))
	if s.arch == "lfm2" {
		ones("token_embd_norm.weight", s.dim)
	} else {
		ones("output_norm.weight", s.dim)
	}
	matrix("output.weight", 2, s.dim, len(tokens))
	silence(g.tensors[len(g.tensors)-1].data, s.dim)
	for l := range s.layers {
		at := func(t string) string { return fmt.Sprintf("blk.%d.%s.weight", l, t) }
		ones(at("attn_norm"), s.dim)
		if recurrent[l] {
			matrix(at("shortconv.in_proj"), 1, s.dim, 3*s.dim)
			matrix(at("shortconv.conv"), 1, s.conv, s.dim)
			matrix(at("shortconv.out_proj"), 1, s.dim, s.dim)
		} else {
			// keys and queries a little larger, so that attention picks and does not average
			matrix(at("attn_q"), 1.6, s.dim, s.heads*head)
			matrix(at("attn_k"), 1.6, s.dim, s.kvHeads*head)
			matrix(at("attn_v"), 1, s.dim, s.kvHeads*head)
			matrix(at("attn_output"), 2, s.heads*head, s.dim)
			if s.arch == "lfm2" {
				ones(at("attn_q_norm"), head)
				ones(at("attn_k_norm"), head)
			}
		}
		ones(at("ffn_norm"), s.dim)
		matrix(at("ffn_gate"), 1, s.dim, s.ffn)
		matrix(at("ffn_up"), 1, s.dim, s.ffn)
		matrix(at("ffn_down"), 1, s.ffn, s.dim)
	}
	return g, nil
}

// silence makes the control tokens as likely as any average one and no more, so that few
// replies end early.
func silence(output []float32, dim int) {
	for i := range 3 * dim {
		output[i] = 0
	}
}
