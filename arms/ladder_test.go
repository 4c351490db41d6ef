package arms_test

import (
	"errors"
	"strings"
	"testing"

	"kvladder/arms"
)

const whole = `ladder: t
question: q
engine: testbed
set: s.jsonl
pins: {kv_cache_dtype: fp8, blocks: 4096}
dt: [bf16, {name: fp8, pins: {kv_cache_dtype: fp8}}]
arms:
  - C0
  - C1
  - {preset: RST, name: RST-corrupt, why: planted, before: ["corrupt slot-*.bin 4096 64"]}
floors: {C0: 3, C1: 3}
rules: {n_min: 12, p_max: 0.25, alpha: {failures: 0.04}}
predict:
  RST-corrupt: {failed: 0, external_tokens: ">0"}
`

func TestParseLadder(t *testing.T) {
	l, err := arms.ParseLadder("t.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if l.Name != "t" || len(l.Arms) != 3 || l.Arms[0].Preset != "C0" || l.Arms[2].Name != "RST-corrupt" || l.Arms[2].Before[0][1] != "slot-*.bin" {
		t.Errorf("parsed %+v", l)
	}
	if l.Pins["blocks"] != "4096" || l.DT[0].Pins["kv_cache_dtype"] != "bf16" || l.DT[1].Name != "fp8" {
		t.Errorf("pins %v, dt %v", l.Pins, l.DT)
	}
	if l.Launcher != "local" || *l.Rules.PMax != 0.25 {
		t.Errorf("launcher %q, rules %+v", l.Launcher, l.Rules)
	}
}

func TestPinsKeepTheirText(t *testing.T) {
	l, err := arms.ParseLadder("t.yaml", []byte(strings.Replace(whole, "blocks: 4096", "a: 0.90, b: on, c: true, d: false, e: \"off\", f: 1e3", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"a": "0.90", "b": "on", "c": "on", "d": "off", "e": "off", "f": "1e3"} {
		if got := string(l.Pins[k]); got != want {
			t.Errorf("pin %s is %q, want %q", k, got, want)
		}
	}
}

// Every wrong file is refused with its place and with what to do.
func TestParseLadderRefuses(t *testing.T) {
	for _, c := range []struct{ name, from, to, at, what string }{
		{"unknown key", "question: q", "qestion: q", "t.yaml:2:1", "did you mean question?"},
		{"unknown nested key", "{n_min: 12", "{nmin: 12", "t.yaml:12:", "did you mean n_min?"},
		{"unknown arm member", "why: planted", "wy: planted", "t.yaml:10:", "did you mean why?"},
		{"duplicate key", "question: q", "question: q\nquestion: r", "t.yaml:3:", "question"},
		{"wrong type", "{n_min: 12", "{n_min: twelve", "t.yaml:12:", "twelve"},
		{"wrong type of arms", "  - C0\n  - C1", "  - [C0]\n  - C1", "t.yaml:8:5", "write WARM, or {preset: WARM, name: MINE}"},
		{"unknown preset", "  - C1", "  - C9", "t.yaml", "known presets"},
		{"arm twice", "  - C1", "  - C0", "t.yaml", "named twice"},
		{"unknown step", "corrupt slot", "bend slot", "t.yaml:10:", "known: abort"},
		{"corrupt needs three words", "4096 64", "4096", "t.yaml:10:", "FILE OFFSET N"},
		{"no set", "set: s.jsonl", "why: none", "t.yaml", "names no set"},
		{"no engine", "engine: testbed", "why: none", "t.yaml", "names no engine"},
		{"name with a slash", "ladder: t", "ladder: a/b", "t.yaml:1:9", "it holds '/'"},
		{"not YAML", "question: q", "question: [", "t.yaml:", ""},
		{"two documents", "question: q", "question: q\n---\nladder: u", "t.yaml", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := strings.Replace(whole, c.from, c.to, 1)
			if src == whole {
				t.Fatalf("the case changes nothing")
			}
			_, err := arms.ParseLadder("t.yaml", []byte(src))
			var fe *arms.FileError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a *FileError", err)
			}
			if !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.what) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want %q … %q on one line", err, c.at, c.what)
			}
		})
	}
	if _, err := arms.ParseLadder("t.yaml", nil); err == nil {
		t.Error("an empty file was accepted")
	}
}
