package detect

import (
	"fmt"
	"slices"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// blockCap ends the search for a repeated block: longer ones say nothing more.
const blockCap = 512

// Repeated fires when the longest block of text that occurs at least twice, overlapping or
// not, has AtLeast runes or more. The measure is capped at 512.
type Repeated struct{ AtLeast int }

func (Repeated) Name() string { return "repeated" }

func (d Repeated) Inspect(r *probes.Reply, _ prompts.Expectation) scoring.Finding {
	if !judged(r) || d.AtLeast <= 0 {
		return scoring.Finding{}
	}
	s := []rune(said(r))
	if !repeats(s, d.AtLeast) { // one pass; the exact length matters only beyond it
		return scoring.Finding{}
	}
	n := longestRepeated(s, max(blockCap, d.AtLeast))
	return scoring.Finding{Fired: true, Damaged: true, Value: value(float64(n)), Detail: fmt.Sprintf("a block of %d characters occurs again", n)}
}

func (d Repeated) Specimen() (*probes.Reply, prompts.Expectation) {
	return text(many("x", 2*max(1, d.AtLeast))), english
}

// longestRepeated is the length of the longest block that starts at two places of s, at
// most limit. A block that repeats has beginnings that repeat, so the length is found by
// bisection.
func longestRepeated(s []rune, limit int) int {
	low, high := 0, min(limit, len(s)-1)
	for low < high {
		mid := (low + high + 1) / 2
		if repeats(s, mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// repeats says whether a block of n runes starts at two places of s. Blocks are met by
// their rolling hash and then compared rune by rune, so the answer is exact; time is linear
// in the text.
func repeats(s []rune, n int) bool {
	count := len(s) - n + 1
	if n <= 0 || count < 2 {
		return false
	}
	const base = 0x9E3779B97F4A7C15 // odd, so that no rune's weight vanishes
	hash, top := uint64(0), uint64(1)
	for _, c := range s[:n] {
		hash = hash*base + mix(c)
	}
	for range n - 1 {
		top *= base
	}
	size := 4
	for size < 2*count {
		size *= 2
	}
	type slot struct {
		hash  uint64
		start int32 // 1-based; 0 = free
	}
	table := make([]slot, size)
	for i := range count {
		if i > 0 {
			hash = (hash-mix(s[i-1])*top)*base + mix(s[i+n-1])
		}
		at := int(hash>>32^hash) & (size - 1)
		for ; table[at].start != 0; at = (at + 1) & (size - 1) {
			if table[at].hash != hash {
				continue
			}
			j := int(table[at].start) - 1
			if slices.Equal(s[j:j+n], s[i:i+n]) {
				return true
			}
		}
		table[at] = slot{hash, int32(i + 1)}
	}
	return false
}

// mix spreads a rune over 64 bits.
func mix(c rune) uint64 {
	x := (uint64(c) + 1) * 0xBF58476D1CE4E5B9
	return x ^ x>>29
}
