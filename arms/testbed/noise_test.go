package testbed

import (
	"math"
	"slices"
	"testing"
)

// drift is the largest difference between the logprobs of two answers; infinite
// when they say different things.
func drift(a, b answer) float64 {
	if !slices.Equal(a.tokens, b.tokens) {
		return math.Inf(1)
	}
	d := 0.0
	for i := 0; i < len(a.bits); i += 11 { // of each token: its logprob, then five pairs
		d = max(d, math.Abs(math.Float64frombits(a.bits[i])-math.Float64frombits(b.bits[i])))
	}
	return d
}

// TestNoiseSplit reuses a prefix under kernels that are not invariant under the
// prefill split: against another split the logprobs drift in their last digits,
// against the same split no bit differs.
func TestNoiseSplit(t *testing.T) {
	p := scene(Config{}.Geometry, 1, 4).tag(1)
	plain := func(budget int) answer {
		return ask(t, start(t, Config{Noise: NoiseSplit, NoPrefixCaching: true, PrefillBudget: budget}), p)
	}
	tb := start(t, Config{Noise: NoiseSplit, PrefillBudget: 64})
	ask(t, tb, p)
	hit := ask(t, tb, p)
	if hit.split.Local != 256 {
		t.Fatalf("split %+v", hit.split)
	}
	if same := plain(64); !hit.same(same) {
		t.Errorf("against the same split: drift %g", drift(hit, same))
	}
	if d := drift(hit, plain(127)); d == 0 || d > 1e-3 {
		t.Errorf("against another split: drift %g", d)
	}
}

// TestNoiseOrder compares processes: each repeats itself bit for bit whatever it
// reuses, and two drift apart in their last digits.
func TestNoiseOrder(t *testing.T) {
	p := scene(Config{}.Geometry, 1, 4).tag(1)
	of := func(seed, process uint64) answer {
		tb := start(t, Config{Noise: NoiseOrder, NoiseSeed: seed, NoiseProcess: process})
		first, again := ask(t, tb, p), ask(t, tb, p)
		if !first.same(again) || again.split.Local != 256 {
			t.Errorf("seed %d: a repeat drifts by %g", seed, drift(first, again))
		}
		return first
	}
	a, b := of(1, 0), of(2, 0)
	if d := drift(a, b); d == 0 || d > 1e-3 {
		t.Errorf("two processes drift by %g", d)
	}
	if !a.same(of(1, 0)) {
		t.Error("the same seed gives other bits")
	}
	if x, y := of(1, 1), of(1, 2); x.same(y) || !x.same(of(1, 1)) {
		t.Error("two processes of one seed have one order, or one of them has two")
	}
}

// TestFlake answers some requests wrongly, reuse or not.
func TestFlake(t *testing.T) {
	p := scene(Config{}.Geometry, 1, 1).tag(0)
	want := ask(t, start(t, Config{}), p)
	for _, none := range []bool{true, false} {
		tb := start(t, Config{Flake: 0.25, NoiseSeed: 5, NoPrefixCaching: none})
		wrong := 0
		for range 60 {
			if got := ask(t, tb, p); got.text() != want.text() {
				wrong++
			}
		}
		if wrong < 5 || wrong > 30 {
			t.Errorf("%d of 60 are wrong", wrong)
		}
	}
}
