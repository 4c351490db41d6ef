package compare_test

import (
	"fmt"
	"math"
	"testing"

	"kvladder/scoring/compare"
)

// vector is one published or independently computed number (exact rationals, or
// 50 digits, printed to 12) and what this package makes of it.
type vector struct {
	name string
	got  float64
	want float64
}

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

func lo2(k, n int) float64 { return must(compare.ClopperPearson(k, n, .95, compare.TwoSided)).Low }
func hi2(k, n int) float64 { return must(compare.ClopperPearson(k, n, .95, compare.TwoSided)).High }
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

func lr(s, n int) float64 { return *must(compare.LikelihoodRatio(.01, .1, s, n)).Value() }

func dist(ps ...float64) []compare.TokenLogprob {
	var out []compare.TokenLogprob
	for i, p := range ps {
		out = append(out, compare.TokenLogprob{ID: i, Logprob: math.Log(p)})
	}
	return out
}

func asn(alpha, beta, p0, p1 float64) (h0, h1 float64) {
	h0, h1, err := must(compare.NewSPRT(alpha, beta)).SampleNumbers(p0, p1)
	if err != nil {
		panic(err)
	}
	return h0, h1
}

func vectors() []vector {
	var vs []vector
	add := func(name string, got, want float64) { vs = append(vs, vector{name, got, want}) }

	// Clopper-Pearson, 95 %.
	add("cp 0/38 two-sided low", lo2(0, 38), 0)
	add("cp 0/38 two-sided high", hi2(0, 38), 0.0925127614159)
	add("cp 0/38 one-sided low", lo1(0, 38), 0)
	add("cp 0/38 one-sided high", hi1(0, 38), 0.0758076516830)
	add("cp 1/38 two-sided low", lo2(1, 38), 0.000666036204202)
	add("cp 1/38 two-sided high", hi2(1, 38), 0.138099029792)
	add("cp 1/38 one-sided low", lo1(1, 38), 0.00134891293449)
	add("cp 1/38 one-sided high", hi1(1, 38), 0.118854122701)
	add("cp 7/38 two-sided low", lo2(7, 38), 0.0774268518388)
	add("cp 7/38 two-sided high", hi2(7, 38), 0.343261994311)
	add("cp 7/38 one-sided low", lo1(7, 38), 0.0897930757939)
	add("cp 7/38 one-sided high", hi1(7, 38), 0.318317665664)
	add("cp 37/38 two-sided low", lo2(37, 38), 0.861900970208)
	add("cp 37/38 two-sided high", hi2(37, 38), 0.999333963796)
	add("cp 37/38 one-sided low", lo1(37, 38), 0.881145877299)
	add("cp 37/38 one-sided high", hi1(37, 38), 0.998651087066)
	add("cp 38/38 two-sided low", lo2(38, 38), 0.907487238584)
	add("cp 38/38 two-sided high", hi2(38, 38), 1)
	add("cp 38/38 one-sided low", lo1(38, 38), 0.924192348317)
	add("cp 38/38 one-sided high", hi1(38, 38), 1)
	add("cp 14/76 two-sided low", lo2(14, 76), 0.104532760416)
	add("cp 14/76 two-sided high", hi2(14, 76), 0.289715601956)
	add("cp 0/18 one-sided high", hi1(0, 18), 0.153317553957)
	add("cp 0/114 two-sided high", hi2(0, 114), 0.0318406540835)
	add("cp 0/114 one-sided high", hi1(0, 114), 0.0259360820136)
	add("cp 0/266 two-sided high", hi2(0, 266), 0.0137722505851)
	add("cp 0/266 one-sided high", hi1(0, 266), 0.0111989707829)
	add("cp 0/850 one-sided high", hi1(0, 850), 0.00351818753427)
	add("cp 0/12000 one-sided high", hi1(0, 12000), 0.000249613197570)
	add("cp 0/47142 one-sided high", hi1(0, 47142), 6.35449724382e-5)
	add("cp 7/50 two-sided low, exact", lo2(7, 50), 0.0581917003403721)
	add("cp 3/15 one-sided low, SciPy", lo1(3, 15), 0.05684686759024681)

	// Fisher.
	both := func(name string, r compare.FisherResult, two, one float64) {
		add("fisher "+name+" two-sided", r.TwoSided, two)
		add("fisher "+name+" one-sided", r.OneSided, one)
	}
	both("0/38 v 1/38", fisher(0, 38, 1, 38), 1, 0.5)
	both("0/38 v 4/38", fisher(0, 38, 4, 38), 0.115068493151, 0.0575342465753)
	both("0/38 v 5/38", fisher(0, 38, 5, 38), 0.0543378995434, 0.0271689497717)
	both("0/38 v 6/38", fisher(0, 38, 6, 38), 0.0252556434497, 0.0126278217249)
	both("0/38 v 7/38", fisher(0, 38, 7, 38), 0.0115454370056, 0.00577271850280)
	both("0/38 v 37/38", fisher(0, 38, 37, 38), 1.13164504440e-20, 5.65822522198e-21)
	both("0/38 v 38/38", fisher(0, 38, 38, 38), 2.90165395999e-22, 1.45082698000e-22)
	both("7/38 v 37/38", fisher(7, 38, 37, 38), 3.57865981855e-13, 1.78932990928e-13)
	both("7/38 v 38/38", fisher(7, 38, 38, 38), 1.31675954076e-14, 6.58379770380e-15)
	add("fisher 7/38 v 7/38 two-sided", fisher(7, 38, 7, 38).TwoSided, 1)
	both("37/38 v 38/38", fisher(37, 38, 38, 38), 1, 0.5)
	add("fisher [[8,2],[1,5]] two-sided, SciPy", compare.Fisher(8, 2, 1, 5).TwoSided, 0.0349650349650)
	add("fisher [[6,2],[1,4]] two-sided, SciPy", compare.Fisher(6, 2, 1, 4).TwoSided, 0.102564102564)
	add("mechanism table 14/7/0/93", compare.MechanismTable(14, 7, 0, 93), 3.71941885849e-13)
	add("mechanism table 14/7/0/93 as fisher two-sided", compare.Fisher(14, 7, 0, 93).TwoSided, 3.71941885849e-13)
	add("mechanism count C(38,7)", compare.MechanismCount(7, 38), 7.92376953368e-8)
	add("mechanism count C(38,7) as an integer", 1/compare.MechanismCount(7, 38), 12620256)
	add("identical texts 20/38 v 0/38", fisher(20, 38, 0, 38).TwoSided, 6.16102352344e-8)
	add("identical texts 17/38 v 0/38", fisher(17, 38, 0, 38).TwoSided, 1.50593017837e-6)
	add("identical texts 32/38 v 20/38", fisher(32, 38, 20, 38).TwoSided, 0.00600782067430)

	// McNemar.
	mc := func(b, c int, one, two, mid float64) {
		r := compare.McNemar(b, c)
		add(fmt.Sprintf("mcnemar (%d,%d) one-sided", b, c), r.OneSided, one)
		if two >= 0 {
			add(fmt.Sprintf("mcnemar (%d,%d) two-sided", b, c), r.TwoSided, two)
		}
		if mid >= 0 {
			add(fmt.Sprintf("mcnemar (%d,%d) mid-p", b, c), r.MidP, mid)
		}
	}
	mc(0, 4, 0.0625, 0.125, 0.0625)
	mc(0, 5, 0.03125, 0.0625, 0.03125)
	mc(0, 6, 0.015625, 0.03125, 0.015625)
	mc(0, 7, 0.0078125, 0.015625, 0.0078125)
	mc(1, 7, 0.03515625, 0.0703125, 0.0390625)
	mc(2, 10, 0.019287109375, 0.03857421875, 0.0224609375)
	mc(1, 1, 0.75, 1, 0.5)
	mc(0, 30, 9.31322574615e-10, 1.86264514923e-9, -1)
	mc(0, 31, 4.65661287308e-10, -1, -1)
	mc(0, 37, 7.27595761418e-12, 1.45519152284e-11, -1)
	mc(0, 38, 3.63797880709e-12, 7.27595761418e-12, -1)

	// What "at least one against none" costs: n = 38, three arms.
	for q, want := range map[float64]float64{
		.0005: 0.0543761087510, .001: 0.103771680755, .002: 0.189109385752,
		.005: 0.359789370959, .01: 0.465509698338, .02: 0.417694389527,
	} {
		add(fmt.Sprintf("false alarm at flake %v", q), compare.FalseAlarm(38, 3, q), want)
	}

	// Holm.
	for i, got := range compare.Holm([]float64{.01, .04, .03, .005}) {
		add(fmt.Sprintf("holm of four [%d]", i), got, []float64{.03, .06, .06, .02}[i])
	}
	tiny := math.Ldexp(1, -38)
	for i, got := range compare.Holm([]float64{1. / 128, 1. / 128, tiny}) {
		add(fmt.Sprintf("holm of three [%d]", i), got, []float64{0.015625, 0.015625, 1.09139364213e-11}[i])
	}

	// Exceedance over 228 floor values, 38 arm values.
	add("exceedance k=7", compare.ExceedanceP(7, 38, 228), 7.30964639610e-7)
	add("exceedance k=7 as a fraction", compare.ExceedanceP(7, 38, 228), 2516./3442026965)
	add("exceedance k=1", compare.ExceedanceP(1, 38, 228), 1./7)
	add("exceedance k=3", compare.ExceedanceP(3, 38, 228), 0.00271992158785)

	// Poisson. B: 4 in 168 min, C: 3 in 60, D: 0 in 336.
	add("rates D v B p", rates(4, 168, 0, 336).OneSided, 1./81)
	add("rates D v B p to 12 digits", rates(4, 168, 0, 336).OneSided, 0.0123456790123)
	add("rates D v B ratio high", *rates(0, 336, 4, 168).High, 0.757433429683)
	add("rates D v C p", rates(3, 60, 0, 336).OneSided, 0.00347830926343)
	add("rates D v B+C p", rates(7, 228, 0, 336).OneSided, 0.00176437217903)
	add("rates D v B+C ratio high", *rates(0, 336, 7, 228).High, 0.470802343637)
	add("rate D low", rate(0, 336, compare.TwoSided).Low, 0)
	add("rate D high", *rate(0, 336, compare.TwoSided).High, 0.0109788078991)
	add("rate D one-sided high", *rate(0, 336, compare.UpperSided).High, 0.00891586986177)
	add("rate D mtbf", *rate(0, 336, compare.UpperSided).MTBFAtLeast(), 112.159555434)
	add("rate B low", rate(4, 168, compare.TwoSided).Low, 0.00648729389063)
	add("rate B high", *rate(4, 168, compare.TwoSided).High, 0.0609618373536)
	add("rate C low", rate(3, 60, compare.TwoSided).Low, 0.0103112020483)
	add("rate C high", *rate(3, 60, compare.TwoSided).High, 0.146121217829)
	add("1 in 47142 requests low", rate(1, 47142, compare.TwoSided).Low, 5.37054176409e-7)
	add("1 in 47142 requests high", *rate(1, 47142, compare.TwoSided).High, 0.000118188523842)
	add("soak for mtbf 20", must(compare.SoakExposure(20, .95)), 59.9146454711)
	add("soak for mtbf 42", must(compare.SoakExposure(42, .95)), 125.820755489)
	add("soak for 47142 requests", float64(must(compare.SoakRequests(1./47142, .95))), 141224)
	r := rates(11, 800, 21, 3011)
	add("R poisson.test ratio", *r.Ratio, 1.97148809524)
	add("R poisson.test p", r.TwoSided, 0.0796686330333)
	add("R poisson.test low", r.Low, 0.858426403392)
	add("R poisson.test high", *r.High, 4.27726594365)

	// SPRT.
	bound := func(a, b, reject, accept float64) {
		s := must(compare.NewSPRT(a, b))
		add(fmt.Sprintf("sprt %v/%v reject", a, b), s.Reject, reject)
		add(fmt.Sprintf("sprt %v/%v accept", a, b), s.Accept, accept)
	}
	bound(.05, .05, 2.94443897917, -2.94443897917)
	bound(.01, .05, 4.55387689160, -2.98568193770)
	bound(.01, .01, 4.59511985013, -4.59511985013)
	bern := func(name string, a, b, p0, p1, fail, pass, clean, failures float64) {
		s, st := must(compare.NewSPRT(a, b)), must(compare.BernoulliSteps(p0, p1))
		add("sprt "+name+" fail", st.Event, fail)
		add("sprt "+name+" pass", st.Quiet, pass)
		add("sprt "+name+" clean to accept", math.Ceil(s.QuietToAccept(st)), clean)
		add("sprt "+name+" failures to reject", float64(s.EventsToReject(st)), failures)
	}
	bern(".001 v .05", .05, .05, .001, .05, 3.91202300543, -0.0502927940540, 59, 1)
	bern(".001 v .01", .05, .05, .001, .01, 2.30258509299, -0.00904983551992, 326, 2)
	bern(".01 v 7/38", .01, .05, .01, 7./38, 2.91349417532, -0.193548619388, 16, 2)
	h0, h1 := asn(.05, .05, .001, .05)
	add("sprt .001 v .05 asn h0", h0, 57.1976629875)
	add("sprt .001 v .05 asn h1", h1, 17.9268121631)
	h0, h1 = asn(.01, .05, .01, 7./38)
	add("sprt .01 v 7/38 asn h0", h0, 17.9118583460)
	add("sprt .01 v 7/38 asn h1", h1, 11.0266205213)
	five := must(compare.NewSPRT(.05, .05))
	exp := must(compare.ExponentialSteps(1000, 42))
	add("sprt mtbf 1000 v 42 event", exp.Event, 3.17008566070)
	add("sprt mtbf 1000 v 42 per minute", exp.Quiet, -0.0228095238095)
	add("sprt mtbf 1000 v 42 accept at", five.QuietToAccept(exp), 129.088138961)
	add("sprt mtbf 1000 v 20 accept at", five.QuietToAccept(must(compare.ExponentialSteps(1000, 20))), 60.0905914116)

	// E-values and confidence sequences.
	add("e-value (0,38)", lr(0, 38), 0.0267348630641)
	add("e-value (1,38)", lr(1, 38), 0.294083493706)
	add("e-value (2,38)", lr(2, 38), 3.23491843076)
	add("e-value (7,38)", lr(7, 38), 520986.848192)
	add("sequence 0/38 low", cs(0, 38).Low, 0)
	add("sequence 0/38 high", cs(0, 38).High, 0.160748265866)
	add("sequence 0/114 high", cs(0, 114).High, 0.0656466235475)
	add("sequence 0/266 high", cs(0, 266).High, 0.0317518251704)
	add("sequence 0/12000 high", cs(0, 12000).High, 0.00103184041388)
	add("sequence 7/38 low", cs(7, 38).Low, 0.0460295025907)
	add("sequence 7/38 high", cs(7, 38).High, 0.421384788353)
	add("sequence 37/38 low", cs(37, 38).Low, 0.789655338634)
	add("sequence 37/38 high", cs(37, 38).High, 0.999966219613)

	// Divergence and samples.
	d := must(compare.KLTopK(dist(.7, .2, .05), dist(.6, .25, .1)))
	add("kl", *d.KL, 0.0286194065882)
	add("kl reversed", *d.Reverse, 0.0326101979882)
	add("jsd", d.JSD, 0.00756421476322)
	add("tv", d.TV, 0.1)
	add("kl over two shared tokens", *must(compare.KLTopK(dist(.7, .2, .05), dist(.6, .25))).KL, 0.0227302548054)
	five5 := []float64{1, 2, 3, 4, 10}
	add("percentile 50", must(compare.Percentile(five5, .5)), 3)
	add("percentile 90", must(compare.Percentile(five5, .9)), 7.6)
	add("percentile 99", must(compare.Percentile(five5, .99)), 9.76)
	add("uncertainty", *must(compare.MeanSE([]float64{.1, .2, .4})).SE, 0.0881917103688)
	apart := func(n int) float64 {
		var x, y []float64
		for i := range n {
			x, y = append(x, float64(i)), append(y, float64(100+i))
		}
		return must(compare.MannWhitney(x, y)).TwoSided
	}
	add("mann-whitney 3 v 3", apart(3), .1)
	add("mann-whitney 4 v 4", apart(4), 0.0285714285714)
	add("mann-whitney 6 v 6", apart(6), 0.00216450216450)
	add("median coverage n=6", compare.MedianCoverage(6, 1), 0.96875)
	add("median coverage n=5", compare.MedianCoverage(5, 1), 0.9375)

	// A published four-arm ladder, from its integers. The floor: 18 forks in
	// 3967 positions at risk.
	fork := func(name string, forks int, exposure, ratio, p float64) {
		r := rates(forks, exposure, 18, 3967)
		if p > 0 {
			add("forks "+name+" p", r.OneSided, p)
		}
		// The ratio was printed to four decimals.
		add("forks "+name+" ratio", math.Round(*r.Ratio*1e4)/1e4, ratio)
	}
	fork("L1cold", 38, 1601, 5.2310, 1.566213852e-9)
	fork("L2warm", 38, 1563, 5.3581, 9.177252454e-10)
	fork("one process", 6, 4246, 0.3114, -1)
	r = rates(38, 62, 18, 3967)
	add("forks L3restart p", r.OneSided, 2.100420971e-55)
	add("forks L3restart ratio", math.Round(*r.Ratio*1e2)/1e2, 135.08)
	add("exceedance L1cold", compare.ExceedanceP(10, 38, 228), 1.14795462353e-9)
	add("exceedance L2warm", compare.ExceedanceP(11, 38, 228), 1.25557536947e-10)
	add("exceedance L3restart", compare.ExceedanceP(38, 38, 228), 6.01021261493e-47)
	add("identity of the passing 0/31 v 13/38", math.Round(fisher(0, 31, 13, 38).OneSided*1e5)/1e5, 1.4e-4)
	return vs
}

// tolerance is 1e-10, and half a unit in the tenth digit where a value was
// printed to ten.
func tolerance(name string) float64 {
	switch name {
	case "forks L1cold p", "forks L2warm p", "forks L3restart p":
		return 5e-10
	}
	return 1e-10
}

func TestVectors(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range vectors() {
		if seen[v.name] {
			t.Errorf("%s: two vectors share this name", v.name)
		}
		seen[v.name] = true
		if !agree(v.got, v.want, tolerance(v.name)) {
			t.Errorf("%s: got %.15g, want %.12g", v.name, v.got, v.want)
		}
	}
	if len(seen) < 150 {
		t.Errorf("only %d vectors were tried", len(seen))
	}
}

// A comparison that cannot fail would guard nothing: every vector moved by one
// part in 10^8 must be refused.
func TestVectorsCanFail(t *testing.T) {
	for _, v := range vectors() {
		if agree(v.got*(1+1e-8)+1e-300, v.want, tolerance(v.name)) {
			t.Errorf("%s: accepted although moved by 1e-8", v.name)
		}
	}
}

// SciPy's root finder stops at 7e-12 relative, so its printed interval is met at
// 1e-9 only.
func TestSciPyInterval(t *testing.T) {
	if !agree(lo2(7, 50), 0.05819170033997342, 1e-9) || !agree(hi2(7, 50), 0.26739600249700846, 1e-9) {
		t.Errorf("7/50: got [%.15g, %.15g]", lo2(7, 50), hi2(7, 50))
	}
	if three := 3. / 47142; !agree(three, 6.36375206822e-5, 1e-10) || hi1(0, 47142) >= three {
		t.Errorf("0/47142: %.12g should be a little under the rule of three, %.12g", hi1(0, 47142), three)
	}
}
