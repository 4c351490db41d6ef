package foreign

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"kvladder/probes"
)

func readOne(t *testing.T, text string) *row {
	t.Helper()
	ns, err := parse([]byte(text))
	if err != nil || len(ns) != 1 {
		t.Fatalf("%s: %d values, %v", text, len(ns), err)
	}
	r, err := readRow(ns[0])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func TestRow(t *testing.T) {
	r := readOne(t, oneRow)
	half, n, c, cached := -0.5, 3170, 3, 1600
	want := probes.Decoded{Text: "A1=90E1F14D\nA3=18,54", Finish: "length",
		Tokens: []probes.Token{{ID: -1, Text: "A", Logprob: &half}, {ID: -1, Text: "1", NonFinite: true}, {ID: -1, Text: "=", NonFinite: true}},
		Usage:  probes.Usage{Prompt: &n, Completion: &c, Cached: &cached}}
	if !reflect.DeepEqual(r.decoded, want) {
		t.Errorf("decoded %+v", r.decoded)
	}
	if !reflect.DeepEqual(r.expected, []answer{{"A1", "90E1F14D", false}, {"A3", "18,54", true}, {"A4", "89", false}}) {
		t.Errorf("expected %+v", r.expected)
	}
	roles := map[string]float64{}
	for _, c := range r.counters {
		d, ok := c.Delta()
		if !ok {
			t.Errorf("counter %+v", c)
		}
		roles[c.Role] = d
	}
	if !reflect.DeepEqual(roles, map[string]float64{probes.LocalQueries: 3170, probes.LocalHits: 1600}) {
		t.Errorf("counters %v", roles)
	}
	if string(r.raw) != oneRow {
		t.Error("the bytes of the row are not kept as they are")
	}
	if r.requestID != "r1" || r.pass != "p" || r.arm != "A" || *r.promptMod != 1570 || r.failure != "" {
		t.Errorf("row %+v", r)
	}
}

// Older names say the same.
func TestOlderNames(t *testing.T) {
	old := readOne(t, `{"id": 7, "phase": "p", "text": "ab", "tokens": ["a", "b"], "token_logprobs": [-1, -2]}`)
	now := readOne(t, `{"request_id": "7", "pass": "p", "response_text": "ab", "response_tokens": ["a", "b"], "chosen_token_logprobs": [-1.0, -2.0]}`)
	if old.requestID != now.requestID || old.pass != now.pass || !reflect.DeepEqual(old.decoded, now.decoded) {
		t.Errorf("%+v\n%+v", old, now)
	}
	both := readOne(t, `{"request_id": "r", "id": "x", "response_text": "new", "text": "old"}`)
	if both.requestID != "r" || both.decoded.Text != "new" {
		t.Errorf("an older name was preferred: %+v", both)
	}
}

func TestTokens(t *testing.T) {
	check := func(members, want string, notes int) {
		t.Helper()
		r := readOne(t, `{"request_id": "r", "response_text": "x", `+members+`}`)
		var got []string
		for _, k := range r.decoded.Tokens {
			lp := "-"
			if k.Logprob != nil {
				lp = fmt.Sprint(*k.Logprob)
			} else if k.NonFinite {
				lp = "!"
			}
			got = append(got, fmt.Sprintf("%d/%s/%s", k.ID, k.Text, lp))
		}
		if s := strings.Join(got, " "); s != want || len(r.notes) != notes {
			t.Errorf("%s: %q, want %q; notes %q", members, s, want, r.notes)
		}
	}
	check(`"failed": false`, "", 0)
	check(`"response_tokens": null, "chosen_token_logprobs": null`, "", 0)
	check(`"response_tokens": []`, "", 0)
	check(`"response_tokens": ["a", ""]`, "-1/a/- -1//-", 0)
	check(`"response_tokens": "['a', \"it's\", '\\n']", "chosen_token_logprobs": "[-0.5, nan, None]"`, "-1/a/-0.5 -1/it's/! -1/\n/!", 0)
	check(`"response_tokens": "[\"a\", \"b\"]", "chosen_token_logprobs": "[-0.5, NaN]"`, "-1/a/-0.5 -1/b/!", 0)
	check(`"response_tokens": ["a"], "response_token_ids": [17], "chosen_token_logprobs": [-Infinity]`, "17/a/!", 0)
	check(`"response_tokens": ["a"], "chosen_token_logprobs": [1e999]`, "-1/a/!", 0)
	check(`"response_tokens": [17, 18]`, "17//- 18//-", 0)
	check(`"token_ids": [17, 18], "token_logprobs": [-1, -2]`, "17//-1 18//-2", 0)
	// Lists that do not fit each other would compare values of other positions.
	check(`"response_tokens": ["a", "b"], "chosen_token_logprobs": [-1]`, "-1/a/- -1/b/-", 1)
	check(`"response_tokens": ["a", "b"], "response_token_ids": [17]`, "-1/a/- -1/b/-", 1)
	check(`"chosen_token_logprobs": [-1]`, "", 1)
}

func TestCountersOfOthers(t *testing.T) {
	const delta = `{"request_id": "r", "text": "x", "metric_delta": {"prefix_cache_hits": 5, "prefix_cache_queries": NaN}`
	if r := readOne(t, delta+`}`); len(r.counters) != 1 || r.counters[0].Role != probes.LocalHits {
		t.Errorf("counters %+v", r.counters)
	}
	if r := readOne(t, delta+`, "metric_delta_scope": "the wave of 4"}`); len(r.counters) != 0 || len(r.notes) != 1 {
		t.Errorf("counters of a wave were taken for one request's: %+v %q", r.counters, r.notes)
	}
	if r := readOne(t, `{"request_id": "r", "text": "x", "metric_delta": null}`); len(r.counters) != 0 {
		t.Errorf("absent counters: %+v", r.counters)
	}
}

func TestFailedRequest(t *testing.T) {
	r := readOne(t, `{"request_id": "r", "error": "timed out", "http_status": 504}`)
	if r.failure != "timed out" || r.status != 504 {
		t.Errorf("%+v", r)
	}
	if _, err := Decode(r.raw); err == nil || err.Error() != "timed out" {
		t.Errorf("decoded: %v", err)
	}
	for _, none := range []string{"null", "false", `""`} {
		want := ""
		if none == `""` {
			want = `""` // said to have an error, without a word
		}
		if r := readOne(t, `{"request_id": "r", "text": "x", "error": `+none+`}`); r.failure != want {
			t.Errorf("error %s: %q", none, r.failure)
		}
	}
}

func TestPythonList(t *testing.T) {
	check := func(in, want string) {
		t.Helper()
		out, err := pythonList(in)
		var got []string
		for _, v := range out {
			switch {
			case v.isText:
				got = append(got, fmt.Sprintf("%q", v.text))
			case v.isNone:
				got = append(got, "None")
			default:
				got = append(got, fmt.Sprint(v.number))
			}
		}
		s := strings.Join(got, " ")
		if err != nil {
			s = "error"
		}
		if s != want {
			t.Errorf("%s: %s, want %s (%v)", in, s, want, err)
		}
	}
	check(`[]`, "")
	check(`()`, "")
	check(` ['a', 'b',] `, `"a" "b"`)
	check(`["it's", 'say "x"', '\'']`, `"it's" "say \"x\"" "'"`)
	check(`['\n\t\\', '\x41', '\u4e07', '\U0001f600', '\0', '\101']`, `"\n\t\\" "A" "万" "😀" "\x00" "A"`)
	check(`['\ud83d']`, `"`+"\uFFFD"+`"`)
	check(`['万', ']', ', ']`, `"万" "]" ", "`)
	check(`[-0.5, 1e-05, nan, inf, -inf, None, 3]`, "-0.5 1e-05 NaN +Inf -Inf None 3")
	check(`(-0.5, -1)`, "-0.5 -1")
	for _, bad := range []string{``, `[`, `]`, `['a`, `['a'`, `['a' 'b']`, `[a]`, `[1 2]`, `['\q']`, `['\x4']`, `['\U00110000']`, `['\N{DASH}']`, `[True]`, `[0x10]`, `[1_000]`, `[,]`, `['a'],[`, `(1]`, `['a]`, `['\`, `[Infinity]`} {
		check(bad, "error")
	}
}

func TestNonFiniteLiterals(t *testing.T) {
	check := func(in string, ok bool) {
		t.Helper()
		ns, err := parse([]byte(in))
		if (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
			return
		}
		if ok && string(ns[0].raw) != in {
			t.Errorf("%s: kept as %s", in, ns[0].raw)
		}
	}
	check(`[NaN,Infinity,-Infinity, NaN ]`, true)
	check(`{"NaN":"NaN","a":-Infinity}`, true)
	check(`["\"NaN", NaN]`, true)
	check(`[NaN0]`, false)
	check(`[nan]`, false)
	check(`[+Infinity]`, false)
	check(`NaN`, true)
	ns, err := parse([]byte(`{"a": NaN, "b": "NaN", "c": 0.0}`))
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ns[0].object()
	if _, finite, ok := o["a"].number(); finite || !ok {
		t.Error("NaN is read as a number")
	}
	if s, _ := o["b"].text(); s != "NaN" {
		t.Errorf("a text was changed to %q", s)
	}
	if v, finite, _ := o["c"].number(); !finite || v != 0 {
		t.Error("0.0 is not read as a number")
	}
}

// What is cut out of a document is what encoding/json finds there.
func FuzzDocument(f *testing.F) {
	f.Add(oneRow)
	f.Add(`[{"a": [1, NaN], "b": {"c": "\u00e9 \" NaN"}}, -Infinity]`)
	f.Add("{}\n{}")
	f.Fuzz(func(t *testing.T, in string) {
		ns, err := parse([]byte(in))
		if err != nil {
			return
		}
		for _, n := range ns {
			if len(n.raw) != len(n.fixed) || !json.Valid(n.fixed) {
				t.Fatalf("%q beside %q", n.raw, n.fixed)
			}
			ms, err := n.members()
			if err != nil {
				continue
			}
			var want map[string]json.RawMessage
			if n.isObject() {
				if err := json.Unmarshal(n.fixed, &want); err != nil {
					t.Fatal(err)
				}
			}
			if len(ms) != len(want) {
				t.Fatalf("%d members of %d in %q", len(ms), len(want), n.raw)
			}
			for _, m := range ms {
				if string(m.value.fixed) != string(want[m.name]) {
					t.Fatalf("%q: %q, want %q", m.name, m.value.fixed, want[m.name])
				}
			}
			es, _ := n.elements()
			for _, e := range es {
				if v, finite, ok := e.number(); ok && finite && (math.IsNaN(v) || math.IsInf(v, 0)) {
					t.Fatalf("%q is finite", e.raw)
				}
			}
			if r, err := readRow(n); err == nil {
				a, err1 := Decode(r.raw)
				b, err2 := Decode(r.raw)
				if !reflect.DeepEqual(a, b) || (err1 == nil) != (err2 == nil) {
					t.Fatal("decoding is not a function of the bytes")
				}
			}
		}
	})
}
