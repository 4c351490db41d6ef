package arms

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A YAML decoder is kind: it cuts 2.5 to 2, reads "nan" as a number, 1.50 as the word 1.5 and
// nothing as zero. A registered ladder has to mean what it says, so the tree is held against
// the members and their bounds before it is decoded. The same tree says where a member stands
// when something is found wrong later.

// maxLadder is the most bytes of a ladder file.
const maxLadder = 1 << 20

// bound is what a number of the file may be.
type bound struct {
	lo, hi         float64
	loOpen, hiOpen bool // the end itself is not allowed
}

func (b bound) holds(x float64) bool {
	return (x > b.lo || x == b.lo && !b.loOpen) && (x < b.hi || x == b.hi && !b.hiOpen)
}

func (b bound) String() string {
	n := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	switch {
	case b.loOpen && b.hiOpen:
		return "above " + n(b.lo) + " and below " + n(b.hi)
	case b.loOpen:
		return "above " + n(b.lo) + " and at most " + n(b.hi)
	}
	return "from " + n(b.lo) + " to " + n(b.hi)
}

// bounds of every number that a ladder file may state, by the path of its member.
var bounds = map[string]bound{
	"parallel":                  {lo: 1, hi: 64},
	"floors.C0":                 {lo: 1, hi: 20},
	"floors.C1":                 {lo: 1, hi: 20},
	"rules.n_min":               {lo: 1, hi: 1e6},
	"rules.g_min":               {lo: 1, hi: 1e6},
	"rules.p_max":               {lo: 0, hi: 1, loOpen: true, hiOpen: true},
	"rules.control_max":         {lo: 0, hi: 1, loOpen: true, hiOpen: true},
	"rules.hit_share":           {lo: 0, hi: 1, loOpen: true},
	"rules.replicates":          {lo: 0, hi: 5},
	"rules.stall_seconds":       {lo: 0, hi: 86400, loOpen: true},
	"rules.alpha.failures":      {lo: 0, hi: 0.5, loOpen: true, hiOpen: true},
	"rules.alpha.divergence":    {lo: 0, hi: 0.5, loOpen: true, hiOpen: true},
	"rules.bootstrap.seed":      {lo: 0, hi: 1 << 53},
	"rules.bootstrap.resamples": {lo: 100, hi: 100_000},
	"replay.concurrency":        {lo: 1, hi: 512},
	"replay.ranks":              {lo: 0, hi: 64},
	"replay.timeout_seconds":    {lo: 1, hi: 86400},
	"arms.concurrency":          {lo: 1, hi: 512},
	"arms.clients":              {lo: 1, hi: 512},
	"arms.passes":               {lo: 1, hi: 10000},
	"arms.minutes":              {lo: 0, hi: 10080, loOpen: true},
	"arms.flood":                {lo: 1, hi: 1000},
	"arms.stop.p0":              {lo: 0, hi: 1, loOpen: true, hiOpen: true},
	"arms.stop.p1":              {lo: 0, hi: 1, loOpen: true, hiOpen: true},
	"arms.stop.alpha":           {lo: 0, hi: 0.5, loOpen: true, hiOpen: true},
	"arms.stop.beta":            {lo: 0, hi: 0.5, loOpen: true, hiOpen: true},
	"arms.reference_pass":       {lo: 1, hi: 10000},
}

// forms shows what to write where a member has another form.
var forms = map[string]string{
	"":                 "ladder: NAME and the other members, one a line",
	"pins":             "pins: {NAME: VALUE}",
	"subject":          "subject: [PIN]",
	"dt":               "dt: [bf16, fp8]",
	"dt.pins":          "{name: fp8, pins: {kv_cache_dtype: fp8}}",
	"arms":             "arms: [C0, C1, WARM]",
	"arms[]":           "WARM, or {preset: WARM, name: MINE}",
	"arms.pins":        "pins: {NAME: VALUE}",
	"arms.from":        "from: {model_seed: 12}",
	"arms.before":      `before: [drain, "flood 2"]`,
	"arms.after":       "after: [ask-liveness]",
	"arms.steps":       "steps: [launch, replay]",
	"arms.stop":        "stop: {rule: sprt, p0: 0.001, p1: 0.05}",
	"floors":           "floors: {C0: 3, C1: 3}",
	"rules":            "rules: {n_min: 24, p_max: 0.10}",
	"rules.alpha":      "alpha: {failures: 0.04, divergence: 0.01}",
	"rules.thresholds": "thresholds: {near_tie: 'p99(P.margin)'}",
	"rules.bootstrap":  "bootstrap: {seed: 38, resamples: 2000, by: geometry}",
	"replay":           "replay: {concurrency: 4}",
	"predict":          "predict: {WARM: {failed: 0}}",
	"predict[]":        "WARM: {failed: 0}",
	"not_claimed":      "not_claimed: [a sentence]",
	"unproven":         "unproven: [a sentence]",
	"claims":           "claims: [{text: a sentence, status: asserted}]",
	"claims[]":         "{text: a sentence, status: asserted}",
	"dt[]":             "fp8, or {name: fp8, pins: {kv_cache_dtype: fp8}}",
	"claims.evidence":  "evidence: [sha256:DIGEST]",
}

// parseTree reads the one document of a ladder file.
func parseTree(b []byte) (ast.Node, error) {
	f, err := parser.ParseBytes(b, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Docs {
		if d.Body != nil {
			return d.Body, nil
		}
	}
	return nil, nil
}

// checkText refuses bytes that no text has, with the line they are in.
func checkText(b []byte) error {
	line, from := 1, 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == '\n':
			line, from = line+1, i+1
		case r == utf8.RuneError && n == 1:
			return &nodeError{line: line, col: utf8.RuneCount(b[from:i]) + 1, what: "a byte that is no UTF-8", hint: "save the file as UTF-8"}
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f:
			return &nodeError{line: line, col: utf8.RuneCount(b[from:i]) + 1, what: fmt.Sprintf("a control character, %q", r), hint: "leave it out"}
		}
		i += n
	}
	return nil
}

// checkShape holds the tree against the type that it is decoded to. Unknown members are left
// to the decoder.
func checkShape(n ast.Node, t reflect.Type, path string) error {
	if c, ok := n.(*ast.CommentNode); ok || n == nil || c != nil {
		return nil
	}
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return hinted(n, "anchors, aliases, merges and tags are not read", "write the value out where it stands")
	case *ast.InfinityNode, *ast.NanNode:
		return hinted(n, fmt.Sprintf("%s is no number that a ladder can hold", text(n)), "write a finite number, or quote the word")
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, null := n.(*ast.NullNode)
	m, mapping := n.(ast.MapNode)
	seq, sequence := n.(*ast.SequenceNode)
	wrong := func(want string) error {
		hint := ""
		if f := forms[path]; f != "" {
			hint = "write " + f
		}
		return hinted(n, fmt.Sprintf("%s%s is wanted here, got %s", named(path), want, text(n)), hint)
	}
	switch t {
	case reflect.TypeFor[Entry](), reflect.TypeFor[Dtype]():
		if sequence || null {
			return wrong("a word or a mapping")
		}
		if !mapping {
			return nil
		}
	case reflect.TypeFor[Scalar]():
		if _, block := n.(*ast.LiteralNode); block {
			return hinted(n, "a pin is one word or number", "write it behind the colon")
		}
		return nil // its own reader says what a pin is
	case reflect.TypeFor[StepLine]():
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		if null {
			return nil
		}
		if !mapping {
			return wrong("a mapping")
		}
		for it := m.MapRange(); it.Next(); {
			if it.KeyValue().Key.IsMergeKey() {
				return hinted(n, "merges are not read", "write the members out where they stand")
			}
			f, ok := memberOf(t, keyOf(it))
			if !ok {
				continue
			}
			if err := checkShape(it.Value(), f, join(path, keyOf(it))); err != nil {
				return err
			}
		}
	case reflect.Map:
		if null {
			return nil
		}
		if !mapping {
			return wrong("a mapping")
		}
		for it := m.MapRange(); it.Next(); {
			if err := checkShape(it.Value(), t.Elem(), path+"[]"); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if null {
			return nil
		}
		if !sequence {
			return wrong("a list")
		}
		for _, v := range seq.Values {
			down := path + "[]"
			if _, ok := v.(ast.MapNode); ok {
				down = path
			}
			if err := checkShape(v, t.Elem(), down); err != nil {
				return err
			}
		}
	case reflect.Int, reflect.Int64, reflect.Float64:
		return checkNumber(n, t.Kind() != reflect.Float64, path, wrong)
	case reflect.String:
		switch v := n.(type) {
		case *ast.StringNode, *ast.LiteralNode, *ast.BoolNode, *ast.NullNode:
		case *ast.IntegerNode:
			if fmt.Sprint(v.Value) != v.Token.Value {
				return hinted(n, fmt.Sprintf("%sa word is wanted here, got the number %s", named(path), text(n)), "quote it")
			}
		case *ast.FloatNode:
			return hinted(n, fmt.Sprintf("%sa word is wanted here, got the number %s", named(path), text(n)), "quote it")
		default:
			return wrong("a word")
		}
	case reflect.Interface:
		if mapping {
			return wrong("a number, a word or a list")
		}
		if sequence {
			for _, v := range seq.Values {
				if err := checkShape(v, t, path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkNumber wants a number, whole where the member is, inside its bound.
func checkNumber(n ast.Node, whole bool, path string, wrong func(string) error) error {
	want := "a number"
	if whole {
		want = "a whole number"
	}
	var x float64
	switch v := n.(type) {
	case *ast.IntegerNode:
		f, err := strconv.ParseFloat(fmt.Sprint(v.Value), 64)
		if err != nil {
			return wrong(want)
		}
		x = f
	case *ast.FloatNode:
		x = v.Value
	case *ast.StringNode: // 1e-2 is a word to YAML 1.1 and a number to people
		f, err := strconv.ParseFloat(v.Value, 64)
		if err != nil || v.Token.Type != token.StringType {
			return wrong(want)
		}
		if x = f; whole {
			return wrong(want)
		}
	default:
		return wrong(want)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return wrong(want)
	}
	if _, float := n.(*ast.FloatNode); float && whole {
		return wrong(want)
	}
	if b, ok := bounds[path]; ok && !b.holds(x) {
		return hinted(n, fmt.Sprintf("%s: %s is out of bounds", path, text(n)), "it must be "+b.String())
	}
	return nil
}

func hinted(n ast.Node, what, hint string) error {
	line, col := placeOf(n)
	return &nodeError{line: line, col: col, what: what, hint: hint}
}

// named is the member's path in front of what is wrong with it.
func named(path string) string {
	if path = strings.TrimSuffix(path, "[]"); path == "" {
		return ""
	}
	return path + ": "
}

func join(path, member string) string {
	if path == "" {
		return member
	}
	return strings.TrimSuffix(path, "[]") + "." + member
}

// text is a node in a few words, for a complaint.
func text(n ast.Node) string {
	switch v := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return fmt.Sprintf("%.60q", v.Value)
	}
	if t := n.GetToken(); t != nil {
		return fmt.Sprintf("%.60s", strings.TrimSpace(t.Value))
	}
	return "something else"
}

func keyOf(it *ast.MapNodeIter) string {
	if s, ok := it.Key().(*ast.StringNode); ok {
		return s.Value
	}
	return it.Key().GetToken().Value
}

// memberOf is the type of a struct's member, by its name in the file.
func memberOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("yaml")
		if tag == "" {
			tag = strings.ToLower(f.Name)
		}
		if f.IsExported() && tag == name {
			return f.Type, true
		}
	}
	return nil, false
}

// placeOf is where a node begins; a block mapping begins with its first key.
func placeOf(n ast.Node) (line, col int) {
	t := n.GetToken()
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			t = v.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		t = v.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return t.Position.Line, t.Position.Column
}

// find follows member names and list positions as far as the tree goes.
func find(n ast.Node, path ...any) (found ast.Node, all bool) {
	for _, step := range path {
		var next ast.Node
		switch s := step.(type) {
		case string:
			if m, ok := n.(ast.MapNode); ok {
				for it := m.MapRange(); it.Next(); {
					if keyOf(it) == s {
						next = it.Value()
					}
				}
			}
		case int:
			if q, ok := n.(*ast.SequenceNode); ok && s >= 0 && s < len(q.Values) {
				next = q.Values[s]
			}
		}
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// wrong is an error at the member of path, or at the nearest one above it that is there.
func (l *Ladder) wrong(path []any, hint, format string, args ...any) error {
	e := &FileError{File: l.file, What: fmt.Sprintf(format, args...), Hint: hint}
	if n, _ := find(l.tree, path...); n != nil {
		e.Line, e.Col = placeOf(n)
	}
	return e
}

// TooDeep says whether a text opens more lists and objects than any file that a person writes:
// a reader of YAML takes time and memory that grow with the square of their depth. It looks
// at tokens, so that brackets in words and remarks count for nothing.
func TooDeep(text []byte) bool {
	const most = 200
	open, line, here := 0, 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Position != nil && t.Position.Line != line {
			line, here = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open = max(0, open-1)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			here++
		case token.MappingValueType:
			if open == 0 {
				here++
			}
		}
		if open > most || here > most || t.Position != nil && t.Position.IndentNum > 2*most {
			return true
		}
	}
	return false
}
