package draw

// random is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a frozen Set must come out of
// its seed again under every version of Go.
type random struct{ s uint64 }

// stream is a generator of its own for each name under a seed, so that a change in one
// part of a draw leaves the others as they were.
func stream(seed uint64, name string) *random {
	h := uint64(0xcbf29ce484222325) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return &random{h ^ seed*0x9e3779b97f4a7c15}
}

func (r *random) next() uint64 {
	r.s += 0x9e3779b97f4a7c15
	z := r.s
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is uniform in 0..n-1; the bias at these n is under 2^-50.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// within is uniform in lo..hi, both included.
func (r *random) within(lo, hi int) int { return lo + r.below(hi-lo+1) }

// shuffle puts s in random order.
func shuffle[T any](r *random, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.below(i + 1)
		s[i], s[j] = s[j], s[i]
	}
}

// deck deals n cards of which each kind gets its share in hundredths, in random order.
// Shares are exact up to one card, so that a small Set cannot miss a kind by bad luck.
func deck[T any](r *random, n int, shares []int, kinds []T) []T {
	out := make([]T, 0, n)
	dealt, sum := 0, 0
	for i, k := range kinds {
		sum += shares[i]
		for ; dealt < (n*sum+50)/100; dealt++ {
			out = append(out, k)
		}
	}
	shuffle(r, out)
	return out
}
