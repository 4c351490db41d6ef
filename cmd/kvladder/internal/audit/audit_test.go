package audit

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func evidence(t *testing.T, files map[string]string) *Evidence {
	t.Helper()
	e := &Evidence{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := e.Add(name, []byte(files[name])); err != nil {
			t.Fatal(err)
		}
		e.Files[len(e.Files)-1].Found = strings.HasPrefix(name, "run/") // the specimens' one folder
	}
	return e
}

// Every lint fires on its own specimen, file by file where they stand alone, is silent on
// what lies near to it, and no other lint takes that for a finding either.
func TestSpecimens(t *testing.T) {
	last := ""
	for _, l := range All() {
		if l.Code <= last {
			t.Errorf("%s is not in order after %s", l.Code, last)
		}
		last = l.Code
		if l.Title == "" || len(l.Explain) < 200 || len(l.Fires) == 0 || len(l.Silent) == 0 {
			t.Errorf("%s: it has no title, no explanation or no specimen", l.Code)
		}
		if len(l.Look(evidence(t, l.Fires))) == 0 {
			t.Errorf("%s is silent on its specimen", l.Code)
		}
		if got := Look(evidence(t, l.Silent)); len(got) != 0 {
			t.Errorf("%s: on its near miss: %+v", l.Code, got)
		}
		for _, f := range Look(evidence(t, l.Fires)) {
			if f.Code != l.Code {
				t.Errorf("%s: its specimen makes %s fire as well: %s", l.Code, f.Code, f.What)
			}
		}
	}
}

// each file of these specimens is a case of its own.
func TestEachCaseFires(t *testing.T) {
	check := func(code string, want map[string]int) {
		t.Helper()
		l, ok := Find(code)
		if !ok {
			t.Fatalf("no lint %s", code)
		}
		got := map[string]int{}
		for _, f := range l.Look(evidence(t, l.Fires)) {
			got[f.File]++
			if f.What == "" || f.Where != "" && f.Line == 0 {
				t.Errorf("%s: no place or no text: %+v", code, f)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
	check("digest_vacuous", map[string]int{"all.json": 2, "receipt.json": 5})
	check("TIME_ORDER", map[string]int{"arm.json": 1, "receipt.json": 1, "plan.json": 1})
	check("UNITS_DISAGREE", map[string]int{"rows.json": 3})
	check("VERDICT_CONTRADICTED", map[string]int{"gate.json": 1, "counts.json": 1, "fail.json": 1, "number.json": 1})
	check("COUNTER_ZERO", map[string]int{"arms.json": 1, "metrics-W-post.txt": 1})
	check("PERCENT_WITHOUT_N", map[string]int{"summary.json": 2})
}

const published = "../../testdata/published-ladder-4arm"

// The published ladder: no floor, six rows and the arm that they are in, and one arm that
// claims loads which its engine did not count.
func TestPublishedLadder(t *testing.T) {
	e, err := Open([]string{published})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Files) != 12 {
		t.Fatalf("%d files, want 4 arms and 8 snapshots", len(e.Files))
	}
	n := map[string]int{}
	rows := 0
	for _, f := range Look(e) {
		n[f.Code]++
		if f.Code == "UNITS_DISAGREE" && strings.Contains(f.Where, ".rows[") {
			rows++
			if !strings.Contains(f.File, "L3restart") {
				t.Errorf("a row of %s", f.File)
			}
		}
		if f.Code == "COUNTER_ZERO" && !strings.Contains(f.File, "L2warm") {
			t.Errorf("%s: %s", f.File, f.What)
		}
	}
	want := map[string]int{"FLOOR_MISSING": 1, "UNITS_DISAGREE": 7, "COUNTER_ZERO": 1}
	if !maps.Equal(n, want) || rows != 6 {
		t.Errorf("found %v, %d rows; want %v, 6 rows", n, rows, want)
		for _, f := range Look(e) {
			t.Logf("%s %s:%d %s %s", f.Code, f.File, f.Line, f.Where, f.What)
		}
	}
}

func TestParseLoose(t *testing.T) {
	check := func(text string, docs int, note string) {
		t.Helper()
		got, notes, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != docs || !strings.Contains(strings.Join(notes, "\n"), note) || note == "" && len(notes) > 0 {
			t.Errorf("%.40q: %d documents, notes %q; want %d, %q", text, len(got), notes, docs, note)
		}
	}
	check(`{"a": [1, 2.5e3, null, true]}`, 1, "")
	check("\ufeff{\"a\": 1}\n{\"a\": 2}\n", 2, "")
	check(`{"a": 1}{"a": 2}[3]`, 3, "")
	check("{\"a\": NaN, \"b\": -Infinity}", 1, "not strict")
	check("{'a': None, 'b': (1, 2,), 'c': True,}", 1, "not strict")
	check("[INFO] starting\n{\"a\": 1}\ndone in 3 s\n", 1, "2 lines are no JSON")
	check("RESULT {\"a\": 1}\n", 1, "")
	check("{\"a\": 1}\n{\"a\": ", 1, "the text ends within a value")
	check("{\"a\": 1\n{\"a\": 2}\n", 1, "no JSON")
	check("plain prose\n", 0, "")
	check(strings.Repeat("[", 2000), 0, "")
	check(strings.Repeat(`{"a":`, 2000), 0, "")
	v, _, _ := parse([]byte("\n\n{\"x\": {\"y\": [0, {\"z\": \"\\u0041\\n\"}]}}"))
	z := v[0].get("x").get("y").Items[1].get("z")
	if z.Text != "A\n" || z.Line != 3 || z.where() != "$.x.y[1].z" {
		t.Errorf("%q at line %d, %s", z.Text, z.Line, z.where())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a": [1, "x", NaN]} tail`))
	f.Add([]byte("[INFO]\n{'a': (1,)}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &Evidence{}
		if e.Add("x.json", b) == nil {
			for _, x := range Look(e) {
				if x.Code == "" || x.What == "" {
					t.Errorf("%+v", x)
				}
			}
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	check := func(name, text, want string) {
		t.Helper()
		err := (&Evidence{}).Add(name, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	check("x.json", "no data here", "there is no JSON in it")
	check("x.json", "{\"a\": 1}\x00", "not a text")
	check("x.json.gz", "\x1f\x8bbroken", "not a whole gzip file")
	check("metrics-a-pre.txt", "<html>", "counters cannot be read")
	if _, err := Open([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no file in this folder") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Open([]string{"none.json"}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing file: %v", err)
	}
}
