package selftest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"kvladder/arms"
)

// Inproc runs an engine that is this same program inside this process: Main is the program's
// entry, and ends when its context does. It saves the start of thousands of processes. An
// engine that is to crash needs a real one.
type Inproc struct {
	Main func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

var inprocs atomic.Int64

// Name is "inproc".
func (Inproc) Name() string { return "inproc" }

// Launch starts Main with the arguments of spec.
func (l Inproc) Launch(_ context.Context, spec arms.Spec, log io.Writer) (arms.Process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &goroutine{id: fmt.Sprintf("inproc-%d", inprocs.Add(1)), start: time.Now().UTC().Format(time.RFC3339Nano), cancel: cancel, done: make(chan struct{})}
	go func() {
		code := l.Main(ctx, spec.Argv[1:], log, log)
		p.mu.Lock()
		p.exit = &code
		p.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

// goroutine is an engine inside this process.
type goroutine struct {
	id, start string
	cancel    context.CancelFunc
	done      chan struct{}
	mu        sync.Mutex
	exit      *int
}

func (p *goroutine) ID() string            { return p.id }
func (p *goroutine) Start() string         { return p.start }
func (p *goroutine) Restarts() *int        { return new(int) }
func (p *goroutine) Done() <-chan struct{} { return p.done }
func (p *goroutine) Err() error            { return nil }

func (p *goroutine) Exit() *int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *goroutine) Stop(ctx context.Context) error {
	p.cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
