package engine_test

import (
	"testing"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/prompts"
)

func TestOpenAI(t *testing.T) {
	shared := numbers(1, 321)
	armtest.TestEngine(t, armtest.EngineCase{
		Engine: engine.OpenAI{},
		Other:  map[string]string{"prefix_caching": "off", "connector": "store", "build": "2026-11", "budget": "512"},
		Silent: []string{"prefix_caching", "connector", "build", "budget"},
		Bad:    map[string]string{"prefix_caching": "auto", "connector": "x"},
		Alive:  []string{"EngineDeadError", ""},
		Set:    set(t, prompts.Header{MaxTokens: 8, Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: 16}}, 0, shared, numbers(3, 130)),
	})
	// what cannot be proved is said of every arm that a ladder may name
	for _, p := range arms.PresetNames() {
		if why := (engine.OpenAI{}).Cannot(p); why == "" && p != "C0" && p != "C1" && p != "custom" {
			t.Errorf("%s is promised of a server without counters", p)
		}
	}
}
