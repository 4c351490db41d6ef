package climb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kvladder/arms"
	"kvladder/arms/launch"
	"kvladder/probes"
	"kvladder/receipts"
	"kvladder/receipts/digest"
)

// A chain that is climbed elsewhere has a run folder of its own inside that of the ladder, to
// which its harness writes as to any other: with the same plan and Set, its own transcript,
// its own attempts when it is begun again. Nothing of it is in the ladder's transcript before
// the chain is climbed to its end. Then its records are appended to that transcript, with the
// times of the node they were made on, its logs and objects moved over, and its folder goes
// away. So a ladder's transcript stays one chain of digests, written by one program, and
// --resume needs no more than the two kinds of folders.
const chainsDir = "chains"

// chainFolder is the run folder of one chain of a ladder.
func (f *Folder) chainFolder(chain string, run int) string {
	return f.at(filepath.Join(chainsDir, fmt.Sprintf("%s-%d", fileName(chain), run)))
}

// ChainFolder is where the harness of a chain that is climbed elsewhere has its run folder.
func ChainFolder(ladder, chain string, run int) string {
	return (&Folder{Path: ladder}).chainFolder(chain, run)
}

// ChainError says that a chain that was climbed elsewhere did not come to its end. The other
// chains are not concerned.
type ChainError struct {
	Chain string
	Err   error // a *launch.JobError where the job was ended from outside
	Last  []string
}

func (e *ChainError) Error() string {
	s := fmt.Sprintf("chain %s: %v", e.Chain, e.Err)
	if len(e.Last) > 0 {
		s += "; its last lines: " + strings.Join(e.Last, " | ")
	}
	return s + "; the other chains are kept: continue with --resume"
}

func (e *ChainError) Unwrap() error { return e.Err }

// send has a chain climbed elsewhere and gathers what came of it.
func (c *Climb) send(ctx context.Context, far arms.Elsewhere, j job) error {
	attempt := fmt.Sprintf("%s#%d.%d", j.chain.Name, j.run, j.try)
	place := probes.Record{Attempt: attempt, Run: j.run, Chain: j.chain.Name}
	// What is registered after this knows, or could know, what the chain comes to.
	for _, arm := range j.chain.Arms {
		if err := c.enter(receipts.LedgerArmStart, receipts.LedgerObject{Chain: j.chain.Name, Arm: arm, Attempt: attempt, Run: j.run}); err != nil {
			return err
		}
	}
	if err := c.fact(place, probes.FactAttempt, "launcher "+far.Name(), probes.AttemptFact{Chain: j.chain.Name, Run: j.run}); err != nil {
		return err
	}
	sub := c.Folder.chainFolder(j.chain.Name, j.run)
	if last, _ := finished(sub); last == "" {
		if err := c.await(ctx, far, j, attempt); err != nil {
			var ce *ChainError
			if errors.As(err, &ce) {
				if ferr := c.fact(place, probes.FactAbandoned, "launcher "+far.Name(), probes.AbandonedFact{Attempt: attempt, Why: ce.Err.Error()}); ferr != nil {
					return ferr
				}
				c.say("%v", err)
			}
			return err
		}
	} else {
		c.say("chain %s: it was climbed to its end before", j.chain.Name)
	}
	return c.gather(sub, j, attempt)
}

// await launches the harness of a chain and waits until it has come to the chain's end.
func (c *Climb) await(ctx context.Context, far arms.Elsewhere, j job, attempt string) error {
	launcher := arms.Launcher(far)
	if p, ok := launcher.(arms.Pinned); ok {
		a, ok := c.Plan.Design.ByName(j.chain.Arms[0])
		if !ok {
			return fmt.Errorf("plan: chain %s names the arm %q, which is not there", j.chain.Name, j.chain.Arms[0])
		}
		_, own := arms.LauncherPins(p, a.Pins)
		var err error
		if launcher, err = p.With(own); err != nil {
			return err
		}
	}
	folder, err := filepath.Abs(c.Folder.Path)
	if err != nil {
		return err
	}
	logName := filepath.Join("logs", fileName(attempt)+".job.log")
	log, err := os.OpenFile(c.Folder.at(logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return &FolderError{Path: c.Folder.Path, What: reason(err)}
	}
	defer log.Close()
	tail := &arms.Tail{To: log, Keep: 4, Line: func(line string) { c.say("%s", line) }}
	spec := arms.Spec{Argv: []string{c.Self, "chain", "--run", strconv.Itoa(j.run), folder, j.chain.Name},
		Env: map[string]string{"KVLADDER_CACHE": c.Cache}, Files: []string{c.Self}}
	if c.Beacon != nil {
		spec.Argv = append(spec.Argv, "--beacon", c.Beacon.String())
	}
	p, err := launcher.Launch(ctx, spec, tail)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &ChainError{Chain: j.chain.Name, Err: err}
	}
	c.say("chain %s: %s %s", attempt, launcher.Name(), p.ID())
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	serr := p.Stop(ctx)
	if last, _ := finished(c.Folder.chainFolder(j.chain.Name, j.run)); last != "" {
		return serr // how the job ended after that is of no concern
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	why := p.Err()
	if why == nil {
		why = fmt.Errorf("%s %s ended without an error, and the chain is not climbed to its end", launcher.Name(), p.ID())
	}
	ce := &ChainError{Chain: j.chain.Name, Err: why}
	var je *launch.JobError
	if !errors.As(why, &je) {
		ce.Last = tail.Last()
	}
	return ce
}

// finished is the attempt that climbed the chain of a folder to its end, "" when none did.
func finished(sub string) (string, error) {
	recs, err := probes.ReadAll(filepath.Join(sub, "transcript.jsonl"))
	if err != nil {
		return "", err
	}
	for i := range recs {
		if f := recs[i].Fact; f != nil && f.Name == probes.FactChainEnd {
			return recs[i].Attempt, nil
		}
	}
	return "", nil
}

// gather appends the records of a chain's own folder, under the name that its attempt has in
// the ladder's transcript. An attempt that was begun before it, in a job that was put back
// into the queue, keeps its records, and they say themselves that they are abandoned.
func (c *Climb) gather(sub string, j job, attempt string) error {
	recs, err := probes.ReadAll(filepath.Join(sub, "transcript.jsonl"))
	if err != nil {
		return &ChainError{Chain: j.chain.Name, Err: err}
	}
	last, err := finished(sub)
	if err != nil {
		return &ChainError{Chain: j.chain.Name, Err: err}
	}
	sum, _, err := digest.OfFile(filepath.Join(sub, "transcript.jsonl"))
	if err != nil {
		return &ChainError{Chain: j.chain.Name, Err: err}
	}
	names := map[string]string{last: attempt}
	rename := func(a string) string {
		if _, ok := names[a]; !ok && a != "" {
			names[a] = fmt.Sprintf("%s-%d", attempt, len(names))
		}
		return names[a]
	}
	for _, dir := range []string{"logs", "objects/sha256"} {
		if err := move(filepath.Join(sub, dir), c.Folder.at(dir), func(name string) string {
			if dir != "logs" {
				return name
			}
			for i := range recs { // a log is called after the incarnation
				if inc := recs[i].Incarnation; inc != "" && name == fileName(inc)+".log" {
					return fileName(rename(recs[i].Attempt)+strings.TrimPrefix(inc, recs[i].Attempt)) + ".log"
				}
			}
			return fileName(attempt) + "." + name
		}); err != nil {
			return &FolderError{Path: c.Folder.Path, What: reason(err), Hint: "free some space and continue with --resume"}
		}
	}
	if err := c.fact(probes.Record{Run: j.run, Chain: j.chain.Name, Attempt: attempt}, probes.FactGathered, "chain folder", probes.GatheredFact{Transcript: sum, Records: len(recs)}); err != nil {
		return err
	}
	started := map[string]bool{attempt: true}
	for i := range recs {
		r := recs[i]
		if r.Fact != nil && (r.Fact.Name == probes.FactPlan || r.Fact.Name == probes.FactAttempt && r.Attempt == last) {
			continue // the ladder's transcript has them
		}
		old := r.Attempt
		r.Attempt = rename(old)
		if r.Incarnation != "" {
			r.Incarnation = r.Attempt + strings.TrimPrefix(r.Incarnation, old)
		}
		if r.Fact != nil {
			f := *r.Fact
			switch f.Name {
			case probes.FactAbandoned:
				var ab probes.AbandonedFact
				if err := json.Unmarshal(f.Value, &ab); err == nil {
					ab.Attempt = rename(ab.Attempt)
					f.Value, _ = json.Marshal(ab)
				}
			case probes.FactStopped:
				var sf probes.StoppedFact
				if err := json.Unmarshal(f.Value, &sf); err == nil && sf.Log != "" {
					sf.Log = filepath.Join("logs", fileName(r.Incarnation)+".log")
					f.Value, _ = json.Marshal(sf)
				}
			case probes.FactArmStart:
				if !started[r.Attempt] {
					for _, arm := range j.chain.Arms {
						if err := c.enter(receipts.LedgerArmStart, receipts.LedgerObject{Chain: j.chain.Name, Arm: arm, Attempt: r.Attempt, Run: j.run}); err != nil {
							return err
						}
					}
					started[r.Attempt] = true
				}
			case probes.FactArmEnd:
				if err := c.enter(receipts.LedgerArmEnd, receipts.LedgerObject{Chain: j.chain.Name, Arm: r.Arm, Attempt: r.Attempt, Run: j.run}); err != nil {
					return err
				}
			}
			r.Fact = &f
		}
		if err := c.append(r); err != nil {
			return err
		}
	}
	if err := c.w.Sync(); err != nil {
		return err
	}
	return os.RemoveAll(sub)
}

// move copies the files of a folder into another one, under other names, as often as it takes:
// what is there already was copied by a climb that was killed.
func move(from, to string, name func(string) string) error {
	files, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		in, err := os.Open(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(to, name(f.Name())))
		if err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Sync(), out.Close())
		}
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
