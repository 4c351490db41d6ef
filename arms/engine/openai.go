package engine

import (
	"context"
	"errors"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// OpenAI is any server that answers the OpenAI-compatible requests of a Set
// (https://platform.openai.com/docs/api-reference), hosted ones included: it is attached and
// never started. Its pins are what its owner says of it; nothing of them can be read back, and
// no counter of its is known. What it says of a request is usage.prompt_tokens_details, where
// it says that.
//
// The key of a hosted server comes from the environment (KVLADDER_API_KEY), goes into the
// header of requests, and is written nowhere.
type OpenAI struct{}

// AttachOnly marks it as an engine that starts nothing.
func (OpenAI) AttachOnly() {}

var openaiPins = map[string]pin{
	"prefix_caching": {on, oneOf(on, off)},             // as its owner says
	"connector":      {"none", oneOf("none", "store")}, // as its owner says
	"build":          {"", nil},                        // what its owner calls what it runs
	"budget":         {"", nil},                        // prefill budget, where its owner knows it; the floor "split" needs another server
}

func (OpenAI) Name() string { return "openai" }

func (OpenAI) Pins() map[string]string { return defaults(openaiPins) }

// Configure: C0 and C1 differ in prefix_caching alone, C1 and store in connector alone.
func (OpenAI) Configure(role string) (map[string]string, error) {
	return switches("openai", "prefix_caching", role)
}

// SplitPin names a server whose owner has given it another prefill budget.
func (OpenAI) SplitPin(prompts.Geometry) (name, value string) { return "budget", "other" }

// Spec checks the pins; there is nothing to start.
func (OpenAI) Spec(pins map[string]string, _ arms.Address, _ arms.Resources) (arms.Spec, error) {
	_, err := resolve("openai", openaiPins, pins)
	return arms.Spec{Env: map[string]string{}}, err
}

// Ready asks for the list of models, which every compatible server has.
func (OpenAI) Ready(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/v1/models", nil)
	return err
}

// Counters are not known.
func (OpenAI) Counters() map[string]string { return nil }

// CachedIs: what a server without a store took from a cache it took from its own.
func (OpenAI) CachedIs(preset string) string { return localAlone(preset) }

// Cannot says what is out of reach without counters and without control of the server.
func (OpenAI) Cannot(preset string) string {
	switch preset {
	case "C0", "C0-split", "C1", "custom":
		return ""
	case "COLD":
		return "that a store was attached and empty shows only in counters or files of the server"
	case "REPLAY", "WARM", "PART", "C0-PART", "C1-PART":
		return "which tokens came from the store and which from the local cache shows only in counters, and the local cache cannot be dropped alone"
	case "RST", "SOAK":
		return "a server of somebody else cannot be restarted, and what outlived a restart shows only in counters or files"
	case "CONC", "C0-CONC", "C1-CONC":
		return "that requests ran at once shows only in a gauge of the server"
	case "XID", "C1-XID":
		return "hits across identities show only in counters: texts can be equal while another tenant's cache was used"
	case "PRESS", "C0-PRESS", "C1-PRESS", "C0-late", "C0-early":
		return "the size of the pool is not known, so nothing says that it was too small"
	}
	return "engine openai does not know the preset " + preset
}

// ReadPins reads nothing: no compatible server has to say how it was started. It asks that the
// server answers, so that silence is not taken for agreement.
func (o OpenAI) ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error) {
	return newReading(pins).list(), o.Ready(ctx, e)
}

// Reset cannot be done.
func (o OpenAI) Reset(ctx context.Context, e probes.Endpoint) error {
	return errors.Join(o.Ready(ctx, e), errors.New("the caches of a server of somebody else cannot be dropped"))
}

// Store is not known.
func (OpenAI) Store(arms.Resources) (probes.StoreFact, error) { return probes.StoreFact{}, nil }

// Save has nothing to do.
func (OpenAI) Save(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error { return nil }

// Restore has nothing to do.
func (OpenAI) Restore(context.Context, probes.Endpoint, *prompts.Set, arms.Resources) error {
	return nil
}

// Expect is what the Set's geometry says of a cache of blocks of that size, when it says any;
// without one, nothing is promised.
func (OpenAI) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	p, err := resolve("openai", openaiPins, pins)
	if err != nil {
		return nil
	}
	g := s.Geometry
	return Paged{Block: max(1, g.AttentionBlock), Recurrent: g.RecurrentBlock, Chunk: max(1, g.Boundary(), g.StoreChunk),
		Local: p["prefix_caching"] == on, Store: p["connector"] == "store"}.Expect(s, steps)
}

// Death: nothing that an attached server prints is seen.
func (OpenAI) Death(string) bool { return false }
