package compare_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"kvladder/scoring/compare"
)

func events(n int, x float64) compare.Events { return compare.Events{Count: n, Exposure: x} }

// Every question the data cannot answer is an error that says so, and every
// argument that makes no sense is an error that does not claim the data is at
// fault.
func TestErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	lp := func(id int, v float64) compare.TokenLogprob { return compare.TokenLogprob{ID: id, Logprob: v} }
	one := []compare.TokenLogprob{lp(1, -.5)}
	second := func(_ any, err error) error { return err }
	cases := []struct {
		name      string
		err       error
		undefined bool
		says      string
	}{
		{"cp no trials", second(compare.ClopperPearson(0, 0, .95, compare.TwoSided)), true, "no trials"},
		{"cp k above n", second(compare.ClopperPearson(3, 2, .95, compare.TwoSided)), false, "3/2"},
		{"cp negative", second(compare.ClopperPearson(-1, 2, .95, compare.TwoSided)), false, "-1/2"},
		{"cp negative trials", second(compare.ClopperPearson(-2, -1, .95, compare.TwoSided)), false, "0 <= k <= n"},
		{"cp conf 1", second(compare.ClopperPearson(1, 2, 1, compare.TwoSided)), false, "confidence 1"},
		{"cp conf 95", second(compare.ClopperPearson(1, 2, 95, compare.TwoSided)), false, "0.95"},
		{"cp conf nan", second(compare.ClopperPearson(1, 2, nan, compare.TwoSided)), false, "NaN"},
		{"cp side", second(compare.ClopperPearson(1, 2, .95, compare.Side(9))), false, "side(9)"},
		{"exceedance no floor", second(compare.Exceedance(nil, []float64{1})), true, "control process"},
		{"exceedance no arm", second(compare.Exceedance([]float64{1}, nil)), true, "arm has no values"},
		{"exceedance nan floor", second(compare.Exceedance([]float64{1, nan}, []float64{1})), true, "floor value 1"},
		{"exceedance nan arm", second(compare.Exceedance([]float64{1}, []float64{nan})), true, "arm value 0"},
		{"rate no exposure", second(compare.PoissonRate(events(0, 0), .95, compare.TwoSided)), true, "exposure 0"},
		{"rate nan exposure", second(compare.PoissonRate(events(0, nan), .95, compare.TwoSided)), true, "NaN"},
		{"rate inf exposure", second(compare.PoissonRate(events(0, inf), .95, compare.TwoSided)), true, "Inf"},
		{"rate negative", second(compare.PoissonRate(events(-1, 1), .95, compare.TwoSided)), false, "negative count"},
		{"rate conf", second(compare.PoissonRate(events(1, 1), 0, compare.TwoSided)), false, "confidence 0"},
		{"ratio first", second(compare.ConditionalBinomial(events(1, 0), events(1, 1), .95)), true, "first rate"},
		{"ratio second", second(compare.ConditionalBinomial(events(1, 1), events(1, -1), .95)), true, "second rate"},
		{"ratio conf", second(compare.ConditionalBinomial(events(0, 1), events(0, 1), 2)), false, "confidence 2"},
		{"soak mtbf", second(compare.SoakExposure(0, .95)), false, "positive mtbf"},
		{"soak rate", second(compare.SoakRequests(0, .95)), false, "strictly between"},
		{"soak forever", second(compare.SoakRequests(1e-300, .95)), false, "2^53"},
		{"sprt alpha", second(compare.NewSPRT(0, .05)), false, "alpha 0"},
		{"sprt sum", second(compare.NewSPRT(.6, .5)), false, "sum below 1"},
		{"steps equal", second(compare.BernoulliSteps(.1, .1)), false, "p0 < p1"},
		{"steps zero", second(compare.BernoulliSteps(0, .1)), false, "0 < p0"},
		{"steps nan", second(compare.BernoulliSteps(nan, .1)), false, "p0 < p1"},
		{"exponential order", second(compare.ExponentialSteps(20, 42)), false, "mtbf1 < mtbf0"},
		{"exponential inf", second(compare.ExponentialSteps(inf, 42)), false, "mtbf0"},
		{"e-value counts", second(compare.LikelihoodRatio(.1, .2, 3, 2)), false, "3 in 2"},
		{"e-value rates", second(compare.LikelihoodRatio(.2, .1, 1, 2)), false, "p0 < p1"},
		{"sequence none", second(compare.ConfidenceSequence(0, 0, .95)), true, "no trials"},
		{"sequence counts", second(compare.ConfidenceSequence(3, 2, .95)), false, "3/2"},
		{"sequence conf", second(compare.ConfidenceSequence(1, 2, 1)), false, "confidence"},
		{"cusum threshold", second(compare.CUSUM([]float64{1}, 0)), false, "threshold 0"},
		{"cusum step", second(compare.CUSUM([]float64{0, nan}, 1)), true, "step 1"},
		{"kl empty reference", second(compare.KLTopK(nil, one)), true, "reference has no logprobs"},
		{"kl empty arm", second(compare.KLTopK(one, nil)), true, "arm has no logprobs"},
		{"kl nothing shared", second(compare.KLTopK(one, []compare.TokenLogprob{lp(2, -.5)})), true, "none of the reference's 1"},
		{"kl all censored", second(compare.KLTopK(one, []compare.TokenLogprob{lp(1, compare.Censored)})), true, "none of the reference's 1"},
		{"kl nan", second(compare.KLTopK([]compare.TokenLogprob{lp(1, nan)}, one)), true, "reference token 1"},
		{"kl positive", second(compare.KLTopK(one, []compare.TokenLogprob{lp(1, .1)})), false, "above 0"},
		{"kl twice", second(compare.KLTopK(one, []compare.TokenLogprob{lp(1, -2), lp(1, -2)})), false, "listed twice"},
		{"kl censored twice", second(compare.KLTopK(one, []compare.TokenLogprob{lp(1, -9999), lp(1, -2)})), false, "listed twice"},
		{"kl sum", second(compare.KLTopK(one, []compare.TokenLogprob{lp(1, -.1), lp(2, -.1)})), false, "sum to 1.8"},
		{"mean empty", second(compare.MeanSE(nil)), true, "no values"},
		{"mean inf", second(compare.MeanSE([]float64{1, inf})), true, "value 1"},
		{"rms empty", second(compare.RMS(nil)), true, "no values"},
		{"percentile empty", second(compare.Percentile(nil, .5)), true, "no values"},
		{"percentile nan", second(compare.Percentile([]float64{nan}, .5)), true, "value 0"},
		{"percentile 99", second(compare.Percentile([]float64{1}, 99)), false, "0.99"},
		{"mann-whitney first", second(compare.MannWhitney(nil, []float64{1})), true, "first sample"},
		{"mann-whitney second", second(compare.MannWhitney([]float64{1}, []float64{nan})), true, "second sample"},
		{"mann-whitney large", second(compare.MannWhitney(make([]float64, 100), make([]float64, 29))), false, "129 values"},
		{"median few", second(compare.MedianInterval(make([]float64, 5), .95)), true, "0.9375"},
		{"median conf", second(compare.MedianInterval(make([]float64, 5), 1)), false, "confidence"},
		{"median empty", second(compare.MedianInterval(nil, .95)), true, "no values"},
	}
	for _, c := range cases {
		switch {
		case c.err == nil:
			t.Errorf("%s: no error", c.name)
		case errors.Is(c.err, compare.ErrUndefined) != c.undefined:
			t.Errorf("%s: %q: undefined should be %v", c.name, c.err, c.undefined)
		case !strings.Contains(c.err.Error(), c.says):
			t.Errorf("%s: %q does not say %q", c.name, c.err, c.says)
		case strings.HasSuffix(c.err.Error(), "."):
			t.Errorf("%s: %q ends in a full stop", c.name, c.err)
		}
	}
}

func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"mcnemar":          func() { compare.McNemar(-1, 0) },
		"sign":             func() { compare.SignTest(0, -1) },
		"fisher":           func() { compare.Fisher(0, 0, 0, -1) },
		"mechanism table":  func() { compare.MechanismTable(0, 0, -1, 0) },
		"mechanism count":  func() { compare.MechanismCount(3, 2) },
		"exceedance":       func() { compare.ExceedanceP(-1, 1, 1) },
		"holm nan":         func() { compare.Holm([]float64{.1, math.NaN()}) },
		"holm above 1":     func() { compare.Holm([]float64{1.1}) },
		"false alarm":      func() { compare.FalseAlarm(38, 3, math.NaN()) },
		"power rate":       func() { compare.PowerAtLeast(38, 1.1, 1) },
		"power n":          func() { compare.PowerAtLeast(-1, .1, 1) },
		"power arms":       func() { compare.Power(38, .1, .04, 0) },
		"fewest, alpha 0":  func() { compare.MinArmOnly(0) },
		"fewest, alpha 1":  func() { compare.MinArmOnly(1) },
		"smallest rate k":  func() { compare.SmallestRate(38, 0, .95) },
		"smallest n":       func() { compare.SmallestN(0, 1, .95) },
		"median coverage":  func() { compare.MedianCoverage(-1, 1) },
		"smallest n power": func() { compare.SmallestN(.1, 1, 1) },
	} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.HasPrefix(r, "compare: ") {
					t.Errorf("%s: want a panic that names the package, got %q", name, r)
				}
			}()
			f()
			t.Errorf("%s: returned", name)
		}()
	}
}

// Absent is not zero.
func TestUnknownIsNil(t *testing.T) {
	for name, p := range map[string]*float64{
		"upper of nothing":       compare.Upper95(0, 0),
		"lower of nothing":       compare.Lower95(0, 0),
		"upper of nonsense":      compare.Upper95(5, 4),
		"lower of nonsense":      compare.Lower95(-1, 4),
		"rate no n can show":     compare.SmallestRate(4, 5, .95),
		"rate of no requests":    compare.SmallestRate(0, 1, .95),
		"one value's SE":         must(compare.MeanSE([]float64{3})).SE,
		"ratio to no event":      rates(3, 1, 0, 1).Ratio,
		"its upper end":          rates(3, 1, 0, 1).High,
		"ratio of none to none":  rates(0, 1, 0, 1).Ratio,
		"its upper end too":      rates(0, 1, 0, 1).High,
		"upper end, lower side":  rate(4, 168, compare.LowerSided).High,
		"mtbf, lower side":       rate(4, 168, compare.LowerSided).MTBFAtLeast(),
		"e-value beyond float64": compare.EValue{Log: 1000}.Value(),
		"kl where q has no room": must(compare.KLTopK(dist(.5, .4), dist(.5, .5))).KL,
		"reverse likewise":       must(compare.KLTopK(dist(.5, .5), dist(.5, .4))).Reverse,
	} {
		if p != nil {
			t.Errorf("%s: got %v, want nil", name, *p)
		}
	}
}

// What is certain without data.
func TestLimits(t *testing.T) {
	for name, v := range map[string][2]float64{
		"mcnemar (0,0) one-sided":       {compare.McNemar(0, 0).OneSided, 1},
		"mcnemar (0,0) mid-p":           {compare.McNemar(0, 0).MidP, 1},
		"mcnemar (7,0) one-sided":       {compare.McNemar(7, 0).OneSided, 1},
		"mcnemar (7,0) two-sided":       {compare.McNemar(7, 0).TwoSided, 1. / 64},
		"fisher of nothing":             {compare.Fisher(0, 0, 0, 0).TwoSided, 1},
		"fisher one empty group":        {compare.Fisher(3, 4, 0, 0).OneSided, 1},
		"exceedance without a floor":    {compare.ExceedanceP(5, 5, 0), 1},
		"exceedance of none":            {compare.ExceedanceP(0, 38, 228), 1},
		"exceedance beyond the arm":     {compare.ExceedanceP(39, 38, 228), 0},
		"beyond the arm, no floor":      {compare.ExceedanceP(6, 5, 0), 0},
		"no event anywhere":             {rates(0, 1, 0, 1).OneSided, 1},
		"no event anywhere, two-sided":  {rates(0, 1, 0, 1).TwoSided, 1},
		"mechanism names all":           {compare.MechanismCount(7, 7), 1},
		"power, k = 0":                  {compare.PowerAtLeast(38, 0, 0), 1},
		"power, rate 0":                 {compare.PowerAtLeast(38, 0, 1), 0},
		"power, rate 1":                 {compare.PowerAtLeast(38, 1, 38), 1},
		"power, k above n":              {compare.PowerAtLeast(38, 1, 39), 0},
		"power, no requests":            {compare.PowerAtLeast(0, .5, 1), 0},
		"median, crossed":               {compare.MedianCoverage(6, 4), 0},
		"median, k 0":                   {compare.MedianCoverage(6, 0), 0},
		"coverage of the middle value":  {compare.MedianCoverage(7, 4), 0},
		"no evidence":                   {*compare.EValue{}.Value(), 1},
		"average of no evidence":        {compare.Dependent().Log, 0},
		"lower end of a rate, no event": {rate(0, 5, compare.LowerSided).Low, 0},
		"percentile of one":             {must(compare.Percentile([]float64{1}, .37)), 1},
		"rms of zeros":                  {must(compare.RMS([]float64{0, 0})), 0},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: got %v, want %v", name, v[0], v[1])
		}
	}
	if len(compare.Holm(nil)) != 0 {
		t.Error("holm of nothing is nothing")
	}
}

func TestExceedanceIsStrict(t *testing.T) {
	floor, arm := []float64{.1, .3, .2}, []float64{.3, .31, math.Inf(1)}
	want := append([]float64(nil), arm...)
	r := must(compare.Exceedance(floor, arm))
	// C(3,2)/C(6,2) = 3/15.
	if r.K != 2 || r.M != 3 || r.N != 3 || r.P != .2 {
		t.Errorf("got %+v, want 2 of 3 above 3 at 0.2: 0.3 is not above 0.3", r)
	}
	if !slices.Equal(arm, want) {
		t.Error("the arm was changed")
	}
}

func TestKLTails(t *testing.T) {
	lp := func(id int, p float64) compare.TokenLogprob {
		return compare.TokenLogprob{ID: id, Logprob: math.Log(p)}
	}
	cens := func(id int) compare.TokenLogprob {
		return compare.TokenLogprob{ID: id, Logprob: compare.Censored}
	}
	// A censored token is not a probability of e^-9999: it joins the tail.
	// p = (.7 | .3), q = (.6 | .4): .7 ln(.7/.6) + .3 ln(.3/.4).
	d := must(compare.KLTopK([]compare.TokenLogprob{lp(1, .7), lp(2, .3)}, []compare.TokenLogprob{lp(1, .6), cens(2)}))
	if want := .7*math.Log(.7/.6) + .3*math.Log(.3/.4); !agree(*d.KL, want, 1e-12) || d.Hidden != 1 || d.Shared != 1 {
		t.Errorf("censored in the arm: %+v, kl %v, want %v", d, *d.KL, want)
	}
	// Censored in the reference: neither shared nor hidden, it was never visible.
	d = must(compare.KLTopK([]compare.TokenLogprob{lp(1, .7), cens(2)}, []compare.TokenLogprob{lp(1, .6), lp(2, .4)}))
	if d.Shared != 1 || d.Hidden != 0 {
		t.Errorf("censored in the reference: %+v", d)
	}
	// float32 sums: 1 + 3e-7 on one side, 1 - 3e-7 on the other, is no tail.
	d = must(compare.KLTopK([]compare.TokenLogprob{lp(1, .9), lp(2, .1-3e-7)}, []compare.TokenLogprob{lp(1, .9), lp(2, .1+3e-7)}))
	if d.KL == nil || d.Reverse == nil || *d.KL > 1e-6 {
		t.Errorf("rounding became an infinite divergence: %+v", d)
	}
	// A real tail against none is infinite one way and finite the other.
	d = must(compare.KLTopK(dist(.9), dist(1)))
	if d.KL != nil || d.Reverse == nil || !agree(*d.Reverse, -math.Log(.9), 1e-12) {
		t.Errorf("tail against none: %+v", d)
	}
	if !agree(d.TV, .1, 1e-12) || d.JSD <= 0 {
		t.Errorf("tv and jsd stay finite: %+v", d)
	}
}

func TestSPRTDecides(t *testing.T) {
	s, st := must(compare.NewSPRT(.05, .05)), must(compare.BernoulliSteps(.001, .05))
	for _, c := range []struct {
		failures int
		passes   float64
		want     compare.Decision
	}{{0, 0, compare.Continue}, {0, 58, compare.Continue}, {0, 59, compare.AcceptH0}, {1, 0, compare.RejectH0}, {1, 19, compare.RejectH0}, {1, 20, compare.Continue}} {
		if got := s.Decide(st.LLR(c.failures, c.passes)); got != c.want {
			t.Errorf("%d failures, %v passes: %v, want %v", c.failures, c.passes, got, c.want)
		}
	}
	var zero compare.SPRT
	if got := zero.Decide(99); got != compare.Continue {
		t.Errorf("a test nobody set up decided %v", got)
	}
	if got := s.Decide(math.NaN()); got != compare.Continue {
		t.Errorf("no number decided %v", got)
	}
}

func TestEvidenceCombines(t *testing.T) {
	a, b := compare.EValue{Log: math.Log(4)}, compare.EValue{Log: math.Log(10)}
	if got := *compare.Independent(a, b).Value(); !agree(got, 40, 1e-12) {
		t.Errorf("product %v, want 40", got)
	}
	if got := *compare.Dependent(a, b).Value(); !agree(got, 7, 1e-12) {
		t.Errorf("mean %v, want 7", got)
	}
	huge := compare.EValue{Log: 5000}
	if got := compare.Dependent(huge, huge).Log; !agree(got, 5000, 1e-12) {
		t.Errorf("mean of two equal logs %v", got)
	}
	if !compare.Independent(a, b).Alarm(.05) || compare.Dependent(a, b).Alarm(.05) {
		t.Error("40 reaches 1/0.05 and 7 does not")
	}
}

// What plans of this size can see; the figures are those of the power table.
func TestPower(t *testing.T) {
	for alpha, want := range map[float64]int{.05: 5, .025: 6, .0125: 7, .01: 7, .001: 10, .0625: 4} {
		if got := compare.MinArmOnly(alpha); got != want {
			t.Errorf("alpha %v: %d arm-only failures, want %d", alpha, got, want)
		}
	}
	for arms, want := range map[int]int{1: 5, 2: 6, 3: 7, 5: 7, 6: 8, 10: 8, 11: 9, 20: 9} {
		k := compare.MinArmOnly(.04 / float64(arms))
		if k != want {
			t.Errorf("%d arms under Holm at .04: %d, want %d", arms, k, want)
		}
		if p := compare.McNemar(0, k).OneSided; p > .04/float64(arms) || 2*p <= .04/float64(arms) {
			t.Errorf("%d arms: %d is not the fewest, p = %v", arms, k, p)
		}
		if got, want := compare.Power(48, .2, .04, arms), compare.PowerAtLeast(48, .2, k); got != want {
			t.Errorf("%d arms: power %v, want %v", arms, got, want)
		}
	}
	for _, c := range []struct {
		q                float64
		one, five, seven int
	}{
		{1. / 2, 5, 16, 21}, {7. / 38, 15, 48, 62}, {1. / 10, 29, 89, 116},
		{1. / 20, 59, 181, 234}, {1. / 100, 299, 913, 1182}, {1. / 1000, 2995, 9151, 11840},
	} {
		for k, want := range map[int]int{1: c.one, 5: c.five, 7: c.seven} {
			got := compare.SmallestN(c.q, k, .95)
			if got != want {
				t.Errorf("rate %v, at least %d: n = %d, want %d", c.q, k, got, want)
			}
			if compare.PowerAtLeast(got, c.q, k) < .95 || compare.PowerAtLeast(got-1, c.q, k) >= .95 {
				t.Errorf("rate %v, at least %d: %d is not the fewest", c.q, k, got)
			}
		}
	}
	near := func(name string, got, want, tol float64) {
		if math.Abs(got-want) > tol {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	near("smallest rate, 38, 1", *compare.SmallestRate(38, 1, .95), .0758, 5e-5)
	near("smallest rate, 38, 5", *compare.SmallestRate(38, 5, .95), .225, 5e-4)
	near("smallest rate, 38, 7", *compare.SmallestRate(38, 7, .95), .288, 5e-4)
	near("power at 7/38, five", compare.PowerAtLeast(38, 7./38, 5), .854, 5e-4)
	near("0/29 classes", hi1(0, 29), .0981, 5e-5)
	near("0/28 classes", hi1(0, 28), .1015, 5e-5)
	// A gate of 200 questions at true accuracy 0.40: fewer than 90 or 80 right.
	near("cut at .45", compare.PowerAtLeast(200, .6, 111), .91, 5e-3)
	near("cut at .40", compare.PowerAtLeast(200, .6, 121), .47, 5e-3)
	for _, k := range []int{1, 5, 7, 38} {
		q := *compare.SmallestRate(38, k, .95)
		near("power at the smallest rate", compare.PowerAtLeast(38, q, k), .95, 1e-12)
	}
}

// A receipt of a long soak is scored in no time.
func TestLargeCountsAreFast(t *testing.T) {
	start := time.Now()
	const times = 10
	for range times {
		for _, k := range []int{1, 100, 23571, 47141} {
			must(compare.ClopperPearson(k, 47142, .95, compare.TwoSided))
			cs(k, 47142)
		}
		rate(47142, 1e6, compare.TwoSided)
		fisher(3, 12000, 40, 12000)
		compare.McNemar(1000, 1100)
	}
	if each := time.Since(start) / times; each > 200*time.Millisecond {
		t.Errorf("one round took %v", each)
	} else {
		t.Logf("one round took %v", each)
	}
}
