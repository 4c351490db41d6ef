package testbed

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// The kinds of arithmetic noise that a healthy engine may have.
const (
	// NoiseSplit makes sums over keys depend on where a prefill portion began,
	// as kernels do that are not invariant under the split of a prompt.
	NoiseSplit = "split"
	// NoiseOrder gives each process an order of summation of its own.
	NoiseOrder = "order"
)

// cut says where the kernels cut their sums; nil leaves them whole.
func (cfg Config) cut() func(from int) int {
	switch cfg.Noise {
	case NoiseSplit:
		return func(from int) int { return from }
	case NoiseOrder:
		at := 1 + int(rand.New(rand.NewPCG(cfg.NoiseSeed, 1)).Uint64()%61)
		return func(int) int { return at }
	}
	return nil
}

// flake draws, request by request, whether rank k answers wrongly.
func (cfg Config) flake(k int) func() bool {
	if cfg.Flake == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(cfg.NoiseSeed, 2+uint64(k)))
	return func() bool { return rng.Float64() < cfg.Flake }
}

// random returns a number that no other process will draw.
func random() uint64 {
	var b [8]byte
	crand.Read(b[:])                              // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:]) >> 12 // exact in a float64
}
