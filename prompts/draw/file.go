package draw

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"kvladder/prompts"
)

// entry is one line of the JSONL that kind "file" reads.
type entry struct {
	ID        string           `json:"id"`       // default: r and the number of the prompt
	Document  string           `json:"document"` // default: the id
	Role      prompts.Role     `json:"role"`     // default: target
	Prompt    string           `json:"prompt"`   // text, or
	Tokens    []int            `json:"tokens"`   // its ids
	Prime     int              `json:"prime"`    // so many ids are sent first; 0 is none
	Key       string           `json:"key"`      // what is asked
	Answer    string           `json:"answer"`   // "" is not judged
	Match     string           `json:"match"`    // how the answer is compared: see prompts.Needle
	Needles   []prompts.Needle `json:"needles"`  // instead of key, answer and match
	Script    string           `json:"script"`
	Empty     bool             `json:"empty"`
	MaxTokens int              `json:"max_tokens"` // default: the Set's
}

// fromFile reads prompts and answers from JSONL. The requests are those of the file, or its
// first ones where a number is asked for.
func fromFile(ctx context.Context, d *desk) ([]prompts.Prompt, error) {
	if d.spec.File == nil {
		return nil, errors.New("needs a JSONL file of prompts")
	}
	sc := bufio.NewScanner(d.spec.File)
	sc.Buffer(nil, 64<<20)
	var out []prompts.Prompt
	first := map[string]int{} // prompt, as ids -> line
	at := 0
	for (d.spec.N == 0 || len(out) < d.spec.N) && sc.Scan() {
		at++
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		if err := d.goOn(ctx); err != nil {
			return nil, err
		}
		if len(out) == MaxN {
			return nil, fmt.Errorf("line %d: a set has at most %d requests: cut the file, or name fewer with --n", at, MaxN)
		}
		p, err := d.read(ctx, sc.Bytes(), len(out)+1)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", at, err)
		}
		// The second of two equal prompts would find in every cache what the first left there.
		ids := fmt.Sprint(p.Tokens)
		if other, twice := first[ids]; twice {
			return nil, fmt.Errorf("line %d is the same prompt as line %d: leave one of them out, or change a word", at, other)
		}
		first[ids] = at
		d.made(&p)
		out = append(out, p)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w: a line has at most 64 MiB", at+1, err)
	}
	return out, nil
}

func (d *desk) read(ctx context.Context, b []byte, number int) (prompts.Prompt, error) {
	e := entry{Role: prompts.Target, MaxTokens: d.spec.MaxTokens}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return prompts.Prompt{}, err
	}
	if e.ID == "" {
		e.ID = "r" + fmt.Sprintf("%02d", number)
	}
	if e.Document == "" {
		e.Document = e.ID
	}
	switch {
	case e.Role != prompts.Target && e.Role != prompts.Bystander:
		return prompts.Prompt{}, fmt.Errorf("role %s is unknown: use target or bystander", strconv.Quote(string(e.Role)))
	case (e.Prompt == "") == (len(e.Tokens) == 0):
		return prompts.Prompt{}, errors.New("give either prompt or tokens")
	case e.MaxTokens < 1 || e.MaxTokens > MaxTokens:
		return prompts.Prompt{}, fmt.Errorf("max_tokens %d: ask for 1 to %d", e.MaxTokens, MaxTokens)
	case e.Answer != "" && e.Needles != nil:
		return prompts.Prompt{}, errors.New("give either answer or needles")
	}
	ids := e.Tokens
	if ids == nil {
		var err error
		if ids, err = d.tok.Encode(ctx, e.Prompt); err != nil {
			return prompts.Prompt{}, err
		}
	}
	if e.Prime < 0 || e.Prime >= len(ids) {
		return prompts.Prompt{}, fmt.Errorf("a prime of %d tokens is no part of a prompt of %d", e.Prime, len(ids))
	}
	local := 0
	if e.Prime > 0 {
		local = d.last(e.Prime)
	}
	p := prompts.Prompt{
		ID: e.ID, Role: e.Role, Document: e.Document,
		Class:  d.class(len(ids), local),
		Tokens: ids,
		Body:   d.spec.Wire.Body(ids, e.MaxTokens, nil),
		Salt:   d.spec.Wire.Salt,
		Expect: prompts.Expectation{Needles: e.Needles, Script: e.Script, Empty: e.Empty},
	}
	if e.Prime > 0 {
		p.Prime = &prompts.Prime{Tokens: e.Prime, Body: d.spec.Wire.Body(ids[:e.Prime], 1, nil)}
	}
	if e.Answer != "" {
		p.Expect.Needles = []prompts.Needle{{Key: e.Key, Answer: e.Answer, Match: e.Match, Offset: -1, End: -1, Scored: true}}
	}
	return p, nil
}
