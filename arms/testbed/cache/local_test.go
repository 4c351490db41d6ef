package cache

import (
	"slices"
	"testing"

	"kvladder/arms/testbed/model"
)

func tokens(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i % model.Vocab
	}
	return out
}

// TestChain checks what a hash covers: changing any one thing changes the hash
// of the block it is in and of all later ones, and of no earlier one.
func TestChain(t *testing.T) {
	base := Chain(Root("0"), tokens(70), "", 16)
	if len(base) != 4 {
		t.Fatalf("70 tokens have 4 full blocks, chain has %d", len(base))
	}
	differ := func(name string, other []Hash, from int) {
		t.Helper()
		for i := range base {
			if same := base[i] == other[i]; same != (i < from) {
				t.Errorf("%s: block %d, same is %t", name, i, same)
			}
		}
	}
	for _, at := range []int{0, 15, 16, 40, 63} {
		changed := tokens(70)
		changed[at]++
		differ("a token", Chain(Root("0"), changed, "", 16), at/16)
	}
	differ("the salt", Chain(Root("0"), tokens(70), "s", 16), 0)
	differ("the seed", Chain(Root("1"), tokens(70), "", 16), 0)
	differ("a random root", Chain(RandomRoot(), tokens(70), "", 16), 0)
	differ("the unfinished block", Chain(Root("0"), append(tokens(64), 9, 9), "", 16), 4)

	grown := Chain(Root("0"), tokens(30), "", 16)
	grown = Extend(grown, Root("0"), tokens(70), "", 16)
	if !slices.Equal(grown, base) {
		t.Error("a chain grown in two steps differs from one made at once")
	}
}

// TestReach publishes 8 blocks and two snapshots and takes some away.
func TestReach(t *testing.T) {
	l := NewLocal(8, model.BF16, model.Geometry{}, Healthy())
	chain := Chain(Root("0"), tokens(128), "", 16)
	for i, h := range chain {
		a, _ := l.Attention.Take()
		l.Attention.Publish(a, h)
		l.Attention.Release(a)
		if i == 2 {
			continue // window block 2, positions 32..47
		}
		w, _ := l.Window.Take()
		l.Window.Publish(w, h)
		l.Window.Release(w)
	}
	for _, b := range []int{64, 128} {
		s, _ := l.States.Take()
		l.States.Publish(s, chain[b/16-1])
		l.States.Release(s)
	}
	if got := l.AttentionRun(chain); got != 8 {
		t.Errorf("attention run %d, want 8", got)
	}
	// A query at 64 sees 17..63, blocks 1..3; one at 96 sees 49..95, blocks 3..5.
	for n, want := range map[int]bool{32: true, 48: false, 64: false, 80: false, 96: true, 128: true} {
		if got := l.WindowKnown(chain, n); got != want {
			t.Errorf("window at %d: %t, want %t", n, got, want)
		}
	}
	for n, want := range map[int]int{63: 0, 64: 64, 127: 64, 128: 128} {
		if got := l.DeepestSnapshot(chain, n); got != want {
			t.Errorf("deepest snapshot at or below %d: %d, want %d", n, got, want)
		}
	}
	other := Chain(Root("0"), append(tokens(20), tokens(108)...), "", 16)
	if got := l.AttentionRun(other); got != 1 {
		t.Errorf("a prompt that shares 20 tokens runs %d blocks, want 1", got)
	}
	if !l.Forget() || l.AttentionRun(chain) != 0 || l.DeepestSnapshot(chain, 128) != 0 {
		t.Error("something is still found after Forget")
	}
}

// TestForgetIsAllOrNothing holds one window block: no group may be emptied.
func TestForgetIsAllOrNothing(t *testing.T) {
	l := NewLocal(4, model.FP8, model.Geometry{}, Healthy())
	chain := Chain(Root("0"), tokens(16), "", 16)
	a, _ := l.Attention.Take()
	l.Attention.Publish(a, chain[0])
	l.Attention.Release(a)
	w, _ := l.Window.Take()
	if l.Forget() || l.AttentionRun(chain) != 1 {
		t.Error("emptied a group while another was in use")
	}
	l.Window.Release(w)
	if !l.Forget() || l.AttentionRun(chain) != 0 {
		t.Error("refused although nothing was in use")
	}
}

// TestTakenBlocksAreFresh dirties a block, recycles it and looks for the dirt.
func TestTakenBlocksAreFresh(t *testing.T) {
	l := NewLocal(4, model.FP8, model.Geometry{}, Healthy())
	clean := model.NewBlock(model.Attention, model.FP8)
	for range 3 * l.Attention.Size() {
		id, err := l.Attention.Take()
		if err != nil {
			t.Fatal(err)
		}
		b := l.Attention.Item(id)
		if !slices.Equal(b.AppendScales(b.AppendCodes(nil)), clean.AppendScales(clean.AppendCodes(nil))) {
			t.Fatal("a recycled block still has its last holder's content")
		}
		dirt := b.AppendCodes(nil)
		dirt[0] = 0x41
		if err := b.SetCodes(dirt); err != nil {
			t.Fatal(err)
		}
		l.Attention.Release(id)
	}
}
