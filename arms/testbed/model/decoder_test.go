package model

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

// cacheBytes joins everything a sequence stored.
func cacheBytes(s *Sequence) []byte {
	out := s.State.AppendBinary(nil)
	for _, bs := range [][]*Block{s.Attention, s.Window} {
		for _, b := range bs {
			if b != nil {
				out = b.AppendScales(b.AppendCodes(out))
			}
		}
	}
	return out
}

// restore copies the first n positions of s through bytes into a sequence with
// room for size, given the state snapshot of n. Window blocks that no position
// from n on sees stay nil.
func restore(t *testing.T, s *Sequence, snapshot []byte, dt DType, n, size int) *Sequence {
	t.Helper()
	c := newSequence(dt, size)
	c.Pos = n
	if err := c.State.SetBinary(snapshot); err != nil {
		t.Fatal(err)
	}
	move := func(to, from *Block) {
		if err := to.SetScales(from.AppendScales(nil)); err != nil {
			t.Fatal(err)
		}
		if err := to.SetCodes(from.AppendCodes(nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n / BlockTokens {
		move(c.Attention[i], s.Attention[i])
		if (i+1)*BlockTokens <= n-Window+1 {
			c.Window[i] = nil
		} else {
			move(c.Window[i], s.Window[i])
		}
	}
	return c
}

// TestResume computes a prompt token by token, then in other splits, then from
// serialised caches at each boundary, and wants the same bits each time.
func TestResume(t *testing.T) {
	ids := goldens(t)[0].Runs[0].Ids
	d := New(DefaultSeed).Decoder()
	for _, dt := range []DType{BF16, FP8} {
		full := newSequence(dt, len(ids))
		var logits []string
		snapshots := map[int][]byte{}
		for _, id := range ids {
			logits = append(logits, digest(d.Step(full, id, true)))
			if full.Pos%StateEvery == 0 {
				snapshots[full.Pos] = full.State.AppendBinary(nil)
			}
		}
		want := cacheBytes(full)

		follow := func(name string, s *Sequence, splits []int) {
			t.Helper()
			from := s.Pos
			for i := 0; s.Pos < len(ids); i++ {
				n := min(splits[i%len(splits)], len(ids)-s.Pos)
				lg := d.Prefill(s, ids[s.Pos:s.Pos+n], true)
				if digest(lg) != logits[s.Pos-1] {
					t.Fatalf("%s %s: logits of position %d differ", dt, name, s.Pos-1)
				}
			}
			if from == 0 && !bytes.Equal(cacheBytes(s), want) {
				t.Errorf("%s %s: the cache differs", dt, name)
			}
			for i, b := range s.Window {
				if b == nil {
					s.Window[i] = full.Window[i]
				}
			}
			if !bytes.Equal(cacheBytes(s), want) {
				t.Errorf("%s %s: the cache written after the resume differs", dt, name)
			}
		}
		follow("at once", newSequence(dt, len(ids)), []int{len(ids)})
		follow("chunks", newSequence(dt, len(ids)), []int{7, 23, 64, 1, 5, 100})
		for _, n := range []int{64, 128, 192} {
			for _, splits := range [][]int{{len(ids)}, {1}, {3, 40, 11}} {
				follow(fmt.Sprintf("resumed at %d in %v", n, splits), restore(t, full, snapshots[n], dt, n, len(ids)), splits)
			}
		}

		// The same comparison sees a snapshot taken one boundary early.
		stale := restore(t, full, snapshots[128], dt, 192, len(ids))
		if digest(d.Prefill(stale, ids[192:], true)) == logits[len(ids)-1] {
			t.Errorf("%s: a stale state changed nothing", dt)
		}
	}
}

// TestWholePage leaves the last owner's data in the blocks. Finite leftovers
// change no bit in either reading; a NaN reaches the logits only through the
// reading of whole pages, even where the prompt ends a block, since earlier
// positions of the block have read it.
func TestWholePage(t *testing.T) {
	ids := goldens(t)[0].Runs[0].Ids[:80]
	d := New(DefaultSeed).Decoder()
	for _, dt := range []DType{BF16, FP8} {
		run := func(whole bool, leftover byte) []float32 {
			s := newSequence(dt, len(ids))
			s.WholePage = whole
			for _, b := range append(slices.Clone(s.Attention), s.Window...) {
				codes := b.AppendCodes(nil)
				for i := range codes {
					codes[i] = leftover
				}
				if err := b.SetCodes(codes); err != nil {
					t.Fatal(err)
				}
			}
			return slices.Clone(d.Prefill(s, ids, true))
		}
		clean := digest(run(false, 0))
		for _, c := range []struct {
			whole    bool
			leftover byte
		}{{true, 0}, {false, 0x35}, {true, 0x35}, {false, 0xff}} {
			if digest(run(c.whole, c.leftover)) != clean {
				t.Errorf("%s: whole pages %v with leftovers %#x changed the logits", dt, c.whole, c.leftover)
			}
		}
		lg := run(true, 0xff)
		for id, x := range lg {
			if x == x {
				t.Fatalf("%s: logit %d is %g, want NaN from a leftover NaN", dt, id, x)
			}
		}
		if argmax(lg) != 0 {
			t.Errorf("%s: greedy among NaN takes %d, want 0", dt, argmax(lg))
		}
	}
}

// TestTop3 holds one prompt against published figures of seed 7.
func TestTop3(t *testing.T) {
	d := New(7).Decoder()
	ids := Encode("note: tag T03 is 772 .\nquestion: tag T03 ?")
	for _, c := range []struct {
		dt            DType
		logits, state string
		lp            map[int]string
	}{
		{BF16, "1b15de7da49a0030", "0ac940782251b390", map[int]string{265: "-0.056753", 264: "-5.350749", 49: "-5.647219"}},
		{FP8, "13d14614e25283c5", "3a855babad35d6f0", map[int]string{265: "-0.056558", 264: "-5.356946", 49: "-5.686720"}},
	} {
		s := newSequence(c.dt, len(ids))
		lg := d.Prefill(s, ids, true)
		if digest(lg) != c.logits || digest(s.State[:]) != c.state {
			t.Errorf("%s: logits %s and state %s, want %s and %s", c.dt, digest(lg), digest(s.State[:]), c.logits, c.state)
		}
		lp := LogSoftmax(lg, nil)
		for id, want := range c.lp {
			if got := fmt.Sprintf("%.6f", lp[id]); got != want {
				t.Errorf("%s: logprob of %d is %s, want %s", c.dt, id, got, want)
			}
		}
	}
}

// TestConcurrent shares one model among decoders.
func TestConcurrent(t *testing.T) {
	m, ids := New(DefaultSeed), filler(100)
	want := digest(m.Decoder().Prefill(newSequence(BF16, 100), ids, true))
	var wg sync.WaitGroup
	got := make([]string, 4)
	for i := range got {
		wg.Go(func() { got[i] = digest(m.Decoder().Prefill(newSequence(BF16, 100), ids, true)) })
	}
	wg.Wait()
	for i, g := range got {
		if g != want {
			t.Errorf("decoder %d: %s, want %s", i, g, want)
		}
	}
}

func TestMisuse(t *testing.T) {
	d := New(DefaultSeed).Decoder()
	for want, call := range map[string]func(){
		"no block for positions 16..31": func() { d.Prefill(newSequence(BF16, 16), filler(17), false) },
		"token id 639 at position 0":    func() { d.Step(newSequence(BF16, 16), Vocab, false) },
		"token id -1 at position 0":     func() { d.Step(newSequence(BF16, 16), -1, false) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			call()
		}()
	}
	if lg := d.Prefill(newSequence(BF16, 16), nil, true); lg != nil {
		t.Error("logits of no tokens")
	}
	if lg := d.Step(newSequence(BF16, 16), BOS, false); lg != nil {
		t.Error("logits that nobody asked for")
	}
}

func TestStateBytes(t *testing.T) {
	var s, c State
	for i := range s {
		s[i] = float32(i) - 0.5
	}
	s[3] = float32(math.Inf(1))
	b := s.AppendBinary(nil)
	if len(b) != 8192 {
		t.Fatalf("%d bytes, want 8192", len(b))
	}
	if err := c.SetBinary(b); err != nil || c != s {
		t.Errorf("the state did not come back: %v", err)
	}
	if c.SetBinary(b[:8191]) == nil {
		t.Error("a short state was accepted")
	}
}
