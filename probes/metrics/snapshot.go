// Package metrics reads what an engine counts: its Prometheus text, before and after
// something happened.
//
//  1. Scrape, or ParseSnapshotFile for a scrape that somebody else kept, gives a Snapshot.
//  2. Select picks the series that play a role, under whichever name the engine has them.
//  3. Delta lays two selections side by side.
//
// A series that is not there stays absent: an engine that does not count something has not
// counted zero of it.
package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"kvladder/probes"
	"kvladder/receipts/digest"
)

// Snapshot is one reading of an engine's metrics.
type Snapshot struct {
	Source string // URL path, or name of the file
	Raw    string // as it was read
	Digest digest.Digest
	Series []Series // in the order of the text
}

// limit bounds a snapshot; the largest seen are 100 KB.
const limit = 64 << 20

// Scrape reads the metrics at url. With an error the Snapshot still holds what was read.
func Scrape(ctx context.Context, client *http.Client, url string) (Snapshot, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Snapshot{}, fmt.Errorf("metrics: %w", err)
	}
	s := Snapshot{Source: req.URL.Path}
	// The version that every engine's exporter knows; without it some answer in a format
	// of their own choice.
	req.Header.Set("Accept", "text/plain; version=0.0.4")
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, fmt.Errorf("metrics: %w", err)
	}
	defer resp.Body.Close()
	b, err := readAll(resp.Body, resp.ContentLength)
	if err != nil {
		return s, fmt.Errorf("metrics: %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("metrics: %s: HTTP %d: is the engine started with its metrics on?", url, resp.StatusCode)
	}
	return parse(s, url, b)
}

func readAll(r io.Reader, size int64) (string, error) {
	var buf strings.Builder
	if size > 0 && size <= limit {
		buf.Grow(int(size))
	}
	n, err := io.Copy(&buf, io.LimitReader(r, limit+1))
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("longer than %d bytes", limit)
	}
	return buf.String(), nil
}

// ParseSnapshotFile reads a kept scrape, compressed where its name ends in .gz.
func ParseSnapshotFile(path string) (Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("metrics: %w", err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return Snapshot{}, fmt.Errorf("metrics: %s: %w", path, err)
		}
		r = z
	}
	b, err := readAll(r, 0)
	if err != nil {
		return Snapshot{}, fmt.Errorf("metrics: %s: %w", path, err)
	}
	return parse(Snapshot{Source: filepath.Base(path)}, path, b)
}

func parse(s Snapshot, name, text string) (Snapshot, error) {
	s.Digest = digest.Of([]byte(text))
	if !utf8.ValidString(text) {
		return s, fmt.Errorf("metrics: %s: not text: a byte is not UTF-8", name)
	}
	s.Raw = text
	var err error
	if s.Series, err = Parse(s.Raw); err != nil {
		return s, fmt.Errorf("metrics: %s:%w", name, err)
	}
	if len(s.Series) == 0 {
		return s, fmt.Errorf("metrics: %s: %w", name, errNone)
	}
	return s, nil
}

var errNone = errors.New("there is no series in it")

// Sample makes a record of the snapshot: its text, and the values that play a role. err is
// what Scrape returned with it; a scrape that failed is a fact too.
func (s Snapshot) Sample(phase string, pass int, roles map[string]string, err error) probes.Sample {
	out := probes.Sample{Phase: phase, Pass: pass, Source: s.Source, Digest: s.Digest, Raw: s.Raw}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	if out.Values, err = Select(s, roles); err != nil {
		out.Error = err.Error()
	}
	return out
}
