package engine

import (
	"slices"

	"kvladder/arms"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Slots predicts reuse in an engine that keeps one conversation per slot, as llama-server
// does: a request reuses the longest prefix that it shares with what its slot holds, and
// at least one token is computed (tools/server, "n_past was set to").
//
// What a request generates is not known beforehand, so a prompt that goes on after another
// prompt's end is predicted to share no more than that prompt.
type Slots struct {
	Reuse bool // off: every prompt is computed anew
	Files bool // save and restore steps have an effect

	// Count and Similarity say where a prompt goes that names no slot: to the slot that
	// holds the largest share of it beyond Similarity, else to the one that was not used
	// for longest. Without Count nothing is promised of such prompts.
	Count      int
	Similarity float64

	// Host: what a slot holds is copied out before most of it is overwritten, and a copy
	// that fits the next prompt better is taken back. A copy is in one place at a time.
	Host bool

	// Chunk: behind the shared prefix, runs of at least so many tokens that the slot holds
	// further on are moved to where the prompt has them; 0 = they are not.
	Chunk int

	// Hybrid: the state of a recurrent layer cannot be cut back, so a prefix is reused from
	// the last of at most Checkpoints places where the state was kept, which is tail tokens
	// before the end of a prompt.
	Hybrid      bool
	Checkpoints int

	Says int // tokens of a reply that stay in the slot behind the prompt
}

// tail is how many tokens before the end of a prompt llama-server keeps a checkpoint
// (tools/server/server-context.cpp).
const tail = 4

// unknown stands for a generated token: it equals no token of a prompt.
const unknown = -1

// content is what a slot, a file or the host's cache holds.
type content struct {
	tokens      []int
	restored    int // the first so many of them came from a file
	checkpoints []int
}

func shared(a, b []int) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] && a[n] != unknown {
		n++
	}
	return n
}

// place is the state of a server while a schedule is walked through.
type place struct {
	Slots
	slots, files map[int]content
	host         []content
	used         map[int]int // slot -> when it was asked last
	now          int
}

// Expect walks through the steps and returns one map, prompt id -> reuse, for each replay
// and prime step in order. What a restore put into a slot counts as external for as long
// as the slot keeps it, and so does what the host's cache gives back, for that request.
func (g Slots) Expect(s *prompts.Set, steps []arms.Step) []map[string]scoring.Reuse {
	at := &place{Slots: g, slots: map[int]content{}, files: map[int]content{}, used: map[int]int{}}
	var out []map[string]scoring.Reuse
	for _, st := range steps {
		switch st.Do {
		case "reset":
			clear(at.slots)
		case "stop", "restart":
			clear(at.slots)
			clear(at.used)
			at.host = nil
		case "expire":
			clear(at.files)
		case "save":
			if g.Files {
				for i, c := range at.slots {
					at.files[i] = c
				}
			}
		case "restore":
			if g.Files {
				for i, c := range at.files {
					c.restored = len(c.tokens)
					at.slots[i] = c
				}
			}
		case "replay", "prime", "primes":
			pass := make(map[string]scoring.Reuse, len(s.Prompts))
			for i := range s.Prompts {
				p := &s.Prompts[i]
				if st.Do != "replay" && p.Prime != nil {
					at.ask(p.Slot, p.Tokens[:min(p.Prime.Tokens, len(p.Tokens))])
				}
				if st.Do != "primes" {
					pass[p.ID] = at.ask(p.Slot, p.Tokens)
				}
			}
			if st.Do != "primes" {
				out = append(out, pass)
			}
		}
	}
	return out
}

// ask serves one prompt.
func (p *place) ask(slot *int, tokens []int) scoring.Reuse {
	var i int
	lru := false
	switch {
	case slot != nil:
		i = *slot
	case p.Count > 0:
		i, lru = p.route(tokens)
	default:
		return scoring.Reuse{}
	}
	p.now++
	p.used[i] = p.now
	fromHost := p.Host && p.swap(i, tokens, lru)
	var r scoring.Reuse
	c := p.slots[i]
	next := content{tokens: slices.Clone(tokens)}
	for range p.Says {
		next.tokens = append(next.tokens, unknown)
	}
	if p.Reuse {
		n := p.reused(c, tokens, &next)
		r.External = min(n, c.restored)
		if fromHost {
			r.External = n
		} else {
			next.restored = r.External
		}
		r.Local = n - r.External
	}
	if p.Hybrid && p.Checkpoints > 0 && len(tokens) > tail {
		next.checkpoints = append(next.checkpoints, len(tokens)-tail)
		next.checkpoints = next.checkpoints[max(0, len(next.checkpoints)-p.Checkpoints):]
	}
	p.slots[i] = next
	return r
}

// reused is how much of a prompt is not computed, given what its slot holds.
func (p *place) reused(c content, tokens []int, next *content) int {
	n := shared(c.tokens, tokens)
	most := len(tokens) - 1
	if p.Hybrid {
		at := 0
		for _, k := range c.checkpoints {
			if k <= min(n, most) {
				at = max(at, k)
				if k < len(tokens)-tail {
					next.checkpoints = append(next.checkpoints, k)
				}
			}
		}
		return at
	}
	if p.Chunk > 0 {
		n += p.moved(c.tokens, tokens, n)
	}
	return min(n, most)
}

// moved is the length of the runs that are found further on in the slot than the prompt has
// them.
func (p *place) moved(held, tokens []int, from int) int {
	have, want := from, from
	for have < len(held) && want < len(tokens) {
		if n := shared(held[have:], tokens[want:]); n >= p.Chunk {
			have, want = have+n, want+n
		} else {
			have++
		}
	}
	return want - from
}

// route chooses the slot of a prompt that names none; lru where nothing held enough of it.
func (p *place) route(tokens []int) (slot int, lru bool) {
	best, slot := 0.0, -1
	for i := range p.Count {
		c := p.slots[i]
		if p.Similarity <= 0 || len(c.tokens) == 0 {
			continue
		}
		if sim := share(shared(c.tokens, tokens), len(tokens)); sim > p.Similarity && sim > best {
			best, slot = sim, i
		}
	}
	if slot >= 0 {
		return slot, false
	}
	slot = 0
	for i := range p.Count {
		if p.used[i] < p.used[slot] {
			slot = i
		}
	}
	return slot, true
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// swap copies out what slot i holds where most of it would be lost, and takes the copy that
// fits the prompt best where it fits better than what the slot holds.
func (p *place) swap(i int, tokens []int, lru bool) (taken bool) {
	c := p.slots[i]
	keeps, fits := -1.0, 0.0
	if n := shared(c.tokens, tokens); len(c.tokens) > 0 {
		keeps, fits = share(n, len(c.tokens)), share(n, len(tokens))
	}
	if !lru && keeps >= 0.5 {
		return false
	}
	if len(c.tokens) > 0 {
		within := func(a, b content) bool { // the replies to one prompt are taken to be equal
			return len(a.tokens) <= len(b.tokens) && slices.Equal(a.tokens, b.tokens[:len(a.tokens)])
		}
		if !slices.ContainsFunc(p.host, func(h content) bool { return within(c, h) }) {
			p.host = slices.DeleteFunc(p.host, func(h content) bool { return within(h, c) })
			p.host = append(p.host, content{tokens: c.tokens, checkpoints: c.checkpoints})
		}
	}
	best := -1
	for k, h := range p.host {
		n := shared(h.tokens, tokens)
		if x, y := share(n, len(h.tokens)), share(n, len(tokens)); x >= 0.25 && x > keeps && y > fits {
			keeps, fits, best = x, y, k
		}
	}
	if best < 0 {
		return false // what the slot holds stays there, and its beginning may still be of use
	}
	p.slots[i] = p.host[best]
	p.host = slices.Delete(p.host, best, best+1)
	return true
}
