package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"kvladder/arms/testbed/cache"
)

// Key names a chunk for ever, in every process.
type Key [sha256.Size]byte

// String returns the key in hex, which is also its file name.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Identity is everything beside the tokens that decides what a chunk holds.
type Identity struct {
	ModelSeed uint64
	DType     string
	Geometry  string
}

// Prefix is what a request asks the store about.
type Prefix struct {
	Root   cache.Hash
	Tokens []int
	Salt   string
	Chain  []cache.Hash // of Tokens under Root and Salt
}

// Keys is the healthy Hooks.Keys: one key for each full chunk of p, made of the
// identity and the block hash at the chunk's end, which already covers the
// root, all tokens up to there and the salt.
func Keys(id Identity, p Prefix) []Key {
	head := fmt.Sprintf("kvladder testbed chunk\x00%d\x00%s\x00%s\x00", id.ModelSeed, id.DType, id.Geometry)
	keys := make([]Key, 0, len(p.Chain)/PerChunk)
	for i := PerChunk - 1; i < len(p.Chain); i += PerChunk {
		keys = append(keys, sha256.Sum256(append([]byte(head), p.Chain[i][:]...)))
	}
	return keys
}
