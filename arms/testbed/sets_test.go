package testbed

import (
	"strings"
	"testing"

	"kvladder/arms/testbed/model"
	"kvladder/prompts"
)

func openSet(t *testing.T, name string) *prompts.Set {
	t.Helper()
	s, err := prompts.Open("/tmp/fzout/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScratch(t *testing.T) {
	for _, name := range []string{"mixed", "needle", "shared-prefix", "partial-hit", "t1", "sub-block"} {
		s := openSet(t, name)
		for _, dt := range []model.DType{model.BF16, model.FP8} {
			tb := start(t, Config{DType: dt, NoPrefixCaching: true})
			wrong := 0
			for _, p := range s.Prompts {
				a := ask(t, tb, p.Tokens)
				if strings.TrimSpace(a.text()) != p.Expect.Needles[0].Answer {
					wrong++
					t.Logf("%s %s %s: %q want %q (%s)", name, dt, p.ID, a.text(), p.Expect.Needles[0].Answer, p.Expect.Needles[0].Key)
				}
			}
			t.Logf("%s %s wrong %d", name, dt, wrong)
		}
	}
}

func TestScratchT1(t *testing.T) {
	s := openSet(t, "t1")
	for _, f := range [][]string{nil, {"F01"}, {"F02"}, {"F03"}, {"F02", "F03"}, {"F01", "F02", "F03"}} {
		tb := start(t, Config{DType: model.FP8, Connector: true, Faults: f})
		for _, pass := range []string{"COLD", "REPLAY", "WARM"} {
			if pass == "WARM" {
				resetLocal(t, tb)
			}
			wrong, loc, ext := "", 0, 0
			n := 0
			for _, p := range s.Prompts {
				a := ask(t, tb, p.Tokens)
				ok := strings.TrimSpace(a.text()) == p.Expect.Needles[0].Answer
				if ok {
					wrong += "."
				} else {
					wrong += "x"
					n++
				}
				loc += a.split.Local
				ext += a.split.External
				if f == nil && pass == "COLD" {
					t.Logf("%s n %d mod %d: local %d ext %d computed %d; ask %s [%d,%d)", p.ID, len(p.Tokens), len(p.Tokens)%64, a.split.Local, a.split.External, a.split.Computed, p.Expect.Needles[0].Key, p.Expect.Needles[0].Offset, p.Expect.Needles[0].End)
				}
			}
			t.Logf("%v %s %s %d local %d ext %d", f, pass, wrong, n, loc, ext)
		}
	}
}

func TestScratchMixed(t *testing.T) {
	for _, name := range []string{"mixed", "partial-hit", "t1", "shared-prefix"} {
		s := openSet(t, name)
		for _, f := range [][]string{nil, {"F01"}, {"F02"}, {"F03"}} {
			tb := start(t, Config{DType: model.FP8, Connector: true, Faults: f})
			for _, pass := range []string{"COLD", "REPLAY", "WARM", "PART"} {
				if pass == "WARM" || pass == "PART" {
					resetLocal(t, tb)
				}
				wrong, loc, ext := "", 0, 0
				n, off := 0, 0
				for _, p := range s.Prompts {
					if pass == "PART" && p.Prime != nil {
						begin(t, tb.Ranks[0], p.Tokens[:p.Prime.Tokens], 1, "")()
					}
					a := ask(t, tb, p.Tokens)
					ok := strings.TrimSpace(a.text()) == p.Expect.Needles[0].Answer
					if ok {
						wrong += "."
					} else {
						wrong += "x"
						n++
					}
					loc += a.split.Local
					ext += a.split.External
					if pass == "PART" && (a.split.Local != p.Class.Local || a.split.External != p.Class.External) {
						off++
					}
				}
				t.Logf("%s %v %s %s %d local %d ext %d, off plan %d", name, f, pass, wrong, n, loc, ext, off)
			}
		}
	}
}
