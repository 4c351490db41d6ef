package receipts

import (
	"fmt"
	"slices"
	"strconv"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/scoring/compare"
)

// Timing is how long an arm's judged pass took, request by request in the order in which
// they went out. No verdict reads it. Absent requests and those of replicates are left out.
type Timing struct {
	Arm        string  `json:"arm"`
	Pass       int     `json:"pass"`
	FirstToken []int64 `json:"first_token_us"` // from sending to the first token, else to the first byte
	Total      []int64 `json:"total_us"`       // from sending to the last byte
}

// timingScan collects timings from a transcript, record by record.
type timingScan struct {
	plan *arms.Plan
	by   map[place]*Timing
	all  []place // in the order in which they appear
}

func newTimingScan(plan *arms.Plan) *timingScan {
	return &timingScan{plan: plan, by: map[place]*Timing{}}
}

func (s *timingScan) record(r *probes.Record) {
	if r.Kind != probes.KindReply || r.Run != 0 || r.Reply.Prime || r.Reply.Error != "" {
		return
	}
	spec, ok := s.plan.Design.ByName(r.Arm)
	pass := max(1, r.Reply.Pass)
	if !ok || s.plan.Design.Imported || pass != judgedPass(spec.Judge, spec.Passes) {
		return
	}
	first, total := r.Reply.FirstTokenAt-r.Reply.SentAt, r.Reply.LastAt-r.Reply.SentAt
	if r.Reply.FirstTokenAt == 0 {
		first = r.Reply.FirstByteAt - r.Reply.SentAt
	}
	// Without a clock there is nothing to say.
	if first <= 0 || total < first {
		return
	}
	k := place{r.Attempt, r.Arm}
	t := s.by[k]
	if t == nil {
		t = &Timing{Arm: r.Arm, Pass: pass}
		s.by[k] = t
		s.all = append(s.all, k)
	}
	t.FirstToken, t.Total = append(t.FirstToken, first), append(t.Total, total)
}

func judgedPass(judge, passes int) int {
	if judge > 0 {
		return judge
	}
	return max(1, passes)
}

// timings of the attempts that count, in plan order.
func (s *timingScan) timings(dead map[string]bool) []Timing {
	var out []Timing
	for _, spec := range s.plan.Design.Arms {
		for _, k := range s.all {
			if k.arm == spec.Name && !dead[k.attempt] {
				out = append(out, *s.by[k])
			}
		}
	}
	return out
}

// Spread is the median of a sample and a range that covers the true one with 95 %, in
// milliseconds.
type Spread struct {
	Median float64  `json:"median"`
	Low    *float64 `json:"low"` // nil below six values, which cannot cover it
	High   *float64 `json:"high"`
	N      int      `json:"n"`
}

// TimingChange sets one timing of an arm beside that of another receipt, by the exact rank
// test. More than 64 values a side are thinned evenly, and N says how many were taken.
type TimingChange struct {
	Arm         string   `json:"arm"`
	What        string   `json:"what"` // "first_token" or "total"
	Old         Spread   `json:"old"`
	New         Spread   `json:"new"`
	P           *float64 `json:"p"` // nil where there are fewer than four values a side: no p below 0.05 could come of it
	Significant bool     `json:"significant"`
}

// timingAlpha is the level at which a timing is said to have moved.
const timingAlpha = 0.05

// Delta is the change of the median, "~" where it is not significant.
func (t TimingChange) Delta() string {
	if !t.Significant || t.Old.Median == 0 {
		return "~"
	}
	return fmt.Sprintf("%+.2f%%", 100*(t.New.Median-t.Old.Median)/t.Old.Median)
}

// String is the spread as benchstat prints it: median, ± the wider half of its range.
func (s Spread) String() string {
	if s.Low == nil || s.High == nil || s.Median == 0 {
		return fmt.Sprintf("%.4gms ± ∞", s.Median)
	}
	half := max(*s.High-s.Median, s.Median-*s.Low)
	return fmt.Sprintf("%.4gms ± %.0f%%", s.Median, 100*half/s.Median)
}

func timingChanges(a, b *Receipt) []TimingChange {
	var out []TimingChange
	for _, x := range a.Predicate.Timings {
		i := slices.IndexFunc(b.Predicate.Timings, func(y Timing) bool { return y.Arm == x.Arm && y.Pass == x.Pass })
		if i < 0 {
			continue
		}
		y := b.Predicate.Timings[i]
		for _, w := range []struct {
			what string
			x, y []int64
		}{{"first_token", x.FirstToken, y.FirstToken}, {"total", x.Total, y.Total}} {
			if c, ok := timingChange(w.x, w.y); ok {
				c.Arm, c.What = x.Arm, w.what
				out = append(out, c)
			}
		}
	}
	return out
}

func timingChange(x, y []int64) (TimingChange, bool) {
	if len(x) == 0 || len(y) == 0 {
		return TimingChange{}, false
	}
	xs, ys := thin(x), thin(y)
	c := TimingChange{Old: spread(xs), New: spread(ys)}
	if len(xs) < 4 || len(ys) < 4 {
		return c, true
	}
	m, err := compare.MannWhitney(xs, ys)
	if err != nil {
		return c, true
	}
	p := round12(m.TwoSided)
	c.P, c.Significant = &p, p < timingAlpha
	return c, true
}

// thin gives at most 64 of the values, evenly spread over them, in milliseconds.
func thin(us []int64) []float64 {
	const most = 64
	n := min(most, len(us))
	out := make([]float64, n)
	for i := range n {
		out[i] = float64(us[i*len(us)/n]) / 1000
	}
	return out
}

func spread(x []float64) Spread {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	out := Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, N: n}
	if iv, err := compare.MedianInterval(x, 0.95); err == nil {
		out.Low, out.High = &iv.Low, &iv.High
	}
	return out
}

// round12 keeps 12 significant digits, as every derived number of a receipt does.
func round12(v float64) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64)
	if err != nil {
		return v
	}
	return x
}
