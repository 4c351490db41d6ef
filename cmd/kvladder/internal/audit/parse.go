package audit

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parser reads values out of a text that may hold more than values.
type parser struct {
	b     []byte
	i     int
	notes []string
	loose bool // something that JSON has not was read
	depth int

	at, no int               // a place in the text and the number of its line, from which others are counted
	names  map[string]string // member names, one copy of each
	room   int               // how many values more may be read
}

const (
	deepest    = 500
	mostNotes  = 8
	mostValues = 8 << 20 // about 1 GiB in memory
)

var (
	errEnd  = errors.New("the text ends within a value")
	errRoom = fmt.Errorf("it holds more than %d values: give a part of it", mostValues)
)

// parse finds the documents in a text: one, several after another, one a line; between,
// before and after them there may be prose, which is left out and noted. The error is
// errRoom: a text of more values than can be held.
func parse(text []byte) (docs []*Value, notes []string, err error) {
	p := &parser{b: bytes.TrimPrefix(text, []byte("\ufeff")), no: 1, names: map[string]string{}, room: mostValues}
	prose, first, eol := 0, 0, 0
	broken := 0
	for p.space(); p.i < len(p.b); p.space() {
		start := p.i
		if c := p.b[p.i]; c == '{' || c == '[' {
			var v *Value
			if v, err = p.value(); err == nil {
				docs = append(docs, v)
				continue
			}
			if errors.Is(err, errRoom) {
				return nil, nil, err
			}
			if errors.Is(err, errEnd) && broken < mostNotes {
				broken++
				p.notes = append(p.notes, fmt.Sprintf("line %d: %v: it is left out", p.line(start), err))
			}
		}
		// Not a document here: is there one further on in this line?
		if start >= eol {
			if eol = bytes.IndexByte(p.b[start:], '\n'); eol < 0 {
				eol = len(p.b)
			} else {
				eol += start
			}
		}
		next := bytes.IndexByte(p.b[start+1:max(eol, start+1)], '{')
		if prose == 0 {
			first = p.line(start)
		}
		if next >= 0 {
			p.i = start + 1 + next
			continue
		}
		prose++
		p.i = max(eol, start+1)
	}
	if prose > 0 && len(docs) > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%d lines are no JSON and were left out, the first is line %d", prose, first))
	}
	if p.loose {
		p.notes = append(p.notes, "it is not strict JSON: it holds literals or quotes as Python prints them")
	}
	return docs, p.notes, nil
}

// line is the number of the line of a place, counted from the place asked for before.
func (p *parser) line(at int) int {
	at = min(at, len(p.b))
	if at >= p.at {
		p.no += bytes.Count(p.b[p.at:at], []byte("\n"))
	} else {
		p.no -= bytes.Count(p.b[at:p.at], []byte("\n"))
	}
	p.at = at
	return p.no
}

// name is the one copy of a member's name: a file of rows repeats the same few.
func (p *parser) name(s string) string {
	if have, ok := p.names[s]; ok {
		return have
	}
	if len(p.names) < 1<<16 {
		p.names[s] = s
	}
	return s
}

func (p *parser) space() {
	for p.i < len(p.b) && strings.IndexByte(" \t\r\n\x1e", p.b[p.i]) >= 0 {
		p.i++
	}
}

func (p *parser) value() (*Value, error) {
	p.space()
	if p.i >= len(p.b) {
		return nil, errEnd
	}
	if p.depth++; p.depth > deepest {
		return nil, fmt.Errorf("more than %d levels deep", deepest)
	}
	defer func() { p.depth-- }()
	if p.room--; p.room < 0 {
		return nil, errRoom
	}
	v := &Value{Line: int32(p.line(p.i))}
	switch c := p.b[p.i]; c {
	case '{':
		v.Kind = Object
		return v, p.members(v)
	case '[', '(':
		if c == '(' {
			p.loose = true
		}
		v.Kind = List
		return v, p.items(v, map[byte]byte{'[': ']', '(': ')'}[c])
	case '"', '\'':
		var err error
		v.Kind = Text
		v.Text, err = p.quoted()
		return v, err
	}
	return v, p.literal(v)
}

func (p *parser) members(v *Value) error {
	for p.i++; ; {
		p.space()
		if p.i >= len(p.b) {
			return errEnd
		}
		if p.b[p.i] == '}' {
			p.i++
			return nil
		}
		if c := p.b[p.i]; c != '"' && c != '\'' {
			return fmt.Errorf("no name at byte %d", p.i)
		}
		key, err := p.quoted()
		if err != nil {
			return err
		}
		p.space()
		if p.i >= len(p.b) {
			return errEnd
		}
		if p.b[p.i] != ':' {
			return fmt.Errorf("no colon at byte %d", p.i)
		}
		p.i++
		x, err := p.value()
		if err != nil {
			return err
		}
		x.Key, x.Parent = p.name(key), v
		v.Items = append(v.Items, x)
		if err := p.comma('}'); err != nil {
			return err
		}
	}
}

func (p *parser) items(v *Value, end byte) error {
	for p.i++; ; {
		p.space()
		if p.i >= len(p.b) {
			return errEnd
		}
		if p.b[p.i] == end {
			p.i++
			return nil
		}
		x, err := p.value()
		if err != nil {
			return err
		}
		x.Index, x.Parent = int32(len(v.Items)), v
		v.Items = append(v.Items, x)
		if err := p.comma(end); err != nil {
			return err
		}
	}
}

// comma passes over a comma, also one before the end, which Python allows.
func (p *parser) comma(end byte) error {
	p.space()
	switch {
	case p.i >= len(p.b):
		return errEnd
	case p.b[p.i] == ',':
		p.i++
		if p.space(); p.i < len(p.b) && p.b[p.i] == end {
			p.loose = true
		}
		return nil
	case p.b[p.i] == end:
		return nil
	}
	return fmt.Errorf("no comma at byte %d", p.i)
}

func (p *parser) quoted() (string, error) {
	q := p.b[p.i]
	if q == '\'' {
		p.loose = true
	}
	var out []byte
	for p.i++; p.i < len(p.b); p.i++ {
		switch c := p.b[p.i]; {
		case c == q:
			p.i++
			return strings.ToValidUTF8(string(out), "\ufffd"), nil
		case c != '\\':
			out = append(out, c)
		default:
			if p.i++; p.i >= len(p.b) {
				return "", errEnd
			}
			switch c := p.b[p.i]; c {
			case 'n':
				out = append(out, '\n')
			case 't':
				out = append(out, '\t')
			case 'r':
				out = append(out, '\r')
			case 'b', 'f':
				out = append(out, ' ')
			case 'u', 'x':
				n := map[byte]int{'u': 4, 'x': 2}[c]
				if p.i+n >= len(p.b) {
					return "", errEnd
				}
				r, err := strconv.ParseUint(string(p.b[p.i+1:p.i+1+n]), 16, 32)
				if err != nil {
					return "", fmt.Errorf("no escape at byte %d", p.i)
				}
				out = utf8.AppendRune(out, rune(r)) // half of a surrogate pair becomes U+FFFD: no lint looks at either
				p.i += n
			default:
				out = append(out, c)
			}
		}
	}
	return "", errEnd
}

// literal reads a number or a name that stands for a value.
func (p *parser) literal(v *Value) error {
	start := p.i
	for p.i < len(p.b) && strings.IndexByte(" \t\r\n,]}):", p.b[p.i]) < 0 {
		p.i++
	}
	s := string(p.b[start:p.i])
	switch s {
	case "null":
	case "true", "false":
		v.Kind, v.Bool = Bool, s == "true"
	case "None":
		p.loose = true
	case "True", "False":
		v.Kind, v.Bool, p.loose = Bool, s == "True", true
	case "NaN", "nan":
		v.Kind, v.Num, p.loose = Number, math.NaN(), true
	case "Infinity", "inf":
		v.Kind, v.Num, p.loose = Number, math.Inf(1), true
	case "-Infinity", "-inf":
		v.Kind, v.Num, p.loose = Number, math.Inf(-1), true
	default:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || s == "" || strings.IndexByte("-+.0123456789", s[0]) < 0 {
			return fmt.Errorf("%q at byte %d is no value", s[:min(len(s), 20)], start)
		}
		v.Kind, v.Num = Number, n
	}
	return nil
}
