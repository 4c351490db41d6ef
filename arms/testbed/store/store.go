// Package store is the external KV store: what a connector writes to, and reads
// from when the engine's own cache has nothing or not enough.
//
// Chunks of some positions, one recurrent boundary, are named by Keys, turned into bytes by a Codec,
// and kept in two tiers: memory, which ends with the process, and, if there is
// a directory, one file for each chunk, which does not. A lookup may be answered
// by either; a chunk read from a file stays in memory from then on.
package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"kvladder/arms/testbed/model"
)

// Hooks are the points of the store that a fault may replace.
type Hooks struct {
	Codec Codec
	// Tail says how many window blocks, counted back from its end, a chunk of n
	// is written with and how many a reader asks for. draft says whether the
	// engine drafts, whose rejected tokens need one block more.
	Tail func(g model.Geometry, draft bool) (written, asked int)
	// Keys names the full chunks of a prefix, the first chunk first.
	Keys func(Identity, Prefix) []Key
}

// Healthy returns the hooks of an engine without faults.
func Healthy() Hooks {
	return Hooks{Codec: Codec{Write: WriteBlock, Read: ReadBlock}, Keys: Keys, Tail: WholeTail}
}

// WholeTail is the healthy Hooks.Tail: all blocks are written, and as many asked
// for as the window reaches back, with one more where the engine drafts.
func WholeTail(g model.Geometry, draft bool) (written, asked int) {
	asked = g.Tail()
	if draft {
		asked++
	}
	return g.PerChunk(), min(asked, g.PerChunk())
}

// ErrMissing is what Get returns for a chunk that neither tier holds.
var ErrMissing = errors.New("kv chunk is not in the store")

const (
	fileSuffix = ".kv"
	tempPrefix = ".tmp-"
)

// Store keeps the chunks of one rank. It is safe for concurrent use.
type Store struct {
	dir string

	mu     sync.Mutex
	memory map[Key][]byte
	files  map[Key]struct{}
}

// Open returns a store over dir, which is created if need be and whose chunks
// are found again. With an empty dir there is only the memory tier.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, memory: make(map[Key][]byte), files: make(map[Key]struct{})}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kv store: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("kv store: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) { // a writer was killed here
			os.Remove(filepath.Join(dir, e.Name()))
			continue
		}
		if key, ok := keyOf(e.Name()); ok {
			s.files[key] = struct{}{}
		}
	}
	return s, nil
}

// keyOf returns the key that a file name stands for.
func keyOf(name string) (Key, bool) {
	var k Key
	stem, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(stem) != hex.EncodedLen(len(k)) {
		return k, false
	}
	if _, err := hex.Decode(k[:], []byte(stem)); err != nil {
		return k, false
	}
	return k, true
}

func (s *Store) path(k Key) string { return filepath.Join(s.dir, k.String()+fileSuffix) }

// Has says whether a chunk is in either tier. A file that somebody else put in
// the directory since Open counts.
func (s *Store) Has(k Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has(k)
}

func (s *Store) has(k Key) bool {
	if _, ok := s.memory[k]; ok {
		return true
	}
	if _, ok := s.files[k]; ok {
		return true
	}
	if s.dir == "" {
		return false
	}
	if _, err := os.Stat(s.path(k)); err != nil {
		return false
	}
	s.files[k] = struct{}{}
	return true
}

// Run returns how many of keys, from the first on, are present without a gap.
func (s *Store) Run(keys []Key) int {
	for i, k := range keys {
		if !s.Has(k) {
			return i
		}
	}
	return len(keys)
}

// Get returns the bytes of a chunk, which the caller must not change. A chunk
// that cannot be read, because its file is gone for one, is forgotten.
func (s *Store) Get(k Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.memory[k]; ok {
		return b, nil
	}
	if !s.has(k) {
		return nil, ErrMissing
	}
	b, err := os.ReadFile(s.path(k))
	if err != nil {
		delete(s.files, k)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrMissing
		}
		return nil, err
	}
	s.memory[k] = b
	return b, nil
}

// Put keeps the bytes of a chunk in both tiers; the store owns them from then
// on. A file appears whole or not at all, also to a reader in another process.
func (s *Store) Put(k Key, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory[k] = b
	if s.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(s.dir, tempPrefix)
	if err != nil {
		delete(s.memory, k)
		return fmt.Errorf("kv store: %w", err)
	}
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(k))
	}
	if err != nil {
		os.Remove(f.Name())
		delete(s.memory, k)
		return fmt.Errorf("kv store: %w", err)
	}
	s.files[k] = struct{}{}
	return nil
}

// Drop forgets one chunk in both tiers.
func (s *Store) Drop(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.memory, k)
	if _, ok := s.files[k]; ok {
		delete(s.files, k)
		os.Remove(s.path(k))
	}
}

// Clear empties both tiers. Files that are not chunks stay.
func (s *Store) Clear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.memory)
	var first error
	for k := range s.files {
		if err := os.Remove(s.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = fmt.Errorf("kv store: %w", err)
		}
	}
	clear(s.files)
	return first
}

// Len returns the number of chunks in the lowest tier, which has them all.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return len(s.memory)
	}
	return len(s.files)
}
