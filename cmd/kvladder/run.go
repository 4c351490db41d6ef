package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/climb"
	"kvladder/cmd/kvladder/internal/show"
	"kvladder/probes"
	"kvladder/receipts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

type runOptions struct {
	Ladder string
	Out    string
	Plan   string
	Only   string
	Attach []string
	By     string
	Sign   string
	Beacon string
	Enter  bool // register, and stop
	Resume bool
	JSON   bool
}

func newRunCmd(stdout, stderr io.Writer) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run LADDER",
		Short: "climb a ladder: launch, replay, scrape, score, seal a receipt",
		Long: `run climbs a ladder. It registers the plan first (or, with --plan, refuses a ladder that no
longer resolves to the registered plan), launches every arm, replays the frozen set, scores
the transcript, gives a suspect arm its replicate, and seals receipt.json in the run folder.

A climb that was interrupted, however hard, goes on with --resume: finished chains are kept,
an unfinished chain starts again at its first arm over an empty store.

With --beacon every request id depends on a public random value, so that the data can be shown
not to be earlier than its round (order O3). Fetch one just before the run; nothing is asked
of the network here:

  curl -o round.json https://api.drand.sh/` + receipts.QuicknetChain + `/public/latest

To show that the plan came before the data (order O4), run --register --sign first, have a
witness cosign the checkpoint in ledger.cosigned, and only then fetch the round.`,
		Example: `  kvladder run arms/ladders/demo-healthy.yaml
  kvladder run --out runs/mine --plan plan.json arms/ladders/demo-healthy.yaml
  kvladder run --resume --out runs/mine arms/ladders/demo-healthy.yaml`,
		Args: args(cobra.ExactArgs(1), "one ladder file"),
		RunE: func(cmd *cobra.Command, a []string) error {
			o.Ladder = a[0]
			res, err := runRun(cmd.Context(), o, stderr)
			if err != nil {
				return err
			}
			if o.Enter {
				if o.JSON {
					return printJSON(stdout, map[string]any{"ladder": res.Ladder, "plan": res.Plan, "registered": true, "sealed": false})
				}
				return nil
			}
			if o.Only != "" {
				// one chain has no verdict: there is nothing yet to judge it against
				if o.JSON {
					return printJSON(stdout, map[string]any{"ladder": res.Ladder, "plan": res.Plan, "chain": o.Only, "sealed": false})
				}
				return nil
			}
			if err := printResult(stdout, res, o.JSON); err != nil {
				return err
			}
			return outcome(res.Exit)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Out, "out", "", "run folder (default runs/<ladder>-<plan digest>)")
	f.StringVar(&o.Plan, "plan", "", "registered plan `FILE` that the ladder must still resolve to")
	f.StringVar(&o.Only, "only", "", "climb this `CHAIN` alone; nothing is sealed")
	f.StringArrayVar(&o.Attach, "attach", nil, "`ARM=URL`: use a server that is already running, or one for each rank: ARM=URL,URL (repeatable)")
	f.StringVar(&o.By, "launcher", "", "launch by this one instead of the ladder's: "+names(launchers)+"; another launcher is another plan")
	f.StringVar(&o.Sign, "sign", "", "sign ledger and receipt with the private key in `FILE`, which keygen makes")
	f.StringVar(&o.Beacon, "beacon", "", "derive the request ids from the round of drand's quicknet in `FILE`, too: the data are then not earlier than it")
	f.BoolVar(&o.Enter, "register", false, "register the plan in the run folder and run nothing; with --sign, write ledger.cosigned for witnesses")
	f.BoolVar(&o.Resume, "resume", false, "go on with an interrupted climb of the same plan")
	f.BoolVar(&o.JSON, "json", false, "print one JSON document")
	return cmd
}

func printResult(w io.Writer, res scoring.Result, asJSON bool) error {
	if asJSON {
		return printJSON(w, res)
	}
	show.Result(w, res)
	return nil
}

// runRun climbs a ladder and seals its receipt.
func runRun(ctx context.Context, o runOptions, stderr io.Writer) (scoring.Result, error) {
	var none scoring.Result
	r, err := resolve(o.Ladder, o.By)
	if err != nil {
		return none, err
	}
	d, _, err := r.plan.Digest()
	if err != nil {
		return none, err
	}
	if o.Plan != "" {
		_, want, err := readPlan(o.Plan)
		if err != nil {
			return none, err
		}
		if want != d {
			return none, fmt.Errorf("ladder %s resolves to plan %s, %s registers %s: run the ladder as it was registered, or register it anew with kvladder plan --write", o.Ladder, d.Short(), o.Plan, want.Short())
		}
	}
	var key *receipts.PrivateKey
	if o.Sign != "" {
		if key, err = receipts.ReadPrivateKey(o.Sign); err != nil {
			return none, err
		}
	}
	var beacon *receipts.Beacon
	if o.Beacon != "" {
		if beacon, err = receipts.ReadBeacon(o.Beacon); err != nil {
			return none, err
		}
	}
	if o.Enter && (beacon != nil || o.Only != "" || o.Resume) {
		return none, fmt.Errorf("--register: it runs nothing; leave out --beacon, --only and --resume, and give them to the run that follows")
	}
	if err := r.plan.Refusal(); err != nil {
		return none, fmt.Errorf("ladder %s: %w", o.Ladder, err)
	}
	self, err := selfPath()
	if err != nil {
		return none, err
	}
	cache, err := cacheDir()
	if err != nil {
		return none, err
	}
	launcher, err := findLauncher(r.plan.Launcher, self)
	if err != nil {
		return none, err
	}
	attach, err := attached(o.Attach, r.plan)
	if err == nil {
		err = allAttached(r.engine, attach, r.plan, o.Only)
	}
	if err != nil {
		return none, err
	}
	if _, far := launcher.(arms.Elsewhere); far && len(attach) > 0 {
		return none, fmt.Errorf("--attach: launcher %s climbs chains on other machines, beside servers that it launches there; run an attached server's ladder with launcher local", launcher.Name())
	}
	if o.Only != "" {
		var names []string
		for _, ch := range r.plan.Chains {
			names = append(names, ch.Name)
		}
		if !slices.Contains(names, o.Only) {
			return none, fmt.Errorf("--only %s: no such chain; chains: %s", o.Only, strings.Join(names, ", "))
		}
	}
	path := o.Out
	if path == "" {
		path = filepath.Join("runs", r.plan.Ladder+"-"+d.Short())
	}
	folder, err := climb.OpenFolder(path, r.plan, r.set, o.Resume)
	if err != nil {
		return none, err
	}
	defer folder.Close()
	if _, err := os.Stat(folder.Transcript()); o.Resume && errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(stderr, "nothing to go on with in %s: the climb begins\n", path)
	}
	if lab, ok := launcher.(arms.Labeller); ok {
		abs, err := filepath.Abs(path)
		if err != nil {
			return none, err
		}
		launcher = lab.Labelled(abs)
	}
	fmt.Fprintf(stderr, "ladder %s, plan %s, in %s\n", r.plan.Ladder, d.Short(), path)
	c := &climb.Climb{Plan: r.plan, Set: r.set, Engine: r.engine, Launcher: launcher, Attacher: attacher, Folder: folder, Tool: "kvladder " + toolVersion(),
		Self: self, Cache: cache, Only: o.Only, Attach: attach, Beacon: beacon, APIKey: os.Getenv("KVLADDER_API_KEY"),
		Progress: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
		Assess: func(recs []probes.Record) scoring.Result {
			res, err := assess(r.plan, r.set, recs)
			if err != nil {
				res.Warnings = append(res.Warnings, err.Error())
			}
			return res
		},
		Suspects: scoring.Suspects, Detectors: detectors(r.plan.Design.Rule)}
	if o.Enter {
		if err := c.Register(); err != nil {
			return none, err
		}
		then := ""
		if key != nil {
			var exists *receipts.ExistsError
			if err := receipts.CheckpointForWitnesses(path, key); err != nil && !errors.As(err, &exists) {
				return none, err
			}
			then = ", and have witnesses add their lines to " + filepath.Join(path, receipts.CosignedFile) + " before that"
		}
		fmt.Fprintf(stderr, "plan %s is registered; climb it with kvladder run --out %s %s%s\n", d.Short(), path, o.Ladder, then)
		return scoring.Result{Ladder: r.plan.Ladder, Plan: string(d)}, nil
	}
	res, err := c.Run(ctx)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return none, fmt.Errorf("interrupted; what was written is whole: continue with kvladder run --resume --out %s %s", path, o.Ladder)
		}
		return none, err
	}
	if o.Only != "" {
		fmt.Fprintf(stderr, "chain %s climbed; nothing is sealed before the others are: kvladder run --resume --out %s %s\n", o.Only, path, o.Ladder)
		return res, nil
	}
	if key != nil {
		// A sealing that was interrupted after this goes on with the checkpoint that is there.
		var exists *receipts.ExistsError
		if err := receipts.Checkpoint(path, key); err != nil && !errors.As(err, &exists) {
			return none, err
		}
	}
	rd, err := receipts.Seal(path, *r.plan, res, receipts.Options{Tool: toolInfo(self), Assess: reassess})
	if err != nil {
		return none, fmt.Errorf("sealing %s: %w; everything is climbed and kept: free some space and seal with kvladder run --resume --out %s %s", path, err, path, o.Ladder)
	}
	sealed, err := receipts.Open(path)
	if err != nil {
		return none, err
	}
	if key != nil {
		if err := key.Sign(sealed); err != nil {
			return none, err
		}
	}
	res = sealed.Result()
	fmt.Fprintf(stderr, "receipt %s in %s\n", rd.Short(), filepath.Join(path, "receipt.json"))
	return res, nil
}

// attached parses ARM=URL pairs. An arm of a chain that restarts its process cannot be
// attached: nobody but the operator could restart that server.
func attached(pairs []string, p *arms.Plan) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range pairs {
		arm, url, ok := strings.Cut(s, "=")
		urls := strings.Split(url, ",")
		for i, u := range urls {
			if !ok || !(strings.HasPrefix(u, "http://") || strings.HasPrefix(u, "https://")) {
				return nil, fmt.Errorf("--attach %s: want ARM=URL with http:// or https://, or one URL for each rank, parted by commas", s)
			}
			urls[i] = strings.TrimRight(u, "/")
		}
		if byURL := p.Replay.RankBy == "url"; byURL && len(urls) != p.Replay.Ranks || !byURL && len(urls) > 1 {
			return nil, fmt.Errorf("--attach %s: %d URLs, and the ladder pins %d ranks by %q: give one URL for each rank with rank_by: url, else one", s, len(urls), p.Replay.Ranks, p.Replay.RankBy)
		}
		if _, ok := p.Design.ByName(arm); !ok {
			return nil, fmt.Errorf("--attach %s: the ladder has no arm %q", s, arm)
		}
		for _, ch := range p.Chains {
			launches, mine := 0, false
			for _, st := range ch.Steps {
				if st.Do == "launch" {
					launches++
					mine = mine || st.Arm == arm
				}
			}
			if mine && launches > 1 {
				return nil, fmt.Errorf("--attach %s: chain %s restarts its server, which only its owner can do; leave that arm out or let kvladder launch it", s, ch.Name)
			}
		}
		out[arm] = strings.Join(urls, ",")
	}
	for i := range p.Design.Arms {
		if _, ok := out[p.Design.Arms[i].Name]; ok {
			p.Design.Arms[i].Attached = true
		}
	}
	return out, nil
}

// allAttached refuses a ladder while a chain has no server that only its owner could start: of
// an engine that starts nothing, or one for each rank.
func allAttached(eng arms.Engine, attach map[string]string, p *arms.Plan, only string) error {
	why := "starts no server"
	if _, ok := eng.(arms.AttachOnly); !ok {
		if p.Replay.RankBy != "url" {
			return nil
		}
		why = "is not started once for each rank (rank_by: url)"
	}
	var lacks []string
	for _, ch := range p.Chains {
		for _, st := range ch.Steps {
			if st.Do == "launch" && attach[st.Arm] == "" && (only == "" || only == ch.Name) {
				lacks = append(lacks, st.Arm)
				break
			}
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return fmt.Errorf("engine %s %s, and %s have none: add --attach %s=URL and so on", eng.Name(), why, strings.Join(lacks, ", "), lacks[0])
}

func toolInfo(self string) receipts.Tool {
	t := receipts.Tool{Name: "kvladder", Version: toolVersion()}
	if d, _, err := digest.OfFile(self); err == nil {
		t.Binary = d
	}
	return t
}
