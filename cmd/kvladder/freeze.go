package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms/testbed"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/store"
	"kvladder/cmd/kvladder/internal/selftest"
	"kvladder/prompts"
	"kvladder/prompts/draw"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// frozen is what freeze prints with --json.
type frozen struct {
	Schema    string           `json:"schema"`
	Set       string           `json:"set"`
	Digest    digest.Digest    `json:"digest"`
	File      string           `json:"file"`
	Kind      string           `json:"kind"`
	Seed      uint64           `json:"seed"`
	Requests  int              `json:"requests"`
	Documents int              `json:"documents"`
	Classes   int              `json:"classes"`
	Primes    int              `json:"primes"`
	Needles   map[string]int   `json:"needles"` // asked, by the cache group that carries them
	Tokens    int              `json:"tokens"`
	Shortest  int              `json:"shortest"`
	Longest   int              `json:"longest"`
	Tokenizer string           `json:"tokenizer"`
	Dialect   string           `json:"dialect"`
	Model     string           `json:"model"`
	Geometry  prompts.Geometry `json:"geometry"`
	Sized     *sized           `json:"sized,omitempty"` // with --for-rate
}

// freezeFlags are the flags of freeze.
type freezeFlags struct {
	spec      draw.Spec
	out       string
	from      string
	tokenizer string
	server    string
	cue       string
	rate      float64
	arms      int
	json      bool
}

// newFreezeCmd builds "kvladder freeze".
func newFreezeCmd(stdout, stderr io.Writer) *cobra.Command {
	var f freezeFlags
	long := `Freeze draws the prompts of a set once, writes them with the exact bytes of their request
bodies, and prints the digest by which every later step names them. Equal flags give equal
bytes. A set is never written over a different one.

Token ids come from the embedded engine's tokenizer, or from POST /tokenize of a running
server. Where a prompt can be cut is asked from that server too, unless flags say it.

With --for-rate a set is made as large as it takes to show a defect that strikes that share
of the geometries: what is counted is classes of geometry and not requests, since requests
that are cut at the same place ask the same question.

Kinds:
`
	for _, k := range draw.Kinds() {
		long += fmt.Sprintf("  %-14s %s\n", k.Name, k.About)
	}
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "make a frozen set of prompts and print its digest",
		Long:  long,
		Example: `  kvladder freeze --kind mixed --seed 1 --name demo-48
  kvladder freeze --kind mixed --for-rate 0.05 --for-arms 3 --name mixed-sees-5-percent
  kvladder freeze --kind slots --server http://127.0.0.1:8080 --dialect llamacpp --name slots-12
  kvladder freeze --kind file --from prompts.jsonl --server http://127.0.0.1:8000 --name mine`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.freeze(cmd.Context(), cmd, stdout, stderr)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.spec.Kind, "kind", "mixed", "what to draw")
	fl.IntVar(&f.spec.N, "n", 0, "number of requests, 1 to 100,000 (default: the kind's own)")
	fl.Float64Var(&f.rate, "for-rate", 0, "size the set for a defect that strikes this `SHARE` of the geometry classes")
	fl.IntVar(&f.arms, "for-arms", 3, "judged arms of the ladder that --for-rate sizes for; 0 = for the bound alone")
	fl.Uint64Var(&f.spec.Seed, "seed", 1, "seed of the draw")
	fl.StringVar(&f.spec.Name, "name", "", "name of the set (default: KIND-N)")
	fl.StringVar(&f.out, "out", "", "file to write (default: NAME.jsonl)")
	fl.StringVar(&f.from, "from", "", "JSONL of prompts, for kind file; - is standard input")
	fl.StringVar(&f.tokenizer, "tokenizer", "testbed", "whose token ids: testbed")
	fl.StringVar(&f.server, "server", "", "URL of a running server to take ids, model name and geometry from")
	fl.StringVar(&f.spec.Wire.Dialect, "dialect", "vllm", "form of the bodies: vllm or llamacpp")
	fl.StringVar(&f.spec.Wire.Model, "model", "", "model name in the bodies (default: what the server or the testbed is called)")
	fl.StringVar(&f.spec.Wire.Salt, "salt", "", "cache_salt in the bodies (vllm)")
	fl.IntVar(&f.spec.MaxTokens, "max-tokens", 0, "most tokens of a reply (default: the kind's own)")
	fl.StringVar(&f.cue, "cue", "", `text after the question (default: none on the testbed, "\nanswer:" elsewhere)`)
	fl.IntVar(&f.spec.Geometry.AttentionBlock, "attention-block", 0, "tokens in a KV block")
	fl.IntVar(&f.spec.Geometry.RecurrentBlock, "recurrent-block", 0, "tokens between recurrent snapshots; 0 where there are none")
	fl.IntVar(&f.spec.Geometry.StoreChunk, "store-chunk", 0, "tokens in a chunk of the external store; 0 where none is known")
	fl.StringVar(&f.spec.Note, "note", "", "note in the set's header")
	fl.StringVar(&f.spec.Licence, "licence", "", "licence of the texts, for the set's header")
	fl.BoolVar(&f.json, "json", false, "print one JSON document")
	return cmd
}

func (f *freezeFlags) freeze(ctx context.Context, cmd *cobra.Command, stdout, stderr io.Writer) error {
	set := cmd.Flags().Changed
	s := f.spec
	var want *sized
	switch {
	case set("n") && (s.N < 1 || s.N > draw.MaxN):
		return fmt.Errorf("--n %d: want 1 to %d requests", s.N, draw.MaxN)
	case set("max-tokens") && (s.MaxTokens < 1 || s.MaxTokens > draw.MaxTokens):
		return fmt.Errorf("--max-tokens %d: want 1 to %d", s.MaxTokens, draw.MaxTokens)
	case set("for-rate") && (set("n") || s.Kind == "file"):
		return errors.New("--for-rate says how many requests are drawn: it goes neither with --n nor with kind file")
	case set("for-arms") && !set("for-rate"):
		return errors.New("--for-arms belongs to --for-rate")
	case set("for-rate"):
		z, err := sizeFor(f.rate, f.arms)
		if err != nil {
			return err
		}
		want = &z
	}
	if set("name") {
		if err := prompts.CheckName(s.Name); err != nil {
			return fmt.Errorf("--name %.80q: %w", s.Name, err)
		}
	}
	if f.out != "" {
		if fi, err := os.Stat(filepath.Dir(f.out)); err != nil || !fi.IsDir() {
			return fmt.Errorf("--out %s: there is no folder %s; make it first, or choose another", f.out, filepath.Dir(f.out))
		}
	}
	tok, geometry, err := f.source(ctx, set, &s)
	if err != nil {
		return err
	}
	s.Geometry = geometry
	if set("cue") {
		s.Cue = f.cue
	}
	if s.Name == "" {
		if s.Name = s.Kind; s.N > 0 {
			s.Name = fmt.Sprintf("%s-%d", s.Kind, s.N)
		}
	}
	if s.Kind == "file" && f.from == "" {
		return errors.New("kind file reads prompts: name the JSONL with --from")
	}
	if s.Kind != "file" && f.from != "" {
		return fmt.Errorf("--from is for kind file, not %s", s.Kind)
	}
	switch f.from {
	case "":
	case "-":
		s.File = cmd.InOrStdin()
	default:
		r, err := os.Open(f.from)
		if err != nil {
			return err
		}
		defer r.Close()
		s.File = r
	}
	if _, own := tok.(testbedTokenizer); own {
		s.Continue = continuation(selftest.Geometry{AttentionBlock: s.Geometry.AttentionBlock, RecurrentBlock: s.Geometry.RecurrentBlock})
	}
	out, err := atOnce(ctx, func() (*prompts.Set, error) {
		if want != nil {
			return drawFor(ctx, tok, s, want)
		}
		return draw.Draw(ctx, tok, s)
	})
	if ctx.Err() != nil {
		return &exitError{Code: scoring.ExitInvalid, Err: errors.New("interrupted: nothing was written; freeze again with the same flags")}
	}
	if err != nil {
		return err
	}
	path := f.out
	if path == "" {
		path = s.Name + ".jsonl"
	}
	if err := out.Write(path); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "wrote %s and %s.sha256\n", path, path)
	r := summary(out, path)
	r.Sized = want
	if f.json {
		return printJSON(stdout, r)
	}
	r.print(stdout)
	return nil
}

// atOnce does not wait for draw once ctx ends: a draw sees that between two prompts, but not
// while it waits for standard input or puts the lines together.
func atOnce(ctx context.Context, draw func() (*prompts.Set, error)) (*prompts.Set, error) {
	type drawn struct {
		set *prompts.Set
		err error
	}
	done := make(chan drawn, 1)
	go func() {
		s, err := draw()
		done <- drawn{s, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case d := <-done:
		return d.set, d.err
	}
}

// source is where token ids come from, and the geometry that goes with it. It completes the
// model name and the cue of s.
func (f *freezeFlags) source(ctx context.Context, set func(string) bool, s *draw.Spec) (draw.Tokenizer, prompts.Geometry, error) {
	g := prompts.Geometry{Mode: "paged"}
	var tok draw.Tokenizer
	if f.server != "" {
		if set("tokenizer") {
			return nil, g, errors.New("give either --tokenizer or --server")
		}
		srv := &tokenServer{url: strings.TrimRight(f.server, "/"), dialect: s.Wire.Dialect, model: s.Wire.Model}
		if err := srv.open(ctx); err != nil {
			return nil, g, err
		}
		if s.Wire.Model == "" {
			s.Wire.Model = srv.model
		}
		if srv.model != testbed.DefaultName {
			s.Cue = "\nanswer:"
		}
		tok = srv
		if s.Wire.Dialect == "llamacpp" {
			g = prompts.Geometry{Mode: "slot", AttentionBlock: 1}
		} else if said, err := srv.geometry(ctx); err != nil {
			if !set("attention-block") {
				return nil, g, fmt.Errorf("%w; say it with --attention-block and --recurrent-block", err)
			}
		} else {
			g = said
		}
	} else {
		if f.tokenizer != "testbed" {
			return nil, g, fmt.Errorf("tokenizer %q is unknown: use testbed, or --server URL", f.tokenizer)
		}
		tok = testbedTokenizer{}
		if s.Wire.Model == "" {
			s.Wire.Model = testbed.DefaultName
		}
		g.AttentionBlock, g.RecurrentBlock, g.StoreChunk = model.BlockTokens, model.StateEvery, store.Tokens
	}
	if set("attention-block") {
		g.AttentionBlock = s.Geometry.AttentionBlock
	}
	if set("recurrent-block") {
		g.RecurrentBlock = s.Geometry.RecurrentBlock
	}
	if set("store-chunk") {
		g.StoreChunk = s.Geometry.StoreChunk
	}
	if g.AttentionBlock < 1 || g.RecurrentBlock < 0 || g.StoreChunk < 0 {
		return nil, g, fmt.Errorf("block sizes %d, %d and %d: a KV block has a token or more", g.AttentionBlock, g.RecurrentBlock, g.StoreChunk)
	}
	return tok, g, nil
}

// testbedTokenizer is the embedded engine's.
type testbedTokenizer struct{}

func (testbedTokenizer) Name() string { return testbed.DefaultName }

func (testbedTokenizer) Encode(_ context.Context, text string) ([]int, error) {
	return model.Encode(text), nil
}

func summary(s *prompts.Set, path string) frozen {
	r := frozen{
		Schema: "kvladder/freeze/1", Set: s.Name, Digest: s.Digest, File: path, Kind: s.Kind, Seed: s.Seed,
		Requests: len(s.Prompts), Classes: s.Classes(), Needles: map[string]int{},
		Tokenizer: s.Tokenizer, Dialect: s.Dialect, Model: s.Model, Geometry: s.Geometry,
	}
	documents := map[string]bool{}
	for i, p := range s.Prompts {
		documents[p.Document] = true
		n := len(p.Tokens)
		r.Tokens += n
		r.Longest = max(r.Longest, n)
		if i == 0 || n < r.Shortest {
			r.Shortest = n
		}
		if p.Prime != nil {
			r.Primes++
		}
		for _, x := range p.Expect.Needles {
			if rides := x.Rides; rides != "" {
				r.Needles[rides]++
			} else {
				r.Needles["unknown"]++
			}
		}
	}
	r.Documents = len(documents)
	return r
}

func (r frozen) print(w io.Writer) {
	fmt.Fprintf(w, "set       %s (%s, seed %d)\n", r.Set, r.Kind, r.Seed)
	fmt.Fprintf(w, "digest    %s\n", r.Digest)
	fmt.Fprintf(w, "requests  %d in %d documents, %d classes, %d with a prime\n", r.Requests, r.Documents, r.Classes, r.Primes)
	fmt.Fprintf(w, "tokens    %d, prompts of %d to %d\n", r.Tokens, r.Shortest, r.Longest)
	if len(r.Needles) > 0 {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(r.Needles)) {
			parts = append(parts, fmt.Sprintf("%d on %s", r.Needles[k], k))
		}
		fmt.Fprintf(w, "needles   %s\n", strings.Join(parts, ", "))
	}
	if z := r.Sized; z != nil {
		what := fmt.Sprintf("%d classes bound it when none fails", z.Bound)
		if z.Arms > 0 {
			what += fmt.Sprintf(", %d show it with %.0f %% power (%d must fail, %d judged arms)", z.Need, 100*z.Power, z.Failures, z.Arms)
		}
		fmt.Fprintf(w, "sized     for %g of the classes: %s\n", z.Rate, what)
	}
	g := r.Geometry
	fmt.Fprintf(w, "geometry  %s, blocks of %d, recurrent boundary %d, store chunk %d\n", g.Mode, g.AttentionBlock, g.RecurrentBlock, g.StoreChunk)
	fmt.Fprintf(w, "bodies    %s, model %s\n", r.Dialect, r.Model)
}
