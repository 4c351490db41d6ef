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
			t.Logf("%-10s %-24s local %s external %s computed %s, bit equal %s of %s, d0 max %s", a.Name, deref(a.Verdict), deref(a.LocalTokens), deref(a.ExternalTokens), deref(a.ComputedTokens), deref(a.BitEqual), deref(a.Comparable), deref(a.D0Max))
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

func arm(t *testing.T, r scoring.Result, name string) scoring.ArmResult {
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

// An untouched cache is never accused.
func TestLlamaCppLadderClean(t *testing.T) {
	cached(t)
	out := filepath.Join(t.TempDir(), "run")
	code, r := climbLlama(t, "--out", out, "../../arms/ladders/llamacpp-smollm2.yaml")
	if code != 0 && code != 2 {
		t.Errorf("exit %d, want 0, or 2 where a bound is not reached", code)
	}
	for _, name := range []string{"C1@f16", "C1@q8_0", "RST@f16", "RST@q8_0"} {
		a := arm(t, r, name)
		if a.BitEqual == nil || *a.BitEqual != a.N {
			t.Errorf("%s: %s of %d requests bitwise equal to the reference, want all", name, deref(a.BitEqual), a.N)
		}
	}
	if code, out, _ := kvladder(t, "verify", out); code != 0 {
		t.Errorf("the receipt does not verify:\n%s", out)
	}
}

// A damaged slot file is found, and the replicate repeats it.
func TestLlamaCppLadderCorrupt(t *testing.T) {
	cached(t)
	code, r := climbLlama(t, "--out", filepath.Join(t.TempDir(), "run"), "../../arms/ladders/llamacpp-smollm2-corrupt.yaml")
	a := arm(t, r, "RST")
	if code != 1 || deref(a.Verdict) != `"CORRUPTION_ATTRIBUTED"` || deref(a.Variable) != `"slot_restore"` || deref(a.Path) != `"external"` {
		t.Errorf("exit %d, RST %s, variable %s, path %s; want exit 1, attributed to slot_restore on the external path", code, deref(a.Verdict), deref(a.Variable), deref(a.Path))
	}
	if c := arm(t, r, "C1"); deref(c.Verdict) == `"CORRUPTION_ATTRIBUTED"` {
		t.Errorf("C1, which restores nothing, is accused")
	}
}

// Reuse that was switched off behind the arm's back is not a clean cache: a proxy adds
// cache_prompt false to every request, while all pins stay as they were asked.
func TestLlamaCppLadderReuseOff(t *testing.T) {
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
	for k, v := range map[string]string{"threads": "1", "slots": "12", "ctx": "9216"} {
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
	dir := t.TempDir()
	ladder := filepath.Join(dir, "reuse-off.yaml")
	set, err := filepath.Abs("../../prompts/sets/smollm2-12.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text := "ladder: reuse-off\nengine: llamacpp\nset: " + set + "\npins: {threads: 1, slots: 12, ctx: 9216}\narms: [C0, C1]\nfloors: {C0: 2, C1: 1}\nrules: {n_min: 10, g_min: 5, p_max: 0.46}\nreplay: {timeout_seconds: 900}\n"
	if err := os.WriteFile(ladder, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, r := climbLlama(t, "--out", filepath.Join(dir, "run"), "--attach", "C1="+front.URL, ladder)
	if asked == 0 {
		t.Fatal("nothing went through the proxy")
	}
	if a := arm(t, r, "C1"); code != 2 || deref(a.Verdict) != `"NOT_EXERCISED"` {
		t.Errorf("exit %d, C1 %s (%s), want exit 2, NOT_EXERCISED", code, deref(a.Verdict), deref(a.Sub))
	}
}
