package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
)

const perChunk = 4

// specimen returns a chunk in which every byte of every part is its own.
func specimen(dt model.DType) *Chunk {
	c := NewChunk(perChunk)
	c.State = new(model.State)
	for i := range perChunk {
		for g, at := range map[model.Group][]*model.Block{model.Attention: c.Attention, model.WindowGroup: c.Window} {
			b := model.NewBlock(g, dt)
			codes := b.AppendCodes(nil)
			for j := range codes {
				codes[j] = byte(j*7+i*3+int(g)) & 0x3f
			}
			scales := b.AppendScales(nil)
			for j := range scales {
				scales[j] = byte(j+i) & 0x3f
			}
			if err := errors.Join(b.SetCodes(codes), b.SetScales(scales)); err != nil {
				panic(err)
			}
			at[i] = b
		}
	}
	for i := range c.State {
		c.State[i] = float32(i) / 3
	}
	return c
}

func empty(dt model.DType) *Chunk {
	c := NewChunk(perChunk)
	c.State = new(model.State)
	for i := range perChunk {
		c.Attention[i] = model.NewBlock(model.Attention, dt)
		c.Window[i] = model.NewBlock(model.WindowGroup, dt)
	}
	return c
}

// TestChunkRoundTrip writes a chunk, reads it into other blocks and writes it
// again. Then it reads everything that is not that chunk: each shorter length
// and one byte more must be refused.
func TestChunkRoundTrip(t *testing.T) {
	codec := Healthy().Codec
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		wrote := codec.Encode(specimen(dt))
		got := empty(dt)
		if err := codec.Decode(wrote, got); err != nil {
			t.Fatalf("%s: %v", dt, err)
		}
		if !bytes.Equal(codec.Encode(got), wrote) {
			t.Errorf("%s: a chunk read and written again has other bytes", dt)
		}
		for _, n := range []int{0, 3, 8, 10, 12, 500, len(wrote) - 8192, len(wrote) - 1} {
			if err := codec.Decode(wrote[:n], empty(dt)); err == nil {
				t.Errorf("%s: the first %d of %d bytes were taken for a chunk", dt, n, len(wrote))
			}
		}
		if err := codec.Decode(append(bytes.Clone(wrote), 0), empty(dt)); err == nil {
			t.Errorf("%s: a byte too many was not noticed", dt)
		}
		other := map[model.DType]model.DType{model.BF16: model.FP8, model.FP8: model.BF16}[dt]
		if err := codec.Decode(wrote, empty(other)); err == nil {
			t.Errorf("a %s chunk was read into %s blocks", dt, other)
		}
	}
}

// TestDecodeLeavesNilAlone reads blocks without the state.
func TestDecodeLeavesNilAlone(t *testing.T) {
	codec := Healthy().Codec
	c := empty(model.BF16)
	c.State, c.Window[2] = nil, nil
	if err := codec.Decode(codec.Encode(specimen(model.BF16)), c); err != nil {
		t.Fatal(err)
	}
	want := specimen(model.BF16).Attention[1].AppendCodes(nil)
	if !bytes.Equal(c.Attention[1].AppendCodes(nil), want) {
		t.Error("the block beside it was not read")
	}
}

func TestKeys(t *testing.T) {
	tokens := make([]int, 200)
	chain := cache.Chain(cache.Root("0"), tokens, "", model.BlockTokens)
	id := Identity{ModelSeed: 11, DType: "bf16", Geometry: "g"}
	base := Keys(id, Prefix{Chain: chain})
	if len(base) != 3 {
		t.Fatalf("200 tokens have 3 chunks, got %d keys", len(base))
	}
	for name, other := range map[string]Identity{
		"seed":     {12, "bf16", "g", 0},
		"dtype":    {11, "fp8", "g", 0},
		"geometry": {11, "bf16", "h", 0},
		"epoch":    {11, "bf16", "g", 1},
	} {
		for i, k := range Keys(other, Prefix{Chain: chain}) {
			if k == base[i] {
				t.Errorf("another %s has the same key %d", name, i)
			}
		}
	}
	if back, ok := keyOf(base[0].String() + fileSuffix); !ok || back != base[0] {
		t.Errorf("file name of %v reads as %v", base[0], back)
	}
}

// TestTiers follows one chunk through a restart, a lost file, and Clear.
func TestTiers(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, c := Key{1}, Key{2}, Key{3}
	s := open()
	if _, err := s.Get(a); !errors.Is(err, ErrMissing) {
		t.Fatalf("an empty store gave %v", err)
	}
	for _, k := range []Key{a, b} {
		if err := s.Put(k, []byte(k.String())); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Run([]Key{a, b, c}); got != 2 {
		t.Errorf("run %d, want 2", got)
	}
	if got := s.Run([]Key{a, c, b}); got != 1 {
		t.Errorf("run over a gap %d, want 1", got)
	}

	// A writer that was killed leaves its unfinished file, which goes.
	junk := filepath.Join(dir, tempPrefix+"123")
	stranger := filepath.Join(dir, "README.kv")
	for _, f := range []string{junk, stranger} {
		if err := os.WriteFile(f, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s = open()
	if _, err := os.Stat(junk); err == nil {
		t.Error("an unfinished file survived the restart")
	}
	if s.Len() != 2 {
		t.Errorf("%d chunks after the restart, want 2", s.Len())
	}
	if got, err := s.Get(a); err != nil || string(got) != a.String() {
		t.Errorf("after the restart: %q, %v", got, err)
	}
	os.Remove(s.path(a))
	if !s.Has(a) {
		t.Error("a chunk in memory needs no file")
	}
	os.Remove(s.path(b))
	if _, err := s.Get(b); !errors.Is(err, ErrMissing) || s.Has(b) {
		t.Errorf("the file is gone, Get says %v", err)
	}

	// A file that somebody else puts there counts at once.
	if err := os.WriteFile(s.path(c), []byte("c"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.Has(c) {
		t.Error("a new file was not found")
	}
	s.Drop(c)
	if s.Has(c) {
		t.Error("a dropped chunk is still there")
	}
	if err := s.Clear(); err != nil || s.Len() != 0 || s.Has(a) {
		t.Errorf("after Clear: %v, %d left", err, s.Len())
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Error("Clear removed a file that is not a chunk")
	}
	if open().Len() != 0 {
		t.Error("chunks came back after Clear")
	}
}

// TestMemoryOnly ends with the process.
func TestMemoryOnly(t *testing.T) {
	s, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(Key{1}, []byte("x")); err != nil || s.Len() != 1 {
		t.Fatal(err)
	}
	s.Drop(Key{1})
	if s.Len() != 0 {
		t.Error("still there")
	}
}

func TestPutFailure(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "store"))
	if err := s.Put(Key{1}, []byte("x")); err == nil || !strings.Contains(err.Error(), "kv store") {
		t.Errorf("writing into a directory that is gone: %v", err)
	}
	if s.Has(Key{1}) {
		t.Error("a chunk that could not be written is there")
	}
}

// TestShards writes a chunk as two ranks keep it and reads both shares into
// other blocks: together they are the chunk, and each alone is not.
func TestShards(t *testing.T) {
	codec := Healthy().Codec
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		c, got := specimen(dt), empty(dt)
		for k := range 2 {
			if bytes.Equal(codec.Encode(got), codec.Encode(c)) {
				t.Fatalf("%s: the chunk is whole before rank %d has read", dt, k)
			}
			if err := codec.Decode(codec.Encode(c.Shard(k, 2)), got.Shard(k, 2)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(codec.Encode(got), codec.Encode(c)) {
			t.Errorf("%s: two shares do not make the chunk", dt)
		}
	}
}

// TestTail keeps three window blocks of four.
func TestTail(t *testing.T) {
	c := specimen(model.FP8)
	if got := Tail(Healthy().Codec.Encode(c), 4); got != 4 {
		t.Errorf("tail of a whole chunk is %d", got)
	}
	c.Window[0] = nil
	if got := Tail(Healthy().Codec.Encode(c), 4); got != 3 {
		t.Errorf("tail without the first block is %d", got)
	}
	if got := Tail([]byte("rubbish"), 4); got != 4 {
		t.Errorf("tail of rubbish is %d", got)
	}
}
