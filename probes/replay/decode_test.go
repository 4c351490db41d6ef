package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	openai "github.com/sashabaranov/go-openai"

	"kvladder/probes"
)

var update = flag.Bool("update", false, "write the golden files anew")

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var captures = []struct{ file, dialect string }{
	{"chat_stream.txt", VLLM},
	{"completion_logprobs.json", VLLM},
	{"completion_stream.txt", VLLM},
	{"completion_token_ids.json", VLLM},
	{"llama_completion.json", LlamaCPP},
	{"llama_null_logprob.json", LlamaCPP},
	{"llama_stream.txt", LlamaCPP},
	{"llama_v1.json", LlamaCPP},
}

func TestDecodeCaptures(t *testing.T) {
	for _, c := range captures {
		d, err := Decode(c.dialect, 200, fixture(t, c.file))
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		got, err := json.MarshalIndent(d, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		golden := filepath.Join("testdata", c.file+".golden")
		if *update {
			os.WriteFile(golden, got, 0o644)
		}
		if diff := cmp.Diff(string(fixture(t, c.file+".golden")), string(got)); diff != "" {
			t.Errorf("%s (-golden +got):\n%s", c.file, diff)
		}
	}
}

// What the golden files must say, in words: a golden that was written wrong stays wrong.
func TestDecodeCapturesByHand(t *testing.T) {
	dec := func(dialect, file string) probes.Decoded {
		t.Helper()
		d, err := Decode(dialect, 200, fixture(t, file))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return d
	}
	num := func(p *int) int {
		if p == nil {
			return -1
		}
		return *p
	}
	check := func(file string, ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %s", file, what)
		}
	}
	d := dec(VLLM, "completion_token_ids.json")
	var ids []int
	for _, k := range d.Tokens {
		ids = append(ids, k.ID)
	}
	check("token_ids", cmp.Equal(ids, []int{441, 253, 2004, 216, 32, 30, 198, 198}), "wrong ids")
	check("token_ids", d.Text == " not a record 0.\n\n" && d.Finish == "length" && d.Model == "m", "wrong text, finish or model")
	check("token_ids", *d.Tokens[1].Top[0].Logprob == *d.Tokens[1].Top[1].Logprob && d.Tokens[1].Top[0].Text == " a", "a tie lost the engine's order")

	d = dec(VLLM, "completion_logprobs.json")
	check("logprobs", num(d.Usage.Prompt) == 1093 && num(d.Usage.Completion) == 8 && num(d.Usage.Cached) == 1024 && d.Usage.Computed == nil, "wrong usage")
	check("logprobs", len(d.Tokens) == 8 && d.Tokens[0].ID == -1 && d.Tokens[0].Text == " not" && *d.Tokens[0].Logprob == -2.488623857498169 && len(d.Tokens[0].Top) == 5, "wrong tokens")

	d = dec(VLLM, "completion_stream.txt")
	check("stream", d.Text == " not a record 0.\n\n" && len(d.Tokens) == 8 && num(d.Usage.Cached) == 1024 && d.Finish == "length", "a stream must read like the whole")

	d = dec(VLLM, "chat_stream.txt")
	check("chat", d.Text == "The capital of France is Paris." && d.Finish == "stop" && num(d.Usage.Cached) == 0 && num(d.Usage.Prompt) == 40 && len(d.Tokens) == 0, "wrong reply")

	d = dec(LlamaCPP, "llama_completion.json")
	check("llama", num(d.Usage.Cached) == 300 && num(d.Usage.Computed) == 1 && num(d.Usage.Prompt) == 301 && num(d.Usage.Completion) == 2, "tokens_cached is not reuse; cache_n is")
	check("llama", d.Finish == "length" && d.Tokens[1].ID == 30 && d.Tokens[1].Logprob == nil && d.Tokens[1].NonFinite && !d.Tokens[0].NonFinite, "a null log-probability is not finite")
	check("llama", d.Tokens[1].Top[0].ID == 28 && d.Tokens[1].Top[1].Logprob == nil, "candidates without a number go last")

	d = dec(LlamaCPP, "llama_stream.txt")
	check("llama stream", d.Text == " Paris." && len(d.Tokens) == 2 && num(d.Usage.Computed) == 59 && num(d.Usage.Cached) == 0 && d.Finish == "stop", "wrong reply")

	d = dec(LlamaCPP, "llama_v1.json")
	check("llama v1", num(d.Usage.Cached) == 58 && num(d.Usage.Computed) == 1 && d.Tokens[0].ID == 7042 && d.Tokens[0].Top[0].ID == 7042, "wrong reply")
}

// go-openai is a second reader of the same streams: the text and the reason to end must
// be what it reads.
func TestDecodeAgreesWithGoOpenAI(t *testing.T) {
	serve := func(b []byte) *openai.Client {
		cfg := openai.DefaultConfig("")
		cfg.HTTPClient = doer(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}, nil
		})
		return openai.NewClientWithConfig(cfg)
	}
	raw := fixture(t, "completion_stream.txt")
	cs, err := serve(raw).CreateCompletionStream(t.Context(), openai.CompletionRequest{Prompt: ""})
	if err != nil {
		t.Fatal(err)
	}
	text, finish := "", ""
	for {
		r, err := cs.Recv()
		if err != nil {
			break
		}
		for _, c := range r.Choices {
			text += c.Text
			finish += c.FinishReason
		}
	}
	if d, _ := Decode(VLLM, 200, raw); d.Text != text || d.Finish != finish || text == "" {
		t.Errorf("completion: %q %q, go-openai reads %q %q", d.Text, d.Finish, text, finish)
	}

	raw = fixture(t, "chat_stream.txt")
	ch, err := serve(raw).CreateChatCompletionStream(t.Context(), openai.ChatCompletionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	text, finish = "", ""
	for {
		r, err := ch.Recv()
		if err != nil {
			break
		}
		for _, c := range r.Choices {
			text += c.Delta.Content
			finish += string(c.FinishReason)
		}
	}
	if d, _ := Decode(VLLM, 200, raw); d.Text != text || d.Finish != finish || text == "" {
		t.Errorf("chat: %q %q, go-openai reads %q %q", d.Text, d.Finish, text, finish)
	}
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func TestDecodeErrors(t *testing.T) {
	const done = "data: [DONE]\n\n"
	const one = `data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}` + "\n\n"
	for _, c := range []struct {
		dialect    string
		status     int
		raw        string
		kind, want string
	}{
		{VLLM, 200, "", KindDecode, "empty"},
		{VLLM, 200, " \n", KindDecode, "empty"},
		{VLLM, 200, "<html>sign in</html>", KindDecode, "a page: <html>sign in"},
		{VLLM, 200, "null", KindDecode, "neither a JSON object"},
		{VLLM, 200, "[]", KindDecode, "neither"},
		{VLLM, 200, "{}", KindDecode, "not a reply"},
		{VLLM, 200, `{"content":"llama's own"}`, KindDecode, "not a reply"},
		{VLLM, 200, `{"choices":[{"text":"a"`, KindDecode, "not JSON"},
		{VLLM, 200, `{"choices":[{"text":7}]}`, KindDecode, "not JSON"},
		{VLLM, 200, `{"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[]}}]}`, KindDecode, "1 tokens came with 0"},
		{VLLM, 200, `{"choices":[{"text":"a","token_ids":[1,2],"logprobs":{"tokens":["a"],"token_logprobs":[-1]}}]}`, KindDecode, "2 token ids came with 1"},
		{VLLM, 200, `{"choices":[{"text":"a","token_ids":[1],"logprobs":{"tokens":["token_id:2"],"token_logprobs":[-1]}}]}`, KindDecode, "is 1 by its id and 2"},
		{VLLM, 200, `{"error":{"message":"EngineCore encountered an issue.","type":"x","code":500}}`, KindModel, "EngineCore encountered"},
		{VLLM, 200, `{"object":"error","message":"too long","code":400}`, KindModel, "too long"},
		{VLLM, 200, `{"choices":[{"text":"","finish_reason":"error"}]}`, KindModel, "finish reason is error"},
		{VLLM, 200, one, KindDecode, "ended after event 1"},
		{VLLM, 200, done, KindDecode, "holds no reply"},
		{VLLM, 200, one + `data: {"error":{"message":"dead"}}` + "\n\n" + done, KindModel, "event 2 of the stream: the engine reported: dead"},
		{VLLM, 200, one + `data: {"choices":[{"te`, KindDecode, "event 2 of the stream is not JSON"},
		{LlamaCPP, 200, "error: {\"code\":500,\"message\":\"oom\"}\n\n", KindModel, "oom"},
		{LlamaCPP, 200, "event: error\ndata: {\"code\":500,\"message\":\"oom\"}\n\n", KindModel, "oom"},
		{LlamaCPP, 200, "data: {\"content\":\"a\",\"stop\":false}\n\n", KindDecode, "ended after event 1"},
		{VLLM, 500, `{"error":{"message":"EngineCore","code":500}}`, KindHTTP, "HTTP 500: EngineCore"},
		{VLLM, 400, `{"object":"error","message":"too long"}`, KindHTTP, "HTTP 400: too long"},
		{VLLM, 404, `{"detail":"Not Found"}`, KindHTTP, "HTTP 404: Not Found"},
		{VLLM, 503, "", KindHTTP, "HTTP 503: no body"},
		{VLLM, 502, "<html>bad gateway</html>", KindHTTP, "bad gateway"},
		{VLLM, 302, "", KindHTTP, "HTTP 302"},
		{"esperanto", 200, "{}", KindDecode, `"esperanto"`},
	} {
		_, err := Decode(c.dialect, c.status, []byte(c.raw))
		var de *DecodeError
		if !errors.As(err, &de) || de.Kind != c.kind || !strings.Contains(de.What, c.want) {
			t.Errorf("%d %s\n got %v\nwant %s: … %s", c.status, c.raw, err, c.kind, c.want)
		}
	}
}

func TestDecodeTolerates(t *testing.T) {
	lp := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		name, raw string
		want      probes.Decoded
	}{
		{"unknown and repeated members", `{"choices":[{"text":"a","novel":{"x":[1]}}],"model":"x","model":"y"}`,
			probes.Decoded{Text: "a", Model: "y"}},
		{"reasoning", `{"choices":[{"message":{"content":null,"reasoning":"r"}}]}`,
			probes.Decoded{Reasoning: "r"}},
		{"reasoning, older", `{"choices":[{"message":{"content":"a","reasoning_content":"r"}}]}`,
			probes.Decoded{Text: "a", Reasoning: "r"}},
		{"reasoning, both", `{"choices":[{"message":{"content":"a","reasoning":"r","reasoning_content":"r"}}]}`,
			probes.Decoded{Text: "a", Reasoning: "r"}},
		{"calls of functions", `{"choices":[{"message":{"content":"a","tool_calls":[{"function":{"arguments":{"a":1}}}]}}]}`,
			probes.Decoded{Text: "a"}},
		{"token_id:N", `{"choices":[{"text":"a","logprobs":{"tokens":["token_id:7"],"token_logprobs":[-1],"top_logprobs":[{"token_id:9":-2,"token_id:7":-1}]}}]}`,
			probes.Decoded{Text: "a", Tokens: []probes.Token{{ID: 7, Logprob: lp(-1), Top: []probes.Candidate{{ID: 7, Logprob: lp(-1)}, {ID: 9, Logprob: lp(-2)}}}}}},
		{"token ids alone", `{"choices":[{"text":"a","token_ids":[7]}]}`,
			probes.Decoded{Text: "a", Tokens: []probes.Token{{ID: 7}}}},
		{"null, NaN, infinities, huge", `{"choices":[{"text":"NaN \"NaN","logprobs":{"content":[{"token":"a","logprob":null},{"token":"b","logprob":NaN},{"token":"c","logprob":-Infinity},{"token":"d","logprob":"-inf"},{"token":"e","logprob":-1e999},{"token":"f","logprob":0}]}}]}`,
			probes.Decoded{Text: `NaN "NaN`, Tokens: []probes.Token{{ID: -1, Text: "a", NonFinite: true}, {ID: -1, Text: "b", NonFinite: true}, {ID: -1, Text: "c", NonFinite: true}, {ID: -1, Text: "d", NonFinite: true}, {ID: -1, Text: "e", NonFinite: true}, {ID: -1, Text: "f", Logprob: lp(0)}}}},
		{"an absent log-probability is not a null one", `{"choices":[{"text":"a","logprobs":{"content":[{"id":3,"token":"a"}]}}]}`,
			probes.Decoded{Text: "a", Tokens: []probes.Token{{ID: 3, Text: "a"}}}},
		{"CR LF, comments, data in two lines, no last blank line", ": hello\r\n\r\ndata: {\"choices\":\r\ndata:[{\"text\":\"a\"}]}\r\n\r\ndata: [DONE]",
			probes.Decoded{Text: "a"}},
		{"candidates in any writing", `{"choices":[{"text":"a","logprobs":{"tokens":["a","b"],"token_logprobs":[-1,-1],"top_logprobs":[ { "a\"\\}" : -1.5e0 , "\u00e9":null,"{":"nan" } ,{}]}}]}`,
			probes.Decoded{Text: "a", Tokens: []probes.Token{{ID: -1, Text: "a", Logprob: lp(-1), Top: []probes.Candidate{{ID: -1, Text: `a"\}`, Logprob: lp(-1.5)}, {ID: -1, Text: "é"}, {ID: -1, Text: "{"}}}, {ID: -1, Text: "b", Logprob: lp(-1)}}}},
		{"null usage", `{"choices":[{"text":"a"}],"usage":null}`, probes.Decoded{Text: "a"}},
	} {
		got, err := Decode(VLLM, 200, []byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// One choice was asked for. Of two, which is the answer is not known, and put together they
// would be a wrong one.
func TestDecodeOfSeveralChoices(t *testing.T) {
	for name, raw := range map[string]string{
		"two":           `{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}`,
		"the other one": `{"choices":[{"index":1,"text":"b"}]}`,
		"same index":    `{"choices":[{"text":"a"},{"text":"b"}]}`,
		"stream":        "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"index\":1,\"text\":\"b\"}]}\n\ndata: [DONE]\n\n",
	} {
		for _, dialect := range []string{VLLM, LlamaCPP} {
			_, err := Decode(dialect, 200, []byte(raw))
			var de *DecodeError
			if !errors.As(err, &de) || de.Kind != KindDecode || !strings.Contains(de.What, "more than one choice") {
				t.Errorf("%s, %s: %v", name, dialect, err)
			}
		}
	}
}

// Wherever a reply is cut, it is not taken for a whole one.
func TestDecodeCutAnywhere(t *testing.T) {
	for _, c := range captures {
		raw := bytes.TrimRight(fixture(t, c.file), "\n")
		for n := 0; n < len(raw); n += 1 + n%7 {
			if _, err := Decode(c.dialect, 200, raw[:n]); err == nil {
				t.Fatalf("%s: the first %d of %d bytes pass for the whole", c.file, n, len(raw))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range captures {
		f.Add(c.dialect == LlamaCPP, 200, fixture(f, c.file))
	}
	f.Add(false, 500, []byte(`{"error":{"message":["a"]}}`))
	f.Add(false, 200, []byte(`{"choices":[{"logprobs":{"tokens":["token_id:-1"],"token_logprobs":[NaN],"top_logprobs":[null]}}]}`))
	f.Fuzz(func(t *testing.T, llama bool, status int, raw []byte) {
		dialect := VLLM
		if llama {
			dialect = LlamaCPP
		}
		keep := bytes.Clone(raw)
		d, err := Decode(dialect, status, raw)
		if !bytes.Equal(raw, keep) {
			t.Fatal("the raw bytes were changed")
		}
		again, err2 := Decode(dialect, status, raw)
		if !cmp.Equal(d, again) || (err == nil) != (err2 == nil) {
			t.Fatal("not a pure function")
		}
		var de *DecodeError
		if err != nil && (!errors.As(err, &de) || de.Kind == "" || de.What == "") {
			t.Fatalf("error without a kind: %v", err)
		}
		// A transcript must be able to hold it.
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back probes.Decoded
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(d, back) {
			t.Fatalf("a transcript gives back something else:\n%s", cmp.Diff(d, back))
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range captures[:4] {
		raw := fixture(b, c.file)
		b.Run(c.file, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				Decode(c.dialect, 200, raw)
			}
		})
	}
}
