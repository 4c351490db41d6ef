package metrics

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kvladder/probes"
)

// Select picks the values of roles. roles maps a role (probes.LocalHits and the like) to
// the series that plays it:
//
//	vllm:prefix_cache_hits
//	vllm:prompt_tokens_by_source{source="local_compute"}
//
// A name matches with and without _total, the exact one first: Prometheus's Python client
// adds it to every counter. Labels in braces must be equal; series that differ in other
// labels are added up, one Value per data-parallel rank (the label engine, or dp_rank in
// SGLang). Histograms, summaries and *_created are not counts, and a role whose series is
// absent has no Value. A series that is there and holds no count (NaN, an infinity, a
// negative number) gives a Value that is Bad; of roles that are read for their newest value
// alone (gauges, what was stored and loaded) it is left out.
//
// Where any role was found, process_start_time_seconds is added as probes.ProcessStart: a
// scrape that came from another process than the one before it shows there.
//
// The result is sorted by role and rank. The error names a role whose series is not
// written as above.
func Select(s Snapshot, roles map[string]string) ([]probes.Value, error) {
	if len(roles) == 0 {
		return nil, nil
	}
	type spec struct {
		role, name, alt string
		labels          []label
		filter          string
		out             map[string]*probes.Value
		exact           bool
	}
	specs := make([]*spec, 0, len(roles))
	for role, text := range roles {
		name, labels, filter, err := parseSpec(text)
		if err != nil {
			return nil, fmt.Errorf("metrics: role %s: %w", role, err)
		}
		alt, cut := strings.CutSuffix(name, "_total")
		if !cut {
			alt = name + "_total"
		}
		specs = append(specs, &spec{role: role, name: name, alt: alt, labels: labels, filter: filter, out: map[string]*probes.Value{}})
	}
	byName := map[string][]*spec{}
	for _, p := range specs {
		byName[p.name] = append(byName[p.name], p)
		byName[p.alt] = append(byName[p.alt], p)
	}
	for _, one := range s.Series {
		ps := byName[one.Name]
		if len(ps) == 0 || !one.counts() {
			continue
		}
		for _, p := range ps {
			bad := noCount(p.role, one.Value)
			if !one.has(p.labels) || bad && leftOut(p.role) {
				continue
			}
			switch exact := one.Name == p.name; {
			case exact && !p.exact:
				clear(p.out) // what the other spelling gave
				p.exact = true
			case !exact && p.exact:
				continue
			}
			rank := one.rank()
			v := p.out[rank]
			if v == nil {
				v = &probes.Value{Role: p.role, Series: one.Name + p.filter, Rank: rank}
				p.out[rank] = v
			}
			switch {
			case v.Bad != "":
			case bad:
				v.Value, v.Bad = 0, strconv.FormatFloat(one.Value, 'g', -1, 64)
			default:
				v.Value += one.Value
			}
		}
	}
	var out []probes.Value
	for _, p := range specs {
		for _, v := range p.out {
			out = append(out, *v)
		}
	}
	if v, ok := processStart(s); ok && len(out) > 0 {
		if _, asked := roles[probes.ProcessStart]; !asked {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b probes.Value) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), compareRanks(a.Rank, b.Rank))
	})
	return out, nil
}

// counts reports whether the series can be read as a count.
func (s Series) counts() bool {
	if s.Type == "histogram" || s.Type == "summary" || s.Type == "gaugehistogram" {
		return false
	}
	return !strings.HasSuffix(s.Name, "_created")
}

// noCount says whether v is no number that the role can have; a checksum may be negative.
func noCount(role string, v float64) bool {
	return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && role != probes.NullBlock
}

// leftOut says whether a role is read for its newest value alone: there, what is no number
// is as good as absent.
func leftOut(role string) bool {
	switch role {
	case probes.Running, probes.NullBlock, probes.StoredChunks, probes.StoredBytes, probes.LoadedBytes:
		return true
	}
	return false
}

// processStart is the start time that Prometheus's clients export of their own process;
// several of them are added up, since only a change is of interest.
func processStart(s Snapshot) (probes.Value, bool) {
	const name = "process_start_time_seconds"
	v, found := probes.Value{Role: probes.ProcessStart, Series: name}, false
	for _, one := range s.Series {
		if one.Name == name && one.Value > 0 && !math.IsInf(one.Value, 0) {
			v.Value, found = v.Value+one.Value, true
		}
	}
	return v, found
}

func (s Series) rank() string {
	if r, ok := s.Label("engine"); ok {
		return r
	}
	r, _ := s.Label("dp_rank")
	return r
}

func (s Series) has(want []label) bool {
	for _, w := range want {
		if v, ok := s.Label(w.name); !ok || v != w.value {
			return false
		}
	}
	return true
}

type label struct{ name, value string }

// parseSpec reads NAME or NAME{label="value",…}.
func parseSpec(text string) (name string, labels []label, filter string, err error) {
	bad := fmt.Errorf("series %q is not written as name or name{label=\"value\"}", text)
	name, rest, braced := strings.Cut(strings.TrimSpace(text), "{")
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return "", nil, "", bad
		}
	}
	if name == "" {
		return "", nil, "", bad
	}
	if !braced {
		return name, nil, "", nil
	}
	inner, ok := strings.CutSuffix(rest, "}")
	if !ok {
		return "", nil, "", bad
	}
	for inner = trim(inner); inner != ""; {
		var l label
		if l.name, l.value, inner, ok = nextLabel(inner); !ok {
			return "", nil, "", bad
		}
		labels = append(labels, l)
	}
	return name, labels, "{" + rest, nil
}

// compareRanks puts rank 2 before rank 10.
func compareRanks(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// Delta lays two selections side by side: one Counter for each role and rank that either
// has, absent where one has not. A series that first appears in after has no Before: it
// is not known to have begun at zero. A value that is Bad is no number either, and its
// Counter shows that the series was there.
func Delta(before, after []probes.Value) []probes.Counter {
	type key struct{ role, rank string }
	at := map[key]*probes.Counter{}
	for i, vs := range [][]probes.Value{before, after} {
		for _, v := range vs {
			k := key{v.Role, v.Rank}
			c := at[k]
			if c == nil {
				c = &probes.Counter{Role: v.Role, Series: v.Series, Rank: v.Rank}
				at[k] = c
			}
			n := v.Value
			if v.Bad != "" {
				continue
			}
			if i == 0 {
				c.Before = &n
			} else {
				c.After = &n
			}
		}
	}
	out := make([]probes.Counter, 0, len(at))
	for _, c := range at {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b probes.Counter) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), compareRanks(a.Rank, b.Rank))
	})
	return out
}
