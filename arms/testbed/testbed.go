// Package testbed is the embedded engine: a small decoder behind a real KV path
// and a server that speaks vLLM's dialect, so that every claim about KV reuse
// can be tried without an accelerator, and so that defects of that path can be
// planted one at a time.
//
// From the bottom up: model computes; cache remembers blocks by hash; store
// keeps chunks outside the engine; sched runs requests over all three, one
// Engine for each data-parallel rank; fault replaces single functions of the KV
// path; server talks HTTP. This package puts them together.
//
// A healthy testbed gives bitwise equal logprobs for the same tokens whatever
// was reused, from wherever, in whatever batch.
package testbed

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/fault"
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
	"kvladder/arms/testbed/server"
	"kvladder/arms/testbed/store"
)

// The defaults of Config.
const (
	DefaultModelSeed     = 11
	DefaultBlocks        = 2048
	DefaultPrefillBudget = 2*model.StateEvery - 1
	DefaultName          = "kvladder-testbed"
	DefaultHashSeed      = "0"
)

// MaxModelLen is the most tokens of prompt and output together.
const MaxModelLen = 4096

// Config says what to build. The zero value is a working engine of one rank in
// bf16, with prefix caching and without a connector.
type Config struct {
	ModelSeed       *uint64 // of the weights; nil means DefaultModelSeed
	DType           model.DType
	Geometry        model.Geometry // zeros mean blocks of 16 and boundaries every 64
	NoPrefixCaching bool
	Connector       bool   // attach the store
	StorePath       string // directory of the store's file tier; empty: memory only
	SharedStore     bool   // data-parallel ranks share one store
	Blocks          int    // of each block group and rank; 0 means DefaultBlocks
	PrefillBudget   int    // tokens a step may compute; 0 means one less than two recurrent blocks
	Ranks           int    // data-parallel ranks; 0 means 1
	TensorParallel  int    // ranks that share out the heads of what is stored; 0 means 1
	HashSeed        string // root of the block hashes; empty means DefaultHashSeed
	Epoch           int    // of the configuration: another one computes other KV
	Adapters        []string
	StoreSteps      int    // steps that a copy to the store takes
	LoadSteps       int    // steps that a load takes
	FailOnLoad      bool   // a failed load ends the request instead of computing
	Draft           int    // most tokens drafted a step; 0 drafts none
	TraceReplay     bool   // requests may name their reply (trace_decode_token_ids); not with Draft
	Noise           string // "", "split" or "order": see Config.cut
	NoiseSeed       uint64 // of "order", of flakes and of schedules; 0 draws one
	NoiseProcess    uint64 // mixed into a NoiseSeed that is stated, so that each process has draws of its own
	Flake           float64
	Faults          []string
	Name            string // served model name; empty means DefaultName
	// Ready, if not nil, is called by Serve once requests will be answered.
	Ready func()

	asked uint64      // NoiseSeed as it was asked for
	audit func(error) // told after each step whether the pools balance
}

// Testbed is a running engine. It serves HTTP until Close.
type Testbed struct {
	http.Handler
	Ranks []*sched.Engine

	dead chan error // holds what an engine died of
	stop context.CancelFunc
	done sync.WaitGroup
}

// New builds an engine and starts its ranks. Requests are logged to log, one
// line each.
func New(cfg Config, log io.Writer) (*Testbed, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	path, err := fault.Plant(cfg.Faults)
	if err != nil {
		return nil, err
	}
	models := &variants{seed: *cfg.ModelSeed, epoch: cfg.Epoch}
	root := path.Cache.Root(cfg.HashSeed)
	identity := store.Identity{ModelSeed: *cfg.ModelSeed, DType: cfg.DType.String(), Geometry: cfg.geometry(), Epoch: cfg.Epoch}
	tb := &Testbed{dead: make(chan error, cfg.Ranks)}
	var stores []*store.Store
	for k := range cfg.Ranks {
		if cfg.Connector && (k == 0 || path.Scope(!cfg.SharedStore)) {
			if stores, err = cfg.stores(k); err != nil {
				return nil, err
			}
		}
		tb.Ranks = append(tb.Ranks, sched.New(sched.Config{
			Rank:          k,
			Model:         models.of(cache.Who{}),
			Variant:       models.of,
			DType:         cfg.DType,
			Geometry:      cfg.Geometry,
			Blocks:        cfg.Blocks,
			Budget:        cfg.PrefillBudget,
			PrefixCaching: !cfg.NoPrefixCaching,
			Stores:        stores,
			StoreSteps:    cfg.StoreSteps,
			LoadSteps:     cfg.LoadSteps,
			FailOnLoad:    cfg.FailOnLoad,
			Draft:         cfg.Draft,
			Seed:          cfg.NoiseSeed,
			Identity:      identity,
			Root:          root,
			Path:          path,
			Cut:           cfg.cut(),
			Flake:         cfg.flake(k),
			Audit:         cfg.audit,
			Died:          tb.died(log),
		}))
	}
	tb.Handler = server.New(server.Config{
		Name:        cfg.Name,
		Adapters:    cfg.Adapters,
		MaxModelLen: MaxModelLen,
		Ranks:       tb.Ranks,
		Facts:       cfg.facts(root),
		Log:         log,
	})
	ctx, stop := context.WithCancel(context.Background())
	tb.stop = stop
	for _, e := range tb.Ranks {
		tb.done.Go(func() { e.Run(ctx) })
	}
	return tb, nil
}

// Close ends the ranks, aborting what they are at, and waits for them.
func (tb *Testbed) Close() {
	tb.stop()
	tb.done.Wait()
}

// lastWords is how long a dead engine's server still answers, with errors.
const lastWords = 300 * time.Millisecond

// grace is how long Serve lets requests end once it is asked to stop.
const grace = 5 * time.Second

// Serve runs an engine behind ln until ctx is done, then lets the requests in
// flight end for a few seconds and returns nil.
func Serve(ctx context.Context, cfg Config, ln net.Listener, log io.Writer) error {
	tb, err := New(cfg, log)
	if err != nil {
		ln.Close()
		return err
	}
	defer tb.Close()
	srv := &http.Server{Handler: tb, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	if cfg.Ready != nil {
		cfg.Ready()
	}
	select {
	case err := <-failed:
		return err
	case err := <-tb.dead:
		time.Sleep(lastWords) // in which /health says so
		srv.Close()
		<-failed
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Check says what is wrong with cfg, without building anything.
func (cfg Config) Check() error {
	if err := cfg.fill(); err != nil {
		return err
	}
	_, err := fault.Plant(cfg.Faults)
	return err
}

// fill puts defaults in place of zeros and refuses what cannot work.
func (cfg *Config) fill() error {
	if cfg.ModelSeed == nil {
		seed := uint64(DefaultModelSeed)
		cfg.ModelSeed = &seed
	}
	or := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	if err := cfg.Geometry.Check(); err != nil {
		return err
	}
	cfg.Geometry = cfg.Geometry.Filled()
	or(&cfg.Blocks, DefaultBlocks)
	or(&cfg.PrefillBudget, 2*cfg.Geometry.Every-1)
	or(&cfg.Ranks, 1)
	or(&cfg.TensorParallel, 1)
	cfg.asked = cfg.NoiseSeed
	if cfg.NoiseSeed != 0 && cfg.NoiseProcess != 0 {
		cfg.NoiseSeed = mrand.New(mrand.NewPCG(cfg.NoiseSeed, cfg.NoiseProcess)).Uint64() >> 12
	}
	for cfg.NoiseSeed == 0 {
		cfg.NoiseSeed = random()
	}
	if cfg.HashSeed == "" {
		cfg.HashSeed = DefaultHashSeed
	}
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	reuse := !cfg.NoPrefixCaching || cfg.Connector
	switch {
	case cfg.Blocks < cfg.Geometry.PerChunk():
		return fmt.Errorf("pool of %d blocks is too small: it must hold at least %d", cfg.Blocks, cfg.Geometry.PerChunk())
	case cfg.PrefillBudget < 1:
		return fmt.Errorf("prefill budget is %d, must be at least 1", cfg.PrefillBudget)
	case reuse && cfg.PrefillBudget < cfg.Geometry.Every:
		return fmt.Errorf("prefill budget %d is smaller than the recurrent block of %d tokens: raise it, or turn off prefix caching and the connector", cfg.PrefillBudget, cfg.Geometry.Every)
	case cfg.Ranks < 1 || cfg.Ranks > 64:
		return fmt.Errorf("data-parallel size is %d, must be 1 to 64", cfg.Ranks)
	case cfg.StorePath != "" && !cfg.Connector:
		return errors.New("a store path needs the store connector")
	case cfg.TensorParallel < 1 || cfg.TensorParallel > 2:
		return fmt.Errorf("tensor-parallel size is %d, must be 1 or 2", cfg.TensorParallel)
	case cfg.TraceReplay && cfg.Draft > 0:
		return errors.New("trace replay is not supported with speculative decoding: leave one of them off")
	case cfg.Draft < 0 || cfg.Draft > 8:
		return fmt.Errorf("%d draft tokens, must be 0 to 8", cfg.Draft)
	case cfg.StoreSteps < 0 || cfg.LoadSteps < 0:
		return fmt.Errorf("copies take %d steps and loads %d: neither can be negative", cfg.StoreSteps, cfg.LoadSteps)
	case cfg.Epoch < 0 || cfg.Epoch > 9:
		return fmt.Errorf("configuration epoch is %d, must be 0 to 9", cfg.Epoch)
	case !(cfg.Flake >= 0 && cfg.Flake <= 1):
		return fmt.Errorf("flake rate is %v, must be 0 to 1", cfg.Flake)
	case cfg.Noise != "" && cfg.Noise != NoiseSplit && cfg.Noise != NoiseOrder:
		return fmt.Errorf("noise %q is unknown: use %s or %s", cfg.Noise, NoiseSplit, NoiseOrder)
	}
	return nil
}

// geometry names the sizes that a stored chunk depends on.
func (cfg Config) geometry() string {
	name := fmt.Sprintf("attention_block=%d recurrent_block=%d store_chunk=%d window=%d",
		cfg.Geometry.Block, cfg.Geometry.Every, cfg.Geometry.Every, model.Window)
	if cfg.TensorParallel > 1 {
		name += fmt.Sprintf(" tensor_parallel=%d", cfg.TensorParallel)
	}
	return name
}

// stores opens the store of data-parallel rank k, one share for each rank of the
// tensor split.
func (cfg Config) stores(k int) ([]*store.Store, error) {
	var out []*store.Store
	for share := range cfg.TensorParallel {
		dir := ""
		if cfg.StorePath != "" {
			dir = filepath.Join(cfg.StorePath, "rank-"+strconv.Itoa(k*cfg.TensorParallel+share))
		}
		s, err := store.Open(dir)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// facts is what the server states about the engine, every choice as resolved.
func (cfg Config) facts(root cache.Hash) server.Facts {
	ids := make([]string, 0, len(cfg.Faults))
	for _, f := range fault.All() {
		for _, id := range cfg.Faults {
			if strings.EqualFold(f.ID, id) {
				ids = append(ids, f.ID)
				break
			}
		}
	}
	scope, policy := "rank", "recompute"
	if cfg.SharedStore {
		scope = "shared"
	}
	if cfg.FailOnLoad {
		policy = "fail"
	}
	connector := "none"
	if cfg.Connector {
		connector = "store"
	}
	var incarnation [8]byte
	rand.Read(incarnation[:])
	return server.Facts{
		ModelSeed:       *cfg.ModelSeed,
		CacheDType:      cfg.DType.String(),
		PrefixCaching:   !cfg.NoPrefixCaching,
		Connector:       connector,
		StorePath:       cfg.StorePath,
		Blocks:          cfg.Blocks,
		PrefillBudget:   cfg.PrefillBudget,
		Ranks:           cfg.Ranks,
		TensorParallel:  cfg.TensorParallel,
		StoreScope:      scope,
		StoreSteps:      cfg.StoreSteps,
		LoadSteps:       cfg.LoadSteps,
		LoadPolicy:      policy,
		Draft:           cfg.Draft,
		TraceReplay:     cfg.TraceReplay,
		Epoch:           cfg.Epoch,
		Adapters:        strings.Join(cfg.Adapters, ","),
		Noise:           cmp.Or(cfg.Noise, "none"),
		NoiseSeed:       cfg.asked,
		NoiseSeedDrawn:  cfg.NoiseSeed,
		Flake:           cfg.Flake,
		HashSeed:        cfg.HashSeed,
		HashRoot:        hex.EncodeToString(root[:]),
		Faults:          ids,
		ServedModelName: cfg.Name,
		MaxModelLen:     MaxModelLen,
		Incarnation:     hex.EncodeToString(incarnation[:]),
		Started:         time.Now(),
		Geometry: server.Geometry{
			AttentionBlock: cfg.Geometry.Block,
			RecurrentBlock: cfg.Geometry.Every,
			StoreChunk:     cfg.Geometry.Every,
			Window:         model.Window,
		},
	}
}
