package detect

import (
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

func TestEverySpecimenFires(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range All(scoring.DefaultRule()) {
		r, e := d.Specimen()
		if !d.Inspect(r, e).Fired {
			t.Errorf("%s is silent on its own specimen", d.Name())
		}
		if seen[d.Name()] {
			t.Errorf("two detectors are named %s", d.Name())
		}
		seen[d.Name()] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d detectors, want 7", len(seen))
	}
}

// by gives the names that fire on a reply.
func by(r *probes.Reply, e prompts.Expectation) string {
	var fired []string
	for _, d := range All(scoring.DefaultRule()) {
		if d.Inspect(r, e).Fired {
			fired = append(fired, d.Name())
		}
	}
	return strings.Join(fired, " ")
}

func TestNearMisses(t *testing.T) {
	needle := func(mode, answer string) prompts.Expectation {
		return prompts.Expectation{Needles: []prompts.Needle{{Key: "A1", Answer: answer, Match: mode, Scored: true}}}
	}
	unique := func(n int) string { // words that never repeat
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(string(rune('a'+i%26)), 1+i/26) + " ")
		}
		return b.String()
	}
	check := func(what, say string, e prompts.Expectation, want string) {
		t.Helper()
		if got := by(text(say), e); got != want {
			t.Errorf("%s: %q fires, want %q", what, got, want)
		}
	}
	none := prompts.Expectation{}
	check("whole reply, white space around", "\n 481 \n", needle("", "481"), "")
	check("whole reply, a word more", "481.", needle("", "481"), "needle")
	check("field, case and quotes", "a1 = \"90e1f14d\"\nA2=x", needle("field", "90E1F14D"), "")
	check("field, one digit off", "A1=90E1F14E", needle("field", "90E1F14D"), "needle")
	check("field, key absent", "90E1F14D", needle("field", "90E1F14D"), "needle")
	check("ints, zeros and spaces", "A1=[18, 00054]", needle("ints", "00018,00054"), "")
	check("ints, other order", "A1=54,18", needle("ints", "00018,00054"), "needle")
	check("ints, one more", "A1=18,54,7", needle("ints", "00018,00054"), "needle")
	check("an unknown mode is never right", "481", needle("fuzzy", "481"), "needle")
	diagnostic := needle("", "481")
	diagnostic.Needles[0].Scored = false
	check("diagnostic needle wrong", "no", diagnostic, "")

	check("one replacement character", strings.Repeat("plain text ", 6)+"\uFFFD", none, "replacement")
	check("typographic runes", "\u2018\u2019\u201C\u201D\u2013\u2014\u2026\u00B0\u00E9\u00A0\t\n\r", none, "")
	// 1 of 50 = 0.02, which is not above 0.02; 1 of 49 = 0.020408 is.
	check("share at the threshold", strings.Repeat("abcdefg ", 6)+"\u4e07"+"z", none, "")
	check("share above it", strings.Repeat("abcdefg ", 6)+"\u4e07", none, "script")
	check("script any", "\u4e07\u4e07\u4e07", prompts.Expectation{Script: "any"}, "")

	// A block of 79 that occurs again, and one of 80, with different runes around them.
	block := "0123456789QWERTYUIOPASDFGHJKLZXCVBNMqwertyuiopasdfghjklzxcvbnm!@#$%^&*()-_=+[]{};"
	check("79 again", block[:79]+"<>"+block[:79], none, "")
	check("80 again", block[:80]+"<>"+block[:80], none, "repeated")
	check("overlapping", strings.Repeat("y", 81), none, "repeated") // y^80 starts at 0 and at 1
	check("overlapping, one short", strings.Repeat("y", 80), none, "")

	// 30 words are 26 five-word runs. "p q r s t" over and over gives 5 distinct: 1-5/26.
	check("30 words of five", strings.Repeat("p q r s t ", 6), none, "ngram5")
	check("29 words of five", strings.TrimSpace(strings.Repeat("p q r s t ", 6)[:57]), none, "")
	check("40 words, none twice", unique(40), none, "")

	check("white space alone", " \n\t", none, "empty")
	check("nothing expected", "", prompts.Expectation{Empty: true}, "")
	check("one letter", "x", none, "")
}

func TestWhatIsNoReply(t *testing.T) {
	check := func(r *probes.Reply, want string) {
		t.Helper()
		if got := by(r, prompts.Expectation{Needles: []prompts.Needle{{Key: "K", Answer: "1", Scored: true}}}); got != want {
			t.Errorf("status %d, %s: %q fires, want %q", r.Status, r.ErrorKind, got, want)
		}
	}
	check(&probes.Reply{ErrorKind: "transport"}, "")
	check(&probes.Reply{ErrorKind: "timeout"}, "")
	check(&probes.Reply{Status: 503, ErrorKind: "http"}, "")
	check(&probes.Reply{Status: 400, ErrorKind: "http", Raw: "bad request"}, "")
	check(&probes.Reply{Status: 500, ErrorKind: "http", Raw: "internal"}, "empty")
	check(&probes.Reply{Status: 500, ErrorKind: "http", Raw: `{"message":"Out of range float values are not JSON compliant"}`}, "empty nonfinite")
}

func TestNonFiniteCounter(t *testing.T) {
	at := func(before, after float64) *probes.Reply {
		r := text("1")
		r.Counters = []probes.Counter{{Role: probes.Corrupted, Before: &before, After: &after}}
		return r
	}
	if d := (NonFinite{}).Inspect(at(3, 4), prompts.Expectation{}); !d.Fired {
		t.Error("the engine counted a corrupted request and nothing fired")
	}
	if d := (NonFinite{}).Inspect(at(4, 4), prompts.Expectation{}); d.Fired {
		t.Error("a counter that stood still fired")
	}
	null := text("1")
	null.Tokens = []probes.Token{{ID: 1, Text: "1"}} // no logprob asked for: absent is not damaged
	if (NonFinite{}).Inspect(null, prompts.Expectation{}).Fired {
		t.Error("an absent logprob fired")
	}
}

// The published four-arm ladder (malaiwah/qwen38-27b-exl3, MIT) gives each of its 152 rows
// with four figures, rounded to six places.
func TestPublishedFigures(t *testing.T) {
	type row struct {
		Arm, ID, Text string
		Expected      map[string]string
		Right         map[string]bool
		Script        float64
		FFFD, Block   int
		NGram         *float64
		Fired         []string
		Failed        bool
	}
	f, err := os.Open("../testdata/published-ladder.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.NewDecoder(z).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 152 {
		t.Fatalf("%d rows, want 152", len(rows))
	}
	names := map[string]string{"out_of_script_fraction": "script", "replacement_char_count": "replacement", "longest_repeated_block_chars": "repeated", "ngram5_repetition_ratio": "ngram5"}
	for _, r := range rows {
		at := r.Arm + " " + r.ID
		if got := outOfScript(r.Text); got != r.Script {
			t.Errorf("%s: out of script %v, published %v", at, got, r.Script)
		}
		if got := strings.Count(r.Text, "\uFFFD"); got != r.FFFD {
			t.Errorf("%s: %d replacement characters, published %d", at, got, r.FFFD)
		}
		if got := longestRepeated([]rune(r.Text), blockCap); got != r.Block {
			t.Errorf("%s: repeated block %d, published %d", at, got, r.Block)
		}
		got, ok := repetition(strings.FieldsFunc(r.Text, space), 30)
		if ok != (r.NGram != nil) || ok && got != *r.NGram {
			t.Errorf("%s: repetition %v %v, published %v", at, got, ok, r.NGram)
		}
		want := map[string]bool{}
		for _, n := range r.Fired {
			want[names[n]] = true
		}
		e := prompts.Expectation{}
		for _, k := range []string{"A1", "A2", "A3", "A4"} {
			mode := "field"
			if k == "A3" {
				mode = "ints"
			}
			n := prompts.Needle{Key: k, Answer: r.Expected[k], Match: mode, Scored: k != "A4"}
			e.Needles = append(e.Needles, n)
			if got := scoring.AnswerRight(n, r.Text); got != r.Right[k] {
				t.Errorf("%s: %s right %v, published %v", at, k, got, r.Right[k])
			}
		}
		failed := false
		for _, d := range All(scoring.DefaultRule()) {
			fired := d.Inspect(text(r.Text), e).Fired
			failed = failed || fired
			if d.Name() != "needle" && fired != want[d.Name()] {
				t.Errorf("%s: %s fired %v, published %v", at, d.Name(), fired, want[d.Name()])
			}
		}
		if failed != r.Failed {
			t.Errorf("%s: failed %v, published %v", at, failed, r.Failed)
		}
	}
}

// The fast search agrees with looking at every pair of places.
func TestRepeatedAgainstEveryPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for range 300 {
		s := make([]rune, rng.IntN(60))
		for i := range s {
			s[i] = rune('a' + rng.IntN(1+rng.IntN(4)))
		}
		want := 0
		for i := range s {
			for j := i + 1; j < len(s); j++ {
				n := 0
				for j+n < len(s) && s[i+n] == s[j+n] {
					n++
				}
				want = max(want, n)
			}
		}
		if got := longestRepeated(s, 40); got != min(want, 40) {
			t.Fatalf("%q: %d, want %d", string(s), got, min(want, 40))
		}
	}
}

func BenchmarkAllDetectors(b *testing.B) {
	r := text(strings.Repeat("The records describe a valve, a strut and two turbines in order. ", 1) + "A1=90E1F14D\nA2=07197187\nA3=00018,00180\nA4=69\nThey also name how each of them was sealed, checked and signed off by hand.")
	ds := All(scoring.DefaultRule())
	for b.Loop() {
		for _, d := range ds {
			d.Inspect(r, prompts.Expectation{})
		}
	}
}
