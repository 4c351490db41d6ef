package launch

import (
	"context"
	"io"
	"sync"

	"kvladder/arms"
)

// Attach stands for a server that somebody else started. It starts nothing and ends
// nothing: what it does not know of the process, it says it does not know.
type Attach struct {
	URL string // of the server: the only identity that an attached process has
}

// Name is "attach".
func (a Attach) Name() string { return "attach" }

// Launch returns the process behind the URL, without a look whether there is one.
func (a Attach) Launch(ctx context.Context, _ arms.Spec, _ io.Writer) (arms.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &attached{url: a.URL, ending: newEnding()}, nil
}

type attached struct {
	url    string
	once   sync.Once
	ending // of the hold on the server: how that one ends is not known here
}

func (p *attached) ID() string     { return p.url }
func (p *attached) Start() string  { return "" }
func (p *attached) Restarts() *int { return nil }

// Stop lets go of the server, which goes on.
func (p *attached) Stop(context.Context) error {
	p.once.Do(func() { close(p.done) })
	return nil
}
