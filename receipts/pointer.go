package receipts

import (
	"fmt"
	"strconv"
	"strings"
)

// Edit is one operation on a JSON document, in the form of RFC 6902: "add", "remove" or
// "replace" at a JSON Pointer (RFC 6901). Old is what stood there, so that an edit can be
// read, and refused, without the document.
type Edit struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Old   any    `json:"old,omitempty"`
	Value any    `json:"value,omitempty"`
}

// edits finds what makes b of a, two trees as encoding/json decodes them. Objects are
// entered, lists of one length too; a list of another length is replaced as a whole.
func edits(path string, a, b any) []Edit {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		var out []Edit
		for _, k := range union(x, y) {
			v, inA := x[k]
			w, inB := y[k]
			at := path + "/" + escapePointer(k)
			switch {
			case !inB:
				out = append(out, Edit{Op: "remove", Path: at, Old: v})
			case !inA:
				out = append(out, Edit{Op: "add", Path: at, Value: w})
			default:
				out = append(out, edits(at, v, w)...)
			}
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		var out []Edit
		for i := range x {
			out = append(out, edits(path+"/"+strconv.Itoa(i), x[i], y[i])...)
		}
		return out
	}
	if full(a) == full(b) {
		return nil
	}
	return []Edit{{Op: "replace", Path: path, Old: a, Value: b}}
}

// apply makes the edits on a tree, in their order, and returns the tree. An edit that does
// not find what it says stood there is an error: it was written for another document.
func apply(tree any, es []Edit) (any, error) {
	for _, e := range es {
		var err error
		if tree, err = applyOne(tree, pointer(e.Path), e); err != nil {
			return nil, fmt.Errorf("edit of %q: %w", e.Path, err)
		}
	}
	return tree, nil
}

func applyOne(tree any, path []string, e Edit) (any, error) {
	if len(path) == 0 {
		if e.Op != "replace" || full(tree) != full(e.Old) {
			return nil, fmt.Errorf("%s does not fit what stands there: %s", e.Op, brief(tree))
		}
		return e.Value, nil
	}
	switch x := tree.(type) {
	case map[string]any:
		v, ok := x[path[0]]
		if len(path) == 1 && e.Op == "add" {
			if ok {
				return nil, fmt.Errorf("there is such a member already")
			}
			x[path[0]] = e.Value
			return x, nil
		}
		if !ok {
			return nil, fmt.Errorf("there is no member %q", path[0])
		}
		if len(path) == 1 && e.Op == "remove" {
			if full(v) != full(e.Old) {
				return nil, fmt.Errorf("another value stands there: %s", brief(v))
			}
			delete(x, path[0])
			return x, nil
		}
		w, err := applyOne(v, path[1:], e)
		if err != nil {
			return nil, err
		}
		x[path[0]] = w
		return x, nil
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(x) || strconv.Itoa(i) != path[0] {
			return nil, fmt.Errorf("the list has no element %q", path[0])
		}
		w, err := applyOne(x[i], path[1:], e)
		if err != nil {
			return nil, err
		}
		x[i] = w
		return x, nil
	}
	return nil, fmt.Errorf("%s has no member %q", brief(tree), path[0])
}

// pointer splits a JSON Pointer into its unescaped parts.
func pointer(path string) []string {
	if path == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}
