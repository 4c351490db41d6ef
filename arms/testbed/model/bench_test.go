package model

import (
	"fmt"
	"testing"
)

// filler returns n tokens: BOS and words.
func filler(n int) []int {
	ids := []int{BOS}
	for i := 1; i < n; i++ {
		ids = append(ids, idWord+i*7%len(words))
	}
	return ids[:n]
}

func BenchmarkPrefill(b *testing.B) {
	m := New(DefaultSeed)
	for _, dt := range []DType{BF16, FP8} {
		for _, n := range []int{512, 1536} {
			b.Run(fmt.Sprintf("%s/%d", dt, n), func(b *testing.B) {
				d, s, ids := m.Decoder(), newSequence(dt, n), filler(n)
				for b.Loop() {
					s.Pos, *s.State = 0, State{}
					d.Prefill(s, ids, true)
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkDecode steps with logits at positions 512 to 527.
func BenchmarkDecode(b *testing.B) {
	m := New(DefaultSeed)
	for _, dt := range []DType{BF16, FP8} {
		b.Run(dt.String(), func(b *testing.B) {
			d, s := m.Decoder(), newSequence(dt, 528)
			d.Prefill(s, filler(512), false)
			for i := 0; b.Loop(); i++ {
				s.Pos = 512 + i%BlockTokens
				d.Step(s, idWord, true)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(DefaultSeed)
	}
}
