package arms_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/prompts"
	"kvladder/scoring"
)

// strict is a ladder that resolves; each case changes it in one place.
const strict = `ladder: t
question: q
engine: testbed
set: s.jsonl
pins: {blocks: 4096, ranks: 64}
subject: [fault]
dt: [bf16, {name: fp8, pins: {kv_cache_dtype: fp8}}]
arms:
  - C0
  - C1
  - COLD
  - {preset: WARM, name: MINE, pins: {prefill_budget: 127}}
floors: {C0: 3, C1: 3}
rules: {n_min: 12, g_min: 10, p_max: 0.3}
replay: {ranks: 2, rank_by: header, rank_field: X-Rank}
parallel: 2
predict:
  MINE: {failed: 0, external_tokens: ">0"}
`

// What would be changed or kept in silence is refused, with its place.
func TestStrictLadders(t *testing.T) {
	set := open(t, "demo-48")
	if _, err := resolve(t, strict, set, engine.Testbed{}); err != nil {
		t.Fatal(err)
	}
	arm := "  - {preset: WARM, name: MINE, pins: {prefill_budget: 127}}"
	long := strings.Repeat("n", 65)
	for _, c := range []struct{ from, to, at, what string }{
		// names that another arm has or would get
		{"name: MINE, pins: {prefill_budget: 127}", "name: C0-2", "12:5", "two arms would be called C0-2@bf16: an arm of preset C0 that comes with C0 (t.yaml:9:5), and the arm of preset WARM at t.yaml:12:5; give"},
		{"name: MINE, pins: {prefill_budget: 127}", "name: C0-split", "12:5", "two arms would be called C0-split@bf16"},
		{"name: MINE, pins: {prefill_budget: 127}", "name: C1-3", "12:5", "two arms would be called C1-3@bf16"},
		{arm, "  - PART\n  - {preset: WARM, name: C1-2-PART}", "13:5", "two arms would be called C1-2-PART@bf16"},
		{arm, "  - {preset: CONC, name: X, concurrency: 2}\n  - {preset: WARM, name: C1-X}", "13:5", "two arms would be called C1-X@bf16"},
		{arm, "  - {preset: PRESS, name: X}\n  - {preset: WARM, name: C0-X-split}", "13:5", "two arms would be called C0-X-split@bf16"},
		{"name: MINE, pins: {prefill_budget: 127}", "name: C1-PART", "12:5", "under the name of another preset"},
		{"name: MINE, pins: {prefill_budget: 127}", "name: RST", "12:5", "under the name of another preset"},
		{"name: MINE, pins: {prefill_budget: 127}", "name: COLD", "12:5", "named twice"},
		{arm, "  - {preset: PRESS, name: store}", "t.yaml", "two chains would be called store@bf16"},
		{arm, arm + "\n" + arm, "13:5", "arm MINE is named twice, here and at t.yaml:12:5"},
		// names that are no names
		{"name: MINE", "name: a/b", "12:5", "it holds '/'"},
		{"name: MINE", "name: 'C0@x'", "12:5", "it holds '@'"},
		{"name: MINE", "name: 'a b'", "12:5", "it holds ' '"},
		{"name: MINE", `name: "a\x1b[2J"`, "12:5", `it holds '\x1b'`},
		{"name: MINE", `name: "a\0"`, "12:5", `it holds '\x00'`},
		{"name: MINE", "name: ..", "12:5", "begins with"},
		{"name: MINE", "name: " + long, "12:5", "65 characters: 64 are the most"},
		{"name: MINE, pins", "name: " + long[:62] + ", pins", "12:5", "67 characters"},
		{"name: fp8", "name: f/8", "7:12", "it holds '/'"},
		{"ladder: t", "ladder: " + long, "1:9", "65 characters"},
		{"ladder: t", "ladder: ..", "1:9", "begins with"},
		{"ladder: t", `ladder: "t\x1b[1m"`, "1:9", "it holds"},
		// numbers
		{"C0: 3,", "C0: 0,", "13:14", "floors.C0: 0 is out of bounds; it must be from 1 to 20"},
		{"C0: 3,", "C0: -1,", "13:14", "it must be from 1 to 20"},
		{"C1: 3}", "C1: 21}", "13:21", "floors.C1: 21 is out of bounds"},
		{"C0: 3,", "C0: 2.5,", "13:14", "floors.C0: a whole number is wanted here, got 2.5"},
		{"C0: 3,", "C0: 3.0,", "13:14", "a whole number is wanted"},
		{"C0: 3,", "C0: ~,", "13:14", "got nothing"},
		{"C0: 3,", "C0: '3',", "13:14", "a whole number is wanted"},
		{"C0: 3,", "C0: 1e1,", "13:14", "a whole number is wanted"},
		{"parallel: 2", "parallel: 1.5", "16:11", "parallel: a whole number is wanted here, got 1.5"},
		{"parallel: 2", "parallel: 0", "16:11", "from 1 to 64"},
		{"n_min: 12", "n_min: 12.5", "14:16", "a whole number is wanted"},
		{"n_min: 12", "n_min: 99999999999999999999", "14:16", "a whole number is wanted"},
		{"p_max: 0.3", "p_max: .nan", "14:38", ".nan is no number"},
		{"p_max: 0.3", "p_max: nan", "14:38", "a number is wanted"},
		{"p_max: 0.3", "p_max: 1e999", "14:38", "a number is wanted"},
		{"p_max: 0.3", "p_max: 0.3, control_max: 1", "14:56", "above 0 and below 1"},
		{"p_max: 0.3", "p_max: 0.3, control_max: 0", "14:56", "above 0 and below 1"},
		{"p_max: 0.3", "p_max: 0.3, control_max: -0.1", "14:56", "above 0 and below 1"},
		{"p_max: 0.3", "p_max: 0.3, stall_seconds: 0", "14:58", "rules.stall_seconds: 0 is out of bounds"},
		{"p_max: 0.3", "p_max: 0.3, stall_seconds: -1", "14:58", "out of bounds"},
		{"p_max: 0.3", "p_max: 0.3, stall_seconds: .NaN", "14:58", "is no number"},
		{"p_max: 0.3", "p_max: 0.3, replicates: 6", "14:55", "from 0 to 5"},
		{"p_max: 0.3", "p_max: 0.3, alpha: {failures: .inf}", "14:61", "is no number"},
		{"p_max: 0.3", "p_max: 0.3, alpha: {failures: 0}", "14:61", "above 0"},
		{"ranks: 2", "ranks: -1", "15:17", "from 0 to 64"},
		{"ranks: 2", "ranks: 65", "15:17", "from 0 to 64"},
		{"ranks: 2", "ranks: 2, timeout_seconds: 0", "15:37", "from 1 to 86400"},
		{"ranks: 2", "ranks: 2, timeout_seconds: -5", "15:37", "from 1 to 86400"},
		{"rank_field: X-Rank", "rank_field: 'X Rank'", "15:49", "holds ' '"},
		{"rank_field: X-Rank", `rank_field: "X\r\nHost: a"`, "15:49", `holds '\r'`},
		{"rank_field: X-Rank", "rank_field: 'X:'", "15:49", "holds ':'"},
		{"rank_by: header", "rank_by: cookie", "15:29", "use header, body or url"},
		{"{blocks: 4096, ranks: 64}", "{blocks: .nan}", "5:16", "is no number"},
		{"question: q", "question: -.inf", "2:11", "is no number"},
		{arm, "  - {preset: PRESS, flood: 0}", "12:28", "arms.flood: 0 is out of bounds"},
		{arm, "  - {preset: SOAK, passes: 3, minutes: .inf}", "12:40", "is no number"},
		{arm, "  - {preset: SOAK, passes: 3, minutes: 0}", "12:40", "above 0"},
		// words
		{"ladder: t", "ladder: 1.50", "1:9", "quote it"},
		{"name: MINE", "name: 0x10", "12:26", "quote it"},
		{"{blocks: 4096, ranks: 64}", "{blocks: &b 4096}", "5:16", "anchors"},
		{"{blocks: 4096, ranks: 64}", "{blocks: !!str 4096}", "5:16", "tags"},
		{"{blocks: 4096, ranks: 64}", "\n  blocks: |\n    4096", "6:11", "one word"},
		// forms
		{"floors: {C0: 3, C1: 3}", "floors: 3", "13:9", "floors: a mapping is wanted here, got 3; write floors: {C0: 3, C1: 3}"},
		{"{blocks: 4096, ranks: 64}", "[blocks]", "5:7", "write pins: {NAME: VALUE}"},
		{"subject: [fault]", "subject: fault", "6:10", "write subject: [PIN]"},
		{"  MINE: {failed: 0, external_tokens: \">0\"}", "  MINE: clean", "18:9", "write WARM: {failed: 0}"},
		{"p_max: 0.3", "p_max: 0.3, alpha: 0.04", "14:50", "write alpha: {failures: 0.04, divergence: 0.01}"},
		// predictions
		{"{failed: 0,", "{failed: ~,", "18:18", "can never be met"},
		{"{failed: 0,", "{failed: -1,", "18:18", "never below 0"},
		{"{failed: 0,", "{failed: '<0',", "18:18", "never below 0"},
		{"{failed: 0,", "{failed: '<=-1',", "18:18", "never below 0"},
		{"{failed: 0,", "{upper95: '>1',", "18:19", "between 0 and 1"},
		{"{failed: 0,", "{upper95: 1.5,", "18:19", "between 0 and 1"},
		{"  MINE: {failed", "  WARM: {failed", "18:", "no arm \"WARM\" in this ladder; its arms: C0-2@bf16, "},
		// dtypes and pins
		{"kv_cache_dtype: fp8}}", "kv_cache_dtype: bf16}}", "7:12", "dtypes bf16 and fp8 have equal pins"},
		{"{name: fp8, pins: {kv_cache_dtype: fp8}}", "{name: plain}", "7:12", "dtypes bf16 and plain have equal pins"},
		{"subject: [fault]", "subject: [fault, fualt]", "6:18", `engine testbed has no pin "fualt"`},
		{"kv_cache_dtype: fp8}}", "kv_cache_dtype: zz}}", "7:47", `"zz" is not one of bf16, fp8`},
		{"{blocks: 4096, ranks: 64}", "{blocks: 0}", "5:16", `pin blocks: "0"`},
		{"{blocks: 4096, ranks: 64}", "{block_size: 24}", "t.yaml", "block_size 24"},
		{"{blocks: 4096, ranks: 64}", "{ranks: 65}", "5:15", `pin ranks: "65"`},
		{"{prefill_budget: 127}", "{prefill_budget: 0}", "12:55", `pin prefill_budget: "0"`},
		{"{prefill_budget: 127}", "{prefill_bugdet: 127}", "12:55", `no pin "prefill_bugdet"`},
		{arm, "  - {preset: XID, identity: config, from: {kv_cache_dtype: zz}}", "12:5", `"zz" is not one of`},
		{arm, "  - {preset: custom, name: X, config: store, reference: C1, reference_pass: 2, exercise: RST, path: external, steps: [launch, replay, restart prefill_budget=0, replay]}", "12:5", `pin prefill_budget: "0"`},
		// bytes
		{"question: q", "question: q\x00", "2:12", "control character"},
		{"question: q", "question: \xff", "2:11", "no UTF-8"},
	} {
		src := strings.Replace(strict, c.from, c.to, 1)
		if src == strict {
			t.Errorf("%s: the case changes nothing", c.to)
			continue
		}
		_, err := resolve(t, src, set, engine.Testbed{})
		var fe *arms.FileError
		if !errors.As(err, &fe) {
			t.Errorf("%s: got %v, want a *FileError", c.to, err)
			continue
		}
		at := c.at
		if at != "t.yaml" {
			at = "t.yaml:" + at
		}
		if !strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), c.what) || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("%s:\n got %s\nwant %s … %s", c.to, err, at, c.what)
		}
	}
}

// The ends of every bound are allowed.
func TestBoundsAreInclusive(t *testing.T) {
	set := open(t, "demo-48")
	for _, c := range [][2]string{
		{"{C0: 3, C1: 3}", "{C0: 1, C1: 20}"}, {"p_max: 0.3", "p_max: 0.3, hit_share: 1, replicates: 0, stall_seconds: 0.5"},
		{"ranks: 2", "ranks: 64"}, {"ranks: 2", "ranks: 0"}, {"parallel: 2", "parallel: 64"}, {"p_max: 0.3", "p_max: 3e-1"},
		{"{failed: 0,", "{failed: '>=0', p_mcnemar: ~, upper95: '<=1', unaccounted_tokens: -1,"},
	} {
		src := strings.Replace(strict, c[0], c[1], 1)
		if _, err := resolve(t, src, set, engine.Testbed{}); src == strict || err != nil {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}

// A byte order mark at the start is not part of the ladder, and moves no place.
func TestByteOrderMark(t *testing.T) {
	l, err := arms.ParseLadder("t.yaml", []byte("\xef\xbb\xbf"+strict))
	if err != nil || l.Name != "t" {
		t.Fatal(err)
	}
	if _, err = arms.ParseLadder("t.yaml", []byte("\xef\xbb\xbfladder: a/b\nengine: e\nset: s\narms: [C0]\n")); err == nil || !strings.HasPrefix(err.Error(), "t.yaml:1:9: ") {
		t.Errorf("%v", err)
	}
}

// passes counts the passes that an engine is asked to work out.
type passes struct {
	engine.Testbed
	n *int
}

func (p passes) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	for _, st := range steps {
		if st.Do == "replay" || st.Do == "prime" {
			*p.n++
		}
	}
	return p.Testbed.Expect(s, pins, steps)
}

// A ladder at its limits is planned in the time of a small one: processes that are alike and
// rounds that are alike are worked out once.
func TestLargeLaddersArePlanned(t *testing.T) {
	src := "ladder: t\nengine: testbed\nset: s.jsonl\nparallel: 64\ndt: [bf16, fp8]\n" +
		"arms: [C0, C1, COLD, REPLAY, WARM, RST, PART, {preset: SOAK, passes: 10000}]\nfloors: {C0: 20, C1: 20}\n"
	n := 0
	p, err := resolve(t, src, open(t, "t1-48"), passes{n: &n})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Chains) != 2*(20+20+1+1) || n == 0 || n > 100 {
		t.Errorf("%d chains, %d passes worked out", len(p.Chains), n)
	}
	soak, _ := p.Design.ByName("SOAK@fp8")
	warm, _ := p.Design.ByName("WARM@fp8")
	if d := cmp.Diff(warm.Expected, soak.Expected); d != "" || soak.Judge != 10001 {
		t.Errorf("the last round of a SOAK is a WARM: %d, %s", soak.Judge, d)
	}
}

// A file that never ends is not read to its end.
func TestLadderFilesAreBounded(t *testing.T) {
	if _, err := arms.ReadLadder("/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("/dev/zero: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, []byte(strict+strings.Repeat("# more\n", 200_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := arms.ReadLadder(big); err == nil || !strings.Contains(err.Error(), "is it a ladder file?") {
		t.Errorf("%v", err)
	}
}

// A file of nothing but brackets is refused before anything builds a tree of it, which would
// take minutes and gigabytes.
func TestLaddersAreNotDeep(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 100_000), "ladder: " + strings.Repeat("{a: ", 30_000), strict + "why: [" + strings.Repeat("[", 20_000) + " # " + strings.Repeat("]", 20_001),
		"# " + strings.Repeat("]", 20_000) + "\n" + strings.Repeat("[", 20_000), strings.Repeat("- ", 30_000), strings.Repeat("? ", 30_000),
		strings.Repeat("{a: \"}\",b: ", 10_000), strings.Repeat("&a ", 30_000), strings.Repeat("!!seq ", 30_000)} {
		if _, err := arms.ParseLadder("deep.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	words := strict + "# " + strings.Repeat("[", 500) + "\nwhy: \"" + strings.Repeat("{", 500) + "\"\n"
	if _, err := arms.ParseLadder("words.yaml", []byte(words)); err != nil && strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("brackets in words: %v", err)
	}
}
