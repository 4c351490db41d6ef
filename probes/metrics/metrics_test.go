package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/probes"
	"kvladder/receipts/digest"
)

var fixtures = []string{"metrics.txt", "metrics_dp2.txt", "vllm-metrics-L3restart-pre.txt.gz", "vllm-metrics-L3restart-post.txt.gz"}

func snapshot(t testing.TB, name string) Snapshot {
	t.Helper()
	s, err := ParseSnapshotFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func values(t testing.TB, s Snapshot, roles map[string]string) []probes.Value {
	t.Helper()
	vs, err := Select(s, roles)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

var roles = map[string]string{
	probes.LocalQueries:    "vllm:prefix_cache_queries",
	probes.LocalHits:       "vllm:prefix_cache_hits_total",
	probes.ExternalQueries: "vllm:external_prefix_cache_queries",
	probes.ExternalHits:    "vllm:external_prefix_cache_hits",
	probes.Computed:        `vllm:prompt_tokens_by_source{source="local_compute"}`,
	probes.Corrupted:       "vllm:corrupted_requests",
}

func TestSelectRanks(t *testing.T) {
	got := values(t, snapshot(t, "metrics_dp2.txt"), roles)
	var want []probes.Value
	for _, w := range []struct {
		role, series string
		v            [2]float64
	}{
		{probes.Computed, `vllm:prompt_tokens_by_source_total{source="local_compute"}`, [2]float64{1231, 1162}},
		{probes.ExternalHits, "vllm:external_prefix_cache_hits_total", [2]float64{0, 0}},
		{probes.ExternalQueries, "vllm:external_prefix_cache_queries_total", [2]float64{0, 0}},
		{probes.LocalHits, "vllm:prefix_cache_hits_total", [2]float64{2048, 1024}},
		{probes.LocalQueries, "vllm:prefix_cache_queries_total", [2]float64{3279, 2186}},
	} {
		for rank, v := range w.v {
			want = append(want, probes.Value{Role: w.role, Series: w.series, Rank: fmt.Sprint(rank), Value: v})
		}
	}
	want = append(want, probes.Value{Role: probes.ProcessStart, Series: "process_start_time_seconds", Value: 1795973298.81})
	// corrupted_requests is not exported here: absent, not zero.
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The published ladder's third arm, whose counters its authors tabulated: 633,600 of
// 946,060 local and 17,600 of 54,780 external.
func TestDeltaOfPublishedPair(t *testing.T) {
	before := values(t, snapshot(t, "vllm-metrics-L3restart-pre.txt.gz"), roles)
	after := values(t, snapshot(t, "vllm-metrics-L3restart-post.txt.gz"), roles)
	got := map[string]float64{}
	for _, c := range Delta(before, after) {
		d, ok := c.Delta()
		if !ok {
			t.Errorf("%s has no difference: %v %v", c.Role, c.Before, c.After)
		}
		got[c.Role] += d
	}
	for role, want := range map[string]float64{
		probes.LocalHits: 633600, probes.LocalQueries: 946060,
		probes.ExternalHits: 17600, probes.ExternalQueries: 54780,
	} {
		if got[role] != want {
			t.Errorf("%s grew by %v, want %v", role, got[role], want)
		}
	}
}

// shown prints values with what is bad about them last, where anything is.
func shown(vs []probes.Value) string {
	parts := []string{}
	for _, v := range vs {
		text := fmt.Sprint(v)
		if v.Bad == "" {
			text = strings.TrimSuffix(text, " }") + "}"
		}
		parts = append(parts, text)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// A start time is no role that is asked for: it comes with whatever else was found, and
// alone it does not make a scrape one of an engine.
func TestProcessStartComesAlong(t *testing.T) {
	series, err := Parse("process_start_time_seconds 1795973298.81\nhits_total 3\nnan NaN\n")
	if err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Series: series}
	want := probes.Value{Role: probes.ProcessStart, Series: "process_start_time_seconds", Value: 1795973298.81}
	if got := values(t, s, map[string]string{probes.LocalHits: "hits"}); len(got) != 2 || got[1] != want {
		t.Errorf("%v", got)
	}
	if got := values(t, s, map[string]string{probes.LocalHits: "misses"}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := values(t, s, map[string]string{probes.ProcessStart: "process_start_time_seconds"}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	// A gauge, and what is watched until it stands still, is as good as absent.
	for _, role := range []string{probes.Running, probes.NullBlock, probes.StoredChunks} {
		if got := values(t, s, map[string]string{role: "nan"}); len(got) != 0 {
			t.Errorf("%s: %v", role, got)
		}
	}
}

// What is no count is no number in a Counter, and the Counter is there.
func TestDeltaOfWhatIsNoCount(t *testing.T) {
	bad := probes.Value{Role: "r", Series: "s", Bad: "NaN"}
	for _, c := range Delta([]probes.Value{bad}, []probes.Value{bad}) {
		if c.Role != "r" || c.Before != nil || c.After != nil {
			t.Errorf("%+v", c)
		}
	}
	cs := Delta([]probes.Value{{Role: "r", Series: "s", Value: 4}}, []probes.Value{bad})
	if len(cs) != 1 || cs[0].Before == nil || cs[0].After != nil {
		t.Errorf("%+v", cs)
	}
	if len(Delta([]probes.Value{bad}, []probes.Value{bad})) != 1 {
		t.Error("a series that is there left no trace")
	}
}

func TestSelectCases(t *testing.T) {
	const text = `
# TYPE a_total counter
a_total 1
a_created 99
# TYPE h histogram
h_bucket{le="+Inf"} 5
h_sum 6
h_count 7
# TYPE it_total histogram
it_total_count 3
b 2
b_total 20
c{engine="1",source="x",q="a\"}b\\\n"} 4
c{engine="1",source="y"} 5
c{engine="0",source="x"} 6
c{engine="10",source="x"} 7
n NaN
i +Inf
e{x="1"} 2
e{x="2"} -3
d{dp_rank="3"} 8
last_total{} 1e3 1700000000
om_total 4 # {trace_id="x"} 1.0
# EOF`
	series, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Series: series}
	for spec, want := range map[string]string{
		"a":                   "[{r a_total  1}]",
		"a_total":             "[{r a_total  1}]",
		"a_created":           "[]",
		"absent":              "[]",
		"h":                   "[]",
		"h_sum":               "[]",
		"h_count":             "[]",
		"h_bucket":            "[]",
		"it":                  "[]",
		"it_total":            "[]",
		"it_total_count":      "[]",
		"b":                   "[{r b  2}]",
		"b_total":             "[{r b_total  20}]",
		"c":                   "[{r c 0 6} {r c 1 9} {r c 10 7}]",
		`c{source="x"}`:       `[{r c{source="x"} 0 6} {r c{source="x"} 1 4} {r c{source="x"} 10 7}]`,
		`c{ source = "y" , }`: `[{r c{ source = "y" , } 1 5}]`,
		`c{source="z"}`:       "[]",
		`c{q="a\"}b\\\n"}`:    `[{r c{q="a\"}b\\\n"} 1 4}]`,
		"c{}":                 "[{r c{} 0 6} {r c{} 1 9} {r c{} 10 7}]",
		"n":                   "[{r n  0 NaN}]",
		"i":                   "[{r i  0 +Inf}]",
		"e":                   "[{r e  0 -3}]",
		"d":                   "[{r d 3 8}]",
		"last":                "[{r last_total  1000}]",
		"om":                  "[{r om_total  4}]",
	} {
		if got := shown(values(t, s, map[string]string{"r": spec})); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	// Either spelling first in the text, the exact one is taken.
	series, _ = Parse("b_total 20\nb 2\n")
	if got := shown(values(t, Snapshot{Series: series}, map[string]string{"r": "b"})); got != "[{r b  2}]" {
		t.Errorf("b after b_total: %s", got)
	}
	// Two roles may share a series.
	if got := values(t, s, map[string]string{"x": "a", "y": "a"}); len(got) != 2 {
		t.Errorf("two roles of one series: %v", got)
	}
	for _, bad := range []string{"", "a b", "a{", "a{x}", `a{x="1"`, `a{x="1"}y`, `{x="1"}`, `a{x='1'}`} {
		if vs, err := Select(s, map[string]string{"r": bad}); err == nil || !strings.Contains(err.Error(), "role r") {
			t.Errorf("%q: %v, %v", bad, vs, err)
		}
	}
}

func TestDelta(t *testing.T) {
	v := func(role, rank string, n float64) probes.Value {
		return probes.Value{Role: role, Series: role + "_total", Rank: rank, Value: n}
	}
	n := func(x float64) *float64 { return &x }
	got := Delta(
		[]probes.Value{v("a", "10", 1), v("a", "2", 5), v("gone", "", 3)},
		[]probes.Value{v("a", "10", 4), v("a", "2", 2), v("new", "", 9)})
	want := []probes.Counter{
		{Role: "a", Series: "a_total", Rank: "2", Before: n(5), After: n(2)},
		{Role: "a", Series: "a_total", Rank: "10", Before: n(1), After: n(4)},
		{Role: "gone", Series: "gone_total", Before: n(3)},
		{Role: "new", Series: "new_total", After: n(9)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, ok := range []bool{false, true, false, false} {
		if _, has := got[i].Delta(); has != ok {
			t.Errorf("%s rank %q: has a difference: %v", got[i].Role, got[i].Rank, has)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a 1\n<html>\n":       `2: no metric name in "<html>"`,
		`{"a":1}`:             "1: no metric name",
		"\n\n1a 2":            "3: no metric name",
		"a":                   `1: value of a is not a number: ""`,
		"a b":                 "1: value of a is not a number",
		"a 0x10":              "not a number",
		"a 1_0":               "not a number",
		"a 1 2 3":             `1: "2 3" follows the value of a`,
		`a{x="1" 2`:           "1: labels of a do not end",
		`a{x=1} 2`:            "1: labels of a are malformed",
		`a{x="1"y="2"} 2`:     "malformed",
		`a{="1"} 2`:           "malformed",
		`a{x="1"} `:           "not a number",
		"a 1e999\n":           "not a number",
		`a{x="\"} 1`:          "do not end",
		"ok 1\nok 2\nbad{} x": "3: value of bad",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, s, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range fixtures {
		s := snapshot(f, name)
		f.Add(s.Raw[:4000])
	}
	f.Add("# TYPE a counter\na_total{x=\"\\\"}\\\\\\n\"} 1 2 # {a=\"b\"} 1\n# EOF\n")
	f.Fuzz(func(t *testing.T, text string) {
		series, err := Parse(text)
		if err != nil {
			return
		}
		for _, s := range series {
			if s.Name == "" || s.Type == "" {
				t.Fatalf("series without a name or type: %+v", s)
			}
			s.Label("engine")
		}
		all := map[string]string{}
		for _, s := range series {
			all[s.Name] = s.Name
		}
		vs, err := Select(Snapshot{Series: series}, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range Delta(vs, vs) {
			if d, ok := c.Delta(); !ok || d != 0 {
				t.Fatalf("%+v differs from itself", c)
			}
		}
	})
}

func TestScrape(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(status int, body []byte) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept"), "0.0.4") {
				t.Errorf("accepts %q", r.Header.Get("Accept"))
			}
			w.WriteHeader(status)
			w.Write(body)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/metrics"
	}
	s, err := Scrape(t.Context(), nil, answer(200, raw))
	if err != nil || s.Raw != string(raw) || s.Digest != digest.Of(raw) || s.Source != "/metrics" {
		t.Fatalf("%v, %s, %s", err, s.Source, s.Digest)
	}
	sample := s.Sample("before", 2, roles, nil)
	if sample.Error != "" || sample.Phase != "before" || sample.Pass != 2 || len(sample.Values) != 6 || sample.Raw != s.Raw || sample.Digest != s.Digest {
		t.Errorf("sample: %+v", sample.Values)
	}
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{501, "no metrics", "HTTP 501"},
		{200, "<html>sign in</html>", ":1: no metric name"},
		{200, "", "no series"},
		{200, "# HELP a b\n", "no series"},
		{200, "a{x=\"\xff\"} 1\n", "not UTF-8"},
	} {
		s, err := Scrape(t.Context(), nil, answer(c.status, []byte(c.body)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d %q: %v, want %s", c.status, c.body, err, c.want)
		}
		if sample := s.Sample("after", 1, roles, err); sample.Error == "" || len(sample.Values) != 0 {
			t.Errorf("a scrape that failed is recorded as %+v", sample)
		}
	}
	if _, err := Scrape(t.Context(), nil, "http://127.0.0.1:1/metrics"); err == nil {
		t.Error("nobody answered, and there is no error")
	}
}

func TestParseSnapshotFileErrors(t *testing.T) {
	dir := t.TempDir()
	put := func(name, body string) string {
		p := filepath.Join(dir, name)
		os.WriteFile(p, []byte(body), 0o644)
		return p
	}
	for _, p := range []string{filepath.Join(dir, "none.txt"), put("a.txt.gz", "a 1\n"), put("b.txt", "b x\n"), put("c.txt", "")} {
		if _, err := ParseSnapshotFile(p); err == nil || !strings.Contains(err.Error(), filepath.Base(p)) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := snapshot(b, "metrics.txt").Raw
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours-and-select", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := Select(Snapshot{Series: s}, roles); err != nil {
				b.Fatal(err)
			}
		}
	})
}
