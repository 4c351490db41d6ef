package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
)

// Key names a chunk for ever, in every process.
type Key [sha256.Size]byte

// String returns the key in hex, which is also its file name.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Identity is everything beside the tokens that decides what a chunk holds and
// that is the same for all requests of a process.
type Identity struct {
	ModelSeed uint64
	DType     string
	Geometry  string
	Epoch     int // of the configuration; 0 is the first
}

// Prefix is what a request asks the store about.
type Prefix struct {
	Root     cache.Hash
	Tokens   []int
	Who      cache.Who
	Geometry model.Geometry
	Chain    []cache.Hash // of Tokens under Root and Who
}

// Keys is the healthy Hooks.Keys: one key for each full chunk of p, made of the
// identity and the block hash at the chunk's end, which already covers the
// root, all tokens up to there and who asks.
func Keys(id Identity, p Prefix) []Key {
	head := fmt.Sprintf("kvladder testbed chunk\x00%d\x00%s\x00%s\x00", id.ModelSeed, id.DType, id.Geometry)
	if id.Epoch != 0 {
		head += fmt.Sprintf("epoch=%d\x00", id.Epoch)
	}
	per := p.Geometry.Filled().PerChunk()
	keys := make([]Key, 0, len(p.Chain)/per)
	for i := per - 1; i < len(p.Chain); i += per {
		keys = append(keys, sha256.Sum256(append([]byte(head), p.Chain[i][:]...)))
	}
	return keys
}
