package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"kvladder/probes"
	"kvladder/receipts/digest"
)

// Snapshot is the text of an engine's counters that lies beside the rows of an arm.
type Snapshot struct {
	Name   string        // base name of the file
	Phase  string        // "before" or "after"
	Bytes  []byte        // as they are on disk
	Text   []byte        // unpacked
	Digest digest.Digest // of Text
	Values []probes.Value
	Start  string // when the engine's process began, RFC 3339; "" where it does not say
	Block  int    // KV block of the engine in tokens; 0 where it does not say
	Err    error  // why there is nothing to read in it
}

// Reader reads the series that have a role out of the text of the engine's counters.
type Reader func(text []byte) ([]probes.Value, error)

// Snapshots finds *metrics-NAME-pre.txt and *metrics-NAME-post.txt in a folder, plain or
// gzip, before first. A snapshot that cannot be read is kept with its error: that the
// counters are not known is a fact too.
func Snapshots(dir, name string, read Reader) ([]Snapshot, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	form := regexp.MustCompile(`(?:^|[^A-Za-z0-9])metrics-` + regexp.QuoteMeta(name) + `-(pre|post)\.txt(\.gz)?$`)
	seen := map[string]bool{}
	var out []Snapshot
	for _, e := range entries { // sorted by name: the plain text of a pair comes before its gzip
		m := form.FindStringSubmatch(e.Name())
		plain := strings.TrimSuffix(e.Name(), ".gz")
		if m == nil || e.IsDir() || seen[plain] {
			continue
		}
		seen[plain] = true
		s := Snapshot{Name: e.Name(), Phase: map[string]string{"pre": "before", "post": "after"}[m[1]]}
		s.read(filepath.Join(dir, e.Name()), read)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b Snapshot) int { return strings.Compare(b.Phase, a.Phase) })
	return out, nil
}

func (s *Snapshot) read(path string, read Reader) {
	if s.Bytes, s.Err = os.ReadFile(path); s.Err != nil {
		return
	}
	if s.Text, s.Err = unpack(s.Bytes); s.Err != nil {
		return
	}
	s.Digest = digest.Of(s.Text)
	switch {
	case isPage(s.Text):
		s.Err = fmt.Errorf("a web page and not counters")
		return
	case !utf8.Valid(s.Text):
		s.Err = fmt.Errorf("not UTF-8 text")
		return
	}
	if s.Values, s.Err = read(s.Text); s.Err != nil || len(s.Values) == 0 {
		return // a store's counters, say: its process is not the engine's
	}
	if m := startTime.FindSubmatch(s.Text); m != nil {
		if v, err := strconv.ParseFloat(string(m[1]), 64); err == nil && v > 0 && v < 1e11 {
			s.Start = time.UnixMilli(int64(v * 1000)).UTC().Format("2006-01-02T15:04:05.000Z")
		}
	}
	if m := blockSize.FindSubmatch(s.Text); m != nil {
		s.Block, _ = strconv.Atoi(string(m[1]))
	}
}

// startTime is the standard process metric of Prometheus clients, blockSize a label of
// vLLM's vllm:cache_config_info.
var (
	startTime = regexp.MustCompile(`(?m)^process_start_time_seconds(?:\{[^}]*\})? ([0-9.eE+]+)`)
	blockSize = regexp.MustCompile(`(?m)^vllm:cache_config_info\{[^\n]*[{,]block_size="([0-9]+)"`)
)
