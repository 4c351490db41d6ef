package metrics

import (
	"fmt"
	"strconv"
	"strings"
)

// Series is one line of a scrape.
type Series struct {
	Name   string
	Labels string // as written between the braces; see Label
	Value  float64
	Type   string // of its family: counter, gauge, histogram, summary, untyped or unknown
}

// Label is the value of a label and whether the series has it.
func (s Series) Label(name string) (string, bool) {
	rest := s.Labels
	for rest != "" {
		var n, v string
		var ok bool
		if n, v, rest, ok = nextLabel(rest); !ok {
			return "", false
		}
		if n == name {
			return v, true
		}
	}
	return "", false
}

// Parse reads the Prometheus text format, version 0.0.4, and what OpenMetrics adds to it
// (an end mark, exemplars, units), which some exporters mix in. Errors begin with the line
// number and a colon. The strings of the result are parts of text.
//
// It is written by hand because a request may be bracketed by two scrapes: prometheus's
// own expfmt builds a family of pointers for each of the thousand lines and takes several
// times as long (BenchmarkParse). The two are held together by a test and a fuzz target.
func Parse(text string) ([]Series, error) {
	out := make([]Series, 0, strings.Count(text, "\n"))
	types := map[string]string{}
	var family, familyType string // of the last TYPE line
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = trim(line)
		if line == "" {
			continue
		}
		if line[0] == '#' {
			f := strings.Fields(line)
			if len(f) >= 4 && f[0] == "#" && f[1] == "TYPE" {
				family, familyType = f[2], strings.ToLower(f[3])
				types[family] = familyType
			}
			continue
		}
		s, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		switch {
		case s.Name == family:
			s.Type = familyType
		default:
			s.Type = typeOf(types, s.Name)
		}
		out = append(out, s)
	}
	return out, nil
}

// typeOf finds the family of a sample: of its own name, or of the name that a suffix was
// added to.
func typeOf(types map[string]string, name string) string {
	if t, ok := types[name]; ok {
		return t
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count", "_total", "_created"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if t, ok := types[base]; ok {
				return t
			}
		}
	}
	return "untyped"
}

func parseLine(line string) (Series, error) {
	i := 0
	for i < len(line) && isNameByte(line[i]) {
		i++
	}
	s := Series{Name: line[:i]}
	if i == 0 || line[0] >= '0' && line[0] <= '9' {
		return s, fmt.Errorf("no metric name in %q", short(line))
	}
	rest := trim(line[i:])
	if rest != "" && rest[0] == '{' {
		end := labelsEnd(rest)
		if end < 0 {
			return s, fmt.Errorf("labels of %s do not end", s.Name)
		}
		s.Labels, rest = trim(rest[1:end]), trim(rest[end+1:])
		for l := s.Labels; l != ""; {
			var ok bool
			if _, _, l, ok = nextLabel(l); !ok {
				return s, fmt.Errorf("labels of %s are malformed: {%s}", s.Name, short(s.Labels))
			}
		}
	}
	// An exemplar may follow behind " # ", and a timestamp before it.
	if i := strings.Index(rest, " #"); i >= 0 {
		rest = trim(rest[:i])
	}
	value, stamp := rest, ""
	if i := strings.IndexAny(rest, " \t"); i >= 0 {
		value, stamp = rest[:i], trim(rest[i:])
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || strings.ContainsAny(value, "_xXpP") {
		return s, fmt.Errorf("value of %s is not a number: %q", s.Name, short(value))
	}
	if stamp != "" {
		if _, err := strconv.ParseFloat(stamp, 64); err != nil {
			return s, fmt.Errorf("%q follows the value of %s", short(stamp), s.Name)
		}
	}
	s.Value = v
	return s, nil
}

// labelsEnd is the index of the brace that closes the labels, -1 without one.
func labelsEnd(s string) int {
	quoted := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// nextLabel takes the first label off a list of them.
func nextLabel(s string) (name, value, rest string, ok bool) {
	i := 0
	for i < len(s) && isNameByte(s[i]) && s[i] != ':' {
		i++
	}
	if name = s[:i]; name == "" {
		return
	}
	s = trim(s[i:])
	if s == "" || s[0] != '=' {
		return
	}
	s = trim(s[1:])
	if s == "" || s[0] != '"' {
		return
	}
	end := 1
	escaped := false
	for end < len(s) && s[end] != '"' {
		if s[end] == '\\' {
			escaped = true
			end++
		}
		end++
	}
	if end >= len(s) {
		return
	}
	if value = s[1:end]; escaped {
		value = unescape.Replace(value)
	}
	rest = trim(s[end+1:])
	if rest != "" {
		if rest[0] != ',' {
			return
		}
		rest = trim(rest[1:])
	}
	return name, value, rest, true
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == ':'
}

func trim(s string) string { return strings.Trim(s, " \t\r") }

func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
