package scoring

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Prediction is one member of an arm's JSON and what it will be, written before the run.
//
// Member is the JSON name of a member of ArmResult, or "member.key" for one entry of a
// member that holds entries ("columns.K", "detectors.needle", "pin.name"). The value is a
// literal of the member's type (a number, a text, true or false, null, a list of texts) or
// a comparison written as text: ">0", ">=24", "<=3", "<0.1", "!=CORRUPTION_ATTRIBUTED",
// "==0". Only numbers have an order. A number that was not measured holds no prediction but
// the literal null: absent is neither zero nor different from anything.
type Prediction struct {
	Member string
	Op     string // "==", "!=", "<", "<=", ">", ">="
	Value  any    // nil, bool, float64, string or []string
}

// comparisons, the longer ones first so that "<=" is not read as "<".
var comparisons = []string{"==", "!=", "<=", ">=", "<", ">"}

// verdicts are the words that the member "verdict" may hold.
var verdicts = []string{CleanBounded, CorruptionAttributed, CorruptionUnattributed, ControlDirty, EngineDied,
	HarnessError, InvalidPrereg, SuspectUnconfirmed, SuspectDivergent, DivergentNumeric, NotExercised,
	InconclusiveNoFloor, InconclusiveUnknown, InconclusivePower}

// ParsePrediction checks one prediction as a ladder states it. It refuses a member that an
// arm does not have, a value of another type than the member's, and a value that the member
// can never have, so that a prediction cannot fail by a misspelling.
func ParsePrediction(member string, v any) (Prediction, error) {
	t, err := memberType(member)
	if err != nil {
		return Prediction{}, err
	}
	fail := func(format string, args ...any) (Prediction, error) {
		return Prediction{}, fmt.Errorf("prediction for %q: %s", member, fmt.Sprintf(format, args...))
	}
	p := Prediction{Member: member, Op: "=="}
	text, isText := v.(string)
	compared := false
	if isText {
		for _, op := range comparisons {
			if rest, ok := strings.CutPrefix(text, op); ok {
				p.Op, text, compared = op, strings.TrimSpace(rest), true
				break
			}
		}
	}
	if v == nil {
		return p, nil
	}
	ordered := p.Op != "==" && p.Op != "!="
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		var x float64
		switch {
		case compared:
			if x, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
				return fail("%q does not compare with a number: write it like %q", v, p.Op+"3")
			}
		case isText:
			return fail("%q is a text and the member is a number: write a number, or a comparison like \">0\"", v)
		default:
			var ok bool
			if x, ok = number(v); !ok {
				return fail("%v (%T) is not a number", v, v)
			}
		}
		if t.Kind() != reflect.Float64 && !ordered && x != math.Trunc(x) {
			return fail("%v can never be met: the member is a whole number", v)
		}
		if member == "exit" && !ordered && (x < ExitClean || x > ExitDied) {
			return fail("%v can never be met: exits are 0 to 4", v)
		}
		p.Value = x
	case reflect.Bool:
		switch {
		case compared && !ordered && (text == "true" || text == "false"):
			p.Value = text == "true"
		case isText:
			return fail("%q: the member is true or false", v)
		default:
			b, ok := v.(bool)
			if !ok {
				return fail("%v (%T): the member is true or false", v, v)
			}
			p.Value = b
		}
	case reflect.String:
		if !isText {
			return fail("%v (%T) is not a text", v, v)
		}
		if ordered {
			return fail("%q: texts have no order; use a literal or \"!=\"", v)
		}
		if member == "verdict" && !slices.Contains(verdicts, text) {
			return fail("there is no verdict %q", text)
		}
		p.Value = text
	case reflect.Slice:
		list, ok := texts(v)
		if !ok {
			return fail("%v (%T): the member is a list of texts", v, v)
		}
		p.Value = list
	default:
		return fail("the member holds several values: name one, as in %q", member+".key")
	}
	return p, nil
}

// memberType is the type of a member without its pointer.
func memberType(member string) (reflect.Type, error) {
	t := reflect.TypeFor[ArmResult]()
	at := ""
	for _, name := range strings.Split(member, ".") {
		switch t.Kind() {
		case reflect.Struct:
			f, ok := fieldByJSON(t, name)
			if !ok {
				return nil, fmt.Errorf("prediction for %q: an arm has no member %q%s", member, strings.TrimPrefix(at+"."+name, "."), nearest(t, name))
			}
			t = f.Type
		case reflect.Map:
			if name == "" {
				return nil, fmt.Errorf("prediction for %q: the key is missing", member)
			}
			t = t.Elem()
		default:
			return nil, fmt.Errorf("prediction for %q: member %q has no parts", member, strings.TrimPrefix(at, "."))
		}
		at += "." + name
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.String:
		return nil, fmt.Errorf("prediction for %q: a list of records cannot be predicted: predict one of the members that count it", member)
	case t.Kind() == reflect.Interface:
		return nil, fmt.Errorf("prediction for %q: the member has no fixed type and cannot be predicted", member)
	}
	return t, nil
}

func fieldByJSON(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && tag != "" && tag != "-" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// nearest is a hint: the members that share a beginning with name.
func nearest(t reflect.Type, name string) string {
	if len(name) < 3 {
		return ""
	}
	var near []string
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if strings.HasPrefix(tag, name[:3]) {
			near = append(near, tag)
		}
	}
	if len(near) == 0 {
		return ""
	}
	sort.Strings(near)
	return "; there is " + strings.Join(near, ", ")
}

// Measured is what the arm's member came to: nil, bool, float64, string or []string.
func (p Prediction) Measured(a *ArmResult) any {
	v := reflect.ValueOf(a)
	for _, name := range strings.Split(p.Member, ".") {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Struct:
			f, ok := fieldByJSON(v.Type(), name)
			if !ok {
				return nil
			}
			v = v.FieldByIndex(f.Index)
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
			if !v.IsValid() {
				return nil
			}
		default:
			return nil
		}
	}
	return plain(v.Interface())
}

// Holds reports whether the measured value is as predicted. Numbers are equal within 1e-10
// relative, since derived ones are kept rounded; lists are equal whatever their order.
func (p Prediction) Holds(measured any) bool {
	m := plain(measured)
	if p.Value == nil || m == nil {
		return p.Value == nil && m == nil
	}
	switch want := p.Value.(type) {
	case float64:
		got, ok := m.(float64)
		if !ok {
			return false
		}
		same := got == want || math.Abs(got-want) <= 1e-10*math.Max(math.Abs(got), math.Abs(want))
		switch p.Op {
		case "==":
			return same
		case "!=":
			return !same
		case "<":
			return got < want && !same
		case "<=":
			return got < want || same
		case ">":
			return got > want && !same
		case ">=":
			return got > want || same
		}
		return false
	case []string:
		got, ok := m.([]string)
		if !ok {
			return false
		}
		a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
		return slices.Equal(a, b)
	default:
		return reflect.TypeOf(m) == reflect.TypeOf(want) && (m == want) == (p.Op == "==")
	}
}

// String is the prediction as a ladder states it.
func (p Prediction) String() string {
	b, err := json.Marshal(p.Value)
	if err != nil {
		return p.Member + " " + p.Op + " ?"
	}
	return p.Member + " " + p.Op + " " + strings.Trim(string(b), `"`)
}

// plain reduces a value to nil, bool, float64, string or []string where it is one of them.
func plain(v any) any {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			return nil
		}
		rv = rv.Elem()
	}
	if !rv.IsValid() {
		return nil
	}
	if x, ok := number(rv.Interface()); ok {
		return x
	}
	switch rv.Kind() {
	case reflect.String:
		return rv.String()
	case reflect.Bool:
		return rv.Bool()
	case reflect.Slice:
		if l, ok := texts(rv.Interface()); ok {
			return l
		}
	}
	return rv.Interface()
}

func number(v any) (float64, bool) {
	if n, ok := v.(json.Number); ok {
		x, err := n.Float64()
		return x, err == nil
	}
	rv := reflect.ValueOf(v)
	switch {
	case !rv.IsValid():
		return 0, false
	case rv.CanInt():
		return float64(rv.Int()), true
	case rv.CanUint():
		return float64(rv.Uint()), true
	case rv.CanFloat():
		x := rv.Float()
		return x, !math.IsNaN(x) && !math.IsInf(x, 0)
	}
	return 0, false
}

func texts(v any) ([]string, bool) {
	if l, ok := v.([]string); ok {
		return append([]string{}, l...), true
	}
	l, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := []string{}
	for _, x := range l {
		s, ok := x.(string)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}
