package damage

import (
	"flag"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"kvladder/arms/testbed/model"
)

var (
	prompts = flag.Int("prompts", 4, "prompts of each kind to damage; RESULTS.md was made with 40")
	weights = flag.Uint64("weights", model.DefaultSeed, "seed of the model; the claims are made for the default")
)

// seed selects the prompts of all tests here, whatever the model.
const seed = 20

// measure damages n prompts of a kind in both formats.
func measure(n int, pins bool) *table {
	m := model.New(*weights)
	parts := make([]*table, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			parts[i] = measureOne(m.Decoder(), uint64(i), pins)
		})
	}
	wg.Wait()
	t := newTable()
	for _, p := range parts {
		t.merge(p)
	}
	t.titles = []string{t.title(map[bool]string{false: "blocks and state", true: "window"}[pins])}
	return t
}

func measureOne(d *model.Decoder, i uint64, pins bool) *table {
	make := cutPrompt
	stream := 3 * i
	if pins {
		make, stream = pinPrompt, 1<<32+3*i
	}
	p, other := make(rand.New(rand.NewPCG(seed, stream))), make(rand.New(rand.NewPCG(seed, stream+1)))
	t := newTable()
	t.count(p)
	for _, dt := range []model.DType{model.FP8, model.BF16} {
		s := newScene(d, dt, p, other, rand.New(rand.NewPCG(seed, stream+2)))
		cases := append(s.structural(), s.small()...)
		if pins {
			cases = s.windowed()
		}
		healthy := s.healthy()
		advance(d, healthy, dt, p.ids[s.end:], false)
		reference := map[needle]reply{}
		for _, c := range cases {
			t.small[c.name] = c.small
			if c.seq.Pos < len(p.ids) {
				advance(d, c.seq, dt, p.ids[c.seq.Pos:], false)
			}
			for _, q := range s.questions(c, int(i)) {
				ref, ok := reference[q]
				if !ok {
					ref = ask(d, healthy, dt, q)
					reference[q] = ref
					t.asked++
					if !slices.Equal(ref.tokens, q.answer()) {
						t.missed++
					}
				}
				got := ask(d, c.seq, dt, q)
				first := ref.tokens[0]
				t.add(place{c.name, dt, c.class(q), q.kind}, row{
					right: slices.Equal(got.tokens, q.answer()),
					d0:    math.Abs(got.first[first] - ref.first[first]),
					got:   got.tokens,
				})
			}
		}
	}
	return t
}

// questions picks what to ask about a case: two of each class and kind, or one,
// the scene's key among them, the rest in an order that changes with i.
func (s *scene) questions(c damaged, i int) (out []needle) {
	rank := func(n needle) int {
		if n == s.key {
			return -1
		}
		return (7*n.index + i) % 61
	}
	sorted := slices.Clone(s.c.needles)
	slices.SortStableFunc(sorted, func(a, b needle) int { return rank(a) - rank(b) })
	most, taken := 2, map[string]int{}
	if c.small {
		most = 1
	}
	for _, n := range sorted {
		class := c.class(n)
		at := class + string(n.kind)
		if class == "" || taken[at] == most {
			continue
		}
		taken[at]++
		out = append(out, n)
	}
	return out
}

// measured is the table the tests share.
var measured = sync.OnceValue(func() *table {
	t := measure(count(), false)
	t.merge(measure(count(), true))
	return t
})

// count is the number of prompts of each kind.
func count() int {
	if raceEnabled {
		return min(*prompts, 3)
	}
	return *prompts
}

// TestDamage prints the table of damages and holds it to the claims.
func TestDamage(t *testing.T) {
	t.Log("\n" + measured().markdown())
	for _, s := range measured().check() {
		t.Error(s)
	}
}

// TestClaims breaks every claim in turn and wants it said.
func TestClaims(t *testing.T) {
	whole := measured()
	for _, c := range claims() {
		rows := whole.cells[c.place]
		try := func(what string, change func(row) row, keep bool) {
			t.Helper()
			var turned cell
			for _, r := range rows {
				if keep {
					turned = append(turned, change(r))
				}
			}
			broken := table{cells: maps.Clone(whole.cells)}
			broken.cells[c.place] = turned
			if len(broken.check()) <= len(whole.check()) {
				t.Errorf("%s, %s, %c %s is said to be %s, and %s goes unseen", c.damage, c.dt, c.kind, c.class, c.says, what)
			}
		}
		try("that nothing was asked", nil, false)
		switch c.says {
		case "lost", "dead":
			try("a right answer", func(r row) row { r.right = true; return r }, true)
		case "kept":
			try("a wrong answer", func(r row) row { r.right = false; return r }, true)
		case "felt":
			try("a change of 0", func(r row) row { r.d0 = 0; return r }, true)
		case "still":
			try("a changed bit", func(r row) row { r.d0 = 0x1p-52; return r }, true)
			try("a NaN", func(r row) row { r.d0 = math.NaN(); return r }, true)
		default:
			t.Errorf("claim %q is never broken", c.says)
		}
	}
}
