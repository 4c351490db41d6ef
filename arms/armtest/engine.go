package armtest

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// EngineCase is what TestEngine has to be told of an engine.
type EngineCase struct {
	Engine arms.Engine
	// Other gives, for each pin, a legal value that is not its default. Where it needs
	// other pins changed with it, they are in With.
	Other map[string]string
	With  map[string]map[string]string
	// Bad gives, for some pins, values that must be refused.
	Bad map[string]string
	// Silent lists pins that no command line shows, since the harness acts on them.
	Silent []string
	// Dead and Alive are lines of logs that say that the engine died, and that do not.
	Dead, Alive []string
	// Set is a small set for this engine, some prompts of which share tokens.
	Set *prompts.Set
}

// presets are those that a ladder may name, with the configuration that each runs under.
var presets = map[string]string{
	"C0": "C0", "C0-split": "C0", "C1": "C1", "COLD": "store", "REPLAY": "store", "WARM": "store", "RST": "store",
	"PART": "store", "C0-PART": "C0", "C1-PART": "C1", "PRESS": "store", "C0-PRESS": "C0", "C1-PRESS": "C1", "CONC": "store", "C0-CONC": "C0", "C1-CONC": "C1",
	"XID": "store", "C1-XID": "C1", "SOAK": "store", "C0-early": "C0", "C0-late": "C0",
}

var counterRoles = []string{
	probes.LocalQueries, probes.LocalHits, probes.ExternalQueries, probes.ExternalHits, probes.PromptTokens, probes.Computed,
	probes.Preemptions, probes.StoredChunks, probes.StoredBytes, probes.LoadedBytes, probes.CachedTokens, probes.Corrupted,
	probes.Evictions, probes.Running, probes.NullBlock,
}

// TestEngine tries what every engine must keep to, without a server of its own.
func TestEngine(t *testing.T, c EngineCase) {
	e := c.Engine
	at := arms.Address{Host: "127.0.0.1", Port: 12345}
	res := arms.Resources{Store: t.TempDir(), Slots: t.TempDir(), Cache: t.TempDir(), Self: "/opt/kvladder"}
	configured := func(t *testing.T, role string) map[string]string {
		t.Helper()
		conf, err := e.Configure(role)
		if err != nil {
			t.Fatal(err)
		}
		pins := e.Pins()
		maps.Copy(pins, conf)
		return pins
	}

	t.Run("name", func(t *testing.T) {
		if e.Name() == "" || strings.ContainsAny(e.Name(), " /") {
			t.Errorf("name %q", e.Name())
		}
	})
	t.Run("defaults are the caller's to change", func(t *testing.T) {
		clear(e.Pins())
		if len(e.Pins()) == 0 {
			t.Error("the engine gave its own map away, or has no pins")
		}
	})
	t.Run("presets differ in one pin", func(t *testing.T) {
		c0, c1, store := configured(t, "C0"), configured(t, "C1"), configured(t, "store")
		for _, pair := range []struct {
			what string
			a, b map[string]string
		}{{"C0 and C1", c0, c1}, {"C1 and store", c1, store}} {
			if d := arms.Differences(pair.a, pair.b); len(d) != 1 {
				t.Errorf("%s differ in %d pins, want 1: %v", pair.what, len(d), d)
			}
		}
		known := e.Pins()
		for name := range store {
			if _, ok := known[name]; !ok {
				t.Errorf("Configure sets %q, which is no pin of the engine", name)
			}
		}
		if _, err := e.Configure("no such role"); err == nil {
			t.Error("configured for a role that does not exist")
		}
	})
	t.Run("command line", func(t *testing.T) {
		for _, role := range []string{"C0", "C1", "store"} {
			pins := configured(t, role)
			before := maps.Clone(pins)
			spec, err := e.Spec(pins, at, res)
			if err != nil {
				t.Fatal(err)
			}
			again, err := e.Spec(pins, at, res)
			if err != nil || !reflect.DeepEqual(spec, again) {
				t.Errorf("%s: the same pins give two specs: %v and %v (%v)", role, spec, again, err)
			}
			if !maps.Equal(pins, before) {
				t.Errorf("%s: Spec changed the pins that it was given", role)
			}
			if _, attached := e.(arms.AttachOnly); attached {
				if len(spec.Argv) > 0 || len(spec.Files) > 0 {
					t.Errorf("%s: an engine that starts nothing has the command %v and needs %v", role, spec.Argv, spec.Files)
				}
				continue
			}
			line := strings.Join(spec.Argv, " ")
			if !strings.Contains(line, "127.0.0.1") || !strings.Contains(line, "12345") {
				t.Errorf("%s: the address is not on the command line: %s", role, line)
			}
			if len(spec.Files) == 0 || !slices.Contains(spec.Files, spec.Argv[0]) {
				t.Errorf("%s: the program %s is not among the files that must exist: %v", role, spec.Argv[0], spec.Files)
			}
		}
	})
	t.Run("every pin reaches the command line", func(t *testing.T) {
		for name, def := range e.Pins() {
			other, ok := c.Other[name]
			if !ok || other == def {
				t.Errorf("the case has no other value for pin %s", name)
				continue
			}
			base := configured(t, "store")
			maps.Copy(base, c.With[name])
			base[name] = def
			changed := maps.Clone(base)
			changed[name] = other
			a, err := e.Spec(base, at, res)
			if err != nil {
				t.Errorf("pin %s=%s: %v", name, def, err)
				continue
			}
			b, err := e.Spec(changed, at, res)
			if err != nil {
				t.Errorf("pin %s=%s: %v", name, other, err)
				continue
			}
			if same := reflect.DeepEqual(a, b); same != slices.Contains(c.Silent, name) {
				t.Errorf("pin %s: %s and %s give equal specs: %t", name, def, other, same)
			}
		}
	})
	t.Run("refusals", func(t *testing.T) {
		refuse := func(name, value string) {
			pins := configured(t, "C1")
			pins[name] = value
			_, err := e.Spec(pins, at, res)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("pin %s=%q: error %v, want one that names the pin", name, value, err)
			}
		}
		refuse("no_such_pin", "1")
		for name, value := range c.Bad {
			refuse(name, value)
		}
	})
	t.Run("split", func(t *testing.T) {
		name, value := e.SplitPin(c.Set.Geometry)
		pins := configured(t, "C0")
		if old, ok := pins[name]; !ok || old == value {
			t.Errorf("the split pin %s=%s changes nothing (%q)", name, value, old)
		}
		pins[name] = value
		if _, err := e.Spec(pins, at, res); err != nil {
			t.Error(err)
		}
		pins = configured(t, "store")
		pins[name] = value
		if _, err := e.Spec(pins, at, res); err != nil {
			t.Errorf("with a store: %v", err)
		}
	})
	t.Run("presets", func(t *testing.T) {
		for preset := range presets {
			switch e.CachedIs(preset) {
			case "local", "external", "":
			default:
				t.Errorf("%s: cached tokens are %q", preset, e.CachedIs(preset))
			}
		}
		for _, preset := range []string{"C0", "C1"} {
			if why := e.Cannot(preset); why != "" {
				t.Errorf("cannot run %s: %s", preset, why)
			}
		}
	})
	t.Run("counters", func(t *testing.T) {
		for role, series := range e.Counters() {
			if !slices.Contains(counterRoles, role) || series == "" {
				t.Errorf("role %q, series %q", role, series)
			}
		}
	})
	t.Run("expectations", func(t *testing.T) { testExpect(t, c, configured) })
	t.Run("a server that says nothing", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"error":{"message":"Loading model"}}`))
		}))
		defer srv.Close()
		testSilence(t, c, probes.Endpoint{URL: srv.URL}, "Loading model")
	})
	t.Run("a server that states nothing", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{}`)) }))
		defer srv.Close()
		pins := configured(t, "C1")
		reads, err := e.ReadPins(context.Background(), probes.Endpoint{URL: srv.URL}, pins)
		if err != nil {
			t.Error(err)
		}
		unread(t, pins, reads)
	})
	t.Run("no server", func(t *testing.T) {
		srv := httptest.NewServer(http.NotFoundHandler())
		srv.Close()
		testSilence(t, c, probes.Endpoint{URL: srv.URL}, "")
	})
	t.Run("store", func(t *testing.T) {
		empty, err := e.Store(res)
		if err != nil {
			t.Fatal(err)
		}
		if empty.Files == nil {
			return // the engine cannot look into its store
		}
		if *empty.Files != 0 || *empty.Bytes != 0 || !empty.Digest.Empty() {
			t.Errorf("an empty folder holds %d files, %d bytes, digest %s", *empty.Files, *empty.Bytes, empty.Digest)
		}
		seen := map[string]bool{string(empty.Digest): true}
		for _, content := range []string{"abc", "abd"} {
			for _, dir := range []string{res.Store, res.Slots} {
				os.MkdirAll(filepath.Join(dir, "rank-0"), 0o755)
				if err := os.WriteFile(filepath.Join(dir, "rank-0", "00.kv"), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := e.Store(res)
			if err != nil {
				t.Fatal(err)
			}
			if *f.Files != 1 || *f.Bytes != 3 {
				t.Errorf("%d files, %d bytes, want 1 and 3", *f.Files, *f.Bytes)
			}
			if seen[string(f.Digest)] {
				t.Errorf("digest %s does not depend on the content", f.Digest)
			}
			seen[string(f.Digest)] = true
		}
		unknown, err := e.Store(arms.Resources{})
		if err != nil || unknown.Files != nil {
			t.Errorf("a store without a folder: %+v, %v, want unknown", unknown, err)
		}
	})
	t.Run("death", func(t *testing.T) {
		if _, attached := e.(arms.AttachOnly); len(c.Dead) == 0 && !attached || len(c.Alive) == 0 {
			t.Error("the case has no lines")
		}
		for _, line := range c.Dead {
			if !e.Death(line) {
				t.Errorf("not recognised: %s", line)
			}
		}
		for _, line := range c.Alive {
			if e.Death(line) {
				t.Errorf("taken for a death: %s", line)
			}
		}
	})
}

// testExpect asks for predictions that no engine can do without.
func testExpect(t *testing.T, c EngineCase, configured func(*testing.T, string) map[string]string) {
	steps := []arms.Step{{Do: "replay", Pass: 1}, {Do: "replay", Pass: 2}, {Do: "save"}, {Do: "stop"}, {Do: "restart"}, {Do: "restore"}, {Do: "replay", Pass: 3}}
	for _, role := range []string{"C0", "C1", "store"} {
		passes := c.Engine.Expect(c.Set, configured(t, role), steps)
		if len(passes) != 3 {
			t.Fatalf("%s: %d passes, the schedule has 3", role, len(passes))
		}
		var sum [3]scoring.Reuse
		for i, pass := range passes {
			for _, p := range c.Set.Prompts {
				r, ok := pass[p.ID]
				if !ok {
					t.Errorf("%s: pass %d says nothing of prompt %s", role, i+1, p.ID)
				}
				if r.Local < 0 || r.External < 0 || r.Local+r.External > len(p.Tokens)-1 {
					t.Errorf("%s: pass %d, prompt %s: %+v of %d tokens", role, i+1, p.ID, r, len(p.Tokens))
				}
				sum[i].Local += r.Local
				sum[i].External += r.External
			}
		}
		zero := scoring.Reuse{}
		switch role {
		case "C0":
			if sum != [3]scoring.Reuse{} {
				t.Errorf("C0 reuses: %+v", sum)
			}
		case "C1":
			if sum[1].Local == 0 || sum[1].Local < sum[0].Local || sum[1].External+sum[0].External+sum[2].External != 0 {
				t.Errorf("C1: %+v, want local reuse in the second pass and nothing from outside", sum)
			}
			if sum[2] != sum[0] {
				t.Errorf("C1 after a restart: %+v, want what a new process has: %+v", sum[2], sum[0])
			}
		case "store":
			if sum[2].External == 0 {
				t.Errorf("after a restart nothing comes from the store: %+v", sum)
			}
			if sum[1] == zero {
				t.Errorf("no reuse in the second pass: %+v", sum)
			}
		}
	}
}

// testSilence asks a server that does not answer: nothing may be taken for an answer.
func testSilence(t *testing.T, c EngineCase, e probes.Endpoint, says string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	wrong := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one with the words %q", what, err, says)
		}
	}
	wrong("Ready", c.Engine.Ready(ctx, e))
	wrong("Reset", c.Engine.Reset(ctx, e))
	pins := c.Engine.Pins()
	reads, err := c.Engine.ReadPins(ctx, e, pins)
	wrong("ReadPins", err)
	unread(t, pins, reads)
}

// unread wants every pin listed, and none read.
func unread(t *testing.T, pins map[string]string, reads []probes.PinRead) {
	t.Helper()
	if len(reads) != len(pins) {
		t.Errorf("%d pins in the list, %d were asked for", len(reads), len(pins))
	}
	for _, r := range reads {
		if r.Read != nil || r.Agrees != nil {
			t.Errorf("pin %s was read from a server that did not state it", r.Name)
		}
		if r.Asked != pins[r.Name] {
			t.Errorf("pin %s was asked as %q, the list says %q", r.Name, pins[r.Name], r.Asked)
		}
	}
}
