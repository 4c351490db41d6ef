package foreign

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/probes"
)

// oneRow is a row with everything that is usual in it.
const oneRow = `{"arm": "A", "request_id": "r1", "pass": "p", "prompt_tokens": 3170, "prompt_tokens_mod_mamba_block": 1570,
 "expected": {"A1": "90E1F14D", "A3": [18, 54], "A4": 89}, "finish_reason": "length",
 "usage": {"prompt_tokens": 3170, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1600}},
 "response_text": "A1=90E1F14D\nA3=18,54", "response_tokens": ["A", "1", "="], "chosen_token_logprobs": [-0.5, NaN, null],
 "metric_delta": {"prefix_cache_queries": 3170.0, "prefix_cache_hits": 1600.0, "drafts": 4.0}, "metric_delta_scope": "this request",
 "failed": true}`

func row2(id, text string) string {
	return fmt.Sprintf(`{"request_id": %q, "response_text": %q}`, id, text)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func TestNestings(t *testing.T) {
	two := row2("r1", "x") + "," + row2("r2", "y")
	check := func(what, text, want string) {
		t.Helper()
		f, err := Open(write(t, "rows.json", text))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		var got []string
		for _, a := range f.Arms {
			got = append(got, fmt.Sprintf("%s:%d:%s", a.Name, a.Rows(), a.Label))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %q, want %q", what, s, want)
		}
	}
	check("list", "["+two+"]", ":2:")
	check("rows", `{"rows": [`+two+`]}`, ":2:")
	check("rows with a name", `{"arm": "L0", "arm_description": "no store", "rows": [`+two+`]}`, "L0:2:no store")
	check("one row a line", row2("r1", "x")+"\n"+row2("r2", "y")+"\n", ":2:")
	check("gzip", zipped("["+two+"]"), ":2:")
	check("arms by name", `{"schema": "s", "arms": {"L0": {"description": "d", "rows": [`+two+`]}, "L1": {"rows": [`+row2("r1", "z")+`]}}}`, "L0:2:d L1:1:")
	check("list of arms", `{"arms": [{"name": "L0", "rows": [`+two+`]}, {"arm": "L1", "rows": [`+two+`]}]}`, "L0:2: L1:2:")
	check("a receipt's arms", `{"description": "all", "arms": {"L0": "control", "L1": "other"}, "results": {"per_arm": {"L0": {"rows": [`+two+`]}, "L1": {"rows": [`+two+`]}}}}`, "L0:2: L1:2:")
	check("rows that name their arm", `[{"arm": "x", "request_id": "r1", "response_text": "a"}, {"arm": "y", "request_id": "r1", "response_text": "b"}]`, "x:1: y:1:")
	check("byte order mark", "\ufeff["+two+"]", ":2:")
	check("another list before the rows", `{"failing": [{"request_id": "r1", "corrupted": true}], "timings": {"rows": [{"request_id": "r1", "ttft": 1}]}, "data": {"rows": [`+two+`]}}`, ":2:")
}

func TestFilesThatAreNoRows(t *testing.T) {
	whole := zipped("[" + oneRow + "]")
	check := func(what, text, want string) {
		t.Helper()
		path := write(t, "rows.json.gz", text)
		_, err := Open(path)
		if err == nil {
			t.Errorf("%s: taken", what)
			return
		}
		if s := err.Error(); !strings.Contains(s, want) || !strings.HasPrefix(s, path+": ") || strings.Contains(s, "\n") {
			t.Errorf("%s: %q, want %q", what, s, want)
		}
	}
	check("empty", "", "the file is empty")
	check("white space", " \n", "nothing in it but white space")
	check("page", "<!DOCTYPE html>\n<html>", "a web page")
	check("page in gzip", zipped("\n <html></html>"), "a web page")
	check("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer")
	check("gzip cut off", whole[:len(whole)/2], "not a whole gzip file")
	check("gzip header cut off", whole[:5], "not a whole gzip file")
	check("gzip without its sum", whole[:len(whole)-8], "not a whole gzip file")
	check("gzip with another sum", whole[:len(whole)-8]+"\x00\x00\x00\x00"+whole[len(whole)-4:], "not a whole gzip file")
	check("gzip of nothing", zipped(""), "nothing in it")
	check("cut off", "["+oneRow, "not JSON")
	check("not JSON", "[\n{\"request_id\": 'x'}]", "line 2: not JSON")
	check("latin-1", "[{\"request_id\": \"r\", \"response_text\": \"caf\xe9\"}]", "not UTF-8")
	check("no rows", `{"summary": {"requests": 38}}`, "no rows in it")
	check("a number", `7`, "no rows in it")
	check("empty list", `{"rows": []}`, "its list of rows is empty")
	check("rows without replies", `{"rows": [{"request_id": "r1", "failed": true}]}`, "row 1: it has no reply")
	check("a row without id", `[`+row2("r1", "x")+`, {"response_text": "y"}]`, "row 2: it has no request_id")
	check("a number among rows", `[`+row2("r1", "x")+`, 7]`, "row 2: a row must be a JSON object")
	check("request twice", "["+row2("r1", "x")+","+row2("r2", "y")+","+row2("r1", "z")+"]", "row 3: request r1 is there already, as row 1")
	check("request twice in a pass", `[{"request_id":"r","pass":"p","text":"a"},{"request_id":"r","pass":"q","text":"a"},{"request_id":"r","pass":"p","text":"a"}]`, "request r of pass p is there already, as row 1")
	check("member twice", `[{"request_id": "r1", "response_text": "x", "response_text": "y"}]`, `member "response_text" is there twice`)
	check("text that is none", `[{"request_id": "r1", "response_text": {"a": 1}}]`, "the reply's text is no text")
	check("tokens that are none", `[{"request_id": "r1", "response_text": "a", "response_tokens": "A 1"}]`, "response_tokens: not a list")
	check("logprob that is a text", `[{"request_id": "r1", "response_text": "a", "response_tokens": ["a"], "chosen_token_logprobs": ["x"]}]`, "log probability 0 is a text")
	check("two arms of one name", `{"arms": [{"name": "L0", "rows": [`+row2("r", "x")+`]}, {"name": "L0", "rows": [`+row2("r", "x")+`]}]}`, `the arm "L0" twice`)
	check("rows half named", `[{"arm": "x", "request_id": "r1", "text": "a"}, {"request_id": "r2", "text": "b"}]`, "some rows name their arm")
	if _, err := Open(filepath.Join(t.TempDir(), "none.json")); err == nil || !strings.Contains(err.Error(), "none.json: no such file") {
		t.Errorf("missing file: %v", err)
	}
}

func TestPick(t *testing.T) {
	f, err := Open(write(t, "all.json", `{"arms": {"L0": {"rows": [`+row2("r", "x")+`]}, "L1": {"rows": [`+row2("r", "y")+`]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := f.Pick("L1"); err != nil || a.rows[0].decoded.Text != "y" {
		t.Errorf("L1: %v", err)
	}
	if _, err := f.Pick("L2"); err == nil || !strings.Contains(err.Error(), "it has L0, L1") {
		t.Errorf("L2: %v", err)
	}
}

func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	engine := "process_start_time_seconds 1.7868872e+09\nvllm:cache_config_info{a=\"b\",block_size=\"1600\"} 1.0\nvllm:external_prefix_cache_hits_total{engine=\"0\"} 5.0\n"
	put("vllm-metrics-L0-post.txt", engine)
	put("vllm-metrics-L0-pre.txt.gz", zipped(engine))
	put("vllm-metrics-L0-pre.txt", strings.Replace(engine, "5.0", "4.0", 1))
	put("lmcache-metrics-L0-post.txt", "process_start_time_seconds 1.0\nlmcache:hits_total 3.0\n")
	put("lmcache-metrics-L0-pre.txt", "")
	put("vllm-metrics-L01-pre.txt", engine)
	put("vllm-metrics-xL0-pre.txt", engine)
	put("allmetrics-L0-pre.txt", engine)
	got, err := Snapshots(dir, "L0", counters)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, n := range got {
		v := "-"
		for _, x := range n.Values {
			if x.Role == probes.ExternalHits {
				v = fmt.Sprint(x.Value)
			}
		}
		s = append(s, fmt.Sprintf("%s %s %s %s %d %v", n.Phase, n.Name, v, n.Start, n.Block, n.Err))
	}
	want := []string{
		"before lmcache-metrics-L0-pre.txt -  0 the file is empty: fetch it again",
		"before vllm-metrics-L0-pre.txt 4 2026-08-16T13:33:20.000Z 1600 <nil>",
		"after lmcache-metrics-L0-post.txt -  0 <nil>",
		"after vllm-metrics-L0-post.txt 5 2026-08-16T13:33:20.000Z 1600 <nil>",
	}
	if strings.Join(s, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(s, "\n"), strings.Join(want, "\n"))
	}
	for name, text := range map[string]string{"page": "<html>", "bytes": "vllm:x \xff 1\n", "words": "not a metric line at all\n", "cut": zipped(engine)[:20]} {
		d := t.TempDir()
		os.WriteFile(filepath.Join(d, "metrics-A-pre.txt"), []byte(text), 0o644)
		got, err := Snapshots(d, "A", counters)
		if err != nil || len(got) != 1 || got[0].Err == nil || len(got[0].Values) != 0 {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
