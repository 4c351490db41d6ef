package simulate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A reply is wrong as often whether flakes come alone or together, and two replies of one
// document are wrong together more often where they do: with flake f, and half of it striking
// whole documents, P(both) = 1 - 2(1-f) + (1-f)^2/(1-f/2), against f^2.
func TestFlakesComeTogether(t *testing.T) {
	const f, n = 0.2, 40_000
	for _, together := range []float64{0, 0.5} {
		l, err := New(World{Requests: 4, Documents: 2, Controls: 1, Arms: 1, Flake: f, Together: together})
		if err != nil {
			t.Fatal(err)
		}
		one, both := 0, 0
		rng := rand.New(rand.NewPCG(1, 2))
		for range n {
			d := l.draw(rng)
			struck, alone := d.flakes()
			a, b := struck[0] || rng.Float64() < alone, struck[0] || rng.Float64() < alone
			if a {
				one++
			}
			if a && b {
				both++
			}
		}
		want := f * f
		if together > 0 {
			want = 1 - 2*(1-f) + (1-f)*(1-f)/(1-f*together)
		}
		for _, x := range []struct {
			what string
			got  int
			want float64
		}{{"one reply", one, f}, {"two of one document", both, want}} {
			got, se := float64(x.got)/n, math.Sqrt(x.want*(1-x.want)/n)
			if math.Abs(got-x.want) > 5*se {
				t.Errorf("together %v: %s wrong with chance %.4f, want %.4f", together, x.what, got, x.want)
			}
		}
	}
}
