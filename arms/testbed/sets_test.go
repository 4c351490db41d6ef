package testbed

import (
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms/testbed/model"
	"kvladder/prompts"
)

// The frozen sets, on the engine that they were drawn for. What they expect was written
// without asking it.

func openSet(t *testing.T, name string) *prompts.Set {
	t.Helper()
	s, err := prompts.Open(filepath.Join("..", "..", "prompts", "sets", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pass replays a set once and returns the ids of the wrong answers and the answers. With
// primed set each prompt's prime goes out before it.
func pass(t *testing.T, tb *Testbed, s *prompts.Set, primed bool) (wrong map[string]bool, all []answer) {
	t.Helper()
	wrong = map[string]bool{}
	for _, p := range s.Prompts {
		if primed && p.Prime != nil {
			begin(t, tb.Ranks[0], p.Tokens[:p.Prime.Tokens], 1, "")()
		}
		a := begin(t, tb.Ranks[0], p.Tokens, s.MaxTokens, "")()
		if strings.TrimSpace(a.text()) != p.Expect.Needles[0].Answer {
			wrong[p.ID] = true
		}
		all = append(all, a)
	}
	return wrong, all
}

var dtypes = []model.DType{model.BF16, model.FP8}

// A healthy engine answers every frozen question, without reuse and with it, and each
// request takes from the local cache and from the store what its class plans.
func TestFrozenSetsAreAnswered(t *testing.T) {
	for _, name := range []string{"demo-48", "other-48", "t1-48", "sub-block-12"} {
		s := openSet(t, name)
		for _, dt := range dtypes {
			plain := start(t, Config{DType: dt, NoPrefixCaching: true})
			wrong, want := pass(t, plain, s, false)
			if len(wrong) > 0 {
				t.Errorf("%s, %s: wrong without reuse: %v", name, dt, wrong)
			}
			tb := start(t, Config{DType: dt, Connector: true})
			pass(t, tb, s, false) // fills the store
			resetLocal(t, tb)
			wrong, got := pass(t, tb, s, true)
			if len(wrong) > 0 {
				t.Errorf("%s, %s: wrong on mixed hits: %v", name, dt, wrong)
			}
			for i, p := range s.Prompts {
				if !got[i].same(want[i]) {
					t.Errorf("%s, %s, %s: logprobs differ from those without reuse", name, dt, p.ID)
				}
				if sp := got[i].split; sp.Local != p.Class.Local || sp.External != p.Class.External {
					t.Errorf("%s, %s: %d local and %d external tokens, its class plans %d and %d",
						name, p.ID, sp.Local, sp.External, p.Class.Local, p.Class.External)
				}
			}
		}
	}
}

// between reports whether the asked needle of p rides on the recurrent state with its rows in
// [lo, hi).
func between(p prompts.Prompt, lo, hi int) bool {
	x := p.Expect.Needles[0]
	return x.Rides == "recurrent" && x.Offset >= lo && x.End <= hi
}

// The story of t1-48, on a first pass over an empty store. Where the hit is the maximum over
// groups (F01) exactly the tags between the local snapshot and the attention hit are lost and
// no token comes from the store. With the minimum over groups the store is read, and then
// dropped scales (F02) spoil every request that read it in fp8 and none in bf16, while a
// state left behind (F03) spoils the tags in the span that was read.
func TestDivergentHitStory(t *testing.T) {
	const R, A = model.StateEvery, model.BlockTokens
	s := openSet(t, "t1-48")
	healthy := start(t, Config{Connector: true})
	_, plan := pass(t, healthy, s, false)

	lost := map[string]bool{}    // F01: rows in [kR, H')
	read := map[string]bool{}    // reads the store
	spliced := map[string]bool{} // F03: rows in [kR, k'R)
	behind := 0                  // rows in [k'R, H')
	for i, p := range s.Prompts {
		sp := plan[i].split
		if sp.External == 0 {
			continue
		}
		read[p.ID] = true
		local, stored := sp.Local, sp.Local+sp.External
		hit := stored + R - A
		if between(p, local, stored) {
			spliced[p.ID] = true
		}
		if between(p, stored, hit) {
			behind++
		}
		if between(p, local, hit) {
			lost[p.ID] = true
		}
	}
	if behind < 12 || len(read)-len(lost) < 10 || len(read) != 36 {
		t.Fatalf("%d read the store, %d ask behind the boundary, %d lose nothing", len(read), behind, len(read)-len(lost))
	}

	check := func(dt model.DType, want map[string]bool, external int, faults ...string) {
		t.Helper()
		tb := start(t, Config{DType: dt, Connector: true, Faults: faults})
		wrong, all := pass(t, tb, s, false)
		for _, p := range s.Prompts {
			if wrong[p.ID] != want[p.ID] {
				t.Errorf("%s %v, %s: wrong is %v, want %v", dt, faults, p.ID, wrong[p.ID], want[p.ID])
			}
		}
		got := 0
		for _, a := range all {
			got += a.split.External
		}
		if got != external {
			t.Errorf("%s %v: %d tokens from the store, want %d", dt, faults, got, external)
		}
	}
	total := 0
	for _, a := range plan {
		total += a.split.External
	}
	for _, dt := range dtypes {
		check(dt, nil, total)
		check(dt, lost, 0, "F01")
		check(dt, lost, 0, "F01", "F02", "F03")
		check(dt, spliced, total, "F03")
	}
	check(model.FP8, read, total, "F02", "F03")
	check(model.FP8, read, total, "F02")
	check(model.BF16, nil, total, "F02")
	check(model.BF16, spliced, total, "F02", "F03")
}
