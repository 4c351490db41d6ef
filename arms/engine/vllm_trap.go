package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// vllmTrap refuses pins that start an engine which is not the one they describe, or none.
// Each case is one that people fell into.
func vllmTrap(p map[string]string) error {
	number := func(name string) int { n, _ := strconv.Atoi(p[name]); return n }
	release := minor(p["version"])
	quantized := !slices.Contains([]string{"float32", "float16", "bfloat16"}, p["kv_cache_dtype"])
	cpu := p["device"] == "cpu"
	switch {
	case p["kv_cache_dtype"] == "float32" && p["dtype"] != "float32":
		return fmt.Errorf("kv_cache_dtype float32 needs dtype float32: --kv-cache-dtype has no such word, and auto would mean %s", p["dtype"])
	case cpu && quantized && release < 32:
		// vllm/platforms/cpu.py: refused with prefix caching or chunked prefill, and without both
		// served unquantized after a warning
		return fmt.Errorf("kv_cache_dtype %s: the CPU backend of 0.%d refuses it, or says so in a warning and serves unquantized; 0.32 has it", p["kv_cache_dtype"], release)
	case cpu && p["invariant"] == on:
		return errors.New("invariant on: batch invariance is not there for the CPU backend")
	case cpu && p["async"] == on:
		return errors.New("async on: the CPU backend switches asynchronous scheduling off in silence")
	case cpu && number("block_size")%32 != 0:
		return fmt.Errorf("block_size %d: the CPU backend wants a multiple of 32", number("block_size"))
	case cpu && p["mamba_cache"] == "all":
		return errors.New("mamba_cache all: the CPU backend keeps states in mode align alone")
	case p["mamba_cache"] == "align" && number("batch_tokens") < number("block_size"):
		// the state is kept where a scheduler step ends on a block's end
		return fmt.Errorf("batch_tokens %d is smaller than block_size %d: with mamba_cache align no step would end on a block's end, and nothing would be hit", number("batch_tokens"), number("block_size"))
	case number("batch_tokens") < number("max_num_seqs"):
		// vllm/config/scheduler.py, verify_max_model_len
		return fmt.Errorf("batch_tokens %d is smaller than max_num_seqs %d, with which the engine refuses to start; C0-split computes one block at a time, so max_num_seqs must not be more than that", number("batch_tokens"), number("max_num_seqs"))
	case release >= 32 && p["mamba_cache"] == "all":
		return fmt.Errorf("mamba_cache all: 0.%d knows align and none", release) // vllm/config/cache.py, MambaCacheMode
	case number("blocks") > 0 && (number("blocks")-1)*number("block_size") < number("max_model_len"):
		return fmt.Errorf("blocks %d of %d tokens hold less than one prompt of max_model_len %d, and one block stands for nothing: the engine refuses to start; use at least %d",
			number("blocks"), number("block_size"), number("max_model_len"), (number("max_model_len")+number("block_size")-1)/number("block_size")+1)
	}
	if stored, _ := vllmAttached(p["connector"]); !stored {
		return nil
	}
	s := vllmStoreOf(p["store"])
	switch {
	case cpu && !s.cpu:
		return fmt.Errorf("store %s does not run on the CPU backend: %s", p["store"], s.why)
	case !s.hybrid && p["hybrid_manager"] == on:
		// vllm/distributed/kv_transfer/kv_connector/factory.py
		return fmt.Errorf("store %s needs hybrid_manager off in every arm: its connector does not support the hybrid cache manager, and the engine refuses to start", p["store"])
	case p["prefix_caching"] == off:
		return errors.New("a store with prefix_caching off: connectors look for blocks by the names that prefix caching gives them")
	case s.chunk(p)%number("block_size") != 0:
		return fmt.Errorf("store %s keeps chunks of %d tokens, which is no multiple of block_size %d", p["store"], s.chunk(p), number("block_size"))
	}
	return nil
}
