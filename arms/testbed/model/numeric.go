package model

import "math"

// All arithmetic of this package is float32 with every product rounded before
// it is added. The explicit float32 conversions around products are not
// decoration: the Go specification lets a compiler fuse x*y + z into one
// rounding, and an explicit conversion is what forbids it.

// dot4 is the only summation order of the model's matrix products: lane i mod 4
// takes the products of x and w in ascending order and the lanes are joined as
// (s0+s1)+(s2+s3). len(x) is a multiple of 4 and w is at least as long.
func dot4(x, w []float32) float32 {
	w = w[:len(x)]
	var a, b, c, d float32
	for i := 0; i+3 < len(x); i += 4 {
		a += float32(x[i] * w[i])
		b += float32(x[i+1] * w[i+1])
		c += float32(x[i+2] * w[i+2])
		d += float32(x[i+3] * w[i+3])
	}
	return (a + b) + (c + d)
}

// expTerms holds 1/k! for k = 0..10, the Taylor coefficients of exp32.
var expTerms = func() (t [11]float64) {
	f := 1.0
	for k := range t {
		if k > 0 {
			f *= float64(k)
		}
		t[k] = 1 / f
	}
	return t
}()

const (
	log2e = 1.4426950408889634
	ln2   = 0.6931471805599453
)

// exp32 is e^x by range reduction and a Taylor polynomial in float64, rounded
// once to float32. Arguments below -87 give 0, above 88 count as 88, and NaN
// stays NaN. It exists because math.Exp has assembly on some architectures and
// so need not give the same bits everywhere.
func exp32(x float32) float32 {
	if x < -87 {
		return 0
	}
	if x != x {
		return x
	}
	y := min(float64(x), 88)
	n := math.Floor(float64(y*log2e) + 0.5)
	r := y - float64(n*ln2)
	p := expTerms[10]
	for k := 9; k >= 0; k-- {
		p = float64(p*r) + expTerms[k]
	}
	return float32(p * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

// sigmoid is 1/(1+e^-x) through exp32.
func sigmoid(x float32) float32 { return 1 / (1 + exp32(-x)) }

// sqrt32 is the correctly rounded float32 square root.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// rmsNorm writes x scaled to unit root mean square (no gain) to dst.
func rmsNorm(dst, x []float32) {
	f := 1 / sqrt32(dot4(x, x)/float32(len(x))+float32(1e-5))
	for i, v := range x {
		dst[i] = v * f
	}
}

// bf16Encode rounds to the upper 16 bits, nearest even. NaN becomes the one
// quiet NaN 0x7fc0, so that the rounding carry cannot turn it into a number.
func bf16Encode(x float32) uint16 {
	if x != x {
		return 0x7fc0
	}
	u := math.Float32bits(x)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func bf16Decode(c uint16) float32 { return math.Float32frombits(uint32(c) << 16) }

// fp8Values maps each e4m3fn code to its value (OCP 8-bit floating point
// specification, revision 1.0): bias 7, no infinities, 0x7f and 0xff are NaN.
var fp8Values = func() (t [256]float32) {
	for c := range t {
		e, m := c>>3&15, c&7
		v := math.Ldexp(float64(8+m), e-10)
		switch {
		case c&127 == 127:
			v = math.NaN()
		case e == 0:
			v = math.Ldexp(float64(m), -9)
		}
		if c&128 != 0 {
			v = -v
		}
		t[c] = float32(v)
	}
	return t
}()

// fp8Encode rounds to the nearest e4m3fn value, ties to even, saturating at
// ±448 and keeping subnormals. NaN becomes 0x7f.
func fp8Encode(x float32) uint8 {
	if x != x {
		return 0x7f
	}
	u := math.Float32bits(x)
	sign, u := uint8(u>>24)&0x80, u&0x7fffffff
	a := math.Float32frombits(u)
	switch {
	case a >= 448:
		return sign | 0x7e
	case a < 1.0/64:
		// Adding 2^14 leaves steps of 2^-9, the subnormal step, in the mantissa;
		// a carry to 8 is the code of the smallest normal number.
		return sign | uint8(math.Float32bits(a+16384))
	}
	u += 0x7ffff + u>>20&1
	return sign | uint8(u>>20-(127-7)<<3)
}

// fp8Headroom makes the largest element of a block's first token land at half
// of the largest code, so that later tokens may be twice as large.
const fp8Headroom = float32(2.0 / 448.0)

// fp8Scale is the scale a block takes from its first token's head vector.
func fp8Scale(x []float32) float32 {
	var m float32
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > m {
			m = v
		}
	}
	m *= fp8Headroom
	if !(m > 0) {
		return 1
	}
	return m
}

// LogSoftmax writes the natural log probabilities of logits to dst (grown if
// it is too short) and returns it. It works in float64 and sums in ascending
// order of token id; if any logit is NaN, so is every result, and a caller
// reports "no logprob" rather than a number.
func LogSoftmax(logits []float32, dst []float64) []float64 {
	if cap(dst) < len(logits) {
		dst = make([]float64, len(logits))
	}
	dst = dst[:len(logits)]
	top := math.Inf(-1)
	for _, v := range logits {
		if x := float64(v); x > top {
			top = x
		}
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	shift := top + math.Log(sum)
	for i, v := range logits {
		dst[i] = float64(v) - shift
	}
	return dst
}
