package metrics

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"kvladder/receipts/digest"
)

// ScrapeRanks reads the metrics of servers that are the data-parallel ranks of one engine, each
// at its own address: rank k is the k-th. Every series gets the rank as its label engine, over
// the one that a server which knows of no others gives itself. The text is what was read, one
// after another, with a comment before each that says whose it is.
func ScrapeRanks(ctx context.Context, client *http.Client, urls []string) (Snapshot, error) {
	var out Snapshot
	var raw strings.Builder
	for k, url := range urls {
		s, err := Scrape(ctx, client, url)
		if err != nil {
			return out, fmt.Errorf("rank %d: %w", k, err)
		}
		fmt.Fprintf(&raw, "# rank %d\n%s", k, s.Raw)
		if !strings.HasSuffix(s.Raw, "\n") {
			raw.WriteByte('\n')
		}
		for _, one := range s.Series {
			if one.Name != "process_start_time_seconds" {
				one.Labels = strings.TrimSuffix(fmt.Sprintf("engine=\"%d\",%s", k, one.Labels), ",")
			}
			out.Series = append(out.Series, one)
		}
		out.Source = s.Source
	}
	out.Raw = raw.String()
	out.Digest = digest.Of([]byte(out.Raw))
	return out, nil
}
