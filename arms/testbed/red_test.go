package testbed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/fault"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// lab asks an engine and one that reuses nothing, and notes where they differ.
type lab struct {
	t    *testing.T
	cfg  Config
	tb   *Testbed
	log  *safeBuffer
	what []string // what went wrong
}

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newLab(t *testing.T, cfg Config) *lab {
	cfg.NoiseSeed = 1
	l := &lab{t: t, cfg: cfg}
	l.boot()
	return l
}

// boot starts the engine, or starts it again.
func (l *lab) boot() {
	l.t.Helper()
	if l.tb != nil {
		l.tb.Close()
	}
	l.log = new(safeBuffer)
	var err error
	if l.tb, err = New(l.cfg, l.log); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.tb.Close)
}

// wants are the answers without reuse, by configuration and prompt.
var wants sync.Map

// want returns what an engine says that reuses nothing.
func (l *lab) want(r sched.Request) answer {
	l.t.Helper()
	key := fmt.Sprint(*seedOf(l.cfg), l.cfg.DType, l.cfg.Geometry, l.cfg.Epoch, r.Who.Adapter, r.Who.Image, r.MaxTokens, r.IgnoreEOS, r.Prompt)
	if a, ok := wants.Load(key); ok {
		return a.(answer)
	}
	plain := Config{ModelSeed: l.cfg.ModelSeed, DType: l.cfg.DType, Geometry: l.cfg.Geometry, Epoch: l.cfg.Epoch, NoPrefixCaching: true, PrefillBudget: 201}
	tb, err := New(plain, io.Discard)
	if err != nil {
		l.t.Fatal(err)
	}
	defer tb.Close()
	r.ID, r.Who.Salt = "", ""
	a := submit(l.t, tb.Ranks[0], context.Background(), r)()
	wants.Store(key, a)
	return a
}

func seedOf(cfg Config) *uint64 {
	if cfg.ModelSeed != nil {
		return cfg.ModelSeed
	}
	seed := uint64(DefaultModelSeed)
	return &seed
}

func request(prompt []int) sched.Request {
	return sched.Request{Prompt: prompt, MaxTokens: 6, Logprobs: 5}
}

// submit is begin for any request.
func submit(t testing.TB, e *sched.Engine, ctx context.Context, r sched.Request) func() answer {
	t.Helper()
	events, err := e.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return func() answer { return gather(events) }
}

// ask asks rank 0 and compares.
func (l *lab) ask(name string, r sched.Request) answer {
	l.t.Helper()
	return l.compare(name, r, submit(l.t, l.tb.Ranks[0], context.Background(), r)())
}

func (l *lab) compare(name string, r sched.Request, got answer) answer {
	l.t.Helper()
	if want := l.want(r); !got.same(want) {
		l.note("%s: %q instead of %q (local %d, external %d)", name, got.text(), want.text(), got.split.Local, got.split.External)
	}
	return got
}

// external notes when a number of tokens is not what the store should supply.
func (l *lab) external(name string, got answer, want int) {
	if got.split.External != want {
		l.note("%s: %d tokens from the store instead of %d", name, got.split.External, want)
	}
}

func (l *lab) note(format string, args ...any) {
	l.what = append(l.what, fmt.Sprintf(format, args...))
}

// resetLocal drops the local caches.
func (l *lab) resetLocal() { l.t.Helper(); resetLocal(l.t, l.tb) }

// scene is a page of n chunks and a little more, each with a tag and a key.
func scene(g model.Geometry, seed uint64, n int) *page {
	every := g.Filled().Every
	p := newPage(seed)
	for c := range n {
		p.fillTo(c*every + 20).add(fmt.Sprintf("note: tag T%02d is %d .\n", c, 100+(int(seed)*271+c*97)%900))
		p.fillTo(c*every + 36).add(fmt.Sprintf("fact: key K%02d is %d .\n", c, 1000+(int(seed)*4271+c*1297)%9000))
	}
	return p.fillTo(n*every + 12)
}

// tag asks for tag c.
func (p *page) tag(c int) []int { return p.with(fmt.Sprintf("question: tag T%02d ?", c)) }

// reds are the schedules in which each fault shows, and what it shows. A healthy
// engine goes through each of them without a note.
var reds = []struct {
	fault string
	says  string // in one of the notes
	cfg   func(model.Geometry) Config
	run   func(*lab, model.Geometry)
}{
	{"F01", "local 224, external 0", connected, func(l *lab, g model.Geometry) {
		p := scene(g, 1, 4)
		l.ask("first", request(p.tag(0)))
		// Shares everything up to a block in chunk 3; the only snapshot is behind it.
		fork := newPage(2)
		fork.tokens = append([]int(nil), p.tokens[:3*g.Every+g.Block*(32/g.Block)]...)
		got := l.ask("fork", request(fork.fillTo(len(fork.tokens)+30).tag(1)))
		if l.tb.Ranks[0].Stats().ExternalHits == 0 && got.split.External == 0 && got.split.Local > 0 && got.split.Local%g.Every != 0 {
			l.note("fork: local 224, external 0 (%d)", got.split.Local)
		}
	}},
	{"F02", "warm", fp8, warm},
	{"F02b", "warm", fp8, warm},
	{"F03", "partial", connected, partial},
	{"F04", "reloaded", connected, func(l *lab, g model.Geometry) {
		p := scene(g, 4, 4)
		l.ask("cold", request(p.tag(1)))
		l.expire()
		l.ask("local hit", request(p.tag(1)))
		if n := l.tb.Ranks[0].Stats().OfferedNull; n > 0 {
			l.note("stored %d null blocks", n)
		}
		l.resetLocal()
		l.ask("reloaded", request(p.tag(1)))
	}},
	{"F05", "bystander", connected, func(l *lab, g model.Geometry) {
		p := scene(g, 5, 4)
		l.ask("cold", request(p.tag(1)))
		before := l.tb.Ranks[0].Stats().NullChecksum
		l.resetLocal()
		l.ask("target", request(p.tag(1)))
		l.ask("bystander", request(scene(g, 6, 2).tag(1)))
		l.ask("bystander without the tag", request(scene(g, 6, 2).tag(3)))
		if after := l.tb.Ranks[0].Stats().NullChecksum; after != before {
			l.note("the null blocks changed")
		}
	}},
	{"F06", "AssertionError", connected, partial},
	{"F07", "partial", connected, func(l *lab, g model.Geometry) {
		p := scene(g, 7, 4)
		l.ask("cold", request(p.tag(1)))
		l.resetLocal()
		l.ask("prime", request(p.tokens[:2*g.Every+2]))
		l.ask("partial", request(p.with("question: key K03 ?")))
		l.ask("bystander on the prefix", request(p.tokens[:2*g.Every+9]))
	}},
	{"F08-strict", "AssertionError", pressed, pressure},
	{"F08-lenient", "from the store instead of", pressed, pressure},
	{"F09", "late", func(g model.Geometry) Config {
		return Config{Geometry: g, DType: model.FP8, NoPrefixCaching: true, Blocks: g.Blocks(6 * g.Every)}
	}, func(l *lab, g model.Geometry) {
		for i := range 3 {
			name := "early"
			if i > 0 {
				name = "late"
			}
			l.ask(name, request(scene(g, 9+uint64(i), 4).tag(1)))
		}
	}},
	{"F10", "repeat", func(g model.Geometry) Config {
		return Config{Geometry: g, PrefillBudget: g.Every * 25 / 16}
	}, func(l *lab, g model.Geometry) {
		p := scene(g, 12, 4)
		l.ask("first", request(p.tag(3)))
		l.ask("repeat", request(p.tag(3)))
	}},
	{"F11-salt", "another salt: 256 tokens", connected, identity(cache.Who{Salt: "other"}, "another salt")},
	{"F11-adapter", "another adapter", connected, identity(cache.Who{Adapter: "b"}, "another adapter")},
	{"F11-image", "another image", connected, identity(cache.Who{Image: "b"}, "another image")},
	{"F11-none", "another adapter", connected, identity(cache.Who{Salt: "other", Adapter: "b"}, "another adapter")},
	{"F11-local", "another salt: 256 tokens", func(g model.Geometry) Config { return Config{Geometry: g} }, func(l *lab, g model.Geometry) {
		p := request(scene(g, 11, 4).with("question: key K01 ?"))
		l.ask("first", p)
		q := p
		q.Who = cache.Who{Salt: "other"}
		if got := l.ask("another salt", q); got.split.Local > 0 {
			l.note("another salt: %d tokens of somebody else's", got.split.Local*256/(4*g.Every))
		}
		if got := l.ask("same salt", q); got.split.Local != 4*g.Every {
			l.note("same salt: %d tokens instead of %d", got.split.Local, 4*g.Every)
		}
	}},
	{"F12", "restarted: 0 tokens", connected, restart(nil)},
	{"F13", "restarted", connected, restart(func(c *Config) { c.Epoch = 1 })},
	{"F14a", "other rank: 0 tokens", func(g model.Geometry) Config {
		return Config{Geometry: g, Connector: true, SharedStore: true, Ranks: 2}
	}, func(l *lab, g model.Geometry) {
		p := request(scene(g, 14, 4).tag(1))
		l.ask("cold", p)
		got := submit(l.t, l.tb.Ranks[1], context.Background(), p)()
		l.external("other rank", l.compare("other rank", p, got), 4*g.Every)
	}},
	{"F14b", "evicted", func(g model.Geometry) Config {
		return Config{Geometry: g, Connector: true, TensorParallel: 2}
	}, func(l *lab, g model.Geometry) {
		p := request(scene(g, 15, 4).with("question: key K01 ?"))
		l.ask("cold", p)
		l.resetLocal()
		l.external("warm", l.ask("warm", p), 4*g.Every)
		l.resetLocal()
		if err := l.tb.Ranks[0].ResetStore(1); err != nil {
			l.t.Fatal(err)
		}
		l.external("evicted", l.ask("evicted", p), 0)
	}},
	{"F15", "warm", func(g model.Geometry) Config {
		return Config{Geometry: g, Connector: true, PrefillBudget: 6 * g.Every, StoreSteps: 2}
	}, func(l *lab, g model.Geometry) {
		var rs []sched.Request
		for i := range 5 {
			rs = append(rs, request(scene(g, 20+uint64(i), 3).tag(i%3)))
		}
		l.together("cold", rs)
		l.resetLocal()
		for _, r := range rs {
			l.ask("warm", r)
		}
	}},
	{"F16", "next owner", func(g model.Geometry) Config {
		return Config{Geometry: g, Connector: true, LoadSteps: 40, Blocks: g.Blocks(4*g.Every+20) + 6}
	}, func(l *lab, g model.Geometry) {
		p, q := request(scene(g, 30, 4).tag(1)), request(scene(g, 31, 3).tag(1))
		l.ask("cold", p)
		l.resetLocal()
		ctx, cancel := context.WithCancel(context.Background())
		aborted := submit(l.t, l.tb.Ranks[0], ctx, p)
		for l.tb.Ranks[0].Stats().Loading == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		cancel()
		q.IgnoreEOS, q.MaxTokens = true, 60
		next := submit(l.t, l.tb.Ranks[0], context.Background(), q)
		if got := aborted(); got.finish != sched.FinishAbort {
			l.t.Errorf("the aborted request ended with %q", got.finish)
		}
		l.compare("next owner", q, next())
	}},
	{"F17", "returning", func(g model.Geometry) Config {
		// Room for the long request and the fresh one, and not for the returning one.
		return Config{Geometry: g, PrefillBudget: 20 * g.Every, Blocks: g.Blocks(20*g.Every) + g.Blocks(6*g.Every)}
	}, func(l *lab, g model.Geometry) {
		back, fresh, long := request(scene(g, 33, 4).with("question: key K03 ?")), request(scene(g, 34, 4).tag(1)), request(scene(g, 35, 19).tokens)
		fresh.MaxTokens, fresh.IgnoreEOS = 30, true
		l.ask("first", back)
		l.ask("later", request(scene(g, 36, 1).tag(0))) // its blocks are the last to be recycled
		l.together("returning", []sched.Request{long, fresh, back})
	}},
	{"F18", "failed load", connected, func(l *lab, g model.Geometry) {
		p := request(scene(g, 36, 4).tag(3))
		l.ask("cold", p)
		l.resetLocal()
		if err := l.tb.Ranks[0].FailLoads(4); err != nil {
			l.t.Fatal(err)
		}
		l.ask("failed load", p)
		if l.tb.Ranks[0].Stats().LoadFailures == 0 {
			l.t.Error("no load failed")
		}
	}},
	{"F19", "warm: 0 tokens", func(g model.Geometry) Config {
		return Config{Geometry: g, Connector: true, Draft: 3}
	}, func(l *lab, g model.Geometry) {
		p := request(scene(g, 37, 4).tag(3))
		l.ask("cold", p)
		l.resetLocal()
		l.external("warm", l.ask("warm", p), 4*g.Every)
	}},
	{"F20", "batch", func(g model.Geometry) Config {
		return Config{Geometry: g, Draft: 3, PrefillBudget: 6 * g.Every}
	}, func(l *lab, g model.Geometry) {
		var rs []sched.Request
		for i := range 8 {
			r := request(scene(g, 40+uint64(i), 2).tag(1))
			r.IgnoreEOS, r.MaxTokens = true, g.Every/4*(2+i)
			rs = append(rs, r)
		}
		l.together("batch", rs)
		for i, r := range rs { // goes on from the answer
			r.Prompt = append(append(r.Prompt, l.want(r).tokens...), model.Encode("\nquestion: tag T01 ?")[1:]...)
			r.IgnoreEOS, r.MaxTokens = false, 6
			l.ask(fmt.Sprintf("batch %d, next turn", i), r)
		}
		if st := l.tb.Ranks[0].Stats(); st.AcceptedTokens == 0 || st.AcceptedTokens >= st.DraftTokens {
			l.t.Errorf("accepted %d of %d drafted tokens", st.AcceptedTokens, st.DraftTokens)
		}
	}},
}

func connected(g model.Geometry) Config { return Config{Geometry: g, Connector: true} }

func fp8(g model.Geometry) Config {
	return Config{Geometry: g, Connector: true, DType: model.FP8}
}

// pressed has room for one and a half of what pressure asks at once.
func pressed(g model.Geometry) Config {
	return Config{Geometry: g, Connector: true, Blocks: g.Blocks(7 * g.Every)}
}

// warm asks, drops the local cache, and asks again.
func warm(l *lab, g model.Geometry) {
	p := request(scene(g, 2, 4).with("question: key K01 ?"))
	l.ask("cold", p)
	l.resetLocal()
	l.external("warm", l.ask("warm", p), 4*g.Every)
}

// partial extends a local hit of two chunks from the store.
func partial(l *lab, g model.Geometry) {
	p := scene(g, 3, 4)
	l.ask("cold", request(p.tag(2)))
	l.resetLocal()
	l.ask("prime", request(p.tokens[:2*g.Every+2]))
	l.ask("partial", request(p.tag(2)))
	if log := l.log.String(); strings.Contains(log, "AssertionError") {
		l.note("the engine died: %s", log)
	}
}

// pressure asks for more than the pool holds, and then for each alone.
func pressure(l *lab, g model.Geometry) {
	var rs []sched.Request
	for i := range 3 {
		r := request(scene(g, 16+uint64(i), 4).tag(1))
		r.MaxTokens, r.IgnoreEOS = 20, true
		rs = append(rs, r)
	}
	l.together("pressed", rs)
	if log := l.log.String(); strings.Contains(log, "EngineDeadError") {
		l.note("the engine died: %s", log)
		return
	}
	if l.tb.Ranks[0].Stats().Preemptions == 0 {
		l.t.Error("nobody was preempted")
	}
	for _, r := range rs {
		l.resetLocal()
		l.external("after", l.ask("after", r), 4*g.Every)
	}
}

// together asks several requests at once, in their order, and compares each.
// Those that come while a step runs wait in line, each in a goroutine.
func (l *lab) together(name string, rs []sched.Request) {
	l.t.Helper()
	got := make([]answer, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() {
			events, err := l.tb.Ranks[0].Submit(context.Background(), r)
			if err != nil { // it died before
				got[i].finish = err.Error()
				return
			}
			got[i] = gather(events)
		})
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	for i, r := range rs {
		l.compare(fmt.Sprintf("%s %d", name, i), r, got[i])
	}
}

func (l *lab) expire() {
	for _, e := range l.tb.Ranks {
		if err := e.ResetStore(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// identity asks the same tokens under another identity, and again under the same.
func identity(other cache.Who, name string) func(*lab, model.Geometry) {
	return func(l *lab, g model.Geometry) {
		p := request(scene(g, 11, 4).with("question: key K01 ?"))
		l.ask("first", p)
		q := p
		q.Who = other
		got := l.ask(name, q)
		if got.split.External+got.split.Local > 0 {
			l.note("%s: %d tokens of somebody else's", name, got.split.External*256/(4*g.Every))
		}
		l.resetLocal()
		l.external("same identity", l.ask("same identity", p), 4*g.Every)
	}
}

// restart asks, starts the engine again over the same store, and asks again.
func restart(change func(*Config)) func(*lab, model.Geometry) {
	return func(l *lab, g model.Geometry) {
		l.cfg.StorePath = l.t.TempDir()
		l.boot()
		p := request(scene(g, 13, 4).with("question: key K01 ?"))
		l.ask("cold", p)
		want := 4 * g.Every
		if change != nil {
			change(&l.cfg)
			want = 0
		}
		l.boot()
		l.external("restarted", l.ask("restarted", p), want)
	}
}

// TestEveryFaultIsRed runs each fault's own schedule, in two geometries, on a
// healthy engine and on the faulty one.
func TestEveryFaultIsRed(t *testing.T) {
	if raceEnabled {
		t.Skip("the schedules take too long under the race detector")
	}
	covered := map[string]bool{}
	for _, red := range reds {
		covered[red.fault] = true
		for _, g := range []model.Geometry{{Block: 16, Every: 64}, {Block: 32, Every: 96}} {
			t.Run(fmt.Sprintf("%s/%d", red.fault, g.Every), func(t *testing.T) {
				l := newLab(t, red.cfg(g))
				red.run(l, g)
				for _, w := range l.what {
					t.Errorf("healthy: %s", w)
				}
				cfg := red.cfg(g)
				cfg.Faults = []string{red.fault}
				seen := false
				for range 5 { // who shares a step with whom is a matter of time
					l = newLab(t, cfg)
					red.run(l, g)
					if seen = strings.Contains(strings.Join(l.what, "\n"), red.says); seen {
						break
					}
				}
				if !seen {
					t.Errorf("%s shows %q and not %q", red.fault, l.what, red.says)
				}
				for _, w := range l.what {
					t.Log(w)
				}
			})
		}
	}
	for _, f := range fault.All() {
		if !covered[f.ID] {
			t.Errorf("no schedule shows %s", f.ID)
		}
	}
}
