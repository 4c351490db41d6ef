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
