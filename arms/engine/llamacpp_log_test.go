package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/probes"
)

// The logs are of llama-server 0.7.0 (build 11669) at log level 4, lines about samplers and
// times left out.

// TestTasks reads what each request took, where from and how.
func TestTasks(t *testing.T) {
	for file, want := range map[string][]engine.Task{
		// one slot; prompts of 65, 129, 65, 129 and 129 tokens that share the first
		"llamacpp-host-cache.log": {{ID: 0, Cached: 0}, {ID: 9, Cached: 1}, {ID: 18, Cached: 64, FromHost: true}, {ID: 27, Cached: 128, FromHost: true}, {ID: 36, Cached: 128}},
		// 201 tokens, again, and another end behind half of them
		"llamacpp-hybrid.log": {{ID: 0, Cached: 0}, {ID: 10, Cached: 197, Checkpoint: 197}, {ID: 19, Cached: 0}},
		// head of 17, middle of 80, rest of 200; then without the middle
		"llamacpp-chunks.log": {{ID: 0, Slot: 1, Cached: 0}, {ID: 9, Slot: 1, Cached: 216, Moved: 200}},
	} {
		f, err := os.Open("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := engine.Tasks(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: want -, got +\n%s", file, d)
		}
	}
}

// TestAccount: only where the host keeps prompts does the log know more than the reply.
func TestAccount(t *testing.T) {
	e := engine.LlamaCpp{}
	log, err := os.ReadFile("testdata/llamacpp-host-cache.log")
	if err != nil {
		t.Fatal(err)
	}
	pins := e.Pins()
	if _, ok, err := e.Account(strings.NewReader(string(log)), pins); ok || err != nil {
		t.Errorf("an account without a host cache: %v", err)
	}
	if _, ok, err := e.Kept(strings.NewReader(string(log)), pins); ok || err != nil {
		t.Errorf("a store without a host cache: %v", err)
	}
	pins["cache_ram"] = "64"
	loads, ok, err := e.Account(strings.NewReader(string(log)), pins)
	if !ok || err != nil {
		t.Fatalf("no account: %v", err)
	}
	var got []probes.Load
	for _, l := range loads {
		got = append(got, l.Load)
	}
	if d := cmp.Diff([]probes.Load{{}, {Local: 1}, {External: 64}, {External: 128}, {Local: 128}}, got); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
	for text, want := range map[string]int{string(log): 1, "srv  llama_server: model loaded\n": 0} {
		f, ok, err := e.Kept(strings.NewReader(text), pins)
		if !ok || err != nil || *f.Chunks != want || f.Files != nil {
			t.Errorf("%+v, %t, %v, want %d prompts", f, ok, err, want)
		}
	}
}

// A request that the log does not tell of to the end is no part of the account.
func TestAccountUnfinished(t *testing.T) {
	e := engine.LlamaCpp{}
	pins := e.Pins()
	pins["cache_ram"] = "64"
	loads, ok, err := e.Account(strings.NewReader("0.1 I slot launch_slot_: id  0 | task 3 | processing task, is_child = 0\n"), pins)
	if !ok || err != nil || len(loads) != 0 {
		t.Errorf("%v, %t, %v", loads, ok, err)
	}
	var _ arms.Accountant = e
}

// The causes that build 11669 names, one of each.
func TestExplain(t *testing.T) {
	for line, want := range map[string]string{
		"0.00.032.832 E state_read_data: mismatched key type (30 != 1, layer 0)":                                                                 "mismatched key type (30 != 1, layer 0)",
		"0.00.041.263 E state_read_data: mismatched layer count (4 instead of 2)":                                                                "mismatched layer count (4 instead of 2)",
		"0.00.086.969 E state_read_data: incompatible V transposition":                                                                           "incompatible V transposition",
		"0.00.037.608 E state_seq_load_file: unknown (magic, version) for sequence state file: 67677370, 00000004":                               "unknown (magic, version) for sequence state file: 67677370, 00000004",
		"0.00.044.334 E srv    send_error: task id = 0, error: Unable to restore slot: No available space in KV cache or invalid slot save file": "",
		"0.00.008.718 I slot launch_slot_: id  0 | task 37 | processing task, is_child = 0":                                                      "",
	} {
		lines := []string{"0.00.001 I srv  update_slots: all slots are idle", line, "0.00.033.380 E llama_state_seq_load_file: error loading sequence state file: failed to restore kv cache"}
		if want == "" {
			lines = lines[:2]
		}
		if got := (engine.LlamaCpp{}).Explain(lines); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}
