package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/cmd/kvladder/internal/foreign"
	"kvladder/probes"
	"kvladder/probes/metrics"
	"kvladder/receipts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

type importOptions struct {
	Args      []string
	Reference string
	Floors    []string
	Out       string
	JSON      bool
}

func newImportCmd(stdout, stderr io.Writer) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import NAME=FILE...",
		Short: "score rows that somebody else measured, and seal a receipt of it",
		Long: `import reads rows that another harness published, one file an arm, and judges them as a run
would be judged: each arm against the reference, request by request. Nothing that the rows
say about themselves is believed; whether a request failed is decided from its reply.

FILE holds a list of rows, a document with "rows", one with arms that hold rows, or one row
a line, plain or gzip; NaN and the infinities are read as Python writes them. Snapshots of
the engine's counters named *metrics-NAME-pre.txt and *metrics-NAME-post.txt (or .gz) beside
FILE are the source of the external tokens. A FILE with several arms needs no NAME.

What is imported can accuse and cannot acquit: nobody read its pins and nothing shows that
its plan came before its data (order O0). kvladder verify checks the receipt like any other.`,
		Example: `  kvladder import L0=arm-L0.json.gz L1cold=arm-L1cold.json.gz
  kvladder import --reference base --floor base-again all-arms.json`,
		Args: args(cobra.MinimumNArgs(1), "files of rows as NAME=FILE"),
		RunE: func(cmd *cobra.Command, a []string) error {
			o.Args = a
			res, err := runImport(o, stderr)
			if err != nil {
				return err
			}
			if err := printResult(stdout, res, o.JSON); err != nil {
				return err
			}
			return outcome(res.Exit)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Reference, "reference", "", "arm that the others are judged against (default the first)")
	f.StringArrayVar(&o.Floors, "floor", nil, "`NAME` of a further process of the reference's configuration: a control (repeatable)")
	f.StringVar(&o.Out, "out", "", "run folder (default runs/import-<names>-<plan digest>)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON document")
	return cmd
}

// importRoles are the counters whose series name the engines' own metrics: vLLM's, which
// the embedded engine has too (vllm/v1/metrics/loggers.py).
var importRoles = map[string]string{
	probes.LocalQueries:    "vllm:prefix_cache_queries",
	probes.LocalHits:       "vllm:prefix_cache_hits",
	probes.ExternalQueries: "vllm:external_prefix_cache_queries",
	probes.ExternalHits:    "vllm:external_prefix_cache_hits",
	probes.PromptTokens:    "vllm:prompt_tokens",
	probes.Preemptions:     "vllm:num_preemptions",
}

// runImport judges foreign rows and seals a run folder of them.
func runImport(o importOptions, stderr io.Writer) (scoring.Result, error) {
	var none scoring.Result
	sources, err := importSources(o.Args)
	if err != nil {
		return none, err
	}
	im, err := foreign.Build(sources, foreign.Options{Reference: o.Reference, Floors: o.Floors, Tool: "kvladder " + toolVersion()})
	if err != nil {
		return none, err
	}
	for _, n := range im.Notes {
		fmt.Fprintf(stderr, "warning: %s\n", n)
	}
	pd, _, err := im.Plan.Digest()
	if err != nil {
		return none, err
	}
	path := o.Out
	if path == "" {
		path = filepath.Join("runs", im.Plan.Ladder+"-"+pd.Short())
	}
	fmt.Fprintf(stderr, "import of %d arms, plan %s, in %s\n", len(sources), pd.Short(), path)
	if res, ok, err := importedBefore(path, pd); ok || err != nil {
		if err == nil {
			fmt.Fprintf(stderr, "hint: the same rows were imported before: this is the receipt of %s\n", path)
		}
		return res, err
	}
	return importInto(path, im, stderr)
}

// importSources reads the files and finds the snapshots that lie beside them.
func importSources(pairs []string) ([]foreign.Source, error) {
	var out []foreign.Source
	opened := map[string]*foreign.File{}
	for _, pair := range pairs {
		name, path, named := strings.Cut(pair, "=")
		if !named || strings.ContainsAny(name, `/\`) {
			name, path = "", pair
		}
		if path == "" || named && name == "" && path != pair {
			return nil, fmt.Errorf("%q: want NAME=FILE", pair)
		}
		f := opened[path]
		if f == nil {
			var err error
			if f, err = foreign.Open(path); err != nil {
				return nil, err
			}
			opened[path] = f
		}
		arms := f.Arms
		if name != "" {
			a, err := f.Pick(name)
			if err != nil {
				return nil, err
			}
			arms = []foreign.Arm{a}
		}
		for _, a := range arms {
			s := foreign.Source{Name: name, File: f, Arm: a}
			if name == "" {
				s.Name = a.Name
			}
			for _, n := range []string{s.Name, a.Name} {
				if n == "" || len(s.Snapshots) > 0 {
					continue
				}
				var err error
				if s.Snapshots, err = foreign.Snapshots(f.Dir, n, importCounters); err != nil {
					return nil, fmt.Errorf("snapshots beside %s: %w", path, err)
				}
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// importCounters reads the counters out of a snapshot.
func importCounters(text []byte) ([]probes.Value, error) {
	series, err := metrics.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("line %w", err)
	}
	if len(series) == 0 {
		return nil, errors.New("there is no series in it")
	}
	return metrics.Select(metrics.Snapshot{Series: series}, importRoles)
}

// importedBefore gives the sealed result of a folder that holds the same import.
func importedBefore(path string, plan digest.Digest) (res scoring.Result, ok bool, err error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return res, false, nil
	}
	taken := fmt.Errorf("run folder %s is there and holds something else: choose another folder with --out", path)
	if err != nil {
		return res, false, taken
	}
	r, err := receipts.Open(path)
	if err != nil || r.Predicate.Prereg.Plan != plan {
		return res, false, taken
	}
	if rep := receipts.Verify(path, checker()); !rep.OK {
		return res, false, fmt.Errorf("run folder %s holds these rows and its receipt does not hold (%s): choose another folder with --out", path, rep.Problems[0].What)
	}
	res = r.Predicate.Result
	res.Receipt = string(r.Digest())
	return res, true, nil
}

// importInto makes the run folder beside its place and moves it there once it is sealed, so
// that nothing is left of an import that failed.
func importInto(path string, im *foreign.Import, stderr io.Writer) (scoring.Result, error) {
	var none scoring.Result
	parent := filepath.Dir(path)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return none, err
	}
	tmp, err := os.MkdirTemp(parent, ".import-*.partial")
	if err != nil {
		return none, fmt.Errorf("run folder %s: %w; choose a writable folder with --out", path, err)
	}
	defer os.RemoveAll(tmp)
	if err := fillImport(tmp, im); err != nil {
		return none, fmt.Errorf("run folder %s: %w", path, err)
	}
	res, err := assess(im.Plan, im.Set, im.Records)
	if err != nil {
		return none, err
	}
	self, err := selfPath()
	if err != nil {
		return none, err
	}
	rd, err := receipts.Seal(tmp, *im.Plan, res, receipts.Options{Tool: toolInfo(self), Warnings: im.Notes})
	if err != nil {
		return none, err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return none, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return none, fmt.Errorf("run folder %s: %w; choose another folder with --out", path, err)
	}
	res.Receipt = string(rd)
	fmt.Fprintf(stderr, "receipt %s in %s\n", rd.Short(), filepath.Join(path, receipts.ReceiptFile))
	return res, nil
}

// fillImport writes plan, set, objects and transcript.
func fillImport(dir string, im *foreign.Import) error {
	objects := filepath.Join(dir, filepath.FromSlash(receipts.ObjectDir))
	for _, d := range []string{objects, filepath.Join(dir, receipts.SetDir)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	_, pb, err := im.Plan.Digest()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, receipts.PlanFile), pb, 0o644); err != nil {
		return err
	}
	if err := im.Set.Write(filepath.Join(dir, receipts.SetDir, im.Set.Name+".jsonl")); err != nil {
		return err
	}
	for _, b := range im.Objects {
		if err := os.WriteFile(filepath.Join(objects, digest.Of(b).Hex()), b, 0o644); err != nil {
			return err
		}
	}
	w, err := probes.OpenWriter(filepath.Join(dir, receipts.TranscriptFile))
	if err != nil {
		return err
	}
	for _, r := range im.Records {
		if err := w.Append(r); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}
