package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/scoring"
)

// rankServer is an embedded engine that knows of no other rank.
func rankServer(t *testing.T, caching string) string {
	t.Helper()
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	pins := engine.Testbed{}.Pins()
	pins["prefix_caching"] = caching
	run, err := arms.Up(context.Background(), arms.Launch{Arm: "rank", Engine: engine.Testbed{}, Launcher: launch.Local{Self: program}, Pins: pins,
		Address: arms.Address{Host: "127.0.0.1", Port: port}, Resources: arms.Resources{Self: program}, Log: &arms.Tail{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Process.Stop(context.Background()) })
	return run.Endpoint.URL
}

// Ranks that are servers of their own: each request goes to its rank's address and the counters
// of that server alone move. One address given for both ranks proves nothing.
func TestRanksByURL(t *testing.T) {
	set, err := filepath.Abs("../../prompts/sets/demo-48.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ladder := filepath.Join(dir, "by-url.yaml")
	text := "ladder: by-url\nengine: testbed\nset: " + set + "\narms: [C0, C1]\nfloors: {C0: 1, C1: 1}\nreplay: {ranks: 2, rank_by: url}\n"
	if err := os.WriteFile(ladder, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := kvladder(t, "run", "--out", filepath.Join(dir, "none"), ladder); code != scoring.ExitInvalid || !strings.Contains(errs, "once for each rank") {
		t.Errorf("nobody's servers: exit %d\n%s", code, errs)
	}
	a, b := rankServer(t, "off"), rankServer(t, "off")
	c, d := rankServer(t, "on"), rankServer(t, "on")
	if code, _, errs := kvladder(t, "run", "--out", filepath.Join(dir, "one"), "--attach", "C0="+a, "--attach", "C1="+c+","+d, ladder); code != scoring.ExitInvalid || !strings.Contains(errs, "1 URLs") {
		t.Errorf("one URL for two ranks: exit %d\n%s", code, errs)
	}
	climb := func(name, c1 string) scoring.ArmResult {
		_, out, errs := kvladder(t, "run", "--json", "--out", filepath.Join(dir, name), "--attach", "C0="+a+","+b, "--attach", "C1="+c1, ladder)
		var r scoring.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: no result: %v\n%s", name, err, errs)
		}
		for _, x := range r.Arms {
			if x.Name == "C1" {
				return x
			}
		}
		t.Fatalf("%s: no C1", name)
		return scoring.ArmResult{}
	}
	two := climb("two", c+","+d)
	if two.Ranks == nil || two.Ranks.Asked == 0 || two.Ranks.Proven != two.Ranks.Asked || two.LocalTokens == nil || *two.LocalTokens == 0 {
		t.Errorf("two servers: ranks %+v, local tokens %v; want all proven", two.Ranks, two.LocalTokens)
	}
	same := climb("same", c+","+c)
	if same.Ranks == nil || same.Ranks.Proven != 0 {
		t.Errorf("one server given twice: ranks %+v, want none proven", same.Ranks)
	}
}
