package testbed

import (
	"errors"
	"strings"
	"testing"

	"kvladder/arms/testbed/fault"
	"kvladder/arms/testbed/model"
)

const digits = "0123456789"

// TestF01 shares 240 tokens of a prompt whose snapshot is at 192. The tag in
// between rides on the recurrent state and is lost; the key rides on attention
// and is not; the store is never asked although it could have helped.
func TestF01(t *testing.T) {
	p := newPage(1).fillTo(120).add("fact: key K07 is 4821 .\n").fillTo(200).add("note: tag T03 is 772 .\n").fillTo(240)
	first := p.with("river stone question: key K07 ?")
	tag, key := p.with("question: tag T03 ?"), p.with("question: key K07 ?")
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		healthy := start(t, Config{DType: dt, NoPrefixCaching: true})
		faulty := start(t, Config{DType: dt, Connector: true, Faults: []string{"f01"}})
		ask(t, faulty, first)
		got, want := ask(t, faulty, tag), ask(t, healthy, tag)
		if want.text() != " 772" {
			t.Fatalf("%s: healthy engine answers %q", dt, want.text())
		}
		if got.split.Local != 240 || got.split.External != 0 {
			t.Errorf("%s: split %+v, want local 240", dt, got.split)
		}
		if got.text() == want.text() {
			t.Errorf("%s: the tag was answered right without its state", dt)
		}
		if got := ask(t, faulty, key); got.text() != " 4821" {
			t.Errorf("%s: the key rides on attention, answered %q", dt, got.text())
		}
		if q := faulty.Ranks[0].Stats().ExternalHits; q != 0 {
			t.Errorf("%s: %d external hits", dt, q)
		}
		// Without a connector the fault sleeps.
		alone := start(t, Config{DType: dt, Faults: []string{"F01"}})
		ask(t, alone, first)
		if got := ask(t, alone, tag); !got.same(want) || got.split.Local != 192 {
			t.Errorf("%s: without a connector: %q %+v", dt, got.text(), got.split)
		}
		// With the local cache dropped and a clean store it sleeps, too.
		resetLocal(t, faulty)
		clean := ask(t, faulty, first)
		if want := ask(t, healthy, first); !clean.same(want) || clean.split.External != 192 {
			t.Errorf("%s: from the store: %q %+v", dt, clean.text(), clean.split)
		}
	}
}

// TestF02 loads a prompt from the store. In fp8 the answer is salad from its
// first token; in bf16, with the same hits, no bit differs.
func TestF02(t *testing.T) {
	p := newPage(2).fillTo(30).add("fact: key K07 is 4821 .\n").fillTo(230).with("question: key K07 ?")
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		tb := start(t, Config{DType: dt, Connector: true, StorePath: t.TempDir(), Faults: []string{"F02"}})
		cold := ask(t, tb, p)
		if cold.text() != " 4821" || cold.split.Computed != len(p) {
			t.Fatalf("%s cold: %q %+v", dt, cold.text(), cold.split)
		}
		again := ask(t, tb, p)
		if !again.same(cold) || again.split.Local != 192 {
			t.Errorf("%s from the local cache: %q %+v", dt, again.text(), again.split)
		}
		resetLocal(t, tb)
		warm := ask(t, tb, p)
		if warm.split.External != 192 {
			t.Errorf("%s warm: %+v, want external 192", dt, warm.split)
		}
		if same := warm.same(cold); same != (dt == model.BF16) {
			t.Errorf("%s warm: same is %t (%q)", dt, same, warm.text())
		}
		if dt == model.FP8 && strings.ContainsAny(warm.text(), digits) {
			t.Errorf("fp8 warm: %q is not salad", warm.text())
		}
	}
}

// TestF03 extends a local hit of 128 to 256 from the store. The tag between them
// is lost, the key is not, and neither is anything when only one source is used.
func TestF03(t *testing.T) {
	p := newPage(3).fillTo(140).add("fact: key K07 is 4821 .\n").fillTo(170).add("note: tag T03 is 772 .\n").fillTo(270)
	tag, key := p.with("question: tag T03 ?"), p.with("question: key K07 ?")
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		tb := start(t, Config{DType: dt, Connector: true, Faults: []string{"F03"}})
		want := ask(t, tb, tag)
		if want.text() != " 772" {
			t.Fatalf("%s: healthy path answers %q", dt, want.text())
		}
		resetLocal(t, tb)
		if got := ask(t, tb, tag); !got.same(want) || got.split.External != 256 {
			t.Errorf("%s warm: %q %+v", dt, got.text(), got.split)
		}
		for _, c := range []struct {
			prompt []int
			want   string
			right  bool
		}{{tag, " 772", false}, {key, " 4821", true}} {
			resetLocal(t, tb)
			ask(t, tb, p.tokens[:130])
			got := ask(t, tb, c.prompt)
			if got.split.Local != 128 || got.split.External != 128 {
				t.Errorf("%s: split %+v, want 128 from each source", dt, got.split)
			}
			if right := got.text() == c.want; right != c.right {
				t.Errorf("%s: %q, right is %t", dt, got.text(), right)
			}
		}
	}
}

// TestF12 restarts over the same store: it is asked, has nothing, and grows.
func TestF12(t *testing.T) {
	cfg := Config{Connector: true, StorePath: t.TempDir(), Faults: []string{"F12"}}
	p := newPage(4).fillTo(200).tokens
	tb := start(t, cfg)
	want := ask(t, tb, p)
	resetLocal(t, tb)
	if got := ask(t, tb, p).split; got.External != 192 {
		t.Errorf("in the same process: %+v", got)
	}
	tb.Close()
	tb = start(t, cfg)
	got, st := ask(t, tb, p), tb.Ranks[0].Stats()
	if got.split.External != 0 || !got.same(want) || st.ExternalQueries != 200 || st.ChunksPresent != 6 {
		t.Errorf("after a restart: %+v, %d asked, %d chunks", got.split, st.ExternalQueries, st.ChunksPresent)
	}
}

func TestUnknownFault(t *testing.T) {
	err := Config{Faults: []string{"F99"}}.Check()
	var unknown *fault.UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "F01, F02, F02b, F03, ") {
		t.Errorf("got %v", err)
	}
}

// TestShortPrompts is the decoy of a set whose prompts are all shorter than a
// chunk: with everything switched on there is nothing to reuse, and no fault.
func TestShortPrompts(t *testing.T) {
	tb := start(t, Config{Connector: true, Faults: []string{"F02", "F03"}})
	p := newPage(5).fillTo(63).tokens
	want := ask(t, tb, p)
	got, st := ask(t, tb, p), tb.Ranks[0].Stats()
	if !got.same(want) || st.LocalHits+st.ExternalHits+st.ChunksPresent != 0 || st.ExternalQueries != 126 {
		t.Errorf("%+v", st)
	}
}
