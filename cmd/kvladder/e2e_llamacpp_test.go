//go:build e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/scoring"
)

// The ladders of this file start real llama-server processes with a real model, which
// arms/engine/llamacpp/fetch.sh has put into the project's cache: make e2e-llamacpp.

func climbLlama(t *testing.T, args ...string) (int, scoring.Result) {
	t.Helper()
	start := time.Now()
	code, out, errs := kvladder(t, append([]string{"run", "--json"}, args...)...)
	t.Logf("%s: exit %d after %s\n%s", filepath.Base(args[len(args)-1]), code, time.Since(start).Round(time.Second), errs)
	var r scoring.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("exit %d, and no result: %v", code, err)
	}
	for _, a := range r.Arms {
		if a.Role == scoring.Judged {
			t.Logf("%-12s %-24s %-12s %-28s local %s external %s computed %s, bit equal %s of %s, d0 max %s, exceedance p %s", a.Name, deref(a.Verdict), deref(a.Sub), deref(a.Kind),
				deref(a.LocalTokens), deref(a.ExternalTokens), deref(a.ComputedTokens), deref(a.BitEqual), deref(a.Comparable), deref(a.D0Max), deref(a.PExceedance))
		}
	}
	return code, r
}

func deref[T any](p *T) string {
	if p == nil {
		return "-"
	}
	b, _ := json.Marshal(*p)
	return string(b)
}

func armOf(t *testing.T, r scoring.Result, name string) scoring.ArmResult {
	t.Helper()
	for _, a := range r.Arms {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("the result has no arm %s", name)
	return scoring.ArmResult{}
}

// cached points the program at the project's cache, whatever folder the test runs in.
func cached(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../.cache")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVLADDER_CACHE", dir)
	return dir
}

// want is what one arm has to come out as; "" is not looked at.
type want struct {
	verdict, sub, kind, path string
	warning                  string // part of one of its warnings, or of its reason
	local, external          bool   // that it took tokens from there
	bits                     bool   // that every request is bitwise equal to the reference
}

// clean is an arm that nothing can be said against: bounded, and equal in every bit.
func clean(path string) want {
	return want{verdict: "CLEAN_BOUNDED", local: path == "local", external: path == "external", bits: true}
}

// llamaLadders are climbed as they stand in arms/ladders.
var llamaLadders = []struct {
	ladder string
	exit   int
	arms   map[string]want
}{
	// an untouched cache is never accused, and is called clean within what its classes bound
	{"smollm2", 0, map[string]want{
		"C1@f16": clean("local"), "C1@q8_0": clean("local"), "RST@f16": clean("external"), "RST@q8_0": clean("external"),
	}},
	{"dtypes", 0, map[string]want{
		"C1@f16": clean("local"), "C1@bf16": clean("local"), "C1@q8_0": clean("local"), "C1@q4_0": clean("local"),
		"RST@f16": clean("external"), "RST@bf16": clean("external"), "RST@q8_0": clean("external"), "RST@q4_0": clean("external"),
	}},
	{"host-cache", 0, map[string]want{"C1": clean("local"), "HOST": {verdict: "CLEAN_BOUNDED", external: true, bits: true}}},
	{"hybrid", 0, map[string]want{"C1": clean("local"), "RST": clean("external")}},
	{"hybrid-partial", 0, map[string]want{"C1": clean("local")}},
	// reuse that is documented as inexact is neither
	{"chunks", 2, map[string]want{
		"C1":     clean("local"),
		"CHUNKS": {verdict: "INCONCLUSIVE_UNKNOWN", sub: "inexact", local: true, warning: "cache_reuse moves chunks"},
	}},
	// what the server refuses to take back was not reused
	{"refused", 2, map[string]want{
		"C1":        clean("local"),
		"RST-HEAD":  {verdict: "NOT_EXERCISED", sub: "REFUSED", warning: "(log: unknown (magic, version)"},
		"RST-SHAPE": {verdict: "NOT_EXERCISED", sub: "REFUSED", warning: "(log: mismatched layer count (2 instead of 4))"},
		"RST-DTYPE": {verdict: "NOT_EXERCISED", sub: "REFUSED", warning: "(log: mismatched key type (1 != 30, layer 0))"},
	}},
	// and what it takes from another model is found by the hits alone
	{"other-model", 1, map[string]want{
		"C1":        clean("local"),
		"XID-MODEL": {verdict: "CORRUPTION_ATTRIBUTED", kind: "hits across identities = 0", path: "external", external: true},
	}},
	// small damage, on random weights and on real ones
	{"faults", 1, map[string]want{
		"C1":         clean("local"),
		"RST-SCALE":  {verdict: "CORRUPTION_ATTRIBUTED", path: "external"},
		"RST-LOWBIT": {verdict: "CORRUPTION_ATTRIBUTED", kind: "bit", path: "external"},
		"RST-NAN":    {verdict: "CORRUPTION_ATTRIBUTED", kind: "text", path: "external"},
		"RST-FLIP":   {verdict: "CORRUPTION_ATTRIBUTED", path: "external"},
	}},
	// and in a recurrent state; where nothing reads it nobody is accused
	{"hybrid-faults", 1, map[string]want{
		"C1":         clean("local"),
		"RST-STATE":  {verdict: "CORRUPTION_ATTRIBUTED", kind: "bit", path: "external"},
		"RST-UNREAD": clean("external"),
	}},
	{"smollm2-corrupt", 1, map[string]want{
		"C1":          clean("local"),
		"RST-FLIP":    {verdict: "CORRUPTION_ATTRIBUTED", path: "external"},
		"RST-SCALE":   {verdict: "CORRUPTION_ATTRIBUTED", path: "external"},
		"RST-LOWBITS": {verdict: "CORRUPTION_ATTRIBUTED", kind: "bit", path: "external"},
	}},
}

func TestLlamaCppLadders(t *testing.T) {
	cached(t)
	for _, l := range llamaLadders {
		t.Run(l.ladder, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			code, r := climbLlama(t, "--out", out, "../../arms/ladders/llamacpp-"+l.ladder+".yaml")
			if code != l.exit {
				t.Errorf("exit %d, want %d", code, l.exit)
			}
			for name, w := range l.arms {
				w.check(t, armOf(t, r, name))
			}
			if code, out, _ := kvladder(t, "verify", out); code != 0 {
				t.Errorf("the receipt does not verify:\n%s", out)
			}
		})
	}
}

func (w want) check(t *testing.T, a scoring.ArmResult) {
	t.Helper()
	for _, x := range []struct {
		what, want string
		got        *string
	}{{"verdict", w.verdict, a.Verdict}, {"sub", w.sub, a.Sub}, {"kind", w.kind, a.Kind}, {"path", w.path, a.Path}} {
		if x.want != "" && (x.got == nil || *x.got != x.want) {
			t.Errorf("%s: %s %s, want %q (%s)", a.Name, x.what, deref(x.got), x.want, deref(a.Reason))
		}
	}
	if w.local && (a.LocalTokens == nil || *a.LocalTokens == 0) || w.external && (a.ExternalTokens == nil || *a.ExternalTokens == 0) {
		t.Errorf("%s: local %s, external %s", a.Name, deref(a.LocalTokens), deref(a.ExternalTokens))
	}
	if w.bits && (a.BitEqual == nil || *a.BitEqual != a.N) {
		t.Errorf("%s: %s of %d requests bitwise equal to the reference, want all", a.Name, deref(a.BitEqual), a.N)
	}
	if said := strings.Join(append(a.Warnings, deref(a.Reason)), "\n"); !strings.Contains(said, w.warning) {
		t.Errorf("%s: nothing says %q:\n%s", a.Name, w.warning, said)
	}
}

// synthetic writes a ladder on the synthetic model and returns its path.
func synthetic(t *testing.T, set, pins, rest string) string {
	t.Helper()
	set, err := filepath.Abs("../../prompts/sets/" + set + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ladder.yaml")
	text := "ladder: synthetic\nengine: llamacpp\nset: " + set + "\npins: {model: llamacpp/model/synthetic-llama.gguf, threads: 1, " + pins + "}\n" + rest
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Prompts that are asked again of whichever slot waited longest find nothing, and the same prompts pinned to their slots find all that their slot still holds.
func TestLlamaCppUnpinned(t *testing.T) {
	cached(t)
	dir := t.TempDir()
	_, pinned := climbLlama(t, "--out", filepath.Join(dir, "pinned"), "../../arms/ladders/llamacpp-slots.yaml")
	code, unpinned := climbLlama(t, "--out", filepath.Join(dir, "unpinned"), "../../arms/ladders/llamacpp-slots-unpinned.yaml")
	p, u := armOf(t, pinned, "C1"), armOf(t, unpinned, "C1")
	clean("local").check(t, p)
	if code != 2 || *u.Verdict != "NOT_EXERCISED" {
		t.Errorf("unpinned: exit %d, %s", code, deref(u.Verdict))
	}
	t.Logf("hits pinned %s of %s expected, unpinned %s; slots asked and proven %s", deref(p.LocalTokens), deref(p.ExpectedLocal), deref(u.LocalTokens), deref(p.Ranks))
	if p.LocalTokens == nil || u.LocalTokens == nil || *p.LocalTokens != *p.ExpectedLocal || *p.LocalTokens == 0 || *u.LocalTokens != 0 {
		t.Errorf("pinned %s, unpinned %s local tokens", deref(p.LocalTokens), deref(u.LocalTokens))
	}
	if p.Ranks == nil || p.Ranks.Asked == 0 || p.Ranks.Proven != p.Ranks.Asked {
		t.Errorf("slots asked and proven: %s", deref(p.Ranks))
	}
}

// A pin that the server does not understand is found out by the slot that its reply names: a
// member of another name, and a number that it does not have.
func TestLlamaCppWrongPin(t *testing.T) {
	cached(t)
	for name, c := range map[string]struct{ set, pins, rest, says string }{
		"member":  {"synthetic-free-32", "slots: 64, ctx: 49152", "replay: {ranks: 64, rank_by: body, rank_field: slot_id}\n", "and another one served it"},
		"missing": {"synthetic-short-32", "slots: 16, ctx: 12288", "", "asked for slot 16 and slot"},
	} {
		t.Run(name, func(t *testing.T) {
			ladder := synthetic(t, c.set, c.pins, "arms: [C0, C1]\nrules: {n_min: 12, g_min: 12, p_max: 0.23}\n"+c.rest)
			code, r := climbLlama(t, "--out", filepath.Join(t.TempDir(), "run"), ladder)
			if code != 3 {
				t.Errorf("exit %d, want 3", code)
			}
			want{verdict: "INVALID_PREREG", warning: c.says}.check(t, armOf(t, r, "C1"))
		})
	}
}

// build 11669 dies when it shifts quantized keys: a death is an outcome, what was answered
// before it is kept, and the arms beside it are judged.
func TestLlamaCppDies(t *testing.T) {
	cached(t)
	ladder := synthetic(t, "synthetic-pairs-40", "slots: 20, ctx: 10240, kv_cache_dtype: q8_0, flash_attn: on",
		"arms:\n  - C0\n  - C1\n  - {preset: custom, name: CHUNKS, config: C1, pins: {cache_reuse: 32}, reference: C1, reference_pass: 2, exercise: C1, path: local, steps: [launch, replay, replay]}\n"+
			"floors: {C0: 2, C1: 2}\nrules: {g_min: 24, p_max: 0.12}\nparallel: 2\n")
	code, r := climbLlama(t, "--out", filepath.Join(t.TempDir(), "run"), ladder)
	if code != 4 {
		t.Errorf("exit %d, want 4", code)
	}
	want{verdict: "ENGINE_DIED", sub: "DIED"}.check(t, armOf(t, r, "CHUNKS"))
	clean("local").check(t, armOf(t, r, "C1"))
}

// Reuse that was switched off behind the arm's back is not a clean cache: a proxy adds
// cache_prompt false to every request, while all pins stay as they were asked.
func TestLlamaCppReuseOff(t *testing.T) {
	cache := cached(t)
	eng := engine.LlamaCpp{}
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	conf, err := eng.Configure("C1")
	if err != nil {
		t.Fatal(err)
	}
	pins := eng.Pins()
	for k, v := range conf {
		pins[k] = v
	}
	for k, v := range map[string]string{"model": "llamacpp/model/synthetic-llama.gguf", "threads": "1", "slots": "32", "ctx": "24576"} {
		pins[k] = v
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	run, err := arms.Up(context.Background(), arms.Launch{Arm: "C1", Engine: eng, Launcher: launch.Local{Self: program}, Pins: pins,
		Address: arms.Address{Host: "127.0.0.1", Port: port}, Resources: arms.Resources{Cache: cache, Slots: t.TempDir(), Store: t.TempDir(), Self: program}, Log: &arms.Tail{To: log}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Process.Stop(context.Background())
	target, err := url.Parse(run.Endpoint.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/completion" {
			b, _ := io.ReadAll(r.Body)
			b = bytes.Replace(b, []byte("{"), []byte(`{"cache_prompt":false,`), 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			asked++
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	ladder := synthetic(t, "synthetic-short-32", "slots: 32, ctx: 24576", "arms: [C0, C1]\nfloors: {C0: 2, C1: 1}\nparallel: 2\n")
	code, r := climbLlama(t, "--out", filepath.Join(t.TempDir(), "run"), "--attach", "C1="+front.URL, ladder)
	if asked == 0 {
		t.Fatal("nothing went through the proxy")
	}
	if a := armOf(t, r, "C1"); code != 2 || deref(a.Verdict) != `"NOT_EXERCISED"` {
		t.Errorf("exit %d, C1 %s (%s), want exit 2, NOT_EXERCISED", code, deref(a.Verdict), deref(a.Sub))
	}
}
