package engine

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"

	"kvladder/arms"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Paged predicts how much of each prompt an engine with a block-hashed prefix cache takes
// from where, when requests come one after another. It follows vLLM's rules: a block is
// found by the hash of its tokens and all before them (vllm/v1/core/kv_cache_utils.py,
// hash_block_tokens); at least one token is left to compute; what a hybrid model resumes
// from is the deepest boundary that every cache group has
// (vllm/v1/core/kv_cache_coordinator.py, find_longest_cache_hit); the least recently used
// block is recycled first, and of one request the end before the beginning
// (vllm/v1/core/block_pool.py); and a connector is asked only for what lies beyond the
// local hit (vllm/v1/core/sched/scheduler.py, get_num_new_matched_tokens).
type Paged struct {
	Block     int // tokens of an attention block, at least 1
	Recurrent int // tokens between recurrent boundaries, a multiple of Block; 0 = the model has no recurrent group
	Chunk     int // tokens of a stored chunk, a multiple of Block
	Blocks    int // of the local pool, each of Block tokens; 0 = more than the set needs
	Local     bool
	Store     bool
	Shares    bool // ranks of a tensor split each keep a share of what is stored
	Volatile  bool // the store ends with the process
}

// Expect walks through the steps and returns one map, prompt id -> reuse, for each replay
// and prime step in order. A prime step counts the whole prompts, not their primes. Reset,
// stop, restart and flood empty the local cache; the store stays, but for expire, and for
// evict-rank where every rank's share is needed. With ranks, a set is to be given rank by rank.
func (g Paged) Expect(s *prompts.Set, steps []arms.Step) []map[string]scoring.Reuse {
	e := &pagedEngine{Paged: g, output: max(0, s.MaxTokens-1), stored: map[prefix]bool{}}
	e.reset()
	var out []map[string]scoring.Reuse
	for _, st := range steps {
		switch st.Do {
		case "reset", "stop", "restart", "flood":
			e.reset() // a flood of a pool's size leaves nothing of what was there before
			if g.Volatile && (st.Do == "stop" || st.Do == "restart") {
				clear(e.stored)
			}
		case "expire":
			clear(e.stored)
		case "evict-rank":
			if e.Shares {
				clear(e.stored)
			}
		case "primes":
			for i := range s.Prompts {
				if p := &s.Prompts[i]; p.Prime != nil {
					e.request(p.Tokens[:min(p.Prime.Tokens, len(p.Tokens))], primeSalt(s, p))
				}
			}
		case "replay", "prime":
			pass := make(map[string]scoring.Reuse, len(s.Prompts))
			for _, p := range s.Prompts {
				if st.Do == "prime" && p.Prime != nil {
					e.request(p.Tokens[:min(p.Prime.Tokens, len(p.Tokens))], p.Salt)
				}
				pass[p.ID] = e.request(p.Tokens, p.Salt)
			}
			out = append(out, pass)
		}
	}
	return out
}

// primeSalt is the identity that a prime asks under: that of the prompt with the same body,
// else the prompt's own.
func primeSalt(s *prompts.Set, p *prompts.Prompt) string {
	for i := range s.Prompts {
		if s.Prompts[i].Body == p.Prime.Body {
			return s.Prompts[i].Salt
		}
	}
	return p.Salt
}

// prefix names some tokens, everything before them, and the salt.
type prefix [sha256.Size]byte

// pagedEngine is an engine without the arithmetic.
type pagedEngine struct {
	Paged
	output int // tokens written after the prompt's, at most

	blocks *lru
	states *lru
	stored map[prefix]bool
}

func (e *pagedEngine) reset() {
	e.blocks, e.states = newLRU(e.Blocks), newLRU(0)
	if e.Blocks > 0 && e.Recurrent > 0 {
		e.states = newLRU(max(1, e.Blocks*e.Block/e.Recurrent))
	}
}

// request runs one prompt and says where its tokens came from.
func (e *pagedEngine) request(tokens []int, salt string) scoring.Reuse {
	chain := e.chain(tokens, salt)
	limit := len(tokens) - 1
	var hit, ext int
	if e.Local {
		hit = e.hit(chain, limit)
	}
	held := make([]*slot, 0, len(chain))
	for _, h := range chain[:hit/e.Block] {
		held = append(held, e.blocks.hold(h))
	}
	if e.Store {
		for ext = 0; ext+e.Chunk <= limit && e.stored[at(chain, e.Block, ext+e.Chunk)]; {
			ext += e.Chunk
		}
		// What lies below a local hit has no state of its own any more and is not
		// stored again where it has been lost.
		for end := e.Chunk; end <= len(tokens); end += e.Chunk {
			if end > hit {
				e.stored[at(chain, e.Block, end)] = true
			}
		}
	}
	if e.Local {
		for need := (len(tokens) + e.output + e.Block - 1) / e.Block; len(held) < need; {
			held = append(held, e.blocks.take())
		}
		for i, h := range chain {
			e.blocks.publish(held[i], h)
		}
		if e.Recurrent > 0 {
			// one snapshot a request, at the last boundary before its end
			if last := limit / e.Recurrent * e.Recurrent; last > 0 {
				if h := at(chain, e.Block, last); !e.states.has(h) {
					s := e.states.take()
					e.states.publish(s, h)
					e.states.release(s)
				}
			}
		}
		for i := len(held) - 1; i >= 0; i-- {
			e.blocks.release(held[i])
		}
	}
	return scoring.Reuse{Local: hit, External: max(0, ext-hit)}
}

// hit is the deepest boundary at or below limit that every cache group can resume from.
func (e *pagedEngine) hit(chain []prefix, limit int) int {
	known := 0
	for known < len(chain) && e.blocks.has(chain[known]) {
		known++
	}
	n := min(known*e.Block, limit)
	if e.Recurrent == 0 {
		return n / e.Block * e.Block
	}
	for b := n / e.Recurrent * e.Recurrent; b > 0; b -= e.Recurrent {
		if e.states.has(at(chain, e.Block, b)) {
			return b
		}
	}
	return 0
}

// chain names the full blocks of a prompt.
func (e *pagedEngine) chain(tokens []int, salt string) []prefix {
	out := make([]prefix, 0, len(tokens)/e.Block)
	parent := prefix(sha256.Sum256([]byte(salt)))
	for end := e.Block; end <= len(tokens); end += e.Block {
		b := append(make([]byte, 0, sha256.Size+8*e.Block), parent[:]...)
		for _, t := range tokens[end-e.Block : end] {
			b = binary.LittleEndian.AppendUint64(b, uint64(t))
		}
		parent = sha256.Sum256(b)
		out = append(out, parent)
	}
	return out
}

// at names the first n tokens, n being a positive multiple of block.
func at(chain []prefix, block, n int) prefix { return chain[n/block-1] }

// lru is a pool of slots that keep their content while nobody holds them.
type lru struct {
	size  int // 0 = no limit
	made  int
	index map[prefix]*slot
	queue *list.List // of *slot held by nobody, the next to be recycled in front
}

type slot struct {
	name  prefix
	named bool
	refs  int
	place *list.Element // in the queue; nil while held
}

func newLRU(size int) *lru {
	return &lru{size: size, index: map[prefix]*slot{}, queue: list.New()}
}

func (l *lru) has(h prefix) bool { _, ok := l.index[h]; return ok }

// hold keeps the slot of a known name from being recycled.
func (l *lru) hold(h prefix) *slot {
	s := l.index[h]
	s.refs++
	if s.place != nil {
		l.queue.Remove(s.place)
		s.place = nil
	}
	return s
}

// take holds a new slot, or the least recently used one. Where all are held, the pool
// grows: an engine would have refused the request or waited.
func (l *lru) take() *slot {
	front := l.queue.Front()
	if front == nil || l.size == 0 || l.made < l.size {
		l.made++
		return &slot{refs: 1}
	}
	s := l.queue.Remove(front).(*slot)
	if s.named {
		delete(l.index, s.name)
	}
	*s = slot{refs: 1}
	return s
}

// publish names a slot, unless it has a name or the name is taken.
func (l *lru) publish(s *slot, h prefix) {
	if !s.named && !l.has(h) {
		s.name, s.named = h, true
		l.index[h] = s
	}
}

func (l *lru) release(s *slot) {
	if s.refs--; s.refs == 0 {
		s.place = l.queue.PushBack(s)
	}
}
