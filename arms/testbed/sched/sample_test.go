package sched

import (
	"math"
	"testing"
)

var nan = float32(math.NaN())

func TestArgmax(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   int
	}{
		{[]float32{1, 3, 2}, 1},
		{[]float32{1, 3, 3}, 1}, // the first of equals
		{[]float32{nan, nan, nan}, 0},
		{[]float32{-5, -7}, 0},
	} {
		if got := argmax(c.logits); got != c.want {
			t.Errorf("argmax(%v) = %d, want %d", c.logits, got, c.want)
		}
	}
}

// TestDraw: at temperature 1 the logits ln 1, ln 2, ln 1 have probabilities
// 1/4, 1/2, 1/4, so the cuts are at 0.25 and 0.75. At temperature 0.5 they are
// 1/6, 4/6, 1/6.
func TestDraw(t *testing.T) {
	logits := []float32{0, float32(math.Ln2), 0}
	for _, c := range []struct {
		temperature, u float64
		want           int
	}{
		{1, 0, 0}, {1, 0.24, 0}, {1, 0.26, 1}, {1, 0.74, 1}, {1, 0.76, 2}, {1, 0.9999, 2},
		{0.5, 0.16, 0}, {0.5, 0.17, 1}, {0.5, 0.83, 1}, {0.5, 0.84, 2},
	} {
		if got := draw(logits, c.temperature, c.u); got != c.want {
			t.Errorf("draw at %v with %v = %d, want %d", c.temperature, c.u, got, c.want)
		}
	}
	if got := draw([]float32{nan, 1}, 1, 0.5); got != 0 {
		t.Errorf("draw from NaN = %d, want 0", got)
	}
}

func TestTop(t *testing.T) {
	got := top([]float64{-2, math.NaN(), -1, -2}, 4)
	for i, want := range []int{2, 0, 3, 1} {
		if got[i].ID != want {
			t.Errorf("place %d: %d, want %d", i, got[i].ID, want)
		}
	}
	if n := len(top([]float64{-1, -2}, 0)); n != 0 {
		t.Errorf("top 0 has %d", n)
	}
}
