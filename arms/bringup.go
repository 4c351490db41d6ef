package arms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"kvladder/probes"
)

// Tail is a log writer that passes everything on, keeps the last lines for people, and hands
// each whole line to Line. It is safe for concurrent use.
type Tail struct {
	To   io.Writer
	Keep int          // lines kept; 0 = 12
	Line func(string) // nil = nobody listens

	mu    sync.Mutex
	part  []byte
	lines []string
}

const maxLine = 64 << 10

// Write never fails because of a line's content; an error comes from To alone.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.To != nil {
		if n, err := t.To.Write(p); err != nil {
			return n, err
		}
	}
	t.part = append(t.part, p...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 {
			if len(t.part) > maxLine {
				t.part = t.part[len(t.part)-maxLine:]
			}
			return len(p), nil
		}
		line := strings.TrimRight(string(t.part[:i]), "\r")
		t.part = t.part[i+1:]
		keep := t.Keep
		if keep == 0 {
			keep = 12
		}
		t.lines = append(t.lines, line)
		if len(t.lines) > keep {
			t.lines = t.lines[len(t.lines)-keep:]
		}
		if t.Line != nil {
			t.Line(line)
		}
	}
}

// Last are the last lines written, the unfinished one included.
func (t *Tail) Last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := append([]string(nil), t.lines...)
	if len(t.part) > 0 {
		out = append(out, string(t.part))
	}
	return out
}

// Launch is what Up needs to bring one process up.
type Launch struct {
	Arm       string
	Engine    Engine
	Launcher  Launcher
	Pins      map[string]string
	Address   Address
	Resources Resources
	Log       *Tail
	Deadline  time.Duration // for readiness; 0 = two minutes
	URL       string        // attach to this server instead of an own address
	Model     string        // served model name, for the endpoint
	APIKey    string
}

// Up renders the launch into a command line, starts it, and polls until the server answers,
// the process ends, or the deadline passes. On failure the whole family is ended and the
// error is a *NotReadyError with the last lines of the log.
func Up(ctx context.Context, l Launch) (*Running, error) {
	spec, err := l.Engine.Spec(l.Pins, l.Address, l.Resources)
	if err != nil {
		return nil, fmt.Errorf("arm %s (%s): %w", l.Arm, l.Engine.Name(), err)
	}
	for _, dir := range []string{l.Resources.Store, l.Resources.Slots} {
		if dir != "" && !slices.Contains(spec.Folders, dir) {
			spec.Folders = append(spec.Folders, dir)
		}
	}
	url := l.URL
	if url == "" {
		url = fmt.Sprintf("http://%s:%d", l.Address.Host, l.Address.Port)
	}
	start := time.Now()
	limit := l.Deadline
	if limit == 0 {
		limit = 2 * time.Minute
	}
	lctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := l.Launcher.Launch(lctx, spec, l.Log)
	if err != nil {
		return nil, fmt.Errorf("arm %s (%s): %w", l.Arm, l.Engine.Name(), err)
	}
	r := &Running{Process: p, Spec: spec, Endpoint: probes.Endpoint{URL: url, Model: l.Model, APIKey: l.APIKey}}
	fail := func(why error) error {
		sctx, done := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer done()
		_ = p.Stop(sctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &NotReadyError{Arm: l.Arm, Engine: l.Engine.Name(), Waited: time.Since(start), Err: why, LastLines: l.Log.Last()}
	}
	wait := 5 * time.Millisecond
	for {
		rctx, done := context.WithTimeout(lctx, 5*time.Second)
		err := l.Engine.Ready(rctx, r.Endpoint)
		done()
		if err == nil {
			// a server that answers while our own process has ended is somebody else's
			select {
			case <-p.Done():
				return nil, fail(endedError(p))
			default:
			}
			return r, nil
		}
		select {
		case <-p.Done():
			return nil, fail(endedError(p))
		case <-lctx.Done():
			return nil, fail(fmt.Errorf("no answer at %s: %w", url, err))
		case <-time.After(wait):
		}
		wait = min(wait*3/2, 250*time.Millisecond)
	}
}

func endedError(p Process) error {
	if e := p.Exit(); e != nil {
		return fmt.Errorf("the process ended with exit status %d while starting", *e)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("the process ended while starting: %w", err)
	}
	return errors.New("the process ended while starting")
}
