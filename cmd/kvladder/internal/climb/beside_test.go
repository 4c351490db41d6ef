package climb

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/probes"
	"kvladder/scoring"
)

// pair is an engine whose store has a process of its own.
type pair struct {
	engine.Testbed
	asked   int
	answers int // the question that is answered first; 0 = never
}

func (p *pair) Beside(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	if pins["connector"] != "store" {
		return arms.Spec{}, nil
	}
	return arms.Spec{Argv: []string{"storekeeper"}}, nil
}

func (p *pair) BesideReady(context.Context, arms.Address) error {
	if p.asked++; p.answers > 0 && p.asked >= p.answers {
		return nil
	}
	return errors.New("not yet")
}

// once launches processes that end when they are told to.
type once struct {
	procs []*told
	ended bool // at once
}

type told struct {
	done    chan struct{}
	stopped bool
}

func (*once) Name() string { return "once" }
func (o *once) Launch(_ context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	io.WriteString(log, "storekeeper: hello\n")
	p := &told{done: make(chan struct{})}
	o.procs = append(o.procs, p)
	if o.ended {
		close(p.done)
	}
	return p, nil
}
func (p *told) ID() string            { return "7" }
func (p *told) Start() string         { return "now" }
func (p *told) Restarts() *int        { return nil }
func (p *told) Done() <-chan struct{} { return p.done }
func (p *told) Err() error            { return nil }
func (p *told) Exit() *int            { return nil }
func (p *told) Stop(context.Context) error {
	p.stopped = true
	return nil
}

func besideRig(t *testing.T, eng *pair) (*chainRun, *once) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := probes.OpenWriter(filepath.Join(dir, "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	o := &once{}
	return &chainRun{c: &Climb{Engine: eng, Launcher: o, Folder: &Folder{Path: dir}, w: w}, attempt: "a", arm: &scoring.ArmSpec{Name: "COLD"}}, o
}

// A store's own process is started once for a chain, when the pins ask for it, and outlives the
// server's launches; its end in between is the harness's to tell.
func TestBeside(t *testing.T) {
	ctx, eng := context.Background(), &pair{answers: 2}
	r, o := besideRig(t, eng)
	if err := r.company(ctx, o, map[string]string{"connector": "none"}); err != nil || len(o.procs) > 0 || r.res.Beside.Port != 0 {
		t.Fatalf("pins without a store: %v, %d processes", err, len(o.procs))
	}
	for range 2 { // a restart of the server
		if err := r.company(ctx, o, map[string]string{"connector": "store"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.procs) != 1 || eng.asked != 2 || r.res.Beside.Port == 0 {
		t.Errorf("%d processes, asked %d times, at %+v", len(o.procs), eng.asked, r.res.Beside)
	}
	if err := r.besideAlive(); err != nil {
		t.Error(err)
	}
	close(o.procs[0].done)
	if err := r.besideAlive(); err == nil {
		t.Error("its end was not noticed")
	}
	if err := r.dismiss(ctx); err != nil || !o.procs[0].stopped || r.beside != nil {
		t.Errorf("it was not ended: %v", err)
	}
}

// One that does not come up is told with its last lines, and ended with the chain.
func TestBesideNeverReady(t *testing.T) {
	r, o := besideRig(t, &pair{})
	ctx := context.Background()
	o.ended = true
	err := r.company(ctx, o, map[string]string{"connector": "store"})
	var nr *arms.NotReadyError
	if !errors.As(err, &nr) || !strings.Contains(err.Error(), "storekeeper: hello") || !strings.Contains(err.Error(), "it ended while starting") {
		t.Errorf("%v", err)
	}
	if r.dismiss(ctx); !o.procs[0].stopped {
		t.Error("it was left running")
	}
}
