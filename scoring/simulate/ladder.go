package simulate

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"kvladder/scoring"
)

// Outcome is what one simulated ladder came to.
type Outcome struct {
	First, Last scoring.Result // before and after the replicates
	Naive       bool           // some arm fails at least once and its reference never
}

// Climb draws one ladder, scores it, climbs the replicates that its rule registers for the
// arms that are suspect, and scores it again.
func (l *Lab) Climb(rng *rand.Rand) Outcome {
	d := l.draw(rng)
	wrongs := map[string]int{}
	for i := range d.design.Arms {
		a := &d.design.Arms[i]
		wrongs[a.Name] = d.climb(a, 0)
	}
	var o Outcome
	for i := range d.design.Arms {
		if a := &d.design.Arms[i]; a.Role == scoring.Judged && wrongs[a.Reference] == 0 && wrongs[a.Name] > 0 {
			o.Naive = true
		}
	}
	o.First = d.assess()
	o.Last = o.First
	for run := 1; run <= d.design.Rule.Replicates; run++ {
		again := scoring.Suspects(o.Last)
		if len(again) == 0 {
			break
		}
		for _, name := range again {
			if a, ok := d.design.ByName(name); ok {
				d.climb(a, run)
			}
		}
		o.Last = d.assess()
	}
	return o
}

// Tally counts ladders.
type Tally struct {
	Ladders    int
	Accused    int // some arm exits as corrupt
	F          int // some arm has F = y after its replicates
	FirstF     int // or before
	D          int // some arm has D = y: it moved in two processes, beside every control process
	Screen     int // some arm's request-level exceedance is significant, no second process asked
	Dirty      int // some arm's verdict is CONTROL_DIRTY
	K          int // some arm has K = n
	Suspect    int // some arm stays SUSPECT_UNCONFIRMED
	Divergent  int // some arm ends as SUSPECT_DIVERGENT
	Clean      int // every arm is CLEAN_BOUNDED
	Invalid    int // some arm's verdict is about the harness or the plan: the simulation itself is broken
	Naive      int
	FirstArmF0 int // the first arm has F = y before the replicates
	FirstArmF  int // and after
	Words      map[string]int
}

func (t *Tally) add(o Outcome, alpha float64) {
	t.Ladders++
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	any := func(r scoring.Result, ok func(a *scoring.ArmResult) bool) bool {
		for i := range r.Arms {
			if r.Arms[i].Verdict != nil && ok(&r.Arms[i]) {
				return true
			}
		}
		return false
	}
	column := func(c, v string) func(*scoring.ArmResult) bool {
		return func(a *scoring.ArmResult) bool { return a.Columns[c] == v }
	}
	word := func(w string) func(*scoring.ArmResult) bool {
		return func(a *scoring.ArmResult) bool { return *a.Verdict == w }
	}
	count(&t.Accused, any(o.Last, func(a *scoring.ArmResult) bool { return *a.Exit == scoring.ExitCorrupt }))
	count(&t.F, any(o.Last, column("F", "y")))
	count(&t.FirstF, any(o.First, column("F", "y")))
	count(&t.D, any(o.Last, column("D", "y")))
	count(&t.Screen, any(o.First, func(a *scoring.ArmResult) bool { return a.PExceedanceHolm != nil && *a.PExceedanceHolm <= alpha }))
	count(&t.K, any(o.Last, column("K", "n")))
	count(&t.Dirty, any(o.Last, word(scoring.ControlDirty)))
	count(&t.Suspect, any(o.Last, word(scoring.SuspectUnconfirmed)))
	count(&t.Divergent, any(o.Last, word(scoring.SuspectDivergent)))
	count(&t.Clean, !any(o.Last, func(a *scoring.ArmResult) bool { return *a.Exit != scoring.ExitClean }))
	count(&t.Invalid, any(o.Last, func(a *scoring.ArmResult) bool {
		return *a.Exit == scoring.ExitInvalid || *a.Exit == scoring.ExitDied
	}))
	count(&t.Naive, o.Naive)
	first := func(r scoring.Result) bool {
		return any(r, func(a *scoring.ArmResult) bool { return a.Name == "A1" && a.Columns["F"] == "y" })
	}
	count(&t.FirstArmF0, first(o.First))
	count(&t.FirstArmF, first(o.Last))
	if t.Words == nil {
		t.Words = map[string]int{}
	}
	for i := range o.Last.Arms {
		if v := o.Last.Arms[i].Verdict; v != nil {
			t.Words[*v]++
		}
	}
}

// Repeat climbs n ladders and counts. Ladder i draws from a source seeded by seed and i, so
// that the counts do not depend on how many processors share the work.
func (l *Lab) Repeat(n int, seed uint64) Tally {
	var (
		t    Tally
		mu   sync.Mutex
		wg   sync.WaitGroup
		next = make(chan int)
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				o := l.Climb(rand.New(rand.NewPCG(seed, uint64(i))))
				mu.Lock()
				t.add(o, l.design.Rule.Alpha.Divergence)
				mu.Unlock()
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return t
}
