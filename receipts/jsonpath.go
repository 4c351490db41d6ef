package receipts

import (
	"encoding/json"
	"fmt"
	"strings"

	"kvladder/receipts/digest"
)

// differences lists the first few members in which two values differ, as a sentence for
// people: "arms[COLD].failed is 0, recomputed 7".
func differences(sealed, recomputed any) string {
	a, err1 := tree(sealed)
	b, err2 := tree(recomputed)
	if err1 != nil || err2 != nil {
		return "one of them has no JSON form"
	}
	var out []string
	compareTrees("", a, b, &out)
	const most = 5
	if len(out) == 0 {
		return "the same members in another form"
	}
	more := ""
	if len(out) > most {
		more = fmt.Sprintf("; and %d more", len(out)-most)
		out = out[:most]
	}
	return strings.Join(out, "; ") + more
}

func tree(v any) (any, error) {
	b, err := digest.Canonical(v)
	if err != nil {
		return nil, err
	}
	var t any
	return t, json.Unmarshal(b, &t)
}

func compareTrees(path string, a, b any, out *[]string) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for _, k := range union(x, y) {
			compareTrees(strings.TrimPrefix(path+"."+k, "."), x[k], y[k], out)
		}
		return
	case []any:
		y, ok := b.([]any)
		if !ok {
			break
		}
		xs, keyed1 := byKey(x)
		ys, keyed2 := byKey(y)
		if keyed1 && keyed2 && len(x)+len(y) > 0 {
			before := len(*out)
			for _, k := range union(xs, ys) {
				compareTrees(path+"["+k+"]", xs[k], ys[k], out)
			}
			if before == len(*out) && full(a) != full(b) {
				*out = append(*out, orRoot(path)+" has another order")
			}
			return
		}
		if len(x) == len(y) {
			for i := range x {
				compareTrees(fmt.Sprintf("%s[%d]", path, i), x[i], y[i], out)
			}
			return
		}
	}
	if full(a) != full(b) {
		*out = append(*out, fmt.Sprintf("%s is %s, recomputed %s", orRoot(path), brief(a), brief(b)))
	}
}

// byKey names the objects of a list by the member that identifies them.
func byKey(list []any) (map[string]any, bool) {
	out := map[string]any{}
	for _, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		var parts []string
		for _, k := range []string{"arm", "name", "member", "id"} {
			if s, ok := m[k].(string); ok {
				parts = append(parts, s)
			}
		}
		key := strings.Join(parts, ".")
		if _, twice := out[key]; twice || key == "" {
			return nil, false
		}
		out[key] = v
	}
	return out, true
}

func full(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func brief(v any) string {
	s := full(v)
	if r := []rune(s); len(r) > 80 {
		return string(r[:77]) + "..."
	}
	return s
}

func orRoot(path string) string {
	if path == "" {
		return "the whole"
	}
	return path
}

func union[V any](ms ...map[string]V) []string {
	seen := map[string]bool{}
	for _, m := range ms {
		for k := range m {
			seen[k] = true
		}
	}
	return sortedKeys(seen)
}
