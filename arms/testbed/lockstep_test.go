package testbed

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// schedules is what may not depend on the clock: what each request was given from
// where, every load with the slots it wrote, and all that was counted.
type schedules struct {
	splits map[string]string
	loads  []sched.LoadRecord
	stats  sched.Stats
	peak   int
}

// disturbed has clients ask the same requests, each client one after another and
// after a pause that jitter decides, beside clients whose requests are aborted
// after some steps. It compares every answer with that of an engine without reuse.
func disturbed(t *testing.T, jitter uint64, lockstep bool) (schedules, []string) {
	g := model.Geometry{Block: 16, Every: 64}
	l := newLab(t, Config{Geometry: g, DType: model.FP8, Connector: true, StoreSteps: 3, LoadSteps: 4, Draft: 3, Blocks: g.Blocks(9 * g.Every)})
	e := l.tb.Ranks[0]
	const clients, aborting, rounds = 4, 2, 5
	out := schedules{splits: map[string]string{}}
	var mu sync.Mutex
	live := clients + aborting
	tell := func(n int) {
		if !lockstep {
			return
		}
		peak, err := e.Lockstep(n)
		if err != nil {
			t.Error(err)
		}
		out.peak = peak
	}
	tell(live)
	var all sync.WaitGroup
	for c := range clients + aborting {
		pause := rand.New(rand.NewPCG(jitter, uint64(c)))
		all.Go(func() {
			for i := range rounds {
				time.Sleep(time.Duration(pause.IntN(6000)) * time.Microsecond)
				r := request(scene(g, uint64(10+(i+c)%5), 1+(i*c)%3+1).tag((i + c) % 2))
				r.ID = fmt.Sprintf("c%d/%d", c, i)
				if c >= clients {
					r.Patience = 1 + (3*i+c)%7
				}
				got := submit(t, e, context.Background(), r)()
				mu.Lock()
				out.splits[r.ID] = fmt.Sprint(got.split, got.finish, len(got.tokens))
				if got.finish != sched.FinishAbort {
					r.Patience = 0
					l.compare(r.ID, r, got)
				}
				mu.Unlock()
			}
			mu.Lock()
			live--
			tell(live)
			mu.Unlock()
		})
	}
	all.Wait()
	out.loads, out.stats = e.Loads(), e.Stats()
	return out, l.what
}

// TestLockstep is the promise: however slow each client is, the schedule of a
// pass with several of them is the same, and no bit differs from an engine
// without reuse. Without lockstep the same pass has another schedule each time,
// which shows that the comparison can fail.
func TestLockstep(t *testing.T) {
	first, wrong := disturbed(t, 1, true)
	for _, w := range wrong {
		t.Error(w)
	}
	if first.peak < 3 {
		t.Errorf("at most %d requests ran at once: nothing is tried here", first.peak)
	}
	for _, n := range []struct {
		what string
		n    int
	}{{"preemptions", first.stats.Preemptions}, {"loads", len(first.loads)}, {"evictions", first.stats.Evictions}, {"aborts", first.stats.Finished[sched.FinishAbort]}} {
		if n.n == 0 {
			t.Errorf("no %s: nothing is tried here", n.what)
		}
	}
	for jitter := range uint64(3) {
		again, wrong := disturbed(t, 2+jitter, true)
		for _, w := range wrong {
			t.Error(w)
		}
		if diff := differs(first, again); diff != "" {
			t.Errorf("clients as slow as %d says: %s", 2+jitter, diff)
		}
	}
	free := 0
	for jitter := range uint64(3) {
		again, wrong := disturbed(t, 1+jitter, false)
		for _, w := range wrong {
			t.Error(w)
		}
		if differs(first, again) != "" {
			free++
		}
	}
	if free == 0 {
		t.Error("without lockstep the schedule is the same, too: the comparison sees nothing")
	}
}

// differs says where two schedules part.
func differs(a, b schedules) string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(a.splits)) {
		if a.splits[id] != b.splits[id] {
			out = append(out, fmt.Sprintf("%s %s, then %s", id, a.splits[id], b.splits[id]))
		}
	}
	if !reflect.DeepEqual(a.loads, b.loads) {
		out = append(out, fmt.Sprintf("%d loads, then %d, or others", len(a.loads), len(b.loads)))
	}
	if !reflect.DeepEqual(a.stats, b.stats) {
		out = append(out, fmt.Sprintf("counted %+v, then %+v", a.stats, b.stats))
	}
	return strings.Join(out, "; ")
}
