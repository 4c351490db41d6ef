package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"kvladder/probes"
	"kvladder/probes/probetest"
	"kvladder/receipts/digest"
)

const completions = "/v1/completions"

// frozen has what a client that builds its own bodies would lose: a zero temperature, a
// member it does not know, odd white space and a repeated member.
const frozen = `{ "model":"m","prompt":[1,2,3] ,"temperature":0,"cache_salt":"s","seed":0,"seed":0}`

func start(t testing.TB, answers ...probetest.Answer) (*probetest.Server, *Client) {
	t.Helper()
	s := probetest.Start(answers...)
	t.Cleanup(s.Close)
	return s, &Client{Endpoint: probes.Endpoint{URL: s.URL, APIKey: "sk-secret", Model: "m"}, Timeout: 10 * time.Second}
}

func send(t testing.TB, c *Client, path, body string) probes.Reply {
	t.Helper()
	return c.Send(t.Context(), Request{Path: path, Body: []byte(body), RequestID: "r-1"})
}

func TestSendFrozenBytes(t *testing.T) {
	for _, path := range []string{completions, "/v1/chat/completions", "/completion", "/generate"} {
		for _, body := range []string{frozen, "{}", "not even JSON", strings.Repeat("x", 1<<20)} {
			s, c := start(t, probetest.JSON(probetest.Completion("m", "a")))
			r := send(t, c, path, body)
			saw := s.Saw()
			if len(saw) != 1 {
				t.Fatalf("%s: %d requests, %s", path, len(saw), r.Error)
			}
			got := saw[0]
			if string(got.Body) != body || got.Length != int64(len(body)) {
				t.Errorf("%s: %d bytes arrived under length %d, %d were frozen", path, len(got.Body), got.Length, len(body))
			}
			if got.Method != http.MethodPost || got.Path != path {
				t.Errorf("%s %s, want POST %s", got.Method, got.Path, path)
			}
			for k, want := range map[string]string{"X-Request-Id": "r-1", "Authorization": "Bearer sk-secret", "Content-Type": "application/json", "Accept-Encoding": "identity"} {
				if v := got.Header.Get(k); v != want {
					t.Errorf("%s: header %s is %q, want %q", path, k, v, want)
				}
			}
			if r.Sent != digest.Of([]byte(body)) || r.SentBody != "" || r.RequestID != "r-1" || r.Path != path {
				t.Errorf("%s: the reply does not name what was sent: %+v", path, r)
			}
			if b, _ := json.Marshal(r); bytes.Contains(b, []byte("sk-secret")) {
				t.Errorf("%s: the key was written down", path)
			}
		}
	}
}

func TestSendGoodReplies(t *testing.T) {
	stream := strings.Join(probetest.Events("m", "a", "b"), "")
	for _, c := range []struct {
		name   string
		answer probetest.Answer
		raw    string
		text   string
		stream bool
	}{
		{"whole", probetest.JSON(probetest.Completion("m", "ab")), probetest.Completion("m", "ab"), "ab", false},
		{"stream", probetest.Stream(probetest.Events("m", "a", "b"), nil), stream, "ab", true},
		{"jitter", probetest.Stream(probetest.Events("m", "a", "b"), probetest.Jitter(3*time.Millisecond, 1)), stream, "ab", true},
		{"json as text", probetest.Body("text/plain", probetest.Completion("m", "a")), probetest.Completion("m", "a"), "a", false},
	} {
		_, cl := start(t, c.answer)
		r := send(t, cl, completions, frozen)
		if r.Error != "" || r.ErrorKind != "" || r.Status != 200 || r.Truncated || r.Text != c.text || r.Raw != c.raw || r.Received != digest.Of([]byte(c.raw)) || *r.Usage.Prompt != 3 {
			t.Errorf("%s: %+v", c.name, r)
		}
		if r.FirstByteAt < r.SentAt || r.LastAt < r.FirstByteAt {
			t.Errorf("%s: times out of order: %d %d %d", c.name, r.SentAt, r.FirstByteAt, r.LastAt)
		}
		if c.stream != (r.FirstTokenAt != 0) || (c.stream && (r.FirstTokenAt < r.FirstByteAt || r.FirstTokenAt > r.LastAt)) {
			t.Errorf("%s: first token at %d of %d..%d", c.name, r.FirstTokenAt, r.FirstByteAt, r.LastAt)
		}
	}
}

// The role event of a chat is no token, and a token is timed when its line is whole.
func TestFirstToken(t *testing.T) {
	const role = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	const tok = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	waits := []time.Duration{0, 40 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond}
	i := -1
	_, c := start(t, probetest.Stream([]string{role, tok[:20], tok[20:], "data: [DONE]\n\n"}, func() time.Duration { i++; return waits[i] }))
	r := send(t, c, "/v1/chat/completions", frozen)
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	if after := r.FirstTokenAt - r.FirstByteAt; after < 75_000 || r.LastAt-r.FirstTokenAt < 35_000 {
		t.Errorf("first token %d µs after the first byte and %d µs before the last, want about 80,000 and 40,000", after, r.LastAt-r.FirstTokenAt)
	}
}

func TestSendTrouble(t *testing.T) {
	whole := probetest.Completion("m", "a")
	events := probetest.Events("m", "abc", "d")
	for _, c := range []struct {
		name      string
		answer    probetest.Answer
		status    int
		kind      string
		want      string
		raw       string
		truncated bool
		text      string
	}{
		{"wrong type", probetest.HTML(), 200, KindDecode, "a page", "<!doctype html><html><body>sign in</body></html>", false, ""},
		{"wrong type is named", probetest.HTML(), 200, KindDecode, "(content type text/html; charset=utf-8)", "<!doctype html><html><body>sign in</body></html>", false, ""},
		{"empty", probetest.Empty(), 200, KindDecode, "empty", "", false, ""},
		{"500", probetest.Status(500, "application/json", `{"error":{"message":"EngineCore"}}`), 500, KindHTTP, "HTTP 500: EngineCore", `{"error":{"message":"EngineCore"}}`, false, ""},
		{"500 empty", probetest.Status(500, "application/json", ""), 500, KindHTTP, "no body", "", false, ""},
		{"redirect", redirect("/elsewhere"), 307, KindHTTP, "HTTP 307", "", false, ""},
		{"cut body", probetest.CutBody(whole, 40), 200, KindTransport, "was cut after 40 bytes, before", whole[:40], true, ""},
		{"length too long", probetest.WrongLength(whole, 5), 200, KindTransport, "was cut after", whole, true, "a"},
		{"length too short", probetest.WrongLength(whole, -5), 200, KindDecode, "not JSON", whole[:len(whole)-5], false, ""},
		{"stream cut in an event", probetest.CutStream(events, len(events[0])+30), 200, KindTransport, "before the end of the stream", events[0] + events[1][:30], true, "abc"},
		{"stream ended in an event", probetest.EndStream(events, len(events[0])+30), 200, KindDecode, "event 2 of the stream is not JSON", events[0] + events[1][:30], false, "abc"},
		{"stream without its end", probetest.EndStream(events, len(events[0])), 200, KindDecode, "without saying that it was the end", events[0], false, "abc"},
		{"dropped", probetest.Drop(), 0, KindTransport, "EOF", "", false, ""},
		{"hang", probetest.Hang(), 0, KindTimeout, "deadline", "", false, ""},
		{"hang in the stream", hangAfter(events[0]), 200, KindTimeout, "deadline", events[0], true, "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, cl := start(t, c.answer)
			if c.kind == KindTimeout {
				cl.Timeout = 60 * time.Millisecond
			}
			r := send(t, cl, completions, frozen)
			if r.Status != c.status || r.ErrorKind != c.kind || !strings.Contains(r.Error, c.want) || r.Truncated != c.truncated || r.Raw != c.raw || r.Text != c.text {
				t.Errorf("got status %d, %s %q, truncated %v, raw %q, text %q", r.Status, r.ErrorKind, r.Error, r.Truncated, r.Raw, r.Text)
			}
			if r.Received != digest.Of([]byte(c.raw)) || r.Sent != digest.Of([]byte(frozen)) {
				t.Error("the digests do not name the bytes")
			}
			if n := len(s.Saw()); n != 1 {
				t.Errorf("%d requests were sent: a request is never repeated in silence", n)
			}
			// Whatever came, a verifier reads the same from it.
			if r.Status != 0 {
				b, err := r.Bytes()
				if err != nil {
					t.Fatal(err)
				}
				if d, _ := Decode(VLLM, r.Status, b); d.Text != r.Text {
					t.Errorf("decoded again: %q", d.Text)
				}
			}
		})
	}
}

func redirect(to string) probetest.Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ probetest.Seen) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

func hangAfter(event string) probetest.Answer {
	return func(w http.ResponseWriter, r *http.Request, _ probetest.Seen) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

func TestSendNobodyThere(t *testing.T) {
	s, c := start(t)
	s.Close()
	for _, path := range []string{completions, "/completion"} {
		if r := send(t, c, path, frozen); r.Status != 0 || r.ErrorKind != KindTransport || !strings.Contains(r.Error, "refused") || r.Received != digest.OfNothing {
			t.Errorf("%+v", r)
		}
	}
	c2 := &Client{Endpoint: probes.Endpoint{URL: "::no url"}}
	if r := send(t, c2, completions, frozen); r.ErrorKind != KindTransport || r.Error == "" {
		t.Errorf("%+v", r)
	}
}

func TestSendCancelled(t *testing.T) {
	_, c := start(t, probetest.Hang())
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	r := c.Send(ctx, Request{Path: completions, Body: []byte(frozen)})
	if r.ErrorKind != KindTransport || !strings.Contains(r.Error, "canceled") {
		t.Errorf("%s %q", r.ErrorKind, r.Error)
	}
}

func TestSendSlowReady(t *testing.T) {
	_, c := start(t, probetest.SlowReady(50*time.Millisecond, probetest.JSON(probetest.Completion("m", "a"))))
	if r := send(t, c, completions, frozen); r.Status != 503 || r.Error != "HTTP 503: Loading model" {
		t.Errorf("%d %q", r.Status, r.Error)
	}
	time.Sleep(60 * time.Millisecond)
	if r := send(t, c, completions, frozen); r.Status != 200 || r.Text != "a" {
		t.Errorf("%d %q", r.Status, r.Error)
	}
}

func TestSendWrongModel(t *testing.T) {
	_, c := start(t, probetest.WrongModel())
	if r := send(t, c, completions, frozen); r.Model != "some-other-model" {
		t.Errorf("model %q: whoever answered must be on record", r.Model)
	}
}

func TestSendLimit(t *testing.T) {
	for _, a := range []probetest.Answer{
		probetest.JSON(probetest.Completion("m", strings.Repeat("a", 1000))),
		probetest.Stream(probetest.Events("m", strings.Repeat("a", 1000)), nil),
		probetest.Status(500, "text/plain", strings.Repeat("a", 1000)),
	} {
		_, c := start(t, a)
		c.Limit = 500
		r := send(t, c, completions, frozen)
		if r.ErrorKind != KindTransport || !strings.Contains(r.Error, "longer than 500 bytes") || len(r.Raw) != 500 || !r.Truncated {
			t.Errorf("%s %q, %d bytes kept", r.ErrorKind, r.Error, len(r.Raw))
		}
	}
}

func TestSendRawNotText(t *testing.T) {
	raw := []byte("{\"choices\":[{\"text\":\"\xff\x00a\"}]}")
	_, c := start(t, probetest.JSON(string(raw)))
	r := send(t, c, completions, frozen)
	if b, err := r.Bytes(); err != nil || !bytes.Equal(b, raw) || !r.RawBase64 || r.Received != digest.Of(raw) {
		t.Errorf("%q, %v", r.Raw, err)
	}
}

func TestSendPins(t *testing.T) {
	one := 1
	ok := probetest.JSON(probetest.Completion("m", "a"))
	s, c := start(t, ok)
	other, _ := start(t, ok)
	ask := func(p Pin, body string) probes.Reply {
		c := &Client{Endpoint: c.Endpoint, Pin: p}
		c.Endpoint.RankURLs = []string{s.URL, other.URL}
		return c.Send(t.Context(), Request{Path: completions, Body: []byte(body), Rank: &one})
	}
	last := func(s *probetest.Server) probetest.Seen { all := s.Saw(); return all[len(all)-1] }

	if r := ask(Pin{By: PinHeader}, frozen); r.Error != "" || last(s).Header.Get("X-Data-Parallel-Rank") != "1" || string(last(s).Body) != frozen || r.SentBody != "" || *r.RankAsked != 1 {
		t.Errorf("header: %+v", r)
	}
	ask(Pin{By: PinHeader, Field: "X-Rank"}, frozen)
	if last(s).Header.Get("X-Rank") != "1" {
		t.Error("header: field not used")
	}
	want := strings.TrimSuffix(frozen, "}") + `,"routed_dp_rank":1}`
	if r := ask(Pin{By: PinBody}, frozen); string(last(s).Body) != want || r.SentBody != want || r.Sent != digest.Of([]byte(want)) {
		t.Errorf("body: %+v", r)
	}
	if r := ask(Pin{By: PinURL}, frozen); len(other.Saw()) != 1 || string(last(other).Body) != frozen || r.SentBody != "" {
		t.Errorf("url: %+v", r)
	}
	n := len(s.Saw())
	for _, c := range []struct {
		pin        Pin
		body, want string
	}{
		{Pin{}, frozen, "names no way to ask"},
		{Pin{By: "telepathy"}, frozen, "names no way to ask"},
		{Pin{By: PinBody}, "[1]", "not a JSON object"},
		{Pin{By: PinBody, Field: "seed"}, frozen, `names "seed" already`},
	} {
		if r := ask(c.pin, c.body); !strings.Contains(r.Error, c.want) || r.ErrorKind != KindTransport || r.Status != 0 {
			t.Errorf("%+v: %q", c.pin, r.Error)
		}
	}
	one = 2
	if r := ask(Pin{By: PinURL}, frozen); !strings.Contains(r.Error, "has 2 rank urls") {
		t.Errorf("rank without a url: %q", r.Error)
	}
	if len(s.Saw()) != n {
		t.Error("a request that cannot be pinned was sent all the same")
	}
}

func TestInsert(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{}`, `{"r":1}`},
		{`{ }`, `{ "r":1}`},
		{"{\"a\":\"}\"}\n", "{\"a\":\"}\",\"r\":1}\n"},
		{`{"a":{"r":2}}`, `{"a":{"r":2},"r":1}`},
	} {
		got, err := insert([]byte(c.body), "r", "1")
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.body, got, err, c.want)
		}
	}
}

func TestSendConcurrent(t *testing.T) {
	s, c := start(t, probetest.Stream(probetest.Events("m", "a", "b", "c"), probetest.Jitter(2*time.Millisecond, 3)))
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if r := send(t, c, completions, frozen); r.Error != "" || r.Text != "abc" {
				t.Errorf("%q %q", r.Error, r.Text)
			}
		})
	}
	wg.Wait()
	if len(s.Saw()) != 64 {
		t.Errorf("%d requests", len(s.Saw()))
	}
}

// A server that was restarted leaves dead connections behind: they are replaced and
// nothing is lost.
func TestSendAfterRestart(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, probetest.Completion("m", "a")) })
	s := httptest.NewServer(h)
	addr := s.Listener.Addr().String()
	c := &Client{Endpoint: probes.Endpoint{URL: s.URL}}
	if r := send(t, c, completions, frozen); r.Text != "a" {
		t.Fatal(r.Error)
	}
	s.Close()
	time.Sleep(50 * time.Millisecond) // an engine takes longer to come back
	s2 := httptest.NewUnstartedServer(h)
	s2.Listener.Close()
	l, err := listen(addr)
	if err != nil {
		t.Skip("the port was taken meanwhile")
	}
	s2.Listener = l
	s2.Start()
	defer s2.Close()
	if r := send(t, c, completions, frozen); r.Text != "a" {
		t.Errorf("after a restart: %q", r.Error)
	}
}

func TestClientDoesNotTouchYours(t *testing.T) {
	followed := errors.New("asked")
	mine := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return followed }}
	_, c := start(t, redirect("/x"))
	c.HTTP = mine
	if r := send(t, c, completions, frozen); r.Status != 307 {
		t.Errorf("%d %q", r.Status, r.Error)
	}
	if mine.CheckRedirect(nil, nil) != followed {
		t.Error("the caller's http.Client was changed")
	}
}

func TestRequestID(t *testing.T) {
	got := RequestID("sha256:aa", "B", 0, 2, "N07")
	if len(got) != 32 {
		t.Fatalf("%q is not 32 digits", got)
	}
	seen := map[string]bool{got: true}
	for _, id := range []string{
		RequestID("sha256:ab", "B", 0, 2, "N07"), RequestID("sha256:aa", "C", 0, 2, "N07"), RequestID("sha256:aa", "B", 1, 2, "N07"),
		RequestID("sha256:aa", "B", 0, 3, "N07"), RequestID("sha256:aa", "B", 0, 2, "N08"), RequestID("sha256:aa", "B", 0, 2, "N07/prime"),
	} {
		if seen[id] {
			t.Errorf("two requests share %s", id)
		}
		seen[id] = true
	}
	out, err := exec.Command("sh", "-c", `printf '%s\n' sha256:aa B 0 2 N07 | sha256sum | cut -c1-32`).Output()
	if err != nil {
		t.Skip("no shell with sha256sum here")
	}
	if s := strings.TrimSpace(string(out)); s != got {
		t.Errorf("%s, the shell says %s", got, s)
	}
}

func TestClockZero(t *testing.T) {
	_, c := start(t, probetest.JSON(probetest.Completion("m", "a")))
	c.Zero = time.Now().Add(-time.Hour)
	if r := send(t, c, completions, frozen); r.SentAt < time.Hour.Microseconds() || r.LastAt > (time.Hour+time.Minute).Microseconds() {
		t.Errorf("sent at %d µs, an hour after zero", r.SentAt)
	}
}

// BenchmarkSend puts Send beside plain net/http on a server that does nothing: the
// difference is what hashing, keeping and decoding cost.
func BenchmarkSend(b *testing.B) {
	for _, c := range []struct {
		name  string
		reply []byte
	}{
		{"short", []byte(probetest.Completion("m", "a"))},
		{"logprobs", fixture(b, "completion_logprobs.json")},
		{"stream", fixture(b, "completion_stream.txt")},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Write(c.reply)
		}))
		body := []byte(frozen)
		b.Run(c.name+"/send", func(b *testing.B) {
			c := &Client{Endpoint: probes.Endpoint{URL: s.URL}, Timeout: time.Minute}
			b.ReportAllocs()
			for b.Loop() {
				if r := c.Send(b.Context(), Request{Path: completions, Body: body, RequestID: "r"}); r.Error != "" {
					b.Fatal(r.Error)
				}
			}
		})
		b.Run(c.name+"/net-http", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, err := shared().Post(s.URL+completions, "application/json", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
		s.Close()
	}
}
