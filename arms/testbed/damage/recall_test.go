package damage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"kvladder/arms/testbed/model"
)

// hay is a size of prompt: needles of each kind, and how many are asked for.
type hay struct {
	keys, tags, pins int
	shortest, spread int // tokens aimed at, drawn from [shortest, shortest+spread)
	most             int // questions of a kind and prompt
}

var hays = []hay{
	{4, 3, 1, 94, 36, 4},
	{8, 6, 2, 200, 1100, 8},
	{16, 12, 4, 560, 140, 6},
	{25, 19, 4, 720, 980, 9},
}

// recall is what the healthy model makes of one size of prompt.
type recall struct {
	prompts, shortest, longest int
	asked, right               map[string]int // by format and kind: "fp8 K"
	p1                         []float64      // probabilities of the tokens of right answers, both formats
	gap                        []float64      // |log probability in fp8 - in bf16| of bf16's first token
}

func newRecall() *recall {
	return &recall{shortest: math.MaxInt, asked: map[string]int{}, right: map[string]int{}}
}

func (a *recall) merge(b *recall) {
	a.prompts += b.prompts
	a.shortest, a.longest = min(a.shortest, b.shortest), max(a.longest, b.longest)
	for k, n := range b.asked {
		a.asked[k] += n
		a.right[k] += b.right[k]
	}
	a.p1, a.gap = append(a.p1, b.p1...), append(a.gap, b.gap...)
}

// String is the cells of a line of the table.
func (a *recall) String() string {
	slices.Sort(a.p1)
	slices.Sort(a.gap)
	var rates []string
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		var kinds []string
		for _, k := range "KTP" {
			at := fmt.Sprintf("%s %c", dt, k)
			kinds = append(kinds, fmt.Sprintf("%d/%d", a.right[at], a.asked[at]))
		}
		rates = append(rates, strings.Join(kinds, " "))
	}
	within := 0
	for _, p := range a.p1 {
		if p >= .6 && p <= .99 {
			within++
		}
	}
	return fmt.Sprintf("%d to %d | %d | %s | %s | %.3f %.3f %.3f %.3f | %.3f | %s %s %s",
		a.shortest, a.longest, a.prompts, rates[0], rates[1],
		quantile(a.p1, .01), quantile(a.p1, .05), quantile(a.p1, .5), quantile(a.p1, .95), float64(within)/float64(len(a.p1)),
		number(quantile(a.gap, .5)), number(quantile(a.gap, .95)), number(quantile(a.gap, 1)))
}

// remember asks one prompt's questions in both formats.
func remember(d *model.Decoder, h hay, r *rand.Rand) *recall {
	a := newRecall()
	p := encode(compose(r, h.keys, h.tags, h.pins, h.shortest+r.IntN(h.spread)))
	a.prompts, a.shortest, a.longest = 1, len(p.ids), len(p.ids)
	first := map[needle]reply{}
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		c := compute(d, dt, p)
		taken := map[byte]int{}
		for _, n := range p.needles {
			if taken[n.kind]++; taken[n.kind] > h.most {
				continue
			}
			got := ask(d, c.seq, dt, n)
			at := fmt.Sprintf("%s %c", dt, n.kind)
			a.asked[at]++
			if slices.Equal(got.tokens, n.answer()) {
				a.right[at]++
				a.p1 = append(a.p1, got.chosen...)
			}
			if dt == model.BF16 {
				first[n] = got
				continue
			}
			ref := first[n]
			a.gap = append(a.gap, math.Abs(got.first[ref.tokens[0]]-ref.first[ref.tokens[0]]))
		}
	}
	return a
}

// TestRecall prints how healthy caches answer, per size of prompt, and checks it;
// then it breaks what is checked and wants that said.
func TestRecall(t *testing.T) {
	m := model.New(*weights)
	n := max(1, count()/2)
	var b strings.Builder
	b.WriteString("\n| needles (K/T/P) | tokens | prompts | bf16 K T P | fp8 K T P | p1 q01 q05 median q95 | p1 in [.6,.99] | fp8-bf16 d0 median p95 max |\n|---|---|---|---|---|---|---|---|\n")
	total := newRecall()
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, h := range hays {
		parts := make([]*recall, n)
		var wg sync.WaitGroup
		for j := range n {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				parts[j] = remember(m.Decoder(), h, rand.New(rand.NewPCG(seed, uint64(2+i)<<32+uint64(j))))
			})
		}
		wg.Wait()
		sum := newRecall()
		for _, p := range parts {
			sum.merge(p)
		}
		fmt.Fprintf(&b, "| %d (%d/%d/%d) | %s |\n", h.keys+h.tags+h.pins, h.keys, h.tags, h.pins, sum)
		total.merge(sum)
	}
	fmt.Fprintf(&b, "| all | %s |\n", total)
	t.Log(b.String())
	for _, s := range total.check() {
		t.Error(s)
	}
	for _, broken := range []struct {
		what string
		do   func(*recall)
	}{
		{"no fp8 question", func(a *recall) { a.asked["fp8 K"], a.asked["fp8 T"], a.asked["fp8 P"] = 0, 0, 0 }},
		{"no right key in bf16", func(a *recall) { a.right["bf16 K"] = 0 }},
		{"certain answers", func(a *recall) { a.p1 = []float64{1, 1, 1} }},
		{"no probability", func(a *recall) { a.p1 = nil }},
	} {
		b := newRecall()
		b.merge(total)
		if broken.do(b); len(b.check()) <= len(total.check()) {
			t.Errorf("%s goes unseen", broken.what)
		}
	}
}

// check wants at least 99 of 100 answers right in either format, and the
// probabilities of their tokens where a small change of a logit shows in them.
func (a *recall) check() (out []string) {
	for _, dt := range []model.DType{model.BF16, model.FP8} {
		asked, right := 0, 0
		for _, k := range "KTP" {
			at := fmt.Sprintf("%s %c", dt, k)
			asked, right = asked+a.asked[at], right+a.right[at]
		}
		if asked == 0 || 100*right < 99*asked {
			out = append(out, fmt.Sprintf("%s: %d of %d right, want 99 of 100", dt, right, asked))
		}
	}
	p1 := slices.Sorted(slices.Values(a.p1))
	if p := quantile(p1, .5); !(p > .6 && p < .99) {
		out = append(out, fmt.Sprintf("median probability of an answer's token is %v, want it in (.6, .99)", p))
	}
	return out
}
