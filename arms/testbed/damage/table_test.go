package damage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"kvladder/arms/testbed/model"
)

// row is one question asked of a damaged cache.
type row struct {
	right bool
	d0    float64 // NaN where the damaged logits were
	got   []int
}

// place is where a row belongs.
type place struct {
	damage string
	dt     model.DType
	class  string
	kind   byte
}

// cell is the rows of one place.
type cell []row

// table collects rows and remembers the order of the damages.
type table struct {
	order  []string
	small  map[string]bool // the damages that only change numbers a little
	cells  map[place]cell
	titles []string // what was measured, one line a kind of prompt

	prompts, tokens int
	needles         map[byte]int
	shortest        int
	longest         int
	asked, missed   int // questions asked of healthy caches; those answered wrong
}

func newTable() *table {
	return &table{small: map[string]bool{}, cells: map[place]cell{}, needles: map[byte]int{}, shortest: math.MaxInt}
}

// count takes note of a prompt.
func (t *table) count(p prompt) {
	n := len(p.ids)
	t.prompts, t.tokens = t.prompts+1, t.tokens+n
	t.shortest, t.longest = min(t.shortest, n), max(t.longest, n)
	for _, n := range p.needles {
		t.needles[n.kind]++
	}
}

func (t *table) add(p place, r row) {
	if !slices.Contains(t.order, p.damage) {
		t.order = append(t.order, p.damage)
	}
	t.cells[p] = append(t.cells[p], r)
}

// merge appends o's rows to t's.
func (t *table) merge(o *table) {
	for _, d := range o.order {
		for p, c := range o.cells {
			if p.damage == d {
				for _, r := range c {
					t.add(p, r)
				}
			}
		}
	}
	maps.Copy(t.small, o.small)
	t.titles = append(t.titles, o.titles...)
	t.prompts, t.tokens = t.prompts+o.prompts, t.tokens+o.tokens
	t.shortest, t.longest = min(t.shortest, o.shortest), max(t.longest, o.longest)
	t.asked, t.missed = t.asked+o.asked, t.missed+o.missed
	for k, n := range o.needles {
		t.needles[k] += n
	}
}

// title describes what was measured.
func (t *table) title(what string) string {
	per := func(k byte) float64 { return float64(t.needles[k]) / float64(t.prompts) }
	return fmt.Sprintf("%s: %d prompts of %d to %d tokens (mean %d) with %.1f K, %.1f T and %.1f P on average; healthy caches answered %d of %d questions right.",
		what, t.prompts, t.shortest, t.longest, t.tokens/t.prompts, per('K'), per('T'), per('P'), t.asked-t.missed, t.asked)
}

func (c cell) right() (n int) {
	for _, r := range c {
		if r.right {
			n++
		}
	}
	return n
}

// d0 returns the values that are numbers, ascending.
func (c cell) d0() (out []float64) {
	for _, r := range c {
		if !math.IsNaN(r.d0) {
			out = append(out, r.d0)
		}
	}
	slices.Sort(out)
	return out
}

// quantile returns the value at share q of sorted x, or the mean of the two beside it.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	at := q * float64(len(x)-1)
	lo, hi := int(math.Floor(at)), int(math.Ceil(at))
	return x[lo] + (x[hi]-x[lo])*(at-float64(lo))
}

// String is "right/n, median d0 (largest d0)".
func (c cell) String() string {
	d := c.d0()
	s := fmt.Sprintf("%d/%d", c.right(), len(c))
	if len(d) > 0 {
		s += fmt.Sprintf(", %s (%s)", number(quantile(d, .5)), number(d[len(d)-1]))
	}
	if n := len(c) - len(d); n > 0 {
		s += fmt.Sprintf(", NaN %d", n)
	}
	return s
}

// number prints two digits of x.
func number(x float64) string { return strings.Replace(fmt.Sprintf("%.2g", x), "e-0", "e-", 1) }

// look says what the wrong answers of c consist of and quotes the most common.
func (c cell) look() string {
	kinds, seen := map[string]int{}, map[string]int{}
	wrong := 0
	for _, r := range c {
		if r.right {
			continue
		}
		wrong++
		text := model.Decode(r.got)
		seen[text]++
		kinds[describe(text, math.IsNaN(r.d0))]++
	}
	if wrong == 0 {
		return "none wrong"
	}
	var parts []string
	for _, k := range []string{"digits", "words", "mixed", "empty", "NaN"} {
		if n := kinds[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", k, float64(n)/float64(wrong)))
		}
	}
	texts := make([]string, 0, len(seen))
	for s := range seen {
		texts = append(texts, s)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(seen[b]-seen[a], cmp.Compare(a, b)) })
	return fmt.Sprintf("%s: %q", strings.Join(parts, ", "), texts[0])
}

// describe sorts an answer: "digits", "words", "mixed", "empty" or "NaN".
func describe(text string, nan bool) string {
	text = strings.ReplaceAll(text, " ", "")
	digits := 0
	for _, r := range text {
		if unicode.IsDigit(r) {
			digits++
		}
	}
	switch n := len([]rune(text)); {
	case nan:
		return "NaN"
	case n == 0:
		return "empty"
	case digits == n:
		return "digits"
	case digits == 0:
		return "words"
	}
	return "mixed"
}

// markdown prints the titles and two tables, one line a damage and format.
func (t *table) markdown() string {
	var b strings.Builder
	for _, s := range t.titles {
		b.WriteString(s + "\n")
	}
	for _, small := range []bool{false, true} {
		b.WriteString("\n| damage | KV | victims right, d0 median (max) | bystanders right, d0 median (max) | wrong answers |\n|---|---|---|---|---|\n")
		for _, d := range t.order {
			for _, dt := range []model.DType{model.BF16, model.FP8} {
				if t.small[d] == small {
					b.WriteString(t.line(d, dt))
				}
			}
		}
	}
	return b.String()
}

// line is the line of one damage and format, or "" if it was not measured.
func (t *table) line(damage string, dt model.DType) string {
	var all cell
	column := func(classes ...string) string {
		var out []string
		for _, class := range classes {
			for _, k := range []byte("KTP") {
				c := t.cells[place{damage, dt, class, k}]
				if len(c) == 0 {
					continue
				}
				label := string(k)
				if class == "moved" {
					label += " moved"
				}
				out = append(out, label+" "+c.String())
				all = append(all, c...)
			}
		}
		if out == nil {
			return "none"
		}
		return strings.Join(out, "; ")
	}
	victims, others := column("victim"), column("moved", "bystander")
	if all == nil {
		return ""
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", damage, dt, victims, others, all.look())
}
