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
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newTestbedServeCmd(stdout, stderr))
	return cmd
}

func newTestbedServeCmd(stdout, stderr io.Writer) *cobra.Command {
	var (
		host, dtype, connector, storePath, hashSeed, faults, name string
		port, blocks, budget, ranks                               int
		seed                                                      uint64
		caching, noCaching                                        bool
	)
	long := "Serve the embedded engine over HTTP in vLLM's dialect until interrupted.\n\nFaults that --fault can plant in its KV path:\n"
	for _, f := range fault.All() {
		long += fmt.Sprintf("  %s  %s\n", f.ID, f.Summary)
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
			cfg := testbed.Config{
				ModelSeed:       &seed,
				DType:           dt,
				NoPrefixCaching: noCaching || !caching,
				Connector:       connector == "store",
				StorePath:       storePath,
				Blocks:          blocks,
				PrefillBudget:   budget,
				Ranks:           ranks,
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
	f.IntVar(&blocks, "blocks", testbed.DefaultBlocks, "KV blocks of 16 tokens, per cache group and rank")
	f.IntVar(&budget, "prefill-budget", testbed.DefaultPrefillBudget, "most tokens computed in one step")
	f.IntVar(&ranks, "data-parallel-size", 1, "ranks, each with its own cache and store")
	f.StringVar(&hashSeed, "hash-seed", testbed.DefaultHashSeed, "seed of the block hashes; stored KV is found again only under the same one")
	f.StringVar(&faults, "fault", "", "comma-separated `ids` of faults to plant")
	f.StringVar(&name, "served-model-name", testbed.DefaultName, "model name in the API")
	cmd.MarkFlagsMutuallyExclusive("enable-prefix-caching", "no-enable-prefix-caching")
	return cmd
}
