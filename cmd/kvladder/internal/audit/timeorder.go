package audit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

var timeOrder = Lint{
	Code:  "TIME_ORDER",
	Title: "a time that lies before the thing it describes",
	Explain: `One of three orders is broken: something ended before it began; a document says that it was
written before the things in it happened; or a plan says that it was registered after the
first thing it plans. Times that people type in are of no use for order, and a harness that
takes its time from two clocks gives none either.

Order is shown by a chain: the digest of the plan in the first record of the run, or a log
that somebody else keeps. Ask for that, and take the typed times for notes.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, f := range e.Files {
			if f.Root != nil {
				out = append(out, broken(f)...)
			}
		}
		return out
	},
	Fires: map[string]string{
		"arm.json":     `{"arm": {"started_utc": "2026-08-16T13:29:00Z", "ended_utc": "2026-08-16T13:28:00Z"}}`,
		"receipt.json": `{"generated_utc": "2026-08-16T13:20:00Z", "arms": [{"name": "L0", "started_at": "2026-08-16T13:29:00Z"}]}`,
		"plan.json":    `{"registered_at": "2026-08-16T14:00:00Z", "arms": [{"name": "L0", "started_at": "2026-08-16T13:29:00Z"}]}`,
	},
	Silent: map[string]string{
		"arm.json":     `{"arm": {"started_utc": "2026-08-16T13:29:00Z", "ended_utc": "2026-08-16T15:30:00+02:00"}}`,
		"receipt.json": `{"registered_at": "2026-08-16T13:00:00Z", "generated_utc": "2026-08-16T14:20:00Z", "arms": [{"name": "L0", "started_at": "2026-08-16T13:29:00Z"}]}`,
	},
}

// stamp is a time by what its name says it is of: "start", "end", "written", "registered".
type stamp struct {
	v    *Value
	of   string
	rest string // of its name: started_utc and ended_utc belong together
	t    time.Time
}

var stampWords = []struct {
	of   string
	form *regexp.Regexp
}{
	{"registered", regexp.MustCompile(`^(pre_?)?registered$|^(pre_?)?registration$|^prereg$|^frozen$|^planned$`)},
	{"written", regexp.MustCompile(`^(generated|written|made|sealed|published|reported|created)$`)},
	{"start", regexp.MustCompile(`^(start|started|begin|began|begun|launched|sent)$`)},
	{"end", regexp.MustCompile(`^(end|ended|finish|finished|complete|completed|stop|stopped|received)$`)},
}

func stamps(root *Value) []stamp {
	var out []stamp
	root.each(func(v *Value) {
		if v.Key == "" || v.Kind != Text && v.Kind != Number {
			return
		}
		s := stamp{v: v}
		var rest []string
		for _, w := range strings.FieldsFunc(strings.ToLower(v.Key), func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
			of := ""
			for _, x := range stampWords {
				if x.form.MatchString(w) {
					of = x.of
				}
			}
			switch {
			case of != "" && s.of == "":
				s.of = of
			case !slices.Contains([]string{"utc", "at", "on", "time", "ts", "iso", "timestamp", "date"}, w):
				rest = append(rest, w)
			}
		}
		var ok bool
		if s.t, ok = readTime(v); ok && s.of != "" {
			s.rest = strings.Join(rest, "_")
			out = append(out, s)
		}
	})
	return out
}

func readTime(v *Value) (time.Time, bool) {
	if v.Kind == Text {
		for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04Z07:00"} {
			if t, err := time.Parse(form, strings.TrimSpace(v.Text)); err == nil {
				return t, true
			}
		}
		return time.Time{}, false
	}
	switch { // seconds or milliseconds since 1970, between 2001 and 2286
	case v.Num >= 1e9 && v.Num < 1e10:
		return time.UnixMicro(int64(v.Num * 1e6)).UTC(), true
	case v.Num >= 1e12 && v.Num < 1e13:
		return time.UnixMilli(int64(v.Num)).UTC(), true
	}
	return time.Time{}, false
}

func broken(f *File) []Finding {
	var out []Finding
	all := stamps(f.Root)
	say := func(a stamp, order string, b stamp) {
		out = append(out, at(f, a.v, fmt.Sprintf("%s %s is %s %s %s (%s)", a.v.Key, a.t.Format(time.RFC3339), order, b.v.Key, b.t.Format(time.RFC3339), b.v.where())))
	}
	var first, last *stamp // of what happened
	for i := range all {
		s := &all[i]
		if s.of != "start" && s.of != "end" {
			continue
		}
		if first == nil || s.t.Before(first.t) {
			first = s
		}
		if last == nil || s.t.After(last.t) {
			last = s
		}
		for _, b := range all {
			if s.of == "end" && b.of == "start" && b.v.Parent == s.v.Parent && b.rest == s.rest && s.t.Before(b.t) {
				say(*s, "before", b)
			}
		}
	}
	for _, s := range all {
		switch {
		case s.of == "written" && last != nil && top(s.v) && s.t.Before(last.t):
			say(s, "before", *last)
		case s.of == "registered" && first != nil && s.t.After(first.t):
			say(s, "after", *first)
		}
	}
	return out
}

// top says whether a member belongs to the document as a whole.
func top(v *Value) bool {
	return v.Parent != nil && v.Parent.Kind == Object && v.Parent.Parent == nil
}
