package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// nearestFP8 searches all codes for the nearest value, ties to the even code.
func nearestFP8(x float32) uint8 {
	sign := uint8(math.Float32bits(x)>>24) & 0x80
	best, dist := uint8(0), math.Inf(1)
	for c := uint8(0); c < 0x7f; c++ {
		d := math.Abs(float64(fp8Values[c]) - math.Abs(float64(x)))
		if d < dist || d == dist && c%2 == 0 {
			best, dist = c, d
		}
	}
	return sign | best
}

func TestFP8(t *testing.T) {
	// OCP table: 0x01 = 2^-9, 0x08 = 2^-6, 0x38 = 1, 0x7e = 448.
	for c, want := range map[uint8]float32{0x01: 1. / 512, 0x07: 7. / 512, 0x08: 1. / 64, 0x38: 1, 0x39: 1.125, 0x7e: 448, 0xb8: -1} {
		if fp8Values[c] != want {
			t.Errorf("code %#x is %g, want %g", c, fp8Values[c], want)
		}
	}
	for c := range 256 {
		v := fp8Values[c]
		if (v != v) != (c&0x7f == 0x7f) {
			t.Errorf("code %#x is %g", c, v)
		}
		if v == v && fp8Encode(v) != uint8(c) {
			t.Errorf("code %#x encodes back to %#x", c, fp8Encode(v))
		}
	}
	check := func(x float32) {
		if got, want := fp8Encode(x), nearestFP8(x); got != want {
			t.Errorf("%g encodes to %#x, want %#x", x, got, want)
		}
	}
	for c := uint8(0); c < 0x7e; c++ { // midpoints and their neighbours
		m := (fp8Values[c] + fp8Values[c+1]) / 2
		for _, x := range []float32{m, math.Nextafter32(m, 0), math.Nextafter32(m, 500)} {
			check(x)
			check(-x)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		check(float32(r.NormFloat64() * math.Exp2(float64(r.IntN(24)-14))))
	}
	inf := float32(math.Inf(1))
	for x, want := range map[float32]uint8{449: 0x7e, 1e30: 0x7e, inf: 0x7e, -inf: 0xfe, 1e-30: 0} {
		if got := fp8Encode(x); got != want {
			t.Errorf("%g encodes to %#x, want %#x", x, got, want)
		}
	}
	if got := fp8Encode(float32(math.NaN())); got != 0x7f {
		t.Errorf("NaN encodes to %#x, want 0x7f", got)
	}
}

func TestFP8Scale(t *testing.T) {
	// 1.75 x 2/448 = 0.0078125: the largest element lands on 224, half of 448.
	x := []float32{0.5, -1.75, 0}
	if s := fp8Scale(x); s != 0.0078125 || fp8Values[fp8Encode(x[1]/s)] != -224 {
		t.Errorf("scale %g, largest code %g; want 0.0078125, -224", s, fp8Values[fp8Encode(x[1]/s)])
	}
	if s := fp8Scale(make([]float32, 4)); s != 1 {
		t.Errorf("scale of zeros is %g, want 1", s)
	}
}

func TestBF16(t *testing.T) {
	for u, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81,
		0x7f7fffff: 0x7f80, 0xff800000: 0xff80, 0x7fffffff: 0x7fc0, 0xff800001: 0x7fc0, 0x80000000: 0x8000,
	} {
		if got := bf16Encode(math.Float32frombits(u)); got != want {
			t.Errorf("%08x encodes to %04x, want %04x", u, got, want)
		}
	}
}

func TestExp32(t *testing.T) {
	for x := float32(-87); x <= 88; x += 0.0371 {
		want := math.Exp(float64(x))
		if got := float64(exp32(x)); math.Abs(got-want) > 1e-7*want {
			t.Errorf("exp32(%g) = %g, want %g", x, got, want)
		}
	}
	if exp32(-87.001) != 0 || exp32(1000) != exp32(88) || exp32(0) != 1 {
		t.Error("exp32 is wrong at its ends or at 0")
	}
	if x := exp32(float32(math.NaN())); x == x {
		t.Errorf("exp32(NaN) = %g", x)
	}
}

func TestLogSoftmax(t *testing.T) {
	// ln 1, ln 2, ln 5 sum to 8 before the logarithm.
	lp := LogSoftmax([]float32{0, float32(math.Ln2), float32(math.Log(5))}, nil)
	for i, want := range []float64{1. / 8, 2. / 8, 5. / 8} {
		if math.Abs(math.Exp(lp[i])-want) > 1e-7 {
			t.Errorf("probability %d is %g, want %g", i, math.Exp(lp[i]), want)
		}
	}
	for i, x := range LogSoftmax([]float32{1, float32(math.NaN()), 2}, lp) {
		if x == x {
			t.Errorf("logprob %d beside a NaN is %g, want NaN", i, x)
		}
	}
}
