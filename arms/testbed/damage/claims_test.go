package damage

import (
	"fmt"

	"kvladder/arms/testbed/model"
)

// claim is something a table has to show: what a case says about the questions
// of one class and kind.
type claim struct {
	place
	says string
	// complaint returns what is wrong with a cell that has rows, or "".
	complaint func(cell) string
}

// lost wants nearly all answers wrong: at most one in eight right.
func lost(c cell) string {
	if n := c.right(); 8*n > len(c) {
		return fmt.Sprintf("%d of %d right, want next to none", n, len(c))
	}
	return ""
}

// dead wants every answer wrong.
func dead(c cell) string {
	if n := c.right(); n > 0 {
		return fmt.Sprintf("%d of %d right, want none", n, len(c))
	}
	return ""
}

// kept wants nearly all answers right: at most one in twenty wrong.
func kept(c cell) string {
	if n := len(c) - c.right(); 20*n > len(c) {
		return fmt.Sprintf("%d of %d wrong, want next to none", n, len(c))
	}
	return ""
}

// felt wants most log probabilities changed.
func felt(c cell) string {
	if d := c.d0(); len(d) < len(c) || !(quantile(d, .5) > 0) {
		return fmt.Sprintf("median d0 %v of %d, want above 0", quantile(d, .5), len(c))
	}
	return ""
}

// still wants no log probability changed by a single bit.
func still(c cell) string {
	if d := c.d0(); len(d) < len(c) || d[len(d)-1] != 0 {
		return fmt.Sprintf("d0 is not exactly 0 in %d rows", len(c))
	}
	return ""
}

// claims lists what must hold of the tables, whatever the number of prompts.
func claims() (out []claim) {
	add := func(dt model.DType, damage, class, kinds, says string, f func(cell) string) {
		for _, k := range []byte(kinds) {
			out = append(out, claim{place{damage, dt, class, k}, says, f})
		}
	}
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		add(dt, "clean", "bystander", "KTP", "still", still)
		for _, d := range []string{
			"F01 attention to the last full block, state of the snapshot before", "F03 attention to ext, state of local",
			"state one snapshot early", "state of another prompt", "state zero (F04)",
		} {
			add(dt, d, "victim", "T", "lost", lost)
			add(dt, d, "bystander", "KT", "kept", kept)
		}
		for _, d := range []string{"one block zeroed", "one block of another prompt", "one block replaced by its neighbour"} {
			add(dt, d, "victim", "K", "lost", lost)
			add(dt, d, "bystander", "KT", "kept", kept)
		}
		add(dt, "F07 front slice, rest unfilled", "victim", "K", "lost", lost)
		add(dt, "two blocks swapped", "victim", "K", "kept", kept)
		add(dt, "two blocks swapped", "bystander", "KT", "kept", kept)
		add(dt, "all blocks of another prompt", "victim", "K", "lost", lost)
		add(dt, "window blocks zeroed", "victim", "P", "lost", lost)
		add(dt, "window blocks of another prompt", "victim", "P", "lost", lost)
		add(dt, "L1 K and V x1.2, all loaded blocks", "victim", "K", "lost", lost)
		for _, d := range []string{
			"L1 K and V x1.002, all loaded blocks", "L1 K and V x1.02, all loaded blocks", "L1 K and V x1.02, one block",
			"bit of L1 K, head 0, dim 8: sign", "bit of L1 V, head 0, dim 0: sign",
		} {
			add(dt, d, "victim", "K", "kept", kept)
			add(dt, d, "victim", "K", "felt", felt)
		}
		for _, d := range []string{"state x1.02", "state + 0.02 noise", "bit of state[0][3][5]: sign"} {
			add(dt, d, "victim", "T", "kept", kept)
			add(dt, d, "victim", "T", "felt", felt)
		}
	}
	for _, d := range []string{"F02 scales lost, all loaded blocks", "F02 scales lost in [local, ext)"} {
		add(model.FP8, d, "victim", "KT", "dead", dead)
	}
	return out
}

// check returns a complaint for every claim that t breaks. A place without rows
// breaks its claims: nothing was seen there.
func (t *table) check() (out []string) {
	for _, c := range claims() {
		rows := t.cells[c.place]
		s := "no questions fell there"
		if len(rows) > 0 {
			s = c.complaint(rows)
		}
		if s != "" {
			out = append(out, fmt.Sprintf("%s, %s, %c %s: %s", c.damage, c.dt, c.kind, c.class, s))
		}
	}
	return out
}
