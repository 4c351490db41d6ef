package compare_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"kvladder/scoring/compare"
)

// slack absorbs the rounding of sums in the tests themselves.
const slack = 1e-12

// conservative fails unless P(p <= t) <= t for every p that can occur: the
// p-value is stochastically at least uniform under its null. weights[i] is the
// null probability of the outcome whose p-value is ps[i]. It returns an error
// so that the checker itself can be tried on a p-value that cheats.
func conservative(ps, weights []float64) error {
	total := 0.0
	for _, w := range weights {
		total += w
	}
	if math.Abs(total-1) > 1e-9 {
		return fmt.Errorf("the outcomes carry %v, not 1", total)
	}
	for _, t := range ps {
		if !(t >= 0 && t <= 1) {
			return fmt.Errorf("%v is no p-value", t)
		}
		mass := 0.0
		for i, p := range ps {
			if p <= t*(1+slack) {
				mass += weights[i]
			}
		}
		if mass > t*(1+1e-9)+slack {
			return fmt.Errorf("P(p <= %v) = %v", t, mass)
		}
	}
	return nil
}

// pmf is the textbook binomial probability, good to 1e-13 for the n used here.
func pmf(n, k int, p float64) float64 {
	c := new(big.Int).Binomial(int64(n), int64(k))
	return float64(c.Int64()) * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
}

func TestConservativeCheckerCanFail(t *testing.T) {
	// Mid-p does not keep its level: at b+c = 1 it gives 1/2 to both outcomes.
	if conservative([]float64{.25, .75}, []float64{.5, .5}) == nil {
		t.Error("a p-value of 1/4 with probability 1/2 was accepted")
	}
}

func TestPairedPValuesConservative(t *testing.T) {
	for n := 0; n <= 16; n++ {
		var one, two, s1, s2, w []float64
		for b := 0; b <= n; b++ {
			r, s := compare.McNemar(b, n-b), compare.SignTest(b, n-b)
			one, two, s1, s2 = append(one, r.OneSided), append(two, r.TwoSided), append(s1, s.OneSided), append(s2, s.TwoSided)
			w = append(w, pmf(n, b, .5))
			if !(r.MidP > 0 && r.MidP <= r.TwoSided) {
				t.Errorf("(%d,%d): mid-p %v outside (0, %v]", b, n-b, r.MidP, r.TwoSided)
			}
		}
		for name, ps := range map[string][]float64{"one-sided": one, "two-sided": two, "sign one-sided": s1, "sign two-sided": s2} {
			if err := conservative(ps, w); err != nil {
				t.Errorf("b+c=%d %s: %v", n, name, err)
			}
		}
	}
}

func TestFisherConservative(t *testing.T) {
	for n1 := 0; n1 <= 7; n1++ {
		for n2 := 0; n2 <= 7; n2++ {
			for failed := 0; failed <= n1+n2; failed++ {
				var one, two, w []float64
				for c := max(0, failed-n1); c <= min(n2, failed); c++ {
					a := failed - c
					r := compare.Fisher(a, n1-a, c, n2-c)
					one, two = append(one, r.OneSided), append(two, r.TwoSided)
					ways := new(big.Int).Mul(new(big.Int).Binomial(int64(n1), int64(a)), new(big.Int).Binomial(int64(n2), int64(c)))
					p, _ := new(big.Rat).SetFrac(ways, new(big.Int).Binomial(int64(n1+n2), int64(failed))).Float64()
					w = append(w, p)
				}
				for name, ps := range map[string][]float64{"one": one, "two": two} {
					if err := conservative(ps, w); err != nil {
						t.Errorf("%d+%d, %d failed, %s-sided: %v", n1, n2, failed, name, err)
					}
				}
			}
		}
	}
}

// splits calls f with every way to choose k of the indices 0..n-1.
func splits(n, k int, f func(chosen []bool)) {
	chosen := make([]bool, n)
	var walk func(i, left int)
	walk = func(i, left int) {
		if left == 0 {
			f(chosen)
			return
		}
		if n-i < left {
			return
		}
		chosen[i] = true
		walk(i+1, left-1)
		chosen[i] = false
		walk(i+1, left)
	}
	walk(0, k)
}

// Under the null every split of the pooled values into two samples is equally
// likely, tied or not.
func TestRankPValuesConservative(t *testing.T) {
	pools := [][]float64{
		{1, 2, 3, 4, 5, 6, 7, 8},
		{1, 1, 1, 2, 2, 3, 9, 9},
		{5, 5, 5, 5, 5, 5, 5, 5},
		{0, 0, 0, 0, 0, 0, 0, 1},
	}
	for _, pool := range pools {
		for k := 1; k < len(pool); k++ {
			var exc, mw []float64
			splits(len(pool), k, func(chosen []bool) {
				var arm, floor []float64
				for i, c := range chosen {
					if c {
						arm = append(arm, pool[i])
					} else {
						floor = append(floor, pool[i])
					}
				}
				exc = append(exc, must(compare.Exceedance(floor, arm)).P)
				mw = append(mw, must(compare.MannWhitney(arm, floor)).TwoSided)
			})
			w := make([]float64, len(exc))
			for i := range w {
				w[i] = 1 / float64(len(w))
			}
			if err := conservative(exc, w); err != nil {
				t.Errorf("exceedance, %d of %v: %v", k, pool, err)
			}
			if err := conservative(mw, w); err != nil {
				t.Errorf("mann-whitney, %d of %v: %v", k, pool, err)
			}
		}
	}
}

func TestConditionalBinomialConservative(t *testing.T) {
	for _, x := range [][2]float64{{1, 1}, {1, 3}, {7, 2}, {40, .5}} {
		for n := 0; n <= 14; n++ {
			var one, two, w []float64
			for k := 0; k <= n; k++ {
				r := rates(k, x[0], n-k, x[1])
				one, two = append(one, r.OneSided), append(two, r.TwoSided)
				w = append(w, pmf(n, k, x[0]/(x[0]+x[1])))
			}
			for name, ps := range map[string][]float64{"one": one, "two": two} {
				if err := conservative(ps, w); err != nil {
					t.Errorf("exposures %v, %d events, %s-sided: %v", x, n, name, err)
				}
			}
		}
	}
}

func TestFalseAlarmMatchesEnumeration(t *testing.T) {
	// Two requests, two arms, q = 1/4: (3/4)^2 · (1 - (3/4)^4) = 9/16 · 175/256.
	if got := compare.FalseAlarm(2, 2, .25); !agree(got, 9./16*175/256, 1e-14) {
		t.Errorf("got %v", got)
	}
	for _, q := range []float64{0, 1} {
		if got := compare.FalseAlarm(38, 3, q); got != 0 {
			t.Errorf("flake %v: got %v, want 0", q, got)
		}
	}
}

func TestClopperPearsonCovers(t *testing.T) {
	for _, conf := range []float64{.5, .8, .95, .99} {
		for _, side := range []compare.Side{compare.TwoSided, compare.LowerSided, compare.UpperSided} {
			for _, n := range []int{1, 2, 3, 5, 8, 13, 30} {
				ivs := make([]compare.Interval, n+1)
				for k := range ivs {
					ivs[k] = must(compare.ClopperPearson(k, n, conf, side))
				}
				for p := .01; p < 1; p += .01 {
					cover := 0.0
					for k, iv := range ivs {
						if iv.Low <= p && p <= iv.High {
							cover += pmf(n, k, p)
						}
					}
					if cover < conf-slack {
						t.Errorf("%v %v n=%d p=%.2f: covers %v", conf, side, n, p, cover)
					}
				}
			}
		}
	}
}

// tailAt is P(Bin(n,p) >= k) or, upper, P(Bin(n,p) <= k), with 300 bits.
func tailAt(n, k int, p float64, upper bool) *big.Float {
	wide := func(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }
	power := func(x *big.Float, n int) *big.Float {
		out := wide(1)
		for range n {
			out.Mul(out, x)
		}
		return out
	}
	q := wide(1)
	q.Sub(q, wide(p))
	sum := wide(0)
	for i := 0; i <= n; i++ {
		if (upper && i <= k) || (!upper && i >= k) {
			c := wide(0).SetInt(new(big.Int).Binomial(int64(n), int64(i)))
			sum.Add(sum, c.Mul(c, power(wide(p), i)).Mul(c, power(q, n-i)))
		}
	}
	return sum
}

// The exact bound lies within one part in 10^13 of the one returned: the exact tail crosses its target
// between the two neighbours.
func TestClopperPearsonAgainstExactTails(t *testing.T) {
	tail := big.NewFloat((1 - .95) / 2)
	for _, n := range []int{1, 2, 7, 18, 38, 60} {
		for k := 0; k <= n; k++ {
			iv := must(compare.ClopperPearson(k, n, .95, compare.TwoSided))
			if k > 0 {
				below, above := tailAt(n, k, iv.Low*(1-1e-13), false), tailAt(n, k, iv.Low*(1+1e-13), false)
				if below.Cmp(tail) >= 0 || above.Cmp(tail) <= 0 {
					t.Errorf("%d/%d: low %.17g is off", k, n, iv.Low)
				}
			}
			if k < n {
				below, above := tailAt(n, k, iv.High*(1+1e-13), true), tailAt(n, k, iv.High*(1-1e-13), true)
				if below.Cmp(tail) >= 0 || above.Cmp(tail) <= 0 {
					t.Errorf("%d/%d: high %.17g is off", k, n, iv.High)
				}
			}
		}
	}
}

func TestClopperPearsonLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50000).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		conf := rapid.Float64Range(.5, .999).Draw(t, "conf")
		iv := must(compare.ClopperPearson(k, n, conf, compare.TwoSided))
		share := float64(k) / float64(n)
		if !(0 <= iv.Low && iv.Low <= share && share <= iv.High && iv.High <= 1) {
			t.Fatalf("%v does not hold %v", iv, share)
		}
		if k > 0 != (iv.Low > 0) || k < n != (iv.High < 1) {
			t.Fatalf("%v: an end at its limit must mean no or only failures", iv)
		}
		mirror := must(compare.ClopperPearson(n-k, n, conf, compare.TwoSided))
		if math.Abs(iv.Low-(1-mirror.High)) > 1e-12 || math.Abs(iv.High-(1-mirror.Low)) > 1e-12 {
			t.Fatalf("%v is not the mirror of %v", iv, mirror)
		}
		wide := must(compare.ClopperPearson(k, n, (1+conf)/2, compare.TwoSided))
		if wide.Low > iv.Low || wide.High < iv.High {
			t.Fatalf("more confidence gave less width: %v, %v", wide, iv)
		}
		if one := must(compare.ClopperPearson(k, n, conf, compare.UpperSided)); one.High > iv.High || one.Low != 0 {
			t.Fatalf("one-sided %v against two-sided %v", one, iv)
		}
		if k < n {
			more := must(compare.ClopperPearson(k+1, n, conf, compare.TwoSided))
			if more.Low < iv.Low || more.High < iv.High {
				t.Fatalf("one more failure lowered a bound: %v, %v", iv, more)
			}
		}
	})
}

func TestPoissonRateCovers(t *testing.T) {
	for _, m := range []float64{.1, .5, 1, 2.5, 7, 20} {
		cover, p := 0.0, math.Exp(-m)
		for k := 0; k < 200; k++ {
			iv := rate(k, 2, compare.TwoSided)
			if iv.Low*2 <= m && m <= *iv.High*2 {
				cover += p
			}
			p *= m / float64(k+1)
		}
		if cover < .95-slack {
			t.Errorf("mean %v: covers %v", m, cover)
		}
	}
}

func TestRateRatioCovers(t *testing.T) {
	// Given n events the first count is binomial with share ratio·X1/(ratio·X1+X2).
	x1, x2 := 3.0, 7.0
	for _, ratio := range []float64{.1, 1, 2, 15} {
		for n := 1; n <= 20; n++ {
			p := ratio * x1 / (ratio*x1 + x2)
			cover := 0.0
			for k := 0; k <= n; k++ {
				r := rates(k, x1, n-k, x2)
				if r.Low <= ratio && (r.High == nil || ratio <= *r.High) {
					cover += pmf(n, k, p)
				}
			}
			if cover < .95-slack {
				t.Errorf("ratio %v, %d events: covers %v", ratio, n, cover)
			}
		}
	}
}

// everHappens is the exact chance that, walking n requests that fail with
// probability p, bad(s, i) holds at some i in 1..n.
func everHappens(n int, p float64, bad func(s, i int) bool) float64 {
	alive := make([]float64, n+2)
	alive[0] = 1
	hit := 0.0
	for i := 1; i <= n; i++ {
		for s := i; s >= 0; s-- {
			v := alive[s] * (1 - p)
			if s > 0 {
				v += alive[s-1] * p
			}
			if bad(s, i) {
				hit += v
				v = 0
			}
			alive[s] = v
		}
	}
	return hit
}

func TestEValueKeepsItsPromiseAtAnyTime(t *testing.T) {
	peek := everHappens(250, .01, func(s, n int) bool {
		return must(compare.LikelihoodRatio(.01, .1, s, n)).Alarm(.05)
	})
	if peek > .05 || peek < .005 {
		t.Errorf("chance of a false alarm while watching: %v, want at most 0.05 and not nearly nothing", peek)
	}
	// The same for a bound that ignores peeking: it must break, or the walk shows nothing.
	naive := everHappens(250, .01, func(s, n int) bool { return lo1(s, n) > .01 })
	if naive <= .05 {
		t.Errorf("watching a one-look bound should break its level, got %v", naive)
	}
}

func TestConfidenceSequenceHoldsAtAllTimes(t *testing.T) {
	for _, p := range []float64{.01, .1, .5, .9} {
		miss := everHappens(120, p, func(s, n int) bool {
			iv := cs(s, n)
			return p < iv.Low || p > iv.High
		})
		if miss > .05 {
			t.Errorf("p=%v: missed at some time with probability %v", p, miss)
		}
	}
}

func TestConfidenceSequenceLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20000).Draw(t, "n")
		s := rapid.IntRange(0, n).Draw(t, "s")
		iv := cs(s, n)
		cp := must(compare.ClopperPearson(s, n, .95, compare.TwoSided))
		if !(0 <= iv.Low && iv.Low <= cp.Low && cp.High <= iv.High && iv.High <= 1) {
			t.Fatalf("%d/%d: the price of peeking is width, %v against %v", s, n, iv, cp)
		}
		mirror := cs(n-s, n)
		if math.Abs(iv.Low-(1-mirror.High)) > 1e-11 {
			t.Fatalf("%v is not the mirror of %v", iv, mirror)
		}
	})
}

func TestSPRTErrorRates(t *testing.T) {
	const alpha, beta, p0, p1 = .05, .1, .01, .1
	s, st := must(compare.NewSPRT(alpha, beta)), must(compare.BernoulliSteps(p0, p1))
	walk := func(p float64, want compare.Decision) float64 {
		// State: failures so far; both boundaries absorb.
		n := 3000
		alive := map[int]float64{0: 1}
		hit := 0.0
		for i := 1; i <= n && len(alive) > 0; i++ {
			next := map[int]float64{}
			for f, v := range alive {
				next[f+1] += v * p
				next[f] += v * (1 - p)
			}
			for f, v := range next {
				switch s.Decide(st.LLR(f, float64(i-f))) {
				case want:
					hit += v
					delete(next, f)
				case compare.Continue:
				default:
					delete(next, f)
				}
			}
			alive = next
		}
		return hit
	}
	if got := walk(p0, compare.RejectH0); got > alpha/(1-beta) || got == 0 {
		t.Errorf("false rejections %v, Wald allows %v", got, alpha/(1-beta))
	}
	if got := walk(p1, compare.AcceptH0); got > beta/(1-alpha) || got == 0 {
		t.Errorf("false acceptances %v, Wald allows %v", got, beta/(1-alpha))
	}
	if got := walk(p1, compare.RejectH0); got < 1-beta/(1-alpha)-1e-6 {
		t.Errorf("the test ended in a decision for H1 only with %v", got)
	}
}

func TestHolmLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Float64Range(0, 1), 0, 12).Draw(t, "p")
		before := append([]float64(nil), p...)
		adj := compare.Holm(p)
		if len(adj) != len(p) {
			t.Fatalf("%d values for %d", len(adj), len(p))
		}
		for i := range p {
			if p[i] != before[i] {
				t.Fatal("the input was changed")
			}
			if adj[i] < p[i] || adj[i] > 1 || adj[i] > math.Min(1, float64(len(p))*p[i]) {
				t.Fatalf("%v adjusted to %v: want between p and Bonferroni", p[i], adj[i])
			}
			for j := range p {
				if p[i] < p[j] && adj[i] > adj[j] {
					t.Fatalf("order lost: %v -> %v", p, adj)
				}
				if p[i] == p[j] && adj[i] != adj[j] {
					t.Fatalf("ties parted: %v -> %v", p, adj)
				}
			}
		}
		// The textbook form: step down at alpha/(m-i) until one is not rejected.
		alpha := rapid.Float64Range(0.001, .5).Draw(t, "alpha")
		for i := range p {
			rejected := true
			for j := range p {
				if p[j] <= p[i] {
					smaller := 0
					for _, v := range p {
						if v < p[j] {
							smaller++
						}
					}
					rejected = rejected && float64(len(p)-smaller)*p[j] <= alpha
				}
			}
			if rejected != (adj[i] <= alpha) {
				t.Fatalf("%v at %v: step-down says %v, adjusted %v", p, alpha, rejected, adj)
			}
		}
	})
}

// distribution draws a full distribution over n tokens with logprobs.
func distribution(t *rapid.T, n int, name string) []compare.TokenLogprob {
	logits := rapid.SliceOfN(rapid.Float64Range(-12, 12), n, n).Draw(t, name)
	z := 0.0
	for _, l := range logits {
		z += math.Exp(l)
	}
	out := make([]compare.TokenLogprob, n)
	for i, l := range logits {
		out[i] = compare.TokenLogprob{ID: i, Logprob: l - math.Log(z)}
	}
	return out
}

func TestCoarseDivergenceNeverExceedsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 24).Draw(t, "n")
		p, q := distribution(t, n, "p"), distribution(t, n, "q")
		full := must(compare.KLTopK(p, q))
		k := rapid.IntRange(1, n).Draw(t, "k") // the reference's top k
		j := rapid.IntRange(1, n).Draw(t, "j") // the arm shows its last j tokens, and the first of all
		coarse, err := compare.KLTopK(p[:k], append([]compare.TokenLogprob{q[0]}, q[n-j:]...)[min(1, j/n):])
		if err != nil {
			t.Fatal(err)
		}
		// A tail bucket is 1 less the rest, and logits of up to 12 are normalised to some units
		// in the fifteenth digit: what is divided by a small tail is no better known than that.
		least := 1.0
		for i := range p {
			least = min(least, math.Exp(p[i].Logprob), math.Exp(q[i].Logprob))
		}
		eps := 1e-9 + 64*0x1p-52/least
		if coarse.KL != nil && full.KL != nil && *coarse.KL > *full.KL+eps {
			t.Fatalf("coarse kl %v above full %v", *coarse.KL, *full.KL)
		}
		if coarse.Reverse != nil && full.Reverse != nil && *coarse.Reverse > *full.Reverse+eps {
			t.Fatalf("coarse reverse kl %v above full %v", *coarse.Reverse, *full.Reverse)
		}
		if coarse.JSD > full.JSD+eps || coarse.TV > full.TV+eps {
			t.Fatalf("coarse %+v above full %+v", coarse, full)
		}
		if coarse.Shared+coarse.Hidden != k {
			t.Fatalf("%d shared and %d hidden of %d", coarse.Shared, coarse.Hidden, k)
		}
		// Pinsker: TV² <= KL/2. Jensen-Shannon: at most ln 2, at most TV·ln 2.
		if full.KL != nil && full.TV*full.TV > *full.KL/2+eps {
			t.Fatalf("tv %v too large for kl %v", full.TV, *full.KL)
		}
		if full.JSD > full.TV*math.Ln2+eps {
			t.Fatalf("jsd %v too large for tv %v", full.JSD, full.TV)
		}
		if self := must(compare.KLTopK(p[:k], p[:k])); *self.KL != 0 || *self.Reverse != 0 || self.TV != 0 || self.JSD != 0 {
			t.Fatalf("a distribution against itself: %+v", self)
		}
		if swapped := must(compare.KLTopK(q, p)); math.Abs(swapped.JSD-full.JSD) > eps || math.Abs(swapped.TV-full.TV) > eps {
			t.Fatalf("jsd and tv depend on the order: %+v, %+v", full, swapped)
		}
	})
}

func TestSampleLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 2, 40).Draw(t, "x")
		before := append([]float64(nil), x...)
		m, r := must(compare.MeanSE(x)), must(compare.RMS(x))
		n := float64(len(x))
		// RMS² = mean² + (n-1)·SE².
		if want := math.Sqrt(m.Value*m.Value + (n-1)**m.SE**m.SE); math.Abs(r-want) > 1e-9*(1+want) {
			t.Fatalf("rms %v, mean and uncertainty give %v", r, want)
		}
		last := math.Inf(-1)
		for _, q := range []float64{0, .1, .25, .5, .75, .9, .99, 1} {
			v := must(compare.Percentile(x, q))
			if v < last-1e-9*math.Abs(last) {
				t.Fatalf("percentile %v is %v, below %v", q, v, last)
			}
			last = v
		}
		lo, hi := x[0], x[0]
		for i, v := range x {
			lo, hi = math.Min(lo, v), math.Max(hi, v)
			if v != before[i] {
				t.Fatal("the input was reordered")
			}
		}
		if must(compare.Percentile(x, 0)) != lo || last != hi {
			t.Fatalf("ends %v %v, want %v %v", must(compare.Percentile(x, 0)), last, lo, hi)
		}
	})
}

func TestMedianIntervalCovers(t *testing.T) {
	// For a continuous sample the number of values under the median is
	// Bin(n, 1/2); the k-th smallest and largest enclose it unless fewer than k
	// lie on one side.
	for n := 1; n <= 40; n++ {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i)
		}
		r, err := compare.MedianInterval(x, .95)
		if n < 6 {
			if err == nil {
				t.Errorf("n=%d: %v", n, r)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		k := int(r.Low) + 1
		cover := 0.0
		for under := k; under <= n-k; under++ {
			cover += pmf(n, under, .5)
		}
		if math.Abs(cover-r.Coverage) > slack || r.Coverage < .95 || r.High != float64(n-k) {
			t.Errorf("n=%d: %+v, enumeration covers %v", n, r, cover)
		}
	}
}

// CUSUM against its other definition: S_i is the largest sum of consecutive
// steps that ends at i, or 0.
func TestCUSUMIsTheLargestRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.IntRange(-3, 4), 0, 40).Draw(t, "steps")
		h := float64(rapid.IntRange(1, 12).Draw(t, "threshold"))
		steps := make([]float64, len(raw))
		for i, v := range raw {
			steps[i] = float64(v)
		}
		got := must(compare.CUSUM(steps, h))
		for i := range steps {
			best, from, sum := 0.0, i, 0.0
			for j := i; j >= 0; j-- {
				sum += steps[j]
				if sum > best {
					best, from = sum, j
				}
			}
			if best >= h {
				if got.Alarm == nil || *got.Alarm != i {
					t.Fatalf("%v at %v: alarm %v, want %d", steps, h, got.Alarm, i)
				}
				run := 0.0
				for _, v := range steps[*got.Onset : i+1] {
					run += v
				}
				if run != best || *got.Onset > from {
					t.Fatalf("%v: onset %d holds a run of %v, want %v from %d", steps, *got.Onset, run, best, from)
				}
				return
			}
		}
		if got.Alarm != nil || got.Onset != nil {
			t.Fatalf("%v at %v: alarm %d without cause", steps, h, *got.Alarm)
		}
	})
}

func TestMannWhitneyIgnoresOrderAndScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		x, y := make([]float64, 1+rng.IntN(8)), make([]float64, 1+rng.IntN(8))
		for i := range x {
			x[i] = float64(rng.IntN(9))
		}
		for i := range y {
			y[i] = float64(rng.IntN(9))
		}
		a, b := must(compare.MannWhitney(x, y)), must(compare.MannWhitney(y, x))
		if !agree(a.TwoSided, b.TwoSided, 1e-12) || a.U+b.U != float64(len(x)*len(y)) {
			t.Errorf("%v v %v: %+v, %+v", x, y, a, b)
		}
		u := 0.0
		for _, v := range x {
			for _, w := range y {
				switch {
				case v > w:
					u++
				case v == w:
					u += .5
				}
			}
		}
		if a.U != u {
			t.Errorf("%v v %v: U %v, counting pairs gives %v", x, y, a.U, u)
		}
	}
}
