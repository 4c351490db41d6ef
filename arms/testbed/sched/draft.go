package sched

import (
	"slices"

	"kvladder/arms/testbed/model"
)

// Drafting: a request that repeats something it has said proposes how that went
// on, computes the proposal in one step, and keeps what the model would have
// said anyway. Proposals come from the longest suffix of its own tokens that
// occurs earlier (prompt lookup, vllm/v1/spec_decode/ngram_proposer.py).
//
// The attention groups forget a rejected token by writing over it. The recurrent
// state cannot, so each drafted token has a slot for the state after it, and
// which slot is the state is decided by the number of tokens accepted, at the
// start of the next step, when rows of requests that ended have been closed up.

// ngram is the longest suffix that is looked for.
const ngram = 3

// propose returns up to k tokens that followed the last earlier occurrence of
// the longest repeated suffix of tokens.
func propose(tokens []int, k int) []int {
	for n := min(ngram, len(tokens)-1); n > 0; n-- {
		suffix := tokens[len(tokens)-n:]
		for at := len(tokens) - n - 1; at >= 0; at-- {
			same := true
			for i, id := range suffix {
				if tokens[at+i] != id {
					same = false
					break
				}
			}
			if same {
				return tokens[at+n : min(at+n+k, len(tokens))]
			}
		}
	}
	return nil
}

// drafts says whether t decodes and the engine drafts.
func (e *Engine) drafts(t *task) bool {
	return e.cfg.Draft > 0 && len(t.output()) > 0 && t.seq.Pos == len(t.tokens)-1
}

// ahead is how many tokens t may draft in its next portion. A draft ends at a
// recurrent boundary at the latest, so that a state is known there, which the
// local cache keeps for whoever goes on from the answer.
func (e *Engine) ahead(t *task) int {
	if !e.drafts(t) {
		return 0
	}
	boundary := e.geo.Every - 1 - t.seq.Pos%e.geo.Every
	return max(0, min(e.cfg.Draft, t.MaxTokens-len(t.output())-1, boundary))
}

// speculate computes t's last token and a draft behind it.
func (e *Engine) speculate(t *task) {
	draft := propose(t.tokens, e.ahead(t))
	draft = append([]int(nil), draft...)
	if len(draft) > 0 {
		e.count.Drafts++
		e.count.DraftTokens += len(draft)
	}
	start := t.seq.Pos
	inputs := append([]int{t.tokens[start]}, draft...)
	right := true // every token so far is what the model said
	for j, id := range inputs {
		if j > 0 {
			*t.slots[j] = *t.slots[j-1]
		}
		t.seq.State = t.slots[j]
		logits := e.decoder.Step(&t.seq, id, right)
		if !right {
			continue // rejected, and computed all the same
		}
		t.accepted = j
		pos := t.seq.Pos
		e.sample(t, logits)
		if t.seq.Pos != pos {
			e.count.AcceptedTokens += j
			return // it has ended and holds nothing
		}
		right = j < len(draft) && t.tokens[len(t.tokens)-1] == draft[j]
	}
	e.count.AcceptedTokens += t.accepted
	t.seq.Pos = start + 1 + t.accepted
	e.keepDrafted(t)
}

// keepDrafted is keep for a request that decodes: its blocks are offered to the
// local cache. Its state is not known before the next step.
func (e *Engine) keepDrafted(t *task) {
	if !e.cfg.PrefixCaching {
		return
	}
	e.extendChain(t)
	for full := t.seq.Pos / e.geo.Block; t.published < full; t.published++ {
		h := t.chain[t.published]
		e.local.Attention.Publish(t.attention[t.published], h)
		e.local.Window.Publish(t.window[t.published], h)
	}
}

// advance closes up the rows of the batch, as vLLM's InputBatch.condense does
// (vllm/v1/worker/gpu_input_batch.py): the last row moves into the place of one
// that is gone. Then it brings the state of each row to the tokens accepted.
func (e *Engine) advance() {
	if e.cfg.Draft == 0 {
		return
	}
	accepted := make([]int, len(e.rows))
	moves := make([]int, len(e.rows))
	for i, t := range e.rows {
		accepted[i], moves[i] = t.accepted, i
	}
	for i := 0; i < len(e.rows); {
		if slices.Contains(e.running, e.rows[i]) {
			i++
			continue
		}
		last := len(e.rows) - 1
		e.rows[i], moves[i] = e.rows[last], moves[last]
		e.rows, moves = e.rows[:last], moves[:last]
	}
	for i, n := range e.cfg.Path.Condense(accepted, moves) {
		t := e.rows[i]
		*t.slots[0] = *t.slots[n]
		t.seq.State, t.accepted = t.slots[0], 0
		if e.drafts(t) && t.seq.Pos%e.geo.Every == 0 {
			s := *t.slots[0]
			t.snaps = map[int]*model.State{t.seq.Pos: &s}
			e.publishSnaps(t)
		}
	}
}

// unspeculate makes the first slot the state again.
func (e *Engine) unspeculate(t *task) {
	if len(t.slots) > 0 {
		t.seq.State = t.slots[0]
	}
}
