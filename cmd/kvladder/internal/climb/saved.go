package climb

import (
	"context"
	"fmt"
	"time"

	"kvladder/arms"
	"kvladder/probes"
)

// savedBytes is the invariant that a restore is offered the bytes that were saved.
const savedBytes = "restored bytes = saved bytes"

// save writes down what a save step wrote, with its digest.
func (r *chainRun) save() error {
	done := probes.StepFact{Step: "save", Done: true}
	r.saved = nil
	if k, ok := r.c.Engine.(arms.Keeper); ok && k.KeepsSaved(r.pins) {
		f, err := r.c.Engine.Store(r.res)
		if err != nil {
			return r.harness("looking at what was saved", err)
		}
		if f.Files != nil && f.Bytes != nil {
			r.saved, done.Seen = &f, describe(f)
		}
	}
	return r.fact(probes.FactStep, "engine", done)
}

// kept compares what lies in the store, before it is restored, with what was saved.
func (r *chainRun) kept() error {
	if r.saved == nil {
		return nil
	}
	f, err := r.c.Engine.Store(r.res)
	if err != nil || f.Files == nil || f.Bytes == nil {
		return r.fact(probes.FactInvariant, "store folder", probes.InvariantFact{Name: savedBytes, Seen: fmt.Sprintf("the store cannot be read: %v", err)})
	}
	held, seen := f.Digest == r.saved.Digest, describe(f)
	if !held {
		seen = "saved " + describe(*r.saved) + ", found " + seen
	}
	return r.fact(probes.FactInvariant, "store folder", probes.InvariantFact{Name: savedBytes, Held: &held, Seen: seen})
}

func describe(f probes.StoreFact) string {
	return fmt.Sprintf("%d files of %d bytes, %s", *f.Files, *f.Bytes, f.Digest)
}

// explain looks for the cause of a refusal in the log, which may lag behind the reply.
func (r *chainRun) explain(ctx context.Context) string {
	x, ok := r.c.Engine.(arms.Explainer)
	if !ok || r.tail == nil {
		return ""
	}
	for range 20 {
		if why := x.Explain(r.tail.Last()); why != "" {
			return why
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ""
}
