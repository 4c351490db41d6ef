package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kvladder/prompts"
)

// tokenServer takes token ids from a running server. It implements draw.Tokenizer.
//
//	vllm       POST /tokenize {"model", "prompt"}                   -> {"tokens", "count", "max_model_len"}
//	llamacpp   POST /tokenize {"content", "add_special": true}      -> {"tokens"}
type tokenServer struct {
	url     string
	dialect string
	model   string
	client  http.Client
}

// open asks the server for the name of its model, unless one was given.
func (t *tokenServer) open(ctx context.Context) error {
	t.client.Timeout = 30 * time.Second
	if t.model != "" {
		return nil
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	b, err := t.call(ctx, http.MethodGet, "/v1/models", nil)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		return fmt.Errorf("%w; name the model with --model", err)
	}
	if len(list.Data) == 0 {
		return fmt.Errorf("server %s serves no model", t.url)
	}
	// llama-server answers with the path of its file: where that lies is nobody's business.
	t.model = filepath.Base(list.Data[0].ID)
	if t.dialect == "vllm" {
		t.model = list.Data[0].ID
	}
	return nil
}

// Name is the model's.
func (t *tokenServer) Name() string { return t.model }

// Encode returns the ids of text with the model's leading special tokens.
func (t *tokenServer) Encode(ctx context.Context, text string) ([]int, error) {
	req := map[string]any{"model": t.model, "prompt": text}
	if t.dialect == "llamacpp" {
		req = map[string]any{"content": text, "add_special": true}
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	b, err := t.call(ctx, http.MethodPost, "/tokenize", body)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Tokens []int `json:"tokens"`
	}
	if err := json.Unmarshal(b, &reply); err != nil {
		return nil, fmt.Errorf("server %s: /tokenize: %w", t.url, err)
	}
	if len(reply.Tokens) == 0 {
		return nil, fmt.Errorf("server %s: /tokenize gives no tokens for %q: is it %s?", t.url, text, t.dialect)
	}
	return reply.Tokens, nil
}

// geometry asks for the block sizes: from /server_info where an embedded engine answers, or
// else from the labels of vLLM's vllm:cache_config_info (vllm/v1/metrics/loggers.py).
func (t *tokenServer) geometry(ctx context.Context) (prompts.Geometry, error) {
	var info struct {
		Testbed struct {
			Geometry *struct {
				AttentionBlock int `json:"attention_block"`
				RecurrentBlock int `json:"recurrent_block"`
				StoreChunk     int `json:"store_chunk"`
			} `json:"geometry"`
		} `json:"testbed"`
	}
	if b, err := t.call(ctx, http.MethodGet, "/server_info", nil); err == nil && json.Unmarshal(b, &info) == nil {
		if g := info.Testbed.Geometry; g != nil {
			return prompts.Geometry{Mode: "paged", AttentionBlock: g.AttentionBlock, RecurrentBlock: g.RecurrentBlock, StoreChunk: g.StoreChunk}, nil
		}
	}
	b, err := t.call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return prompts.Geometry{}, err
	}
	g, err := cacheConfig(b)
	if err != nil {
		return g, fmt.Errorf("server %s: %w", t.url, err)
	}
	return g, nil
}

var (
	cacheConfigLine = regexp.MustCompile(`(?m)^vllm:cache_config_info\{(.*)\} `)
	labelPair       = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// cacheConfig reads block_size and mamba_block_size from the labels of
// vllm:cache_config_info; "None" is a group that the model does not have.
func cacheConfig(metrics []byte) (prompts.Geometry, error) {
	g := prompts.Geometry{Mode: "paged"}
	line := cacheConfigLine.FindSubmatch(metrics)
	if line == nil {
		return g, errors.New("no vllm:cache_config_info in /metrics: the block sizes are not known")
	}
	for _, l := range labelPair.FindAllSubmatch(line[1], -1) {
		var into *int
		switch string(l[1]) {
		case "block_size":
			into = &g.AttentionBlock
		case "mamba_block_size":
			into = &g.RecurrentBlock
		default:
			continue
		}
		if v := string(l[2]); v != "None" {
			var err error
			if *into, err = strconv.Atoi(v); err != nil {
				return g, fmt.Errorf("vllm:cache_config_info: %s: %w", l[1], err)
			}
		}
	}
	if g.AttentionBlock < 1 {
		return g, errors.New("vllm:cache_config_info has no block_size")
	}
	return g, nil
}

// call returns the body of a 200 answer.
func (t *tokenServer) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("server %s: %s: %w", t.url, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("server %s: %s answers %d: %.200s", t.url, path, resp.StatusCode, strings.TrimSpace(string(b)))
	}
	return b, nil
}
