package audit

import (
	"fmt"
	"math"
	"strings"
)

// Kind of a Value.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Object
)

// Value is one value of a document, with its place.
type Value struct {
	Kind  Kind
	Bool  bool
	Line  int32
	Index int32   // its place in the list that holds it
	Num   float64 // NaN and the infinities too
	Text  string
	Items []*Value // of a list, or of an object

	Key    string // its name in the object that holds it, "" in a list
	Parent *Value
}

// get finds a member by its exact name; nil when there is none.
func (v *Value) get(name string) *Value {
	if v == nil || v.Kind != Object {
		return nil
	}
	for _, x := range v.Items {
		if x.Key == name {
			return x
		}
	}
	return nil
}

// text of the first of some members that is a text with something in it.
func (v *Value) text(names ...string) string {
	for _, n := range names {
		if m := v.get(n); m != nil && m.Kind == Text && m.Text != "" {
			return m.Text
		}
	}
	return ""
}

// integer says whether v is a whole number that was counted: 38, and 38.0 as some print it.
func (v *Value) integer() (int, bool) {
	if v == nil || v.Kind != Number || v.Num != math.Trunc(v.Num) || math.Abs(v.Num) > 1<<53 {
		return 0, false
	}
	return int(v.Num), true
}

// each visits v and all below it.
func (v *Value) each(visit func(*Value)) {
	visit(v)
	for _, x := range v.Items {
		x.each(visit)
	}
}

// where is the path of v in its document: $.rows[3].sha256.
func (v *Value) where() string {
	if v.Parent == nil {
		return "$"
	}
	if v.Parent.Kind == List {
		return fmt.Sprintf("%s[%d]", v.Parent.where(), v.Index)
	}
	return v.Parent.where() + "." + v.Key
}

// under says whether v lies below a member with one of some names.
func (v *Value) under(names ...string) bool {
	for p := v; p != nil; p = p.Parent {
		for _, n := range names {
			if p.Key != "" && strings.Contains(strings.ToLower(p.Key), n) {
				return true
			}
		}
	}
	return false
}

// around is where a count that belongs to v may stand: the object that holds it, the
// objects in that, and the object around it unless a list lies between.
func (v *Value) around() []*Value {
	o := v.Parent
	if o == nil || o.Kind != Object {
		return nil
	}
	var out []*Value
	add := func(o *Value) {
		for _, x := range o.Items {
			if x != v {
				out = append(out, x)
			}
		}
	}
	add(o)
	for _, x := range o.Items {
		if x.Kind == Object {
			add(x)
		}
	}
	if o.Parent != nil && o.Parent.Kind == Object {
		add(o.Parent)
	}
	return out
}
