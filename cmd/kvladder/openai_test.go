package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/scoring"
)

// hosted is an embedded engine behind a door that wants a key, without metrics and without
// anything that only an engine's owner may ask.
func hosted(t *testing.T, key, caching string, refused *atomic.Int64) string {
	t.Helper()
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	pins := engine.Testbed{}.Pins()
	pins["prefix_caching"] = caching
	run, err := arms.Up(context.Background(), arms.Launch{Arm: "hosted", Engine: engine.Testbed{}, Launcher: launch.Local{Self: program}, Pins: pins,
		Address: arms.Address{Host: "127.0.0.1", Port: port}, Resources: arms.Resources{Self: program}, Log: &arms.Tail{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Process.Stop(context.Background()) })
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key:
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"message":"no key"}}`)
		case !strings.HasPrefix(r.URL.Path, "/v1/"):
			w.WriteHeader(http.StatusNotFound)
		default:
			pass(w, r, run.Endpoint.URL)
		}
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// pass hands a request on, whole, and its answer back, whole.
func pass(w http.ResponseWriter, r *http.Request, to string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	req, err := http.NewRequest(r.Method, to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	w.Write(b)
}

// A server of somebody else is asked with a key from the environment, which is written nowhere:
// not into the run folder, not into what is printed. Without counters nothing is called clean,
// and an arm without a server is refused before anything is asked.
func TestOpenAIKeepsTheKey(t *testing.T) {
	const key = "sk-2f9d17c4b1e04c0f-must-not-be-written"
	t.Setenv("KVLADDER_API_KEY", key)
	var refused atomic.Int64
	c0, c1 := hosted(t, key, "off", &refused), hosted(t, key, "on", &refused)
	set, err := filepath.Abs("../../prompts/sets/demo-48.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ladder, out := filepath.Join(dir, "hosted.yaml"), filepath.Join(dir, "run")
	text := "ladder: hosted\nengine: openai\nset: " + set + "\narms: [C0, C1]\nfloors: {C0: 1, C1: 1}\n"
	if err := os.WriteFile(ladder, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := kvladder(t, "run", "--json", "--out", filepath.Join(dir, "none"), "--attach", "C0="+c0, ladder)
	if code != scoring.ExitInvalid || !strings.Contains(stderr, "C1 have none") {
		t.Errorf("an arm without a server: exit %d\n%s", code, stderr)
	}
	if strings.Contains(stdout+stderr, key) {
		t.Error("the key was printed")
	}

	code, stdout, stderr = kvladder(t, "run", "--json", "--out", out, "--attach", "C0="+c0, "--attach", "C1="+c1, ladder)
	var r scoring.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit %d, and no result: %v\n%s", code, err, stderr)
	}
	for _, a := range r.Arms {
		if a.Name != "C1" {
			continue
		}
		if a.N != 48 || deref2(a.Verdict) == "CLEAN_BOUNDED" {
			t.Errorf("C1: %d requests, %s: without counters, pins and identity nothing is clean", a.N, deref2(a.Verdict))
		}
		t.Logf("C1: %s %s", deref2(a.Verdict), deref2(a.Reason))
	}
	if n := refused.Load(); n > 0 {
		t.Errorf("%d requests went out without the key", n)
	}
	if strings.Contains(stdout+stderr, key) {
		t.Error("the key was printed")
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(key)) {
			t.Errorf("the key is in %s", path)
		}
		files++
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files were looked through: %v", files, err)
	}
}

func deref2(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
