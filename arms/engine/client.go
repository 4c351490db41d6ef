package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"kvladder/probes"
)

// most is how much of an answer is read: these are questions with small answers.
const most = 8 << 20

// ask sends one request and returns the body of a 200. Any other status is an error with
// the server's own words. A nil body is a GET.
func ask(ctx context.Context, e probes.Endpoint, path string, body any) ([]byte, error) {
	method, r := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		method, r = http.MethodPost, bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(e.URL, "/")+path, r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.APIKey)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{method: method, path: path, status: resp.StatusCode, says: words(b)}
	}
	return b, nil
}

// statusError is an answer with a status other than 200.
type statusError struct {
	method, path string
	status       int
	says         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %s", e.method, e.path, e.status, e.says)
}

// askJSON decodes the answer into v; numbers keep their text where v says `any`.
func askJSON(ctx context.Context, e probes.Endpoint, path string, body, v any) error {
	b, err := ask(ctx, e, path, body)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s: not the JSON that was expected: %w", path, err)
	}
	return nil
}

// words is what a server says in an error body: its message where it is the JSON that
// OpenAI-like servers send, else its text, cut.
func words(b []byte) string {
	var m struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &m) == nil && m.Error.Message != "" {
		return m.Error.Message
	}
	s := strings.TrimSpace(string(b))
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return s
}
