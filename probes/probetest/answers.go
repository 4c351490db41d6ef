package probetest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Completion is a small well-formed reply of /v1/completions by the given model.
func Completion(model, text string) string {
	return fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","model":%q,"choices":[{"index":0,"text":%q,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`, model, text)
}

// Events is the same reply as a stream: one event per part of the text, the usage, and
// the end.
func Events(model string, parts ...string) []string {
	var out []string
	for i, p := range parts {
		finish := "null"
		if i == len(parts)-1 {
			finish = `"stop"`
		}
		out = append(out, fmt.Sprintf(`data: {"model":%q,"choices":[{"index":0,"text":%q,"finish_reason":%s}]}`+"\n\n", model, p, finish))
	}
	return append(out,
		fmt.Sprintf(`data: {"model":%q,"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`+"\n\n", model, len(parts)),
		"data: [DONE]\n\n")
}

// Body answers 200 with a body of the given content type.
func Body(contentType, body string) Answer { return Status(http.StatusOK, contentType, body) }

// JSON answers 200 with a JSON body.
func JSON(body string) Answer { return Body("application/json", body) }

// Status answers with any status; 500 and 503 are the usual ones.
func Status(code int, contentType, body string) Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ Seen) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(code)
		w.Write([]byte(body))
	}
}

// WrongModel is a well-formed reply of a model that nobody asked for.
func WrongModel() Answer { return JSON(Completion("some-other-model", "x")) }

// HTML is what a proxy in the way answers: a page, with status 200.
func HTML() Answer {
	return Body("text/html; charset=utf-8", "<!doctype html><html><body>sign in</body></html>")
}

// Empty is 200 with nothing in it.
func Empty() Answer { return JSON("") }

// Stream sends events, waiting before each of them as long as wait says (nil: not at all).
func Stream(events []string, wait func() time.Duration) Answer {
	return func(w http.ResponseWriter, r *http.Request, _ Seen) {
		stream(w, r, events, wait)
	}
}

func stream(w http.ResponseWriter, r *http.Request, events []string, wait func() time.Duration) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if wait != nil && !sleep(r, wait()) {
			return
		}
		w.Write([]byte(e))
		w.(http.Flusher).Flush()
	}
}

// Jitter draws waits between 0 and bound from a seed.
func Jitter(bound time.Duration, seed uint64) func() time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(bound) + 1))
	}
}

// CutStream sends the first n bytes of the events and then drops the connection.
func CutStream(events []string, n int) Answer {
	return func(w http.ResponseWriter, r *http.Request, _ Seen) {
		all := strings.Join(events, "")
		stream(w, r, []string{all[:min(n, len(all))]}, nil)
		drop(w)
	}
}

// EndStream sends the first n bytes of the events and then ends the reply in good order,
// as an engine does whose stream stops without its last event.
func EndStream(events []string, n int) Answer {
	return func(w http.ResponseWriter, r *http.Request, _ Seen) {
		all := strings.Join(events, "")
		stream(w, r, []string{all[:min(n, len(all))]}, nil)
	}
}

// CutBody promises all of body, sends n bytes of it and drops the connection.
func CutBody(body string, n int) Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ Seen) {
		raw(w, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:n]))
	}
}

// WrongLength sends all of body under a Content-Length that is off by so many bytes.
func WrongLength(body string, off int) Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ Seen) {
		raw(w, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body)+off, body))
	}
}

// Drop closes the connection without an answer.
func Drop() Answer {
	return func(w http.ResponseWriter, _ *http.Request, _ Seen) { drop(w) }
}

// Hang takes the request and says nothing until the client leaves.
func Hang() Answer {
	return func(_ http.ResponseWriter, r *http.Request, _ Seen) { <-r.Context().Done() }
}

// After waits before it answers as next does.
func After(d time.Duration, next Answer) Answer {
	return func(w http.ResponseWriter, r *http.Request, s Seen) {
		if sleep(r, d) {
			next(w, r, s)
		}
	}
}

// SlowReady answers 503 until d has passed since the first request, then as next does.
func SlowReady(d time.Duration, next Answer) Answer {
	var once sync.Once
	var first time.Time
	return func(w http.ResponseWriter, r *http.Request, s Seen) {
		once.Do(func() { first = time.Now() })
		if time.Since(first) < d {
			Status(http.StatusServiceUnavailable, "application/json", `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)(w, r, s)
			return
		}
		next(w, r, s)
	}
}

func sleep(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// raw writes bytes to the connection without the server's help and closes it.
func raw(w http.ResponseWriter, s string) {
	c, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	buf.WriteString(s)
	buf.Flush()
}

// drop closes the connection under a reply that is not finished.
func drop(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		c.Close()
	}
}
