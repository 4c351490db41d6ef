package climb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// alive is a process that does not end.
type alive struct{}

func (alive) ID() string                 { return "1" }
func (alive) Start() string              { return "" }
func (alive) Restarts() *int             { return nil }
func (alive) Done() <-chan struct{}      { return make(chan struct{}) }
func (alive) Err() error                 { return nil }
func (alive) Exit() *int                 { return nil }
func (alive) Stop(context.Context) error { return nil }

// chainOf is a chain of llama-server that has been launched with pins over the defaults, and
// facts reads what it wrote down.
func chainOf(t *testing.T, pins map[string]string, set *prompts.Set) (r *chainRun, facts func(name string) []probes.Fact) {
	t.Helper()
	dir := t.TempDir()
	w, err := probes.OpenWriter(filepath.Join(dir, "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	all := engine.LlamaCpp{}.Pins()
	for k, v := range pins {
		all[k] = v
	}
	slots := filepath.Join(dir, "slots")
	if err := os.Mkdir(slots, 0o755); err != nil {
		t.Fatal(err)
	}
	r = &chainRun{c: &Climb{Plan: &arms.Plan{}, Set: set, Engine: engine.LlamaCpp{}, Folder: &Folder{Path: dir}, w: w}, pins: all,
		arm: &scoring.ArmSpec{Name: "A", Connector: true, Judge: 1}, res: arms.Resources{Slots: slots, Store: slots}}
	r.logName = "server.log"
	if err := os.WriteFile(filepath.Join(dir, r.logName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return r, func(name string) []probes.Fact {
		t.Helper()
		recs, err := probes.ReadAll(filepath.Join(dir, "transcript.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var out []probes.Fact
		for _, rec := range recs {
			if rec.Fact != nil && rec.Fact.Name == name {
				out = append(out, *rec.Fact)
			}
		}
		return out
	}
}

func setOf(n int) *prompts.Set {
	s := &prompts.Set{}
	for i := range n {
		s.Prompts = append(s.Prompts, prompts.Prompt{ID: fmt.Sprint("p", i), Slot: &i})
	}
	return s
}

// What was saved has to be there when it is restored, unless the schedule damaged it.
func TestSavedIsRestored(t *testing.T) {
	r, facts := chainOf(t, map[string]string{"slot_restore": "on"}, setOf(1))
	file := filepath.Join(r.res.Slots, "slot-0.bin")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	held := func() []bool {
		t.Helper()
		if err := r.kept(); err != nil {
			t.Fatal(err)
		}
		var out []bool
		for _, f := range facts(probes.FactInvariant) {
			var x probes.InvariantFact
			if err := json.Unmarshal(f.Value, &x); err != nil || x.Name != savedBytes || x.Held == nil {
				t.Fatalf("%s %v", f.Value, err)
			}
			out = append(out, *x.Held)
		}
		return out
	}
	write("keys and values")
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	if got := held(); fmt.Sprint(got) != "[true]" {
		t.Errorf("%v", got)
	}
	write("keys and valuez")
	if got := held(); fmt.Sprint(got) != "[true false]" {
		t.Errorf("another byte: %v", got)
	}
	if err := r.step(t.Context(), 0, arms.ChainStep{Do: "corrupt", Args: []string{"slot-*.bin", "0", "2"}}); err != nil {
		t.Fatal(err)
	}
	if got := held(); fmt.Sprint(got) != "[true false]" {
		t.Errorf("a planned damage was held against the engine: %v", got)
	}
	if steps := facts(probes.FactStep); len(steps) != 2 {
		t.Errorf("%d steps", len(steps))
	}
	// an engine that writes to its store by itself keeps nothing still
	r, facts = chainOf(t, nil, setOf(1))
	if err := r.save(); err != nil || r.kept() != nil || len(facts(probes.FactInvariant)) != 0 {
		t.Errorf("%v, %d invariants", err, len(facts(probes.FactInvariant)))
	}
}

// A server that refuses to restore has answered: the chain goes on, and what it said is
// written down. One that does not answer has not.
func TestRefusedRestoreGoesOn(t *testing.T) {
	status := http.StatusBadRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":{"message":"Unable to restore slot"}}`)
	}))
	r, facts := chainOf(t, map[string]string{"slot_restore": "on"}, setOf(1))
	r.proc = &arms.Running{Process: alive{}, Endpoint: probes.Endpoint{URL: srv.URL}}
	r.tail = &arms.Tail{}
	go func() { // later than the reply
		time.Sleep(400 * time.Millisecond)
		fmt.Fprintln(r.tail, "0.00.032.832 E state_read_data: mismatched key type (30 != 1, layer 0)")
	}()
	for _, status = range []int{http.StatusBadRequest, http.StatusInternalServerError} {
		if err := r.step(t.Context(), 0, arms.ChainStep{Do: "restore"}); err != nil {
			t.Errorf("status %d: %v", status, err)
		}
	}
	for i, f := range facts(probes.FactStep) {
		var s probes.StepFact
		if err := json.Unmarshal(f.Value, &s); err != nil || !s.Done || s.Proved == nil || *s.Proved || !strings.Contains(s.Seen, "(log: mismatched key type") {
			t.Errorf("step %d: %s", i, f.Value)
		}
	}
	if n := len(facts(probes.FactStep)); n != 2 {
		t.Errorf("%d steps were written down", n)
	}
	srv.Close()
	if err := r.step(t.Context(), 0, arms.ChainStep{Do: "restore"}); err == nil {
		t.Error("a server that is gone has refused nothing")
	}
}

// The log's account is taken where it tells of every request, and of no other.
func TestAccountFromTheLog(t *testing.T) {
	log, err := os.ReadFile("../../../../arms/engine/testdata/llamacpp-host-cache.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prompts int
		pins    map[string]string
		want    []probes.Load
	}{
		{5, map[string]string{"cache_ram": "64"}, []probes.Load{{}, {Local: 1}, {External: 64}, {External: 128}, {Local: 128}}},
		{4, map[string]string{"cache_ram": "64"}, nil}, // it tells of one more
		{5, nil, nil}, // nothing that the replies do not say
	} {
		r, facts := chainOf(t, c.pins, setOf(c.prompts))
		if err := os.WriteFile(r.c.Folder.at(r.logName), append([]byte("before the pass\n"), log...), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.account(t.Context(), arms.ChainStep{Do: "replay", Pass: 1}, int64(len("before the pass\n"))); err != nil {
			t.Fatal(err)
		}
		got := facts(probes.FactLoads)
		if c.want == nil {
			if len(got) != 0 {
				t.Errorf("%+v: an account was written: %s", c, got[0].Value)
			}
			continue
		}
		var f probes.LoadsFact
		if len(got) != 1 || json.Unmarshal(got[0].Value, &f) != nil || !f.Complete || len(f.Loads) != len(c.want) {
			t.Fatalf("%+v: %v", c, got)
		}
		for i, l := range f.Loads {
			if l.RequestID == "" || l.Local != c.want[i].Local || l.External != c.want[i].External {
				t.Errorf("request %d: %+v, want %+v", i, l, c.want[i])
			}
		}
	}
}
