package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"kvladder/arms"
	"kvladder/probes"
)

// What the embedded engine can do beside serving.
var (
	_ arms.Expirer     = Testbed{}
	_ arms.RankEvicter = Testbed{}
	_ arms.LoadFailer  = Testbed{}
	_ arms.LoadLister  = Testbed{}
	_ arms.PoolReader  = Testbed{}
	_ arms.Identifier  = Testbed{}
)

// Expire empties the store of every rank.
func (Testbed) Expire(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/testbed/expire", struct{}{})
	return err
}

// EvictRank empties the store of one rank.
func (Testbed) EvictRank(ctx context.Context, e probes.Endpoint, rank int) error {
	_, err := ask(ctx, e, fmt.Sprintf("/testbed/evict_rank?rank=%d", rank), struct{}{})
	return err
}

// FailLoads makes the next n chunk loads fail.
func (Testbed) FailLoads(ctx context.Context, e probes.Endpoint, n int) error {
	_, err := ask(ctx, e, fmt.Sprintf("/testbed/fail_loads?n=%d", n), struct{}{})
	return err
}

// Loads is what the engine says of the requests it has served.
func (Testbed) Loads(ctx context.Context, e probes.Endpoint) ([]arms.Load, error) {
	b, err := ask(ctx, e, "/testbed/loads", nil)
	if err != nil {
		return nil, err
	}
	type load struct {
		RequestID string           `json:"request_id"`
		Rank      int              `json:"rank"`
		Local     int              `json:"local"`
		External  int              `json:"external"`
		Groups    map[string][]int `json:"groups"`
	}
	var body struct {
		Loads []load `json:"loads"`
	}
	if err := json.Unmarshal(b, &body); err != nil {
		if err := json.Unmarshal(b, &body.Loads); err != nil {
			return nil, fmt.Errorf("/testbed/loads: not the JSON that was expected: %w", err)
		}
	}
	out := make([]arms.Load, 0, len(body.Loads))
	for _, l := range body.Loads {
		out = append(out, arms.Load{Load: probes.Load{RequestID: l.RequestID, Rank: l.Rank, Local: l.Local, External: l.External}, Written: l.Groups, Block: testbedBlock})
	}
	return out, nil
}

// Pool reads the number and size of the blocks that /server_info states.
func (Testbed) Pool(ctx context.Context, e probes.Endpoint) (probes.PoolFact, error) {
	var info struct {
		Testbed struct {
			Blocks   json.Number `json:"blocks"`
			Geometry struct {
				AttentionBlock int `json:"attention_block"`
			} `json:"geometry"`
		} `json:"testbed"`
	}
	if err := askJSON(ctx, e, "/server_info?config_format=json", nil, &info); err != nil {
		return probes.PoolFact{}, err
	}
	n, err := strconv.Atoi(info.Testbed.Blocks.String())
	if err != nil || n < 1 || info.Testbed.Geometry.AttentionBlock < 1 {
		return probes.PoolFact{}, fmt.Errorf("/server_info states no pool")
	}
	return probes.PoolFact{Blocks: n, Tokens: n * info.Testbed.Geometry.AttentionBlock}, nil
}

// CannotIdentify: requests name a salt, and an adapter by the model's name.
func (Testbed) CannotIdentify(kind string) string {
	switch kind {
	case "salt", "adapter":
		return ""
	}
	return "its requests carry no " + kind
}
