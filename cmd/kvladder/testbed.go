package main

import (
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"kvladder/arms/testbed"
	"kvladder/arms/testbed/fault"
	"kvladder/arms/testbed/model"
)

// newTestbedCmd builds "kvladder testbed", the embedded engine.
func newTestbedCmd(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "testbed",
		Short: "the embedded engine",
		Args:  args(cobra.NoArgs, "serve"),
		RunE:  func(cmd *cobra.Command, a []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTestbedServeCmd(stdout, stderr))
	return cmd
}

func newTestbedServeCmd(stdout, stderr io.Writer) *cobra.Command {
	var (
		host, dtype, connector, storePath, hashSeed, faults, name string
		scope, policy, noise, adapters                            string
		port, blocks, budget, ranks, tensor                       int
		block, recurrent, storeSteps, loadSteps, draft, epoch     int
		seed, noiseSeed, noiseProcess                             uint64
		flake                                                     float64
		caching, noCaching, trace                                 bool
	)
	long := "Serve the embedded engine over HTTP in vLLM's dialect until interrupted.\n\nFaults that --fault can plant in its KV path:\n"
	for _, f := range fault.All() {
		long += fmt.Sprintf("  %-11s  %s\n", f.ID, f.Summary)
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "serve the embedded engine, with faults by flag",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			dt, err := model.ParseDType(dtype)
			if err != nil {
				return err
			}
			switch connector {
			case "none", "store":
			default:
				return fmt.Errorf("connector %q is unknown: use none or store", connector)
			}
			for _, w := range []struct{ flag, value, a, b string }{
				{"store-scope", scope, "rank", "shared"},
				{"kv-load-failure-policy", policy, "recompute", "fail"},
			} {
				if w.value != w.a && w.value != w.b {
					return fmt.Errorf("%s %q is unknown: use %s or %s", w.flag, w.value, w.a, w.b)
				}
			}
			if noise == "none" {
				noise = ""
			}
			cfg := testbed.Config{
				ModelSeed:       &seed,
				DType:           dt,
				NoPrefixCaching: noCaching || !caching,
				Connector:       connector == "store",
				StorePath:       storePath,
				Blocks:          blocks,
				PrefillBudget:   budget,
				Ranks:           ranks,
				Geometry:        model.Geometry{Block: block, Every: recurrent},
				SharedStore:     scope == "shared",
				TensorParallel:  tensor,
				Epoch:           epoch,
				Adapters:        fault.Parse(adapters),
				StoreSteps:      storeSteps,
				LoadSteps:       loadSteps,
				FailOnLoad:      policy == "fail",
				Draft:           draft,
				TraceReplay:     trace,
				Noise:           noise,
				NoiseSeed:       noiseSeed,
				NoiseProcess:    noiseProcess,
				Flake:           flake,
				HashSeed:        hashSeed,
				Faults:          fault.Parse(faults),
				Name:            name,
			}
			if err := cfg.Check(); err != nil {
				return err
			}
			ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				return err
			}
			cfg.Ready = func() { fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr()) }
			return testbed.Serve(cmd.Context(), cfg, ln, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&host, "host", "127.0.0.1", "address to listen on")
	f.IntVar(&port, "port", 0, "port to listen on; 0 takes a free one")
	f.Uint64Var(&seed, "model-seed", testbed.DefaultModelSeed, "seed of the weights")
	f.StringVar(&dtype, "kv-cache-dtype", "bf16", "storage of keys and values: bf16 or fp8")
	f.BoolVar(&caching, "enable-prefix-caching", true, "reuse KV of earlier requests from the local cache")
	f.BoolVar(&noCaching, "no-enable-prefix-caching", false, "turn the local cache off")
	f.StringVar(&connector, "connector", "none", "external KV store: none or store")
	f.StringVar(&storePath, "store-path", "", "`directory` of the store's file tier; without it the store is in memory only")
	f.IntVar(&blocks, "blocks", testbed.DefaultBlocks, "KV blocks, per cache group and rank")
	f.IntVar(&block, "block-size", model.BlockTokens, "tokens of an attention block, a multiple of 16")
	f.IntVar(&recurrent, "mamba-block-size", model.StateEvery, "tokens between recurrent boundaries and of a stored chunk, a multiple of the block size")
	f.IntVar(&budget, "prefill-budget", 0, "most tokens computed in one step; 0 is one less than two recurrent blocks")
	f.IntVar(&ranks, "data-parallel-size", 1, "ranks, each with its own cache")
	f.IntVar(&tensor, "tensor-parallel-size", 1, "ranks that share out the heads of what is stored: 1 or 2")
	f.StringVar(&scope, "store-scope", "rank", "whether each data-parallel rank has its own store: rank or shared")
	f.IntVar(&storeSteps, "store-steps", 0, "scheduler steps that a copy to the store takes")
	f.IntVar(&loadSteps, "load-steps", 0, "scheduler steps that a load from the store takes, while the request waits")
	f.StringVar(&policy, "kv-load-failure-policy", "recompute", "what becomes of a request whose load fails: recompute or fail")
	f.IntVar(&draft, "num-speculative-tokens", 0, "most tokens drafted in one step, from the request's own n-grams")
	f.BoolVar(&trace, "enable-trace-replay", false, "let requests name their reply with trace_decode_token_ids; not with speculative tokens")
	f.IntVar(&epoch, "config-epoch", 0, "epoch of the configuration, 0 to 9; KV of another one is wrong")
	f.StringVar(&adapters, "adapters", "", "comma-separated `names`; each is served as the model name, a colon and its own")
	f.StringVar(&noise, "noise", "none", "rounding noise of a healthy engine: none, split (sums depend on the prefill split) or order (an order for each process)")
	f.Uint64Var(&noiseSeed, "noise-seed", 0, "seed of the order of summation, of flakes and of the order of copies; 0 draws one")
	f.Uint64Var(&noiseProcess, "noise-process", 0, "mixed into the noise seed: processes of one seed then differ, and can be had again")
	f.Float64Var(&flake, "flake", 0, "share of the requests that are answered wrongly, whatever was reused")
	f.StringVar(&hashSeed, "hash-seed", testbed.DefaultHashSeed, "seed of the block hashes; stored KV is found again only under the same one")
	f.StringVar(&faults, "fault", "", "comma-separated `ids` of faults to plant")
	f.StringVar(&name, "served-model-name", testbed.DefaultName, "model name in the API")
	cmd.MarkFlagsMutuallyExclusive("enable-prefix-caching", "no-enable-prefix-caching")
	return cmd
}
