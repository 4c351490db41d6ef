package cache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"kvladder/arms/testbed/model"
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

// Chain returns one hash for each full block of tokens. Each covers its parent,
// the token ids of its block and the salt, so that equal hashes mean equal
// prefixes of the same identity.
func Chain(root Hash, tokens []int, salt string) []Hash {
	return Extend(nil, root, tokens, salt)
}

// Extend appends to chain the hashes of those full blocks of tokens it does not
// cover yet. The blocks that chain covers must be the first ones of tokens.
func Extend(chain []Hash, root Hash, tokens []int, salt string) []Hash {
	parent := root
	if len(chain) > 0 {
		parent = chain[len(chain)-1]
	}
	for i := len(chain); (i+1)*model.BlockTokens <= len(tokens); i++ {
		h := sha256.New()
		h.Write(parent[:])
		var word [4]byte
		for _, id := range tokens[i*model.BlockTokens : (i+1)*model.BlockTokens] {
			binary.LittleEndian.PutUint32(word[:], uint32(id))
			h.Write(word[:])
		}
		h.Write([]byte(salt))
		h.Sum(parent[:0])
		chain = append(chain, parent)
	}
	return chain
}
