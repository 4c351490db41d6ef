package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
)

// wire carries one request: it stands where go-openai expects an HTTP client, replaces the
// request that was built there by the frozen one, and records what comes back.
type wire struct {
	client     *Client
	request    Request
	url        string // of the server, without a path
	body       []byte // as it is sent
	pinned     bool   // body is not the frozen one: it names a rank
	rankHeader string

	response    *http.Response
	rec         *recorder
	status      int
	contentType string
	firstByte   int64
	firstToken  int64
	truncated   bool
	err         error
}

// target is the URL of the request.
func (w *wire) target() string { return strings.TrimRight(w.url, "/") + w.request.Path }

// Do implements openai.HTTPDoer.
func (w *wire) Do(req *http.Request) (*http.Response, error) {
	u, err := req.URL.Parse(w.target())
	if err != nil {
		return nil, err
	}
	var first atomic.Int64
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotFirstResponseByte: func() { first.CompareAndSwap(0, w.client.now()) },
	})
	req = req.Clone(ctx)
	req.URL, req.Host = u, u.Host
	req.ContentLength = int64(len(w.body))
	req.TransferEncoding = nil
	req.Body = io.NopCloser(bytes.NewReader(w.body))
	// A connection that died while idle is replaced, before any byte was sent on it.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(w.body)), nil }
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Accept-Encoding", "identity") // raw bytes are the ones that were sent
	req.Header.Del("Connection")
	for name, v := range w.request.Header {
		req.Header.Set(name, v)
	}
	if w.request.RequestID != "" {
		req.Header.Set("X-Request-Id", w.request.RequestID)
	}
	if w.rankHeader != "" {
		req.Header.Set(w.rankHeader, strconv.Itoa(*w.request.Rank))
	}
	resp, err := w.client.http.Do(req)
	if err != nil {
		return nil, err
	}
	w.response = resp
	w.status = resp.StatusCode
	w.contentType = resp.Header.Get("Content-Type")
	if w.firstByte = first.Load(); w.firstByte == 0 {
		w.firstByte = w.client.now()
	}
	w.rec = &recorder{w: w, r: resp.Body, limit: w.client.Limit}
	if w.rec.limit <= 0 {
		w.rec.limit = defaultLimit
	}
	if n := resp.ContentLength; n > 0 && n <= w.rec.limit {
		w.rec.buf.Grow(int(n) + bytes.MinRead)
	}
	out := *resp
	out.Body = struct {
		io.Reader
		io.Closer
	}{w.rec, io.NopCloser(nil)} // drain closes it
	return &out, nil
}

// drain reads the rest of the reply and returns all of it.
func (w *wire) drain(err error) []byte {
	if w.response == nil {
		w.err = err
		return nil
	}
	defer w.response.Body.Close()
	_, err = io.Copy(io.Discard, w.rec)
	if w.rec.failed != nil {
		err = w.rec.failed // go-openai may have met it first
	}
	if err != nil {
		w.err = err
		w.truncated = true
		if errors.Is(err, io.ErrUnexpectedEOF) {
			what := "the end of the stream"
			if n := w.response.ContentLength; n >= 0 {
				what = fmt.Sprintf("%d bytes, as announced", n)
			}
			w.err = fmt.Errorf("the reply was cut after %d bytes, before %s: %w", w.rec.buf.Len(), what, err)
		}
	}
	return w.rec.buf.Bytes()
}

// recorder keeps what is read through it, up to a limit, and notes when the first token
// of a stream came.
type recorder struct {
	w      *wire
	r      io.Reader
	buf    bytes.Buffer
	limit  int64
	failed error // nil until a read failed for another reason than the end

	scanned int  // bytes of buf searched for the first token
	settled bool // it was found, or there is none to find
}

func (r *recorder) Read(p []byte) (int, error) {
	if r.failed != nil {
		return 0, r.failed
	}
	n, err := r.r.Read(p)
	if n > 0 {
		at := r.w.client.now()
		if int64(r.buf.Len()+n) > r.limit {
			n = int(r.limit) - r.buf.Len()
			err = fmt.Errorf("the reply is longer than %d bytes: it was not read further", r.limit)
		}
		r.buf.Write(p[:n])
		r.scan(at)
	}
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return n, err
}

// scan looks for the first event that brings a token, in whole lines only.
func (r *recorder) scan(at int64) {
	if r.settled {
		return
	}
	b := r.buf.Bytes()
	if r.scanned == 0 && !isStream(bytes.TrimLeft(b, " \t\r\n\ufeff")) {
		r.settled = len(b) > 16
		return
	}
	for {
		i := bytes.IndexByte(b[r.scanned:], '\n')
		if i < 0 {
			return
		}
		line := b[r.scanned : r.scanned+i]
		r.scanned += i + 1
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		var c chunk
		if unmarshal(data, &c) == nil && c.hasToken() {
			r.w.firstToken, r.settled = at, true
			return
		}
	}
}

// insert puts one more member at the end of a JSON object and leaves every other byte as
// it is.
func insert(body []byte, name, value string) ([]byte, error) {
	end := len(bytes.TrimRight(body, " \t\r\n"))
	if end == 0 || body[end-1] != '}' {
		return nil, fmt.Errorf("the body is not a JSON object: member %q cannot be added to it", name)
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(body, quoted) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			return nil, fmt.Errorf("the body is not a JSON object: %w", err)
		}
		if _, has := members[name]; has {
			return nil, fmt.Errorf("the frozen body names %q already: freeze it without, or ask for no rank", name)
		}
	}
	head := body[:end-1]
	out := make([]byte, 0, len(body)+len(quoted)+len(value)+2)
	out = append(out, head...)
	if t := bytes.TrimRight(head, " \t\r\n"); len(t) > 0 && t[len(t)-1] != '{' {
		out = append(out, ',')
	}
	out = append(out, quoted...)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, body[end-1:]...), nil
}
