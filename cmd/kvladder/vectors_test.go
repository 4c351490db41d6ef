package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"kvladder/cmd/kvladder/internal/foreign"
	"kvladder/receipts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
	"kvladder/scoring/compare"
)

// This file is the table of every number and every byte that the program has to reproduce:
// exact tests and intervals, sequential tests, divergences, a published ladder scored from its
// rows, and the bytes of canonical JSON, DSSE and RFC 6962. A row is computed by the code that
// a run uses.
//
//	cp fisher mcnemar poisson sprt evalue divergence   statistics
//	published                                          rows of testdata/published-ladder-4arm
//	bytes                                              testdata/jcs and constants of RFCs

// vector is one published or independently computed value (exact rationals, or 50 digits,
// printed to 12) and what the program makes of it: two numbers, or two texts.
type vector struct {
	section, name string
	got, want     float64
	rel           float64 // relative tolerance; 0 = 1e-10
	abs           float64 // absolute, for values that were printed to so many decimals; 0 = none
	text, is      string  // got and wanted, where the value is bytes
}

func (v vector) agrees() bool {
	switch {
	case v.is != "":
		return v.text == v.is
	case v.abs > 0:
		return math.Abs(v.got-v.want) <= v.abs
	case v.rel > 0:
		return agree(v.got, v.want, v.rel)
	}
	return agree(v.got, v.want, 1e-10)
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

// statistics are the rows that the functions of scoring/compare give.
func statistics() []vector {
	var vs []vector
	section := ""
	add := func(name string, got, want float64) {
		v := vector{section: section, name: name, got: got, want: want}
		switch name {
		case "forks L1cold p", "forks L2warm p", "forks L3restart p": // printed to ten digits
			v.rel = 5e-10
		}
		vs = append(vs, v)
	}

	section = "cp"
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

	section = "fisher"
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

	section = "mcnemar"
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

	section = "poisson"
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

	section = "sprt"
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

	section = "evalue"
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

	section = "divergence"
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

	section = "published"
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

// rescored are the rows that the published ladder gives when it is scored from its own rows:
// token streams, not only the integers that they came to.
func rescored(t *testing.T) []vector {
	type figures struct {
		arm, reference                                  string
		identical, forks, exposure, armOnly             int
		prefixMean, prefixP99, prefixMax, d0Mean, d0Max float64
	}
	var vs []vector
	for _, w := range []figures{
		{"L1cold", "L0", 0, 38, 1601, 7, 0.005695, 0.119792, 0.362714, 0.007877, 0.098590},
		{"L2warm", "L0", 0, 38, 1563, 7, 0.005342, 0.116582, 0.362714, 0.009027, 0.098590},
		{"L3restart", "L0", 0, 38, 62, 38, 0.054713, 0.299619, 0.342179, 3.706338, 5.764850},
		{"L2warm", "L1cold", 32, 6, 4246, 1, 0.000803, 0.024706, 0.226759, 0.003131, 0.080832},
	} {
		var sources []foreign.Source
		for _, name := range []string{w.reference, w.arm} {
			f := must(foreign.Open("testdata/published-ladder-4arm/arm-" + name + ".json.gz"))
			sources = append(sources, foreign.Source{Name: name, File: f, Arm: f.Arms[0]})
		}
		im := must(foreign.Build(sources, foreign.Options{Reference: w.reference}))
		d, _, err := im.Plan.Digest()
		if err != nil {
			t.Fatal(err)
		}
		res := assessAs(im.Plan, d, im.Set, im.Records)
		i := slices.IndexFunc(res.Arms, func(a scoring.ArmResult) bool { return a.Name == w.arm })
		a := res.Arms[i]
		pair := w.reference + " and " + w.arm + ": "
		count := func(name string, got *int, want int) {
			vs = append(vs, vector{section: "published", name: pair + name, got: float64(*got), want: float64(want), abs: 0.5})
		}
		printed := func(name string, got *float64, want float64) { // to six decimals
			vs = append(vs, vector{section: "published", name: pair + name, got: *got, want: want, abs: 5e-7})
		}
		count("identical", a.Identical, w.identical)
		count("forks", a.Forks, w.forks)
		count("exposure", a.Exposure, w.exposure)
		count("failed in the arm only", a.ArmOnly, w.armOnly)
		printed("prefix mean", a.PrefixMean, w.prefixMean)
		printed("prefix p99", a.PrefixP99, w.prefixP99)
		printed("prefix max", a.PrefixMax, w.prefixMax)
		printed("d0 mean", a.D0Mean, w.d0Mean)
		printed("d0 max", a.D0Max, w.d0Max)
	}
	return vs
}

// canonical is the RFC 8785 form of a document, or the word for its refusal.
func canonical(in string) string {
	b, err := digest.Canonical(json.RawMessage(in))
	if err != nil {
		return "refused"
	}
	return string(b)
}

// written are the rows about bytes.
func written(t *testing.T) []vector {
	var vs []vector
	add := func(name, got, want string) {
		vs = append(vs, vector{section: "bytes", name: name, text: got, is: want})
	}
	sha := func(s string) string { return digest.Of([]byte(s)).Hex() }

	// RFC 8785: the sample of section 3.2.2, that of sorting in 3.2.3, and numbers.
	add("rfc 8785 sample", sha(canonical(`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`)),
		"2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb")
	add("rfc 8785 sorting", sha(canonical(`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`)),
		"5e321556d22018a9656991a9e94f77ec175fa193e52a2429d312f8419ec8b08c")
	add("numbers", canonical(`[-0,1e21,1e-7,9007199254740993,18446744073709551615,0.1,1.0,-1.5E+3]`), `[0,1e+21,1e-7,9007199254740992,18446744073709552000,0.1,1,-1500]`)

	// The pairs of the reference implementation, by the digest of the output.
	for name, want := range map[string]string{
		"arrays":     "099601b171cafed97c333f8878d68e7f8c8f795412adb34b2fdcf0e7c7beac42",
		"french":     "d99d0ebdcb0033cb858cfa830ae46bc0fb3309413b271f1da828c89901a27ed5",
		"structures": "605f65004ec2db7692522a0852c22f1c989e036d547e88963d1a3143cf3195d5",
		"unicode":    "0d99aad92a125196ff887876643fd3206786a84ddce2cee52ba4ad256d2381d3",
		"values":     "2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb",
		"weird":      "6af595a9aa80110b964b4de3f82a05fa6ae7423005019bacfa2620dddc4e94d1",
	} {
		in, err := os.ReadFile(filepath.Join("testdata", "jcs", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		add("pair "+name, sha(canonical(string(in))), want)
	}

	// The file of numbers, by the digest of its first lines.
	for lines, sum := range numberFile(t, 1_000, 10_000, 100_000) {
		add(fmt.Sprintf("number file, %d lines", lines), sum, map[int]string{
			1_000:   "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
			10_000:  "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
			100_000: "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
		}[lines])
	}
	for bits, want := range map[uint64]string{
		0x0000000000000001: "5e-324", 0x44b52d02c7e14af6: "1e+23", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		b, err := digest.Canonical(math.Float64frombits(bits))
		if err != nil {
			t.Fatal(err)
		}
		add(fmt.Sprintf("double %016x", bits), string(b), want)
	}
	for _, in := range []string{`{"a":1,"a":2}`, `"\ud800"`, `NaN`, `1e999`, `01`, `0x10`, `+1`, `.5`} {
		add("refusal of "+in, canonical(in), "refused")
	}

	// DSSE's example of its pre-authentication encoding.
	pae := string(receipts.PAE("http://example.com/HelloWorld", []byte("hello world")))
	add("dsse pae", pae, "DSSEv1 29 http://example.com/HelloWorld 11 hello world")
	add("dsse pae digest", sha(pae), "217751fac2c4f14edb2c9297fbc34abcb016ba88e74757e875ec4ac16fb6b6a1")

	// RFC 6962, and the eight leaves of the reference tree of Certificate Transparency.
	hx := func(h tlog.Hash) string { return hex.EncodeToString(h[:]) }
	add("rfc 6962 empty", sha(""), digest.OfNothing.Hex())
	add("rfc 6962 leaf of nothing", hx(tlog.RecordHash(nil)), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d")
	add("rfc 6962 leaf", hx(tlog.RecordHash([]byte("L123456"))), "395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56")
	// A node's children are hashes in a tree; the published example has words there.
	node := sha256.Sum256([]byte("\x01N123N456"))
	add("rfc 6962 node of words", hex.EncodeToString(node[:]), "aa217fe888e47007fa15edab33c2b492a722cb106c64667fc2b044444de66bbb")
	tree, two := new(receipts.Tree), new(receipts.Tree)
	for i, l := range []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"} {
		line := must(hex.DecodeString(l))
		if err := tree.Add(line); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			if err := two.Add(line); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("rfc 6962 root of one leaf", hx(must(tree.Root(1))), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d")
	a, b := tlog.RecordHash(nil), tlog.RecordHash([]byte{0})
	pair := sha256.Sum256(slices.Concat([]byte{1}, a[:], b[:]))
	add("rfc 6962 node", hx(must(two.Root(2))), hex.EncodeToString(pair[:]))
	add("rfc 6962 root of eight leaves", hx(must(tree.Root(8))), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328")
	return vs
}

// numberFile is the digest of the first lines of the reference implementation's file of
// numbers, es6testfile100m.txt, for each count of lines. A line is the bits of a double in
// hexadecimal, a comma and its canonical text. The doubles are 168 chosen ones
// (testdata/jcs/numbers.txt), 2000 that follow on the smallest normal one, and then the finite
// ones other than 0 among the little-endian quarters of a chain of SHA-256, which begins with
// the digest of 32 zero bytes and goes on with the digest of the digest.
func numberFile(t *testing.T, counts ...int) map[int]string {
	chosen := strings.Fields(string(must(os.ReadFile(filepath.Join("testdata", "jcs", "numbers.txt")))))
	if len(chosen) != 168 {
		t.Fatalf("%d chosen numbers, want 168", len(chosen))
	}
	var block [sha256.Size]byte
	var left []byte
	random := func() float64 {
		for {
			if len(left) == 0 {
				block = sha256.Sum256(block[:])
				left = block[:]
			}
			f := math.Float64frombits(binary.LittleEndian.Uint64(left))
			left = left[8:]
			if f != 0 && !math.IsNaN(f) && !math.IsInf(f, 0) {
				return f
			}
		}
	}
	out := map[int]string{}
	var h hash.Hash = sha256.New()
	for line := range slices.Max(counts) {
		var f float64
		switch {
		case line < len(chosen):
			f = math.Float64frombits(must(strconv.ParseUint(chosen[line], 16, 64)))
		case line < len(chosen)+2000:
			f = math.Float64frombits(0x0010000000000000 + uint64(line-len(chosen)))
		default:
			f = random()
		}
		text, err := digest.Canonical(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%x,%s\n", math.Float64bits(f), text)
		if slices.Contains(counts, line+1) {
			out[line+1] = hex.EncodeToString(h.Sum(nil))
		}
	}
	return out
}

// The whole table: each row agrees, none is left out, no two share a name.
func TestVectors(t *testing.T) {
	rows := slices.Concat(statistics(), rescored(t), written(t))
	seen, sections := map[string]bool{}, map[string]int{}
	for _, v := range rows {
		if seen[v.section+v.name] {
			t.Errorf("%s: two vectors share this name", v.name)
		}
		seen[v.section+v.name] = true
		sections[v.section]++
		switch {
		case v.agrees():
		case v.is != "":
			t.Errorf("%s: %s: got %s, want %s", v.section, v.name, v.text, v.is)
		default:
			t.Errorf("%s: %s: got %.15g, want %.12g", v.section, v.name, v.got, v.want)
		}
	}
	// So many rows there are: fewer would mean that some were left out.
	want := map[string]int{"cp": 32, "fisher": 30, "mcnemar": 45, "poisson": 23, "sprt": 26, "evalue": 13, "divergence": 14, "published": 47, "bytes": 36}
	if !maps.Equal(sections, want) {
		t.Errorf("rows by section: %v, want %v", sections, want)
	}
}

// A comparison that cannot fail would guard nothing: every number moved by one part in 10^8,
// or by a unit where it was printed to a few decimals, and every text with one letter more
// must be refused.
func TestVectorsCanFail(t *testing.T) {
	for _, v := range slices.Concat(statistics(), rescored(t), written(t)) {
		v.got, v.text = v.got*(1+1e-8)+1e-300+2*v.abs, v.text+"0"
		if v.agrees() {
			t.Errorf("%s: accepted although it was moved", v.name)
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
