package compare_test

import (
	"math"

	"kvladder/scoring/compare"
)

// agree is a relative tolerance; an expected 0 or 1 is met exactly.
func agree(got, want, rel float64) bool {
	if want == 0 || want == 1 {
		return got == want
	}
	return math.Abs(got-want) <= rel*math.Abs(want)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func lo1(k, n int) float64 { return *compare.Lower95(k, n) }
func hi1(k, n int) float64 { return *compare.Upper95(k, n) }

// fisher takes failures and group sizes, as "k1/n1 v k2/n2".
func fisher(k1, n1, k2, n2 int) compare.FisherResult {
	return compare.Fisher(k1, n1-k1, k2, n2-k2)
}

func rates(e1 int, x1 float64, e2 int, x2 float64) compare.RateComparison {
	return must(compare.ConditionalBinomial(compare.Events{Count: e1, Exposure: x1}, compare.Events{Count: e2, Exposure: x2}, .95))
}

func rate(e int, x float64, side compare.Side) compare.RateInterval {
	return must(compare.PoissonRate(compare.Events{Count: e, Exposure: x}, .95, side))
}

func cs(s, n int) compare.Interval { return must(compare.ConfidenceSequence(s, n, .95)) }

func dist(ps ...float64) []compare.TokenLogprob {
	var out []compare.TokenLogprob
	for i, p := range ps {
		out = append(out, compare.TokenLogprob{ID: i, Logprob: math.Log(p)})
	}
	return out
}
