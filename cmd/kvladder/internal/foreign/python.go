package foreign

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literal is one item of a list as Python prints it.
type literal struct {
	text   string
	number float64
	isText bool
	isNone bool
}

// pythonList reads what Python's repr writes for a list or tuple of strings, numbers and
// None: "['a', \"b'c\", None]" and "[-0.5, nan, -inf]".
// The string escapes are those of https://docs.python.org/3/reference/lexical_analysis.html;
// named characters (\N{…}), which repr never writes, are refused.
func pythonList(s string) ([]literal, error) {
	p := &python{s: strings.TrimSpace(s)}
	if len(p.s) < 2 || !(p.s[0] == '[' && p.s[len(p.s)-1] == ']' || p.s[0] == '(' && p.s[len(p.s)-1] == ')') {
		return nil, fmt.Errorf("not a list as Python prints it")
	}
	end := p.s[len(p.s)-1]
	p.at = 1
	out := []literal{}
	for {
		p.space()
		if p.at == len(p.s)-1 && p.s[p.at] == end {
			return out, nil
		}
		v, err := p.item()
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", p.at, err)
		}
		out = append(out, v)
		p.space()
		switch {
		case p.at < len(p.s)-1 && p.s[p.at] == ',':
			p.at++
		case p.at != len(p.s)-1:
			return nil, fmt.Errorf("at byte %d: want a comma or the end of the list", p.at)
		}
	}
}

type python struct {
	s  string
	at int
}

func (p *python) space() {
	for p.at < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.at]) >= 0 {
		p.at++
	}
}

func (p *python) item() (literal, error) {
	if c := p.s[p.at]; c == '\'' || c == '"' {
		return p.quoted(c)
	}
	from := p.at
	for p.at < len(p.s)-1 && strings.IndexByte(", \t\r\n", p.s[p.at]) < 0 {
		p.at++
	}
	switch word := p.s[from:p.at]; word {
	case "None":
		return literal{isNone: true}, nil
	case "nan", "-nan":
		return literal{number: math.NaN()}, nil
	case "inf":
		return literal{number: math.Inf(1)}, nil
	case "-inf":
		return literal{number: math.Inf(-1)}, nil
	default:
		v, err := strconv.ParseFloat(word, 64)
		if err != nil || strings.ContainsAny(word, "xXpPiI_") {
			return literal{}, fmt.Errorf("%q is not an item of a list", word)
		}
		return literal{number: v}, nil
	}
}

var pythonEscapes = map[byte]string{'\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\n': ""}

func (p *python) quoted(quote byte) (literal, error) {
	var b strings.Builder
	for p.at++; p.at < len(p.s); {
		c := p.s[p.at]
		switch {
		case c == quote:
			p.at++
			return literal{text: b.String(), isText: true}, nil
		case c != '\\':
			b.WriteByte(c)
			p.at++
		case p.at+1 >= len(p.s):
			return literal{}, fmt.Errorf("the text has no end")
		default:
			if err := p.escape(&b); err != nil {
				return literal{}, err
			}
		}
	}
	return literal{}, fmt.Errorf("the text has no end")
}

// escape reads one escape. Half a surrogate pair, which Python can hold and UTF-8 cannot,
// becomes the replacement character, as Python itself does when it must write it.
func (p *python) escape(b *strings.Builder) error {
	c := p.s[p.at+1]
	if s, ok := pythonEscapes[c]; ok {
		b.WriteString(s)
		p.at += 2
		return nil
	}
	digits, base, from := 0, 16, p.at+2
	switch {
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	case c >= '0' && c <= '7':
		base, from = 8, p.at+1
		for digits < 3 && from+digits < len(p.s) && p.s[from+digits] >= '0' && p.s[from+digits] <= '7' {
			digits++
		}
	default:
		return fmt.Errorf("the escape \\%c is not known", c)
	}
	if from+digits > len(p.s) {
		return fmt.Errorf("the escape \\%c is cut off", c)
	}
	v, err := strconv.ParseUint(p.s[from:from+digits], base, 32)
	if err != nil || v > utf8.MaxRune {
		return fmt.Errorf("the escape \\%s is not a character", p.s[p.at+1:from+digits])
	}
	b.WriteRune(rune(v))
	p.at = from + digits
	return nil
}
