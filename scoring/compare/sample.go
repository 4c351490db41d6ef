package compare

import (
	"fmt"
	"math"
	"slices"
)

// Mean is an average with its uncertainty.
type Mean struct {
	N     int      `json:"n"`
	Value float64  `json:"value"`
	SE    *float64 `json:"se"` // sqrt((E[x²]-E[x]²)/(n-1)); nil when n < 2
}

// MeanSE is the mean of x and its standard error as llama.cpp's perplexity tool
// prints it: sqrt((E[x²]-E[x]²)/(n-1)), computed about the mean so that it does
// not cancel. It treats the values as independent. An empty sample or a value
// that is not finite is ErrUndefined.
func MeanSE(x []float64) (Mean, error) {
	if err := checkSample("mean", x); err != nil {
		return Mean{}, err
	}
	n := float64(len(x))
	mean := 0.0
	for _, v := range x {
		mean += v / n
	}
	m := Mean{N: len(x), Value: mean}
	if len(x) > 1 {
		ss := 0.0
		for _, v := range x {
			ss += (v - mean) * (v - mean)
		}
		if se := math.Sqrt(ss / n / (n - 1)); finite(se) {
			m.SE = &se
		}
	}
	if !finite(m.Value) {
		return Mean{}, undefined("mean: the sum overflows")
	}
	return m, nil
}

// RMS is the root mean square of x, for differences of probabilities.
func RMS(x []float64) (float64, error) {
	if err := checkSample("rms", x); err != nil {
		return 0, err
	}
	top := 0.0
	for _, v := range x {
		top = math.Max(top, math.Abs(v))
	}
	if top == 0 {
		return 0, nil
	}
	ss := 0.0
	for _, v := range x {
		ss += (v / top) * (v / top)
	}
	return top * math.Sqrt(ss/float64(len(x))), nil
}

// Percentile is the q-quantile of x, 0 <= q <= 1, by linear interpolation at
// index q(n-1) of the sorted values: type 7 of Hyndman & Fan, "Sample quantiles
// in statistical packages" (Am. Stat. 1996), the default of R and NumPy and what
// llama.cpp does. x is not reordered.
func Percentile(x []float64, q float64) (float64, error) {
	if err := checkSample("percentile", x); err != nil {
		return 0, err
	}
	if !(q >= 0 && q <= 1) {
		return 0, fmt.Errorf("compare: percentile %v: want a fraction between 0 and 1, such as 0.99", q)
	}
	s := slices.Sorted(slices.Values(x))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1], nil
	}
	frac := at - float64(i)
	if s[i] == s[i+1] {
		return s[i], nil
	}
	return s[i]*(1-frac) + s[i+1]*frac, nil
}

func checkSample(what string, x []float64) error {
	if len(x) == 0 {
		return undefined("%s: no values", what)
	}
	for i, v := range x {
		if !finite(v) {
			return undefined("%s: value %d is %v", what, i, v)
		}
	}
	return nil
}
