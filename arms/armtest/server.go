package armtest

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/probes/metrics"
	"kvladder/probes/replay"
	"kvladder/prompts"
)

// Server is one that a case has started.
type Server struct {
	Endpoint probes.Endpoint
	Log      func() io.Reader // what it printed so far; nil = not known
	Env      map[string]string
	Stop     func()
}

// ServerCase is what TestServer has to be told of an engine that runs.
type ServerCase struct {
	Engine arms.Engine
	Pins   map[string]string // over the defaults and the configuration
	Up     func(t *testing.T, pins map[string]string) Server
	Set    *prompts.Set // few prompts, none of which shares a boundary with another
	Unread []string     // pins that the server states nowhere
}

// TestServer tries with a real server what TestEngine cannot: that the pins are read back as
// they were asked, that each request takes from the cache what geometry predicts, as the
// engine's own account of it says, that a reset empties the local cache, that the same text
// comes back each time, and that a control reuses nothing.
func TestServer(t *testing.T, c ServerCase) {
	for _, role := range []string{"C1", "C0"} {
		t.Run(role, func(t *testing.T) {
			pins := c.Engine.Pins()
			conf, err := c.Engine.Configure(role)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(pins, conf)
			maps.Copy(pins, c.Pins)
			s := c.Up(t, pins)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
			defer cancel()
			if err := c.Engine.Ready(ctx, s.Endpoint); err != nil {
				t.Errorf("not ready: %v", err)
			}
			c.pins(ctx, t, s, pins)
			steps := []arms.Step{{Do: "replay", Pass: 1}, {Do: "replay", Pass: 2}, {Do: "reset"}, {Do: "replay", Pass: 3}}
			want := c.Engine.Expect(c.Set, pins, steps)
			texts := map[string]string{}
			pass := 0
			for _, st := range steps {
				if st.Do == "reset" {
					if err := c.Engine.Reset(ctx, s.Endpoint); err != nil {
						t.Errorf("reset: %v", err)
					}
					continue
				}
				hits := 0
				for i := range c.Set.Prompts {
					p := &c.Set.Prompts[i]
					text, got := c.ask(ctx, t, s, p)
					if x := want[pass][p.ID]; got != nil && *got != x.Local+x.External {
						t.Errorf("pass %d, prompt %s of %d tokens: %d reused, predicted %+v", pass+1, p.ID, len(p.Tokens), *got, x)
					} else if got == nil {
						t.Errorf("pass %d, prompt %s: nothing says what was reused", pass+1, p.ID)
					} else {
						hits += *got
					}
					if old, asked := texts[p.ID]; asked && old != text {
						t.Errorf("pass %d, prompt %s: %q, before it was %q", pass+1, p.ID, text, old)
					}
					texts[p.ID] = text
				}
				if pass++; role == "C1" && (pass == 2) != (hits > 0) {
					t.Errorf("pass %d: %d tokens were reused", pass, hits)
				}
			}
			if s.Stop == nil {
				return
			}
			s.Stop()
			rctx, done := context.WithTimeout(ctx, 5*time.Second)
			defer done()
			if err := c.Engine.Ready(rctx, s.Endpoint); err == nil {
				t.Error("it is ready after its end")
			}
		})
	}
}

// pins wants every pin read back and agreeing, but for those that are stated nowhere.
func (c ServerCase) pins(ctx context.Context, t *testing.T, s Server, pins map[string]string) {
	t.Helper()
	reads, err := c.Engine.ReadPins(ctx, s.Endpoint, pins)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := c.Engine.(arms.LogReader); ok && s.Log != nil {
		if err := l.ReadLog(s.Log(), reads); err != nil {
			t.Error(err)
		}
	}
	if er, ok := c.Engine.(arms.EnvironReader); ok && s.Env != nil {
		er.ReadEnviron(s.Env, reads)
	}
	for _, r := range reads {
		unread := slices.Contains(c.Unread, r.Name)
		switch {
		case unread != (r.Read == nil):
			t.Errorf("pin %s: stated by the server: %t, said to be stated: %t", r.Name, r.Read != nil, !unread)
		case r.Agrees != nil && !*r.Agrees:
			t.Errorf("pin %s: asked %q, read %q from %s", r.Name, r.Asked, *r.Read, r.Source)
		}
	}
}

// ask sends a prompt and returns its text and how many of its tokens came from a cache: by the
// reply's own account, and where the engine counts local and external hits, by those; nil where
// neither says.
func (c ServerCase) ask(ctx context.Context, t *testing.T, s Server, p *prompts.Prompt) (string, *int) {
	t.Helper()
	before := c.counts(ctx, s)
	cl := &replay.Client{Endpoint: s.Endpoint, Dialect: c.Set.Dialect, Timeout: 10 * time.Minute}
	reply := cl.Send(ctx, replay.Request{Path: c.Set.Path, Body: []byte(p.Body), RequestID: p.ID})
	if reply.Status != 200 || reply.Error != "" {
		t.Fatalf("prompt %s: status %d %s", p.ID, reply.Status, reply.Error)
	}
	if n := reply.Usage.Prompt; n == nil || *n != len(p.Tokens) {
		t.Errorf("prompt %s: of %d tokens, %v are accounted for", p.ID, len(p.Tokens), n)
	}
	got := reply.Usage.Cached
	if before != nil {
		if after := c.counts(ctx, s); after != nil {
			n := int(*after - *before)
			if got != nil && *got != n {
				t.Errorf("prompt %s: its reply counts %d cached tokens, the counters %d", p.ID, *got, n)
			}
			got = &n
		}
	}
	return strings.TrimSpace(reply.Text), got
}

// counts is the sum of local and external hits, nil where the engine does not count both.
func (c ServerCase) counts(ctx context.Context, s Server) *float64 {
	roles := c.Engine.Counters()
	if roles[probes.LocalHits] == "" || roles[probes.ExternalHits] == "" {
		return nil
	}
	snap, err := metrics.Scrape(ctx, nil, strings.TrimRight(s.Endpoint.URL, "/")+"/metrics")
	if err != nil {
		return nil
	}
	values, err := metrics.Select(snap, roles)
	if err != nil {
		return nil
	}
	sum, found := 0.0, false
	for _, v := range values {
		if v.Role == probes.LocalHits || v.Role == probes.ExternalHits {
			sum, found = sum+v.Value, true
		}
	}
	if !found {
		return nil
	}
	return &sum
}
