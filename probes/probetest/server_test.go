package probetest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask posts a body and returns the status, what could be read of the reply, and whether
// reading it failed.
func ask(t *testing.T, s *Server, path string) (status int, body string, failed bool) {
	t.Helper()
	c := http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Post(s.URL+path, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, "", true
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	_, err = io.Copy(&buf, resp.Body)
	return resp.StatusCode, buf.String(), err != nil
}

// Each answer must misbehave as it says, as net/http sees it.
func TestAnswers(t *testing.T) {
	events := Events("m", "a", "b")
	all := strings.Join(events, "")
	ok := JSON(`{"a":1}`)
	for _, c := range []struct {
		name   string
		answer Answer
		status int
		body   string
		failed bool
	}{
		{"json", ok, 200, `{"a":1}`, false},
		{"wrong model", WrongModel(), 200, Completion("some-other-model", "x"), false},
		{"html", HTML(), 200, "<!doctype html><html><body>sign in</body></html>", false},
		{"empty", Empty(), 200, "", false},
		{"500", Status(500, "text/plain", "no"), 500, "no", false},
		{"stream", Stream(events, Jitter(time.Millisecond, 1)), 200, all, false},
		{"cut stream", CutStream(events, 25), 200, all[:25], true},
		{"ended stream", EndStream(events, 25), 200, all[:25], false},
		{"cut body", CutBody(`{"a":1}`, 3), 200, `{"a`, true},
		{"length too long", WrongLength(`{"a":1}`, 2), 200, `{"a":1}`, true},
		{"length too short", WrongLength(`{"a":1}`, -2), 200, `{"a":`, false},
		{"drop", Drop(), 0, "", true},
		{"hang", Hang(), 0, "", true},
		{"after", After(time.Millisecond, ok), 200, `{"a":1}`, false},
		{"after too long", After(time.Hour, ok), 0, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Start(c.answer)
			defer s.Close()
			status, body, failed := ask(t, s, "/v1/x?y=1")
			if status != c.status || body != c.body || failed != c.failed {
				t.Errorf("got %d %q, failed %v", status, body, failed)
			}
			saw := s.Saw()
			if len(saw) != 1 || saw[0].Path != "/v1/x?y=1" || string(saw[0].Body) != "{}" || saw[0].Length != 2 || saw[0].Method != "POST" {
				t.Errorf("saw %+v", saw)
			}
		})
	}
}

func TestServerOrder(t *testing.T) {
	s := Start(Status(503, "", ""), JSON("1"), JSON("2")).Route("/health", JSON("up"))
	defer s.Close()
	var got []string
	for _, path := range []string{"/x", "/health", "/x", "/x", "/x"} {
		_, body, _ := ask(t, s, path)
		got = append(got, body)
	}
	if g := strings.Join(got, ","); g != ",up,1,2,2" {
		t.Errorf("answers came as %s", g)
	}
	empty := Start()
	defer empty.Close()
	if status, _, _ := ask(t, empty, "/"); status != 404 {
		t.Errorf("no answers: %d", status)
	}
}

func TestSlowReady(t *testing.T) {
	s := Start(SlowReady(40*time.Millisecond, JSON("1")))
	defer s.Close()
	if status, _, _ := ask(t, s, "/"); status != 503 {
		t.Errorf("at once: %d", status)
	}
	time.Sleep(50 * time.Millisecond)
	if status, _, _ := ask(t, s, "/"); status != 200 {
		t.Errorf("later: %d", status)
	}
}
