package engine

import (
	"context"
	"errors"
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
	_ arms.Conductor   = Testbed{}
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

// CannotLockstep: data-parallel ranks take their steps apart.
func (Testbed) CannotLockstep(pins map[string]string) string {
	if n := pins["ranks"]; n != "" && n != "1" {
		return "its " + n + " ranks take their steps apart"
	}
	return ""
}

// Lockstep says how many clients there are.
func (Testbed) Lockstep(ctx context.Context, e probes.Endpoint, clients int) (int, error) {
	var body struct {
		Peak int `json:"peak_running"`
	}
	err := askJSON(ctx, e, fmt.Sprintf("/testbed/lockstep?clients=%d", clients), struct{}{}, &body)
	return body.Peak, err
}

// AbortAfter names the steps in a header of the embedded engine's own.
func (Testbed) AbortAfter(steps int) map[string]string {
	return map[string]string{"X-Abort-After-Steps": strconv.Itoa(steps)}
}

// mostLoads is how many loads each rank of the engine remembers.
const mostLoads = 512

// Loads lists the loads of all ranks. The engine counts recurrent positions in boundaries;
// here they are the last block before each.
func (t Testbed) Loads(ctx context.Context, e probes.Endpoint) ([]arms.Load, bool, error) {
	type written struct {
		Positions []int `json:"positions"`
		Slots     []int `json:"slots"`
	}
	var body struct {
		Loads []struct {
			ID        string  `json:"request_id"`
			Rank      int     `json:"rank"`
			Local     int     `json:"local_tokens"`
			External  int     `json:"external_tokens"`
			Failed    bool    `json:"failed"`
			Attention written `json:"attention"`
			Window    written `json:"window"`
			Recurrent written `json:"recurrent"`
		} `json:"loads"`
	}
	if err := askJSON(ctx, e, "/testbed/loads", nil, &body); err != nil {
		return nil, false, err
	}
	_, geometry, err := t.info(ctx, e)
	if err != nil {
		return nil, false, err
	}
	per := max(1, geometry.Recurrent/geometry.Block)
	out := make([]arms.Load, 0, len(body.Loads))
	kept := map[int]int{}
	complete := true
	for _, l := range body.Loads {
		if kept[l.Rank]++; kept[l.Rank] >= mostLoads {
			complete = false
		}
		a := arms.Load{Load: probes.Load{RequestID: l.ID, Rank: l.Rank, Local: l.Local, External: l.External},
			Written: map[string][]int{}, Null: map[string]int{}, Block: geometry.Block, Failed: l.Failed}
		for _, g := range []struct {
			name string
			w    written
			unit int
		}{{"attention", l.Attention, 1}, {"window", l.Window, 1}, {"recurrent", l.Recurrent, per}} {
			a.Written[g.name] = []int{}
			for i, p := range g.w.Positions {
				a.Written[g.name] = append(a.Written[g.name], (p+1)*g.unit-1)
				if i < len(g.w.Slots) && g.w.Slots[i] == 0 {
					a.Null[g.name]++
				}
			}
		}
		out = append(out, a)
	}
	return out, complete, nil
}

// sizes are tokens.
type sizes struct {
	Block     int `json:"attention_block"`
	Recurrent int `json:"recurrent_block"`
}

// info reads the number of blocks and their sizes from /server_info.
func (Testbed) info(ctx context.Context, e probes.Endpoint) (blocks int, g sizes, err error) {
	var info struct {
		Testbed struct {
			Blocks   int   `json:"blocks"`
			Geometry sizes `json:"geometry"`
		} `json:"testbed"`
	}
	if err := askJSON(ctx, e, "/server_info?config_format=json", nil, &info); err != nil {
		return 0, sizes{}, err
	}
	if info.Testbed.Blocks < 1 || info.Testbed.Geometry.Block < 1 {
		return 0, sizes{}, errors.New("/server_info states no pool")
	}
	return info.Testbed.Blocks, info.Testbed.Geometry, nil
}

// Pool reads the number and size of the blocks that /server_info states.
func (t Testbed) Pool(ctx context.Context, e probes.Endpoint) (probes.PoolFact, error) {
	n, g, err := t.info(ctx, e)
	if err != nil {
		return probes.PoolFact{}, err
	}
	return probes.PoolFact{Blocks: n, Tokens: n * g.Block}, nil
}

// CannotIdentify: requests name a salt, an adapter behind the model's name, and the digest
// of an image.
func (Testbed) CannotIdentify(kind string) string {
	switch kind {
	case "salt", "adapter", "image":
		return ""
	}
	return "its requests carry no " + kind
}
