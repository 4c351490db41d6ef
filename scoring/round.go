package scoring

import (
	"math"
	"strconv"
)

// round12 keeps 12 significant digits, so that a figure has the same bytes wherever it is
// computed again.
func round12(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 11, 64), 64)
	if err != nil {
		return v
	}
	return r
}

func rounded(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	r := round12(v)
	return &r
}

func roundedPtr(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return rounded(*v)
}

func ptr[T any](v T) *T { return &v }

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
