package cache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// Hash names a run of tokens: the block it ends with and everything before it.
type Hash [sha256.Size]byte

// Root returns the parent of every first block, derived from a seed that the
// operator states. Two processes with the same seed agree on every hash, which
// is what makes a block written by one of them findable by the other. It plays
// the part that PYTHONHASHSEED plays for vLLM's NONE_HASH
// (vllm/v1/core/kv_cache_utils.py).
func Root(seed string) Hash {
	return sha256.Sum256([]byte("kvladder testbed root\x00" + seed))
}

// RandomRoot returns a root that no other process will ever have.
func RandomRoot() Hash {
	var h Hash
	rand.Read(h[:]) // never fails: crypto/rand ends the process instead
	return h
}

// Who is the identity under which a request computes: what its tokens do not
// say and its KV depends on, or must not be shared across.
type Who struct {
	Salt    string // of a tenant
	Adapter string // name of the low-rank adapter; "" is the base model
	Image   string // digest of what the placeholder tokens stand for
}

// Extra returns the bytes that block hashes cover beside the tokens. A salt alone
// is itself.
func (w Who) Extra() string {
	if w.Adapter == "" && w.Image == "" {
		return w.Salt
	}
	return w.Salt + "\x00adapter=" + w.Adapter + "\x00image=" + w.Image
}

// Chain returns one hash for each full block of tokens. Each covers its parent,
// the token ids of its block and the extra bytes, so that equal hashes mean
// equal prefixes of the same identity.
func Chain(root Hash, tokens []int, extra string, block int) []Hash {
	return Extend(nil, root, tokens, extra, block)
}

// Extend appends to chain the hashes of those full blocks of tokens it does not
// cover yet. The blocks that chain covers must be the first ones of tokens.
func Extend(chain []Hash, root Hash, tokens []int, extra string, block int) []Hash {
	parent := root
	if len(chain) > 0 {
		parent = chain[len(chain)-1]
	}
	for i := len(chain); (i+1)*block <= len(tokens); i++ {
		h := sha256.New()
		h.Write(parent[:])
		var word [4]byte
		for _, id := range tokens[i*block : (i+1)*block] {
			binary.LittleEndian.PutUint32(word[:], uint32(id))
			h.Write(word[:])
		}
		h.Write([]byte(extra))
		h.Sum(parent[:0])
		chain = append(chain, parent)
	}
	return chain
}
