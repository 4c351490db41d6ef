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
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	NoPrefixCaching bool
	Connector       bool   // attach the store
	StorePath       string // directory of the store's file tier; empty: memory only
	Blocks          int    // of each block group and rank; 0 means DefaultBlocks
	PrefillBudget   int    // tokens a step may compute; 0 means DefaultPrefillBudget
	Ranks           int    // data-parallel ranks; 0 means 1
	HashSeed        string // root of the block hashes; empty means DefaultHashSeed
	Faults          []string
	Name            string // served model name; empty means DefaultName
	// Ready, if not nil, is called by Serve once requests will be answered.
	Ready func()
}

// Testbed is a running engine. It serves HTTP until Close.
type Testbed struct {
	http.Handler
	Ranks []*sched.Engine

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
	m := model.New(*cfg.ModelSeed)
	root := path.Cache.Root(cfg.HashSeed)
	identity := store.Identity{ModelSeed: *cfg.ModelSeed, DType: cfg.DType.String(), Geometry: geometry()}
	tb := &Testbed{}
	stores := make([]*store.Store, cfg.Ranks)
	for k := range cfg.Ranks {
		if cfg.Connector {
			dir := ""
			if cfg.StorePath != "" {
				dir = filepath.Join(cfg.StorePath, "rank-"+strconv.Itoa(k))
			}
			if stores[k], err = store.Open(dir); err != nil {
				return nil, err
			}
		}
		tb.Ranks = append(tb.Ranks, sched.New(sched.Config{
			Model:         m,
			DType:         cfg.DType,
			Blocks:        cfg.Blocks,
			Budget:        cfg.PrefillBudget,
			PrefixCaching: !cfg.NoPrefixCaching,
			Store:         stores[k],
			Identity:      identity,
			Root:          root,
			Path:          path,
		}))
	}
	tb.Handler = server.New(server.Config{
		Name:        cfg.Name,
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
	or(&cfg.Blocks, DefaultBlocks)
	or(&cfg.PrefillBudget, DefaultPrefillBudget)
	or(&cfg.Ranks, 1)
	if cfg.HashSeed == "" {
		cfg.HashSeed = DefaultHashSeed
	}
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	reuse := !cfg.NoPrefixCaching || cfg.Connector
	switch {
	case cfg.Blocks < model.StateEvery/model.BlockTokens:
		return fmt.Errorf("pool of %d blocks is too small: it must hold at least %d", cfg.Blocks, model.StateEvery/model.BlockTokens)
	case cfg.PrefillBudget < 1:
		return fmt.Errorf("prefill budget is %d, must be at least 1", cfg.PrefillBudget)
	case reuse && cfg.PrefillBudget < model.StateEvery:
		return fmt.Errorf("prefill budget %d is smaller than the recurrent block of %d tokens: raise it, or turn off prefix caching and the connector", cfg.PrefillBudget, model.StateEvery)
	case cfg.Ranks < 1 || cfg.Ranks > 64:
		return fmt.Errorf("data-parallel size is %d, must be 1 to 64", cfg.Ranks)
	case cfg.StorePath != "" && !cfg.Connector:
		return errors.New("a store path needs the store connector")
	}
	return nil
}

// geometry names the sizes that a stored chunk depends on.
func geometry() string {
	return fmt.Sprintf("attention_block=%d recurrent_block=%d store_chunk=%d window=%d",
		model.BlockTokens, model.StateEvery, store.Tokens, model.Window)
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
		HashSeed:        cfg.HashSeed,
		HashRoot:        hex.EncodeToString(root[:]),
		Faults:          ids,
		ServedModelName: cfg.Name,
		MaxModelLen:     MaxModelLen,
		Incarnation:     hex.EncodeToString(incarnation[:]),
		Started:         time.Now(),
		Geometry: server.Geometry{
			AttentionBlock: model.BlockTokens,
			RecurrentBlock: model.StateEvery,
			StoreChunk:     store.Tokens,
			Window:         model.Window,
		},
	}
}
