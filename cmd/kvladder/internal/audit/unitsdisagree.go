package audit

import (
	"fmt"
	"math"
	"regexp"
)

var unitsDisagree = Lint{
	Code:  "UNITS_DISAGREE",
	Title: "counters that are to count the same tokens and do not",
	Explain: `An engine asks its local cache once about every token of a prompt. Where the queries over a
request are not its prompt tokens (within 5 %), they are of something else: several engines
behind one address, requests of somebody else, a request that was preempted and asked again,
a load that was tried over and over. Hits cannot exceed queries, and cached tokens cannot
exceed the prompt.

A hit rate from such counters is no hit rate. Find the request that was counted along, or
ask for counters by request.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			if v.Kind != Object || v.Parent != nil && v.Parent.count(promptNames) != nil {
				return // what is said of its parts is said of the whole
			}
			tokens := v.count(promptNames)
			if tokens == nil {
				return
			}
			if scope := v.text("metric_delta_scope"); scope != "" && scope != "this request" {
				return
			}
			q, h, c := v.count(queryNames), v.count(hitNames), v.count(cachedNames)
			switch {
			case q != nil && tokens.Num > 0 && math.Abs(q.Num/tokens.Num-1) > 0.05:
				out = append(out, at(f, v, fmt.Sprintf("%s%s is %.0f and %s is %.0f: %.3g times as many", named(v), q.Key, q.Num, tokens.Key, tokens.Num, q.Num/tokens.Num)))
			case q != nil && h != nil && h.Num > q.Num:
				out = append(out, at(f, v, fmt.Sprintf("%s%s is %.0f and %s only %.0f", named(v), h.Key, h.Num, q.Key, q.Num)))
			case c != nil && c.Num > tokens.Num:
				out = append(out, at(f, v, fmt.Sprintf("%s%s is %.0f and %s only %.0f", named(v), c.Key, c.Num, tokens.Key, tokens.Num)))
			}
		})
		for _, a := range e.arms() {
			for _, s := range snapshotPairs(e, a.name) {
				q, ok := s.rise(localQueries)
				t, ok2 := s.rise(promptTotal)
				if ok && ok2 && t > 0 && q > 0 && math.Abs(q/t-1) > 0.05 {
					out = append(out, Finding{File: s.after.Name, What: fmt.Sprintf("over arm %s the prefix cache queries rose by %.0f and the prompt tokens by %.0f: %.3g times as many", a.name, q, t, q/t)})
				}
			}
		}
		return out
	},
	Fires: map[string]string{"rows.json": `{"rows": [
		{"request_id": "p1", "prompt_tokens": 3170, "metric_delta": {"prefix_cache_queries": 47550.0, "prefix_cache_hits": 0.0}},
		{"request_id": "p2", "prompt_tokens": 100, "prefix_cache_queries": 100, "prefix_cache_hits": 160},
		{"request_id": "p3", "usage": {"prompt_tokens": 100, "cached_tokens": 160}}]}`},
	Silent: map[string]string{"rows.json": `{"rows": [
		{"request_id": "p1", "prompt_tokens": 3170, "metric_delta": {"prefix_cache_queries": 3170.0, "external_prefix_cache_queries": 10.0, "prefix_cache_hits": 1600}},
		{"request_id": "p2", "prompt_tokens": 3170, "metric_delta_scope": "whole arm", "metric_delta": {"prefix_cache_queries": 47550.0}},
		{"request_id": "p3", "usage": {"prompt_tokens": 100, "cached_tokens": 64}}]}`},
}

var (
	promptNames = regexp.MustCompile(`^(num_)?prompt_tokens(_total)?$`)
	queryNames  = regexp.MustCompile(`^(local_|gpu_)?prefix_cache_queries(_total)?$|^local_queries$`)
	hitNames    = regexp.MustCompile(`^(local_|gpu_)?prefix_cache_hits(_total)?$|^local_hits$`)
	cachedNames = regexp.MustCompile(`^(num_)?cached_tokens$`)
)

// count finds a whole number by its name in an object or the objects in it.
func (v *Value) count(name *regexp.Regexp) *Value {
	if v.Kind != Object {
		return nil
	}
	for _, x := range v.Items {
		if _, ok := x.integer(); ok && name.MatchString(x.Key) {
			return x
		}
	}
	for _, x := range v.Items {
		if x.Kind != Object {
			continue
		}
		for _, y := range x.Items {
			if _, ok := y.integer(); ok && name.MatchString(y.Key) {
				return y
			}
		}
	}
	return nil
}

func named(v *Value) string {
	if id := v.text("request_id", "id", "prompt_id", "arm", "name"); id != "" {
		return id + ": "
	}
	return ""
}
