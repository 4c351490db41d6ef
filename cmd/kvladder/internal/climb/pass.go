package climb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/identity"
	"kvladder/probes/metrics"
	"kvladder/probes/replay"
	"kvladder/prompts"
	"kvladder/scoring"
)

// pass sends every prompt of the Set once, in order, and keeps what came back. Around the pass
// the identity and the counters are read; with counters, and while requests go out one at a
// time, they are also read after every request, so that each has its own split: rank-pinned
// clients take turns, and whatever moved belongs to the request that was out. With several
// clients the counters are known for the pass alone, and the engine's own account of each
// request is asked for behind it.
func (r *chainRun) pass(ctx context.Context, st arms.ChainStep) error {
	if err := r.identity(ctx, "before", st.Pass); err != nil {
		return err
	}
	last, err := r.sample(ctx, "before", st.Pass)
	if err != nil {
		return err
	}
	from := r.logged()
	if n := r.clients(st); n > 1 || r.aborts != nil {
		err = r.together(ctx, st, n)
	} else {
		err = r.alone(ctx, st, last)
		if err == nil {
			err = r.account(ctx, st, from)
		}
	}
	if err != nil {
		return err
	}
	if _, err := r.sample(ctx, "after", st.Pass); err != nil {
		return err
	}
	if err := r.loads(ctx, st); err != nil {
		return err
	}
	if err := r.besideAlive(); err != nil {
		return err
	}
	return r.identity(ctx, "after", st.Pass)
}

// clients is how many clients send a step's requests.
func (r *chainRun) clients(st arms.ChainStep) int {
	return max(1, st.Concurrency, r.c.Plan.Replay.Concurrency)
}

// alone is one client's pass.
func (r *chainRun) alone(ctx context.Context, st arms.ChainStep, last []probes.Value) error {
	if err := r.lockstep(ctx, 1); err != nil {
		return err
	}
	if err := r.oneByOne(ctx, st, last); err != nil {
		r.tell(ctx, 0)
		return err
	}
	return r.lockstep(ctx, 0)
}

// oneByOne sends each request when the one before it was written down.
func (r *chainRun) oneByOne(ctx context.Context, st arms.ChainStep, last []probes.Value) error {
	var err error
	for i := range r.c.Set.Prompts {
		p := &r.c.Set.Prompts[i]
		if (st.Do == "prime" || st.Do == "primes") && p.Prime != nil {
			if last, err = r.ask(ctx, st, i, p, true, last); err != nil {
				return err
			}
		}
		if st.Do == "primes" {
			continue
		}
		if last, err = r.ask(ctx, st, i, p, false, last); err != nil {
			return err
		}
	}
	return nil
}

// ask sends one request and appends its Reply before anything else goes out.
func (r *chainRun) ask(ctx context.Context, st arms.ChainStep, i int, p *prompts.Prompt, prime bool, last []probes.Value) ([]probes.Value, error) {
	plan := r.c.Plan
	body, id := p.Body, p.ID
	if prime {
		body, id = p.Prime.Body, p.ID+"/prime"
	}
	cl := r.client()
	req := replay.Request{Path: r.c.Set.Path, Body: []byte(body), RequestID: replay.RequestID(r.c.ids, r.arm.Name, r.job.run, st.Pass, id)}
	if plan.Replay.Ranks > 0 {
		rank := plan.Replay.Rank(p.ID)
		req.Rank = &rank
	}
	if r.arm.Role == scoring.Forced && st.Pass == r.arm.Judge && !prime {
		req.Trace = r.c.traces[r.arm.Name][p.ID]
	}
	reply := cl.Send(ctx, req)
	if ctx.Err() != nil {
		// cut off by ourselves: not something that the engine did
		return nil, context.Cause(ctx)
	}
	reply.Prompt, reply.Pass, reply.Prime = p.ID, st.Pass, prime
	var now []probes.Value
	if last != nil && reply.Status != 0 {
		var serr error
		if now, serr = r.scrape(ctx); serr == nil {
			reply.Counters = metrics.Delta(last, now)
		}
	}
	rec := r.at()
	rec.Kind, rec.Reply = probes.KindReply, &reply
	if err := r.keep(rec, p); err != nil {
		return nil, err
	}
	r.count()
	r.remember(&reply)
	if err := r.loadsFailed(&reply); err != nil {
		return nil, err
	}
	if reply.Status == 0 || reply.Truncated || reply.Status >= 500 {
		if err := r.trouble(ctx, &reply); err != nil {
			return nil, err
		}
	}
	switch again, err := r.replaced(ctx, false, reply.Prompt, reply.Pass); {
	case err != nil:
		return nil, err
	case again:
		return nil, errDied
	}
	return now, nil
}

// remember keeps what a prompt was answered with last.
func (r *chainRun) remember(reply *probes.Reply) {
	if reply.Status != 200 || reply.Prime || reply.Error != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said == nil {
		r.said = map[string]string{}
	}
	r.said[reply.Prompt] = reply.Text
}

// loadsFailed writes down what the engine said of failed loads while the reply was awaited.
func (r *chainRun) loadsFailed(reply *probes.Reply) error {
	r.mu.Lock()
	failed := r.failed
	r.failed = nil
	r.mu.Unlock()
	for _, f := range failed {
		f.Pass, f.Prompt = reply.Pass, reply.Prompt
		if err := r.fact(probes.FactLoadFailed, "log", f); err != nil {
			return err
		}
	}
	return nil
}

// client sends as the plan says.
func (r *chainRun) client() *replay.Client {
	plan := r.c.Plan
	return &replay.Client{HTTP: r.wire, Endpoint: r.proc.Endpoint, Dialect: r.c.Set.Dialect, Timeout: time.Duration(plan.Replay.TimeoutSecs) * time.Second,
		Zero: r.c.zero, Pin: replay.Pin{By: plan.Replay.RankBy, Field: plan.Replay.RankField}}
}

// count adds one to the requests sent.
func (r *chainRun) count() {
	r.mu.Lock()
	r.sent++
	r.mu.Unlock()
}

// trouble looks at the engine after a reply that did not come back whole.
func (r *chainRun) trouble(ctx context.Context, reply *probes.Reply) error {
	dead, err := r.death(ctx, reply.Prompt, reply.Pass)
	switch {
	case err != nil:
		return err
	case dead:
		return errDied
	case reply.ErrorKind == "timeout":
		if err := r.fact(probes.FactDeath, "client", probes.DeathFact{Sub: "HUNG", Seen: fmt.Sprintf("no progress within %d s: %s", r.c.Plan.Replay.TimeoutSecs, reply.Error), Prompt: reply.Prompt, Pass: reply.Pass}); err != nil {
			return err
		}
		return errDied
	case reply.Status == 0 || reply.Truncated:
		err := r.answers(ctx)
		if dead, derr := r.death(ctx, reply.Prompt, reply.Pass); dead || derr != nil {
			return cmp.Or(derr, errDied)
		}
		if err != nil {
			if ferr := r.fact(probes.FactDeath, "client", probes.DeathFact{Sub: "DIED", Seen: fmt.Sprintf("%s; the server no longer answers: %v", reply.Error, err), Prompt: reply.Prompt, Pass: reply.Pass}); ferr != nil {
				return ferr
			}
			return errDied
		}
		return r.harness(fmt.Sprintf("request %s (pass %d)", reply.Prompt, reply.Pass), fmt.Errorf("%s, and the server still answers", reply.Error))
	}
	return nil
}

// answers asks whether the server is ready, three times within two seconds: a server that
// somebody else started has no process here whose end could be seen.
func (r *chainRun) answers(ctx context.Context) (err error) {
	for range 3 {
		rctx, done := context.WithTimeout(ctx, time.Second)
		err = r.c.Engine.Ready(rctx, r.proc.Endpoint)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(300 * time.Millisecond):
		}
	}
	return err
}

// identity reads who answers. A process that is not the one launched ends the chain.
func (r *chainRun) identity(ctx context.Context, phase string, pass int) error {
	p := r.proc.Process
	f := identity.Read(ctx, r.http, r.proc.Endpoint).Fact(phase, pass)
	f.Process, f.Start, f.Restarts, f.Alive = p.ID(), p.Start(), p.Restarts(), true
	select {
	case <-p.Done():
		f.Alive = false
	default:
	}
	if err := r.fact(probes.FactIdentity, "launcher and server", f); err != nil {
		return err
	}
	if f.Alive {
		switch again, err := r.replaced(ctx, false, "", pass); {
		case err != nil:
			return err
		case again:
			return errDied
		}
	}
	if !f.Alive {
		if _, err := r.death(ctx, "", pass); err != nil {
			return err
		}
		return errDied
	}
	return nil
}

// sample scrapes the counters and writes them down; a scrape that fails is a recorded fact.
// It returns nil when the engine has no counters, or none that answer.
func (r *chainRun) sample(ctx context.Context, phase string, pass int) ([]probes.Value, error) {
	roles := r.c.Engine.Counters()
	if len(roles) == 0 {
		return nil, nil
	}
	s := probes.Sample{Phase: phase, Pass: pass, Source: "/metrics"}
	snap, err := r.metrics(ctx)
	if err == nil {
		s.Digest, s.Raw = snap.Digest, string(snap.Raw)
		s.Values, err = metrics.Select(snap, roles)
	}
	if err != nil {
		s.Error = err.Error()
	}
	rec := r.at()
	rec.Kind, rec.Sample = probes.KindSample, &s
	if err := r.c.append(rec); err != nil {
		return nil, err
	}
	if s.Error != "" {
		return nil, nil
	}
	if s.Values == nil {
		s.Values = []probes.Value{}
	}
	return s.Values, nil
}

func (r *chainRun) scrape(ctx context.Context) ([]probes.Value, error) {
	snap, err := r.metrics(ctx)
	if err != nil {
		return nil, err
	}
	v, err := metrics.Select(snap, r.c.Engine.Counters())
	if v == nil {
		v = []probes.Value{}
	}
	return v, err
}

// metrics reads the counters of the server, or of all servers where each rank is one.
func (r *chainRun) metrics(ctx context.Context) (metrics.Snapshot, error) {
	e := r.proc.Endpoint
	if len(e.RankURLs) < 2 {
		return metrics.Scrape(ctx, r.http, e.URL+"/metrics")
	}
	var urls []string
	for _, u := range e.RankURLs {
		urls = append(urls, u+"/metrics")
	}
	return metrics.ScrapeRanks(ctx, r.http, urls)
}

// drain waits until what the engine has stored stands still for five readings in a row. With
// no counter of stored things, the store's folder is watched instead.
func (r *chainRun) drain(ctx context.Context) error {
	const still, every, limit = 5, 20 * time.Millisecond, 60 * time.Second
	begin := time.Now()
	look := func() (string, error) {
		seen := ""
		if v, err := r.scrape(ctx); err == nil {
			for _, x := range v {
				switch x.Role {
				case probes.StoredChunks, probes.StoredBytes, probes.LoadedBytes:
					seen += fmt.Sprintf("%s[%s]=%g ", x.Role, x.Rank, x.Value)
				}
			}
		}
		files, bytes, err := sizeOf(r.res.Store)
		if err != nil {
			return "", err
		}
		return seen + fmt.Sprintf("files=%d bytes=%d", files, bytes), nil
	}
	prev, same := "", 0
	for time.Since(begin) < limit {
		seen, err := look()
		if err != nil {
			return r.gone(ctx, r.harness("drain", err))
		}
		if seen == prev {
			if same++; same >= still {
				proved := seen != ""
				return r.fact(probes.FactDrain, "counters and store folder", probes.StepFact{Step: "drain", Done: true, Proved: &proved, Seen: seen})
			}
		} else {
			prev, same = seen, 0
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
	proved := false
	return r.fact(probes.FactDrain, "counters and store folder", probes.StepFact{Step: "drain", Done: true, Proved: &proved, Seen: "still moving after " + limit.String() + ": " + prev})
}

// sizeOf says how many files a folder holds, folders below it included, and of how many bytes.
// It reads none of them: a store may be larger than what can be read between two looks.
func sizeOf(folder string) (files int, bytes int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				files++
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no folder at all, or a temporary file that was renamed meanwhile
		}
		return err
	})
	return files, bytes, err
}
