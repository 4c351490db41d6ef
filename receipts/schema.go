package receipts

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"kvladder/receipts/digest"
)

// SchemaJSON is the form of a receipt as a JSON Schema (draft 2020-12). Every object is
// closed: a member that the schema does not name is refused by Verify, and overlooked by
// Open. A member that came after the schema was first published bears "x-added" and is
// required of nobody, so that receipts from before it hold for ever.
//
//go:embed schema/receipt-1.schema.json
var SchemaJSON []byte

const schemaID = "urn:kvladder:receipt:1:schema"

// knownForm is what a receipt is held against: the published schema, and the members that
// this program writes and the schema does not name yet.
type knownForm struct {
	schema *jsonschema.Schema
	added  map[string]bool // members that older receipts lack
}

var form = sync.OnceValues(func() (*knownForm, error) {
	doc, err := grownSchema(SchemaJSON)
	if err != nil {
		return nil, err
	}
	// The library wants numbers as it reads them itself.
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaID, v); err != nil {
		return nil, err
	}
	s, err := c.Compile(schemaID)
	if err != nil {
		return nil, err
	}
	k := &knownForm{schema: s, added: map[string]bool{}}
	k.collect(doc)
	return k, nil
})

func (k *knownForm) collect(v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	if props, ok := m["properties"].(map[string]any); ok {
		for name, p := range props {
			if p, ok := p.(map[string]any); ok && p["x-added"] == true {
				k.added[name] = true
			}
		}
	}
	for _, x := range m {
		k.collect(x)
	}
}

// prune takes out of want the members that sealed lacks because they came after it.
func (k *knownForm) prune(sealed, want any) any {
	switch w := want.(type) {
	case map[string]any:
		s, ok := sealed.(map[string]any)
		if !ok {
			return want
		}
		for name, v := range w {
			old, here := s[name]
			switch {
			case here:
				w[name] = k.prune(old, v)
			case k.added[name]:
				delete(w, name)
			}
		}
	case []any:
		s, ok := sealed.([]any)
		if !ok || len(s) != len(w) {
			return want
		}
		for i := range w {
			w[i] = k.prune(s[i], w[i])
		}
	}
	return want
}

// unlike says how a part of a sealed receipt differs from what it should be, "" where it
// does not. Members that are younger than the receipt are not asked of it.
func (k *knownForm) unlike(sealed, want any) string {
	w, err := tree(want)
	if err != nil {
		return err.Error()
	}
	w = k.prune(sealed, w)
	if full(sealed) == full(w) {
		return ""
	}
	return differences(sealed, w)
}

// checkForm holds a receipt against the schema.
func checkForm(rep *Report, name string, raw []byte) *knownForm {
	k, err := form()
	if err != nil {
		rep.add(name, "the schema of receipts does not compile: %v", err)
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err == nil {
		err = k.schema.Validate(v)
	}
	if err != nil {
		what := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "jsonschema validation failed with ")), " ")
		if r := []rune(what); len(r) > 600 {
			what = string(r[:597]) + "..."
		}
		rep.add(name, "it does not fit the schema: %s", what)
	}
	return k
}

// grownSchema is the schema in b with the members of the Go types that it lacks.
func grownSchema(b []byte) (map[string]any, error) {
	fresh := typeSchema()
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	defs, ok := doc["$defs"].(map[string]any)
	if !ok {
		return fresh, nil
	}
	grow := func(old, now map[string]any) {
		have, _ := old["properties"].(map[string]any)
		props, _ := now["properties"].(map[string]any)
		for name, p := range props {
			if _, ok := have[name]; ok {
				continue
			}
			if p, ok := p.(map[string]any); ok {
				added := maps.Clone(p)
				added["x-added"] = true
				have[name] = added
			}
		}
	}
	for name, now := range fresh["$defs"].(map[string]any) {
		if old, ok := defs[name].(map[string]any); ok {
			grow(old, now.(map[string]any))
		} else {
			defs[name] = now
		}
	}
	return doc, nil
}

// typeSchema is the schema of the Go types alone.
func typeSchema() map[string]any {
	g := &schemaMaker{defs: map[string]any{}}
	root := g.of(reflect.TypeFor[Receipt]())
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     schemaID,
		"title":   "kvladder receipt, " + Schema,
		"$ref":    root["$ref"],
		"$defs":   g.defs,
	}
}

type schemaMaker struct{ defs map[string]any }

func (g *schemaMaker) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[digest.Digest]():
		return map[string]any{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Pointer:
		return orNull(g.of(t.Elem()))
	case reflect.Slice:
		return map[string]any{"type": []any{"array", "null"}, "items": g.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": []any{"object", "null"}, "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		if t.Name() == "" {
			return g.object(t)
		}
		name := strings.TrimPrefix(strings.ReplaceAll(t.PkgPath(), "/", "."), "kvladder.") + "." + t.Name()
		if _, ok := g.defs[name]; !ok {
			g.defs[name] = nil // for types that hold themselves
			g.defs[name] = g.object(t)
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	return map[string]any{"type": "integer"}
}

func orNull(s map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

func (g *schemaMaker) object(t reflect.Type) map[string]any {
	props, required := map[string]any{}, []any{}
	g.members(t, props, &required)
	slices.SortFunc(required, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return map[string]any{"type": "object", "properties": props, "required": required, "unevaluatedProperties": false}
}

func (g *schemaMaker) members(t reflect.Type, props map[string]any, required *[]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			g.members(f.Type, props, required)
			continue
		case !f.IsExported() || tag == "-":
			continue
		case tag == "":
			tag = f.Name
		}
		props[tag] = g.of(f.Type)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, tag)
		}
	}
}
