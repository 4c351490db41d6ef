package climb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"kvladder/arms"
	"kvladder/arms/launch"
	"kvladder/probes"
)

// beside is the second process that some engines need: a store with a server of its own. It is
// launched with the chain's first server and ends with the chain, so that what it holds
// outlives the server's restarts.
type beside struct {
	proc arms.Process
	log  *os.File
	at   arms.Address
}

// besideWithin is how long it may take to answer.
const besideWithin = 2 * time.Minute

// company launches the second process where these pins need one and none runs yet.
func (r *chainRun) company(ctx context.Context, launcher arms.Launcher, pinned map[string]string) error {
	eng, ok := r.c.Engine.(arms.Companion)
	if !ok || r.beside != nil || r.c.Attach[r.arm.Name] != "" {
		return nil
	}
	at := arms.Address{Host: "127.0.0.1"}
	var err error
	if at.Port, err = launch.FreePort(); err != nil {
		return r.harness("asking the system for a port", err)
	}
	res := r.res
	spec, err := eng.Beside(pinned, at, res)
	if err != nil {
		return fmt.Errorf("arm %s (%s): %w", r.arm.Name, r.c.Engine.Name(), err)
	}
	if len(spec.Argv) == 0 {
		return nil
	}
	name := filepath.Join("logs", fileName(r.attempt)+"-beside.log")
	f, err := os.OpenFile(r.c.Folder.at(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return &FolderError{Path: r.c.Folder.Path, What: reason(err)}
	}
	tail := &arms.Tail{To: f}
	lctx, cancel := context.WithTimeout(ctx, besideWithin)
	defer cancel()
	begin := time.Now()
	for _, dir := range []string{res.Store, res.Slots} {
		if !slices.Contains(spec.Folders, dir) {
			spec.Folders = append(spec.Folders, dir)
		}
	}
	p, err := launcher.Launch(lctx, spec, tail)
	if err != nil {
		f.Close()
		return fmt.Errorf("arm %s (%s): the process beside the server: %w", r.arm.Name, r.c.Engine.Name(), err)
	}
	r.beside = &beside{proc: p, log: f, at: at}
	for {
		err := eng.BesideReady(lctx, at)
		if err == nil {
			break
		}
		select {
		case <-p.Done():
			err = errors.New("it ended while starting")
		case <-lctx.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &arms.NotReadyError{Arm: r.arm.Name, Engine: r.c.Engine.Name() + ", the process beside it", Waited: time.Since(begin), Err: err, LastLines: tail.Last()}
	}
	r.res.Beside = at
	return r.fact(probes.FactIncarnation+"-beside", "launcher "+launcher.Name(), probes.IncarnationFact{ID: p.ID(), Argv: spec.Argv, Env: spec.Env, URL: fmt.Sprintf("%s:%d", at.Host, at.Port), Start: p.Start()})
}

// besideAlive is an error once the second process has ended: what the arm measures then is
// another engine.
func (r *chainRun) besideAlive() error {
	if r.beside == nil {
		return nil
	}
	select {
	case <-r.beside.proc.Done():
		return r.harness("the process beside the server", errors.New("it ended"))
	default:
		return nil
	}
}

// dismiss ends the second process.
func (r *chainRun) dismiss(ctx context.Context) error {
	if r.beside == nil {
		return nil
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err := r.beside.proc.Stop(sctx)
	r.beside.log.Close()
	r.beside = nil
	return err
}
