package climb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/replay"
	"kvladder/prompts"
	"kvladder/scoring"
)

// odd are the steps that only some ladders have.
func (r *chainRun) odd(ctx context.Context, st arms.ChainStep) error {
	num := func(i int) int {
		if i >= len(st.Args) {
			return 0
		}
		n, _ := strconv.Atoi(st.Args[i]) // checked when the ladder was read
		return n
	}
	can := func(ok bool, call func() error) error {
		if !ok {
			return r.harness("step "+st.Do, errors.New("this engine cannot do it"))
		}
		if err := call(); err != nil {
			return r.gone(ctx, r.harness("step "+strings.Join(append([]string{st.Do}, st.Args...), " "), err))
		}
		return r.fact(probes.FactStep, "engine", probes.StepFact{Step: st.Do, Args: st.Args, Done: true})
	}
	if r.proc == nil && st.Do != "copy-store" && st.Do != "abort" && st.Do != "wait" {
		return r.harness("step "+st.Do, errors.New("no process runs: put it behind a launch"))
	}
	e := r.endpoint()
	switch st.Do {
	case "expire":
		x, ok := r.c.Engine.(arms.Expirer)
		return can(ok, func() error { return x.Expire(ctx, e) })
	case "evict-rank":
		x, ok := r.c.Engine.(arms.RankEvicter)
		return can(ok, func() error { return x.EvictRank(ctx, e, num(0)) })
	case "fail-load":
		x, ok := r.c.Engine.(arms.LoadFailer)
		return can(ok, func() error { return x.FailLoads(ctx, e, num(0)) })
	case "abort":
		r.aborts = &aborts{n: num(0), within: time.Duration(num(1)) * time.Millisecond, steps: st.AbortSteps(), args: st.Args}
		return nil // told behind the pass that it runs beside
	case "flood":
		return r.flood(ctx, st, num(0))
	case "copy-store":
		return r.copyStore(st)
	case "check-identity":
		return r.identity(ctx, "check", 0)
	case "ask-liveness":
		return r.liveness(ctx, st)
	case "wait":
		if err := r.fact(probes.FactStep, "clock", probes.StepFact{Step: "wait", Args: st.Args, Done: true}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(r.began.Add(time.Duration(num(0)) * time.Second))):
		}
		return nil
	}
	return r.harness("step "+st.Do, errors.New("this program does not know it"))
}

func (r *chainRun) endpoint() probes.Endpoint {
	if r.proc == nil {
		return probes.Endpoint{}
	}
	return r.proc.Endpoint
}

// flood sends requests that are unlike every prompt of the Set, and unlike one another from
// their first block on, until times pool sizes of tokens went through the engine. The size
// is the one that the engine reports. What the store held before is written down first.
func (r *chainRun) flood(ctx context.Context, st arms.ChainStep, times int) error {
	x, ok := r.c.Engine.(arms.PoolReader)
	if !ok {
		return r.harness("flood", errors.New("this engine does not report the size of its pool"))
	}
	pool, err := x.Pool(ctx, r.proc.Endpoint)
	if err != nil {
		return r.gone(ctx, r.harness("flood: reading the size of the pool", err))
	}
	if err := r.fact(probes.FactPool, "engine", pool); err != nil {
		return err
	}
	if r.arm.Connector {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if err := r.storeFact("filled"); err != nil {
			return err
		}
	}
	sent, tokens := 0, 0
	if err := r.lockstep(ctx, 1); err != nil {
		return err
	}
	for tokens < times*pool.Tokens {
		body, n, err := filler(r.c.Set, sent)
		if err != nil {
			return r.harness("flood", err)
		}
		req := replay.Request{Path: r.c.Set.Path, Body: body, RequestID: replay.RequestID(r.c.ids, r.arm.Name, r.job.run, 0, fmt.Sprintf("flood/%d", sent))}
		if k := r.c.Plan.Replay.Ranks; k > 0 {
			rank := sent % k
			req.Rank = &rank
		}
		reply := r.client().Send(ctx, req)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if reply.Status != 200 {
			return r.gone(ctx, r.harness("flood", fmt.Errorf("request %d: status %d %s", sent, reply.Status, reply.Error)))
		}
		sent, tokens = sent+1, tokens+n
	}
	if err := r.lockstep(ctx, 0); err != nil {
		return err
	}
	return r.fact(probes.FactStep, "client", probes.StepFact{Step: "flood", Args: st.Args, Done: true,
		Seen: fmt.Sprintf("%d requests of %d tokens in all through a pool of %d", sent, tokens, pool.Tokens)})
}

// filler is the k-th request of a flood: the ids of a prompt of the Set from its end to its
// beginning, turned by a number that grows with k, one token to be answered.
func filler(s *prompts.Set, k int) (body []byte, tokens int, err error) {
	p := &s.Prompts[k%len(s.Prompts)]
	if len(p.Tokens) == 0 {
		return nil, 0, fmt.Errorf("prompt %s has no token ids to make other requests from", p.ID)
	}
	ids := slices.Clone(p.Tokens)
	slices.Reverse(ids)
	turn := (k/len(s.Prompts)*13 + 1) % len(ids)
	ids = append(ids[turn:len(ids):len(ids)], ids[:turn]...)
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(p.Body), &m); err != nil {
		return nil, 0, fmt.Errorf("prompt %s: its body is no JSON object: %w", p.ID, err)
	}
	if m["prompt"], err = json.Marshal(ids); err != nil {
		return nil, 0, err
	}
	for _, name := range []string{"max_tokens", "n_predict"} {
		if _, ok := m[name]; ok {
			m[name] = json.RawMessage("1")
		}
	}
	body, err = json.Marshal(m)
	return body, len(ids), err
}

// copyStore lays a copy of the store beside it; processes launched from now on use the copy.
func (r *chainRun) copyStore(st arms.ChainStep) error {
	to := filepath.Join(filepath.Dir(r.res.Store), filepath.Base(r.res.Store)+"-"+fileName(st.Args[0]))
	if err := os.CopyFS(to, os.DirFS(r.res.Store)); err != nil {
		return r.harness("copy-store", err)
	}
	r.res.Store, r.res.Slots, r.saved = to, to, nil
	return r.fact(probes.FactStep, "store folder", probes.StepFact{Step: "copy-store", Args: st.Args, Done: true})
}

// liveness asks one prompt outside of any pass: the one that the step names, else the first
// that a right answer is known of, else the first that this process has answered before. Where
// no right answer is known, the same text as before shows that the engine lives; another text
// shows neither that it does nor that it does not.
func (r *chainRun) liveness(ctx context.Context, st arms.ChainStep) error {
	p := r.livenessPrompt(st.Args)
	if p == nil {
		return r.harness("ask-liveness", errors.New("the set has no such prompt, with a known answer or answered before"))
	}
	req := replay.Request{Path: r.c.Set.Path, Body: []byte(p.Body), RequestID: replay.RequestID(r.c.ids, r.arm.Name, r.job.run, 0, fmt.Sprintf("liveness/%d", r.asked))}
	r.asked++
	reply := r.client().Send(ctx, req)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reply.Prompt = p.ID
	if reply.Status == 0 || reply.Truncated || reply.Status >= 500 {
		return r.trouble(ctx, &reply)
	}
	f := probes.LivenessFact{Prompt: p.ID, Seen: strings.TrimSpace(reply.Text)}
	if x := scored(p); x != nil {
		right := reply.Status == 200 && scoring.AnswerRight(*x, reply.Text)
		f.Right = &right
	} else if same := reply.Status == 200 && reply.Text == r.said[p.ID]; same {
		f.Right = &same
	}
	return r.fact(probes.FactLiveness, "client", f)
}

// livenessPrompt is the prompt to be asked, nil when there is none that tells anything.
func (r *chainRun) livenessPrompt(named []string) *prompts.Prompt {
	if len(named) > 0 {
		p, ok := r.c.Set.ByID(named[0])
		if _, said := r.said[named[0]]; !ok || scored(p) == nil && !said {
			return nil
		}
		return p
	}
	for i := range r.c.Set.Prompts {
		if p := &r.c.Set.Prompts[i]; scored(p) != nil {
			return p
		}
	}
	for i := range r.c.Set.Prompts {
		if p := &r.c.Set.Prompts[i]; r.said[p.ID] != "" {
			return p
		}
	}
	return nil
}

func scored(p *prompts.Prompt) *prompts.Needle {
	for i := range p.Expect.Needles {
		if p.Expect.Needles[i].Scored {
			return &p.Expect.Needles[i]
		}
	}
	return nil
}
