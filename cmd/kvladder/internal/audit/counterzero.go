package audit

import (
	"fmt"
	"regexp"
	"strings"

	"kvladder/probes/metrics"
)

var counterZero = Lint{
	Code:  "COUNTER_ZERO",
	Title: "a load from a store is claimed and the counter of external tokens stayed at 0",
	Explain: `The arm says that it reused KV from an external store, and the engine's own counter of tokens
supplied from outside did not move over it. The path that is accused, or acquitted, did not
run: a correct reply shows nothing about it, and a wrong one has another cause. Whatever
differs between this arm and its control is still a cause, so the arm can be guilty without
the load being so.

Find out why nothing was loaded (prompts shorter than a chunk, a store that was not drained,
other cache salts) before concluding anything about loads.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, a := range e.arms() {
			if claim := a.claim(); claim != "" {
				for _, s := range snapshotPairs(e, a.name) {
					if d, ok := s.rise(externalHits); ok && d == 0 {
						out = append(out, Finding{File: s.after.Name, What: fmt.Sprintf("arm %s claims a load (%q) and the external hits rose by 0 over it", a.name, claim)})
					}
				}
			}
		}
		e.values(func(f *File, v *Value) {
			if v.Kind != Object {
				return
			}
			claim := arm{at: v, name: v.text("arm", "name"), about: v.text("arm_description", "description", "about", "claim", "path", "note")}.claim()
			if claim == "" {
				return
			}
			for _, x := range v.Items {
				if n, ok := x.integer(); ok && n == 0 && externalNames.MatchString(x.Key) {
					out = append(out, at(f, x, fmt.Sprintf("%s is 0 and a load is claimed (%q)", x.Key, claim)))
				}
			}
		})
		return out
	},
	Fires: map[string]string{
		"arms.json":            `{"arm": "warm", "description": "replay, KV retrieved from the disk store", "external_hit_tokens": 0}`,
		"arm-W.json":           `{"arm": "W", "description": "warm replay over LMCache", "rows": [{"id": "r1"}]}`,
		"metrics-W-pre.txt":    "vllm:external_prefix_cache_hits_total 0\n",
		"metrics-W-post.txt":   "vllm:external_prefix_cache_hits_total 0\n",
		"metrics-cold-pre.txt": "vllm:external_prefix_cache_hits_total 0\n",
	},
	Silent: map[string]string{
		"arm-W.json":         `{"arm": "W", "description": "warm replay over LMCache", "rows": [{"id": "r1"}]}`,
		"metrics-W-pre.txt":  "vllm:external_prefix_cache_hits_total 0\n",
		"metrics-W-post.txt": "vllm:external_prefix_cache_hits_total 17600\n",
		"off.json":           `{"name": "L0", "description": "control: warm replay, no LMCache", "external_hit_tokens": 0}`,
		"cold.json":          `{"name": "cold", "description": "store attached and empty: nothing can be loaded", "external_hit_tokens": 0}`,
	},
}

var (
	storeWords    = regexp.MustCompile(`(?i)lmcache|mooncake|nixl|\bexternal|offload|\bdisk\b|\bstore\b|\bL2\b|retriev|connector|hicache|redis`)
	loadWords     = regexp.MustCompile(`(?i)warm|retriev|re-?us(e|ing)|reload|\bload|restart|replay|\bhits?\b|fetched`)
	notLoadWords  = regexp.MustCompile(`(?i)\bno[ _-](lmcache|connector|store|reuse|offload)|=off\b|\bwithout\b|\bcold\b|cold$|\bempty\b.*\bstore|\bstore\b.*\bempty\b`)
	externalNames = regexp.MustCompile(`(?i)external.*(hit|token|load)|(retrieved|loaded|reloaded)_tokens|tokens_(retrieved|loaded)|store_hits`)
	externalHits  = regexp.MustCompile(`^(vllm:)?external_prefix_cache_hits(_total)?$`)
	localQueries  = regexp.MustCompile(`^(vllm:)?prefix_cache_queries(_total)?$`)
	promptTotal   = regexp.MustCompile(`^(vllm:)?prompt_tokens(_total)?$`)
)

// claim is what an arm says about itself when it says that it loads from a store; "" when it
// does not. An arm that starts with an empty store or has none claims nothing.
func (a arm) claim() string {
	all := a.name + " " + a.about
	if !storeWords.MatchString(all) || !loadWords.MatchString(all) || notLoadWords.MatchString(a.name) || notLoadWords.MatchString(a.about) {
		return ""
	}
	all = strings.TrimSpace(all)
	if len(all) > 60 {
		all = strings.ToValidUTF8(all[:60], "") + "…"
	}
	return all
}

// snapshots are the counters before and after an arm.
type snapshots struct{ before, after *File }

// snapshotPairs finds *metrics-NAME-pre.txt and -post.txt.
func snapshotPairs(e *Evidence, name string) []snapshots {
	var out []snapshots
	form := regexp.MustCompile(`^(.*metrics-` + regexp.QuoteMeta(name) + `-)(pre|before|post|after)(\..*)$`)
	before := map[string]*File{}
	for _, f := range e.Files {
		if m := form.FindStringSubmatch(f.Name); m != nil && (m[2] == "pre" || m[2] == "before") {
			before[m[1]] = f
		}
	}
	for _, f := range e.Files {
		if m := form.FindStringSubmatch(f.Name); m != nil && (m[2] == "post" || m[2] == "after") && before[m[1]] != nil {
			out = append(out, snapshots{before[m[1]], f})
		}
	}
	return out
}

// rise is by how much the series of a name rose, all ranks together; false when either side
// lacks it or it fell: a process that began again counts from 0.
func (s snapshots) rise(name *regexp.Regexp) (float64, bool) {
	sum := func(series []metrics.Series) (v float64, n int) {
		for _, x := range series {
			if name.MatchString(x.Name) {
				v += x.Value
				n++
			}
		}
		return v, n
	}
	a, na := sum(s.before.Series)
	b, nb := sum(s.after.Series)
	return b - a, na > 0 && na == nb && b >= a
}
