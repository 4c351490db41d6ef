package foreign

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"kvladder/probes"
	"kvladder/scoring"
)

// source makes an arm of rows.
func source(t *testing.T, name string, rows ...string) Source {
	t.Helper()
	f, err := Open(write(t, name+".json", "["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return Source{Name: name, File: f, Arm: f.Arms[0]}
}

func asked(id string, tokens int, expected, text string) string {
	return fmt.Sprintf(`{"request_id": %q, "pass": "p", "prompt_tokens": %d, "expected": %s, "response_text": %q}`, id, tokens, expected, text)
}

func TestRefusals(t *testing.T) {
	a := source(t, "A", asked("r1", 10, `{"A1": "x"}`, "A1=x"))
	b := source(t, "B", asked("r1", 10, `{"A1": "x"}`, "A1=y"))
	check := func(what, want string, o Options, ss ...Source) {
		t.Helper()
		_, err := Build(ss, o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if _, err := Build([]Source{a, b}, Options{}); err != nil {
		t.Errorf("two arms: %v", err)
	}
	check("one arm", "one arm says nothing", Options{}, a)
	check("twice", `arm "A" is given twice`, Options{}, a, a)
	check("no name", "does not say which arm", Options{}, a, Source{File: b.File, Arm: b.Arm})
	check("odd name", "arm name", Options{}, a, Source{Name: "../x", File: b.File, Arm: b.Arm})
	check("reference", `reference "C" is none of the arms: they are A, B`, Options{Reference: "C"}, a, b)
	check("floor", `floor "C" is none of the arms`, Options{Floors: []string{"C"}}, a, b)
	check("nothing to judge", "no arm is left to judge", Options{Floors: []string{"B"}}, a, b)
	check("other answers", "request r1 has other right answers in arm B than in arm A", Options{}, a, source(t, "B", asked("r1", 10, `{"A1": "z"}`, "A1=z")))
	check("other length", "request r1 has 10 prompt tokens in arm A and 11 in arm B", Options{}, a, source(t, "B", asked("r1", 11, `{"A1": "x"}`, "A1=x")))
	check("nothing in common", "no request in common", Options{}, a, source(t, "B", asked("r2", 10, `{"A1": "x"}`, "A1=x")))
}

// One id in two passes is two requests; they are paired by both.
func TestPassesApart(t *testing.T) {
	row := func(pass, text string) string {
		return fmt.Sprintf(`{"request_id": "r", "pass": %q, "expected": {"A1": "x"}, "response_text": %q}`, pass, text)
	}
	a := source(t, "A", row("cold", "A1=x"), row("warm", "A1=x"))
	b := source(t, "B", row("warm", "A1=bad"), row("cold", "A1=x"))
	_, by, _ := assess(t, []Source{a, b}, Options{})
	if got := by["B"].FailedIDs; !reflect.DeepEqual(got, []string{"r/warm"}) || by["B"].N != 2 || num(by["B"].ArmOnly) != 1 {
		t.Errorf("failed %v of %d, c %d", got, by["B"].N, num(by["B"].ArmOnly))
	}
}

// The rows' own opinion counts for nothing, either way.
func TestPublishedFlagsAreNotBelieved(t *testing.T) {
	row := func(id, text string, failed bool) string {
		return fmt.Sprintf(`{"request_id": %q, "expected": {"A1": "x", "A4": "1"}, "response_text": %q, "failed": %v, "scored_answers_correct": %v}`, id, text, failed, !failed)
	}
	a := source(t, "A", row("r1", "A1=x\nA4=1", true), row("r2", "A1=X\nA4=2", true))
	b := source(t, "B", row("r1", "A1=y\nA4=1", false), row("r2", "A1='x'\nA4=2", false))
	_, by, _ := assess(t, []Source{a, b}, Options{})
	if by["A"].Failed != 0 || by["B"].Failed != 1 || by["B"].FailedIDs[0] != "r1" || by["A"].AnswersRight["A4"] != 1 {
		t.Errorf("A %v, B %v, right %v", by["A"].FailedIDs, by["B"].FailedIDs, by["A"].AnswersRight)
	}
}

// A file says which of its answers count.
func TestScoringFields(t *testing.T) {
	f, err := Open(write(t, "a.json", `{"arm": "A", "scoring_fields": ["A4"], "rows": [`+asked("r", 3, `{"A1": "x", "A4": "7"}`, "A1=no\nA4=7")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	im, err := Build([]Source{{Name: "A", File: f, Arm: f.Arms[0]}, source(t, "B", asked("r", 3, `{"A1": "x", "A4": "7"}`, "A1=x\nA4=8"))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range im.Set.Prompts[0].Expect.Needles {
		if n.Scored != (n.Key == "A4") {
			t.Errorf("%s scored: %v", n.Key, n.Scored)
		}
	}
}

// Rows without any logprob, token, counter or answer are judged by their texts.
func TestBareRows(t *testing.T) {
	a := source(t, "A", row2("r1", "fine"), row2("r2", "fine too"))
	b := source(t, "B", row2("r1", "fine"), row2("r2", ""))
	im, by, res := assess(t, []Source{a, b}, Options{})
	got := by["B"]
	if got.Failed != 1 || got.FailedIDs[0] != "r2" || got.LocalTokens != nil || got.ExternalTokens != nil || got.D0Mean != nil || got.Identical != nil {
		t.Errorf("%+v", got)
	}
	if res.Exit != scoring.ExitCannot || *got.Verdict == scoring.CleanBounded {
		t.Errorf("exit %d, verdict %s", res.Exit, *got.Verdict)
	}
	if len(im.Notes) != 1 || !strings.Contains(im.Notes[0], "2 of 2 requests have no right answer") || im.Plan.Problems[0].What != im.Notes[0] {
		t.Errorf("notes %q", im.Notes)
	}
}

// However many rows are right and however well the path is counted, an import is not clean.
func TestImportIsNeverClean(t *testing.T) {
	var a, b []string
	for i := range 64 {
		row := func(hits int) string {
			return fmt.Sprintf(`{"request_id": "r%d", "prompt_tokens": %d, "expected": {"A1": "x"}, "response_text": "A1=x", "response_tokens": ["A1", "=x"], "chosen_token_logprobs": [-0.1, -0.%d],
			"metric_delta": {"prefix_cache_queries": %d, "prefix_cache_hits": 0, "external_prefix_cache_hits": %d}}`, i, 100+i, 1+i%9, 100+i, hits)
		}
		a, b = append(a, row(0)), append(b, row(0))
		if i%2 == 0 {
			b[i] = row(64)
		}
	}
	_, by, res := assess(t, []Source{source(t, "A", a...), source(t, "A2", a...), source(t, "B", b...)}, Options{Floors: []string{"A2"}})
	got := by["B"]
	if *got.Verdict == scoring.CleanBounded || res.Exit != scoring.ExitCannot {
		t.Errorf("verdict %s, columns %v, exit %d", *got.Verdict, got.Columns, res.Exit)
	}
	if num(got.ExternalTokens) != 32*64 || got.Columns["X"] != "y" || got.Columns["F"] != "n" {
		t.Errorf("external %d, columns %v", num(got.ExternalTokens), got.Columns)
	}
}

// An arm that lacks rows, and rows that could not be used whole, say so.
func TestNotes(t *testing.T) {
	a := source(t, "A", row2("r1", "x"), row2("r2", "y"))
	b := source(t, "B", `{"request_id": "r1", "text": "x", "tokens": ["x"], "token_logprobs": [-1, -2]}`)
	b.Snapshots = []Snapshot{{Name: "metrics-B-pre.txt", Phase: "before", Err: fmt.Errorf("the file is empty")}}
	im, err := Build([]Source{a, b}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(im.Notes, "\n")
	for _, want := range []string{"arm B: 1 of the 2 requests are there", "arm B: 2 log probabilities for 1 tokens: they are not used (in 1 rows)", "arm B: metrics-B-pre.txt: the file is empty"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	for _, r := range im.Records {
		if r.Sample != nil && (r.Sample.Error == "" || r.Sample.Digest != "") {
			t.Errorf("a snapshot that was not read: %+v", r.Sample)
		}
	}
}

// A process that was replaced between its two snapshots did not serve the arm whole.
func TestReplacedProcess(t *testing.T) {
	snap := func(phase, start string) Snapshot {
		text := []byte("x " + start)
		return Snapshot{Name: phase, Phase: phase, Bytes: text, Text: text, Start: start, Values: []probes.Value{{Role: probes.LocalHits, Series: "h"}}}
	}
	a, b := source(t, "A", row2("r1", "x")), source(t, "B", row2("r1", "x"))
	b.Snapshots = []Snapshot{snap("before", "2026-01-01T00:00:00.000Z"), snap("after", "2026-01-01T00:00:00.000Z")}
	_, by, _ := assess(t, []Source{a, b}, Options{})
	if by["B"].Columns["A"] != "y" {
		t.Errorf("one process: %v", by["B"].Columns)
	}
	b.Snapshots[1] = snap("after", "2026-01-01T00:05:00.000Z")
	_, by, _ = assess(t, []Source{a, b}, Options{})
	if by["B"].Columns["A"] != "n" || *by["B"].Verdict != scoring.EngineDied || *by["B"].Sub != "RESTARTED" {
		t.Errorf("replaced: %v %s", by["B"].Columns, *by["B"].Verdict)
	}
}

// A request that got no reply is not a wrong answer.
func TestNoReply(t *testing.T) {
	a := source(t, "A", row2("r1", "x"), row2("r2", "y"))
	b := source(t, "B", row2("r1", "x"), `{"request_id": "r2", "error": "timed out"}`)
	im, by, _ := assess(t, []Source{a, b}, Options{})
	if by["B"].Failed != 0 || by["B"].Substantive != 1 || num(by["B"].ArmOnly) != 0 {
		t.Errorf("failed %d, substantive %d", by["B"].Failed, by["B"].Substantive)
	}
	b = source(t, "B", row2("r1", "x"), `{"request_id": "r2", "error": "out of range float values", "http_status": 500}`)
	_, by, _ = assess(t, []Source{a, b}, Options{})
	if by["B"].Failed != 1 {
		t.Errorf("an internal error of the engine passes: %v", by["B"].Detectors)
	}
	last := im.Records[len(im.Records)-1]
	if last.Fact == nil || last.Fact.Name != probes.FactChainEnd {
		t.Errorf("the last record is %+v", last)
	}
}
