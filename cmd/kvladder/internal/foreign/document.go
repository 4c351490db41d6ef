package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// node is one JSON value as it was written. fixed has the length of raw, with a number in
// the place of each literal that JSON does not have, so that both are cut at the same places.
type node struct {
	raw, fixed []byte
}

// member is one name and value of an object.
type member struct {
	name  string
	value node
}

// nonFinite are the literals of Python's json module and the number of the same length that
// stands in for each.
var nonFinite = []struct{ literal, number string }{
	{"NaN", "0.0"},
	{"-Infinity", "-0.000000"},
	{"Infinity", "0.000000"},
}

// parse reads one document, or several one after another (one a line): these come back as a
// list of their own.
func parse(b []byte) ([]node, error) {
	b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\ufeff")))
	fixed := replaceNonFinite(b)
	dec := json.NewDecoder(bytes.NewReader(fixed))
	var out []node
	for {
		var m json.RawMessage
		err := dec.Decode(&m)
		end := int(dec.InputOffset())
		switch {
		case err == nil:
			out = append(out, node{b[end-len(m) : end], fixed[end-len(m) : end]})
			continue
		case len(bytes.TrimSpace(fixed[min(end, len(fixed)):])) == 0 && len(out) > 0:
			return out, nil
		}
		var se *json.SyntaxError
		at := end
		if errors.As(err, &se) {
			at = int(se.Offset)
		}
		line := 1 + bytes.Count(b[:min(max(at-1, 0), len(b))], []byte("\n"))
		return nil, fmt.Errorf("line %d: not JSON: %w", line, err)
	}
}

func replaceNonFinite(b []byte) []byte {
	out := b
	inText := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == 'N' || c == 'I' || c == '-'):
			for _, nf := range nonFinite {
				if !bytes.HasPrefix(b[i:], []byte(nf.literal)) {
					continue
				}
				if end := i + len(nf.literal); end < len(b) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(b[end])) {
					continue
				}
				if &out[0] == &b[0] {
					out = bytes.Clone(b)
				}
				copy(out[i:], nf.number)
				i += len(nf.literal) - 1
				break
			}
		}
	}
	return out
}

func (n node) is(c byte) bool { return len(n.fixed) > 0 && n.fixed[0] == c }

func (n node) isObject() bool { return n.is('{') }
func (n node) isList() bool   { return n.is('[') }
func (n node) isText() bool   { return n.is('"') }
func (n node) isNull() bool   { return len(n.fixed) == 0 || n.is('n') }

// members of an object, in the order they are written; none of any other value. A name that
// is there twice is an error: which of the two is meant cannot be known.
func (n node) members() ([]member, error) {
	if !n.isObject() {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(n.fixed))
	dec.Token()
	var out []member
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		if seen[name] {
			return nil, fmt.Errorf("member %q is there twice", name)
		}
		seen[name] = true
		v, err := n.next(dec)
		if err != nil {
			return nil, err
		}
		out = append(out, member{name, v})
	}
	return out, nil
}

// elements of a list; none of any other value.
func (n node) elements() ([]node, error) {
	if !n.isList() {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(n.fixed))
	dec.Token()
	var out []node
	for dec.More() {
		v, err := n.next(dec)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// next cuts the decoder's next value out of n.
func (n node) next(dec *json.Decoder) (node, error) {
	var m json.RawMessage
	if err := dec.Decode(&m); err != nil {
		return node{}, err
	}
	end := int(dec.InputOffset())
	return node{n.raw[end-len(m) : end], n.fixed[end-len(m) : end]}, nil
}

// text of a string.
func (n node) text() (string, bool) {
	if !n.isText() {
		return "", false
	}
	var s string
	err := json.Unmarshal(n.fixed, &s)
	return s, err == nil
}

// number of a number: finite says whether it is one, ok whether a number was meant.
func (n node) number() (v float64, finite, ok bool) {
	if len(n.raw) == 0 || n.is('"') || n.is('{') || n.is('[') || n.is('t') || n.is('f') || n.is('n') {
		return 0, false, false
	}
	for _, nf := range nonFinite {
		if string(n.raw) == nf.literal {
			return 0, false, true
		}
	}
	v, err := strconv.ParseFloat(string(n.raw), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, false, true // beyond a double: no number that can be reckoned with
	}
	return v, true, true
}

// object indexes the members of an object.
type object map[string]node

func (n node) object() (object, error) {
	ms, err := n.members()
	if err != nil {
		return nil, err
	}
	o := make(object, len(ms))
	for _, m := range ms {
		o[m.name] = m.value
	}
	return o, nil
}

// first is the first of the names that is there and not null.
func (o object) first(names ...string) (node, bool) {
	for _, name := range names {
		if v, ok := o[name]; ok && !v.isNull() {
			return v, true
		}
	}
	return node{}, false
}

// word is the first of the names that holds a text, or a number, as text.
func (o object) word(names ...string) string {
	v, ok := o.first(names...)
	if !ok {
		return ""
	}
	if s, ok := v.text(); ok {
		return s
	}
	if _, finite, _ := v.number(); finite {
		return string(v.raw)
	}
	return ""
}

// count is the first of the names that holds a whole number that is not negative.
func (o object) count(names ...string) *int {
	v, ok := o.first(names...)
	if !ok {
		return nil
	}
	f, finite, _ := v.number()
	if !finite || f < 0 || f != math.Trunc(f) || f > math.MaxInt32 {
		return nil
	}
	i := int(f)
	return &i
}
