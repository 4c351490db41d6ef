package arms_test

import (
	"strings"
	"testing"

	"kvladder/arms/engine"
	"kvladder/scoring"
)

const traced = "ladder: t\nengine: testbed\nset: s.jsonl\npins: {PINS}\narms:\n  - C0\n  - C1\n  - {preset: WARM, trace: true}\n  - RST\nrules: {n_min: 10, g_min: 10, p_max: 0.3}\n"

// An arm with trace brings itself once more, in a chain of its own that comes last: the tokens
// that its requests name are those of a reference that has to be there.
func TestTrace(t *testing.T) {
	p, err := resolve(t, strings.Replace(traced, "PINS", "trace_replay: on", 1), open(t, "demo-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	a, ok := p.Design.ByName("WARM-forced")
	if !ok || a.Role != scoring.Forced || a.ForcedOf != "WARM" || a.Reference != "C1" || a.ReferencePass != 2 || a.Preset != "WARM" || a.Judge != 2 {
		t.Fatalf("%+v", a)
	}
	if last := p.Chains[len(p.Chains)-1]; last.Name != "WARM-forced" || !p.Follows(last) {
		t.Errorf("the last chain is %s", last.Name)
	}
	for _, c := range p.Chains[:len(p.Chains)-1] {
		if p.Follows(c) {
			t.Errorf("chain %s follows", c.Name)
		}
	}
	if got := steps(p, "WARM-forced"); got != "launch replay1 drain reset replay2 stop" {
		t.Errorf("steps %s", got)
	}
	if n := len(p.JudgedArms()); n != 3 {
		t.Errorf("%d judged arms: a forced one is none", n)
	}
	if w, _ := p.Design.ByName("WARM"); len(a.Expected) == 0 || a.Expected["r01"] != w.Expected["r01"] {
		t.Errorf("expected %v, WARM %v", a.Expected["r01"], w.Expected["r01"])
	}
}

// Where the engine cannot be told its replies, the ladder is refused before anything starts.
func TestTraceRefused(t *testing.T) {
	for _, c := range []struct{ pins, want string }{
		{"kv_cache_dtype: fp8", "t.yaml:8:5: arm WARM: trace: engine testbed: its requests cannot name their reply: state trace_replay: on in pins"},
		{"trace_replay: on, draft: 2", "trace_replay is not supported with a draft"},
	} {
		if _, err := resolve(t, strings.Replace(traced, "PINS", c.pins, 1), open(t, "demo-48"), engine.Testbed{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.pins, err, c.want)
		}
	}
	llama := strings.NewReplacer("pins: {PINS}\n", "", "testbed", "llamacpp", "WARM, trace: true", "RST, trace: true", "  - RST\n", "").Replace(traced)
	if _, err := resolve(t, llama, open(t, "smollm2-12"), engine.LlamaCpp{}); err == nil || !strings.Contains(err.Error(), "cannot name the tokens of their reply") {
		t.Errorf("llamacpp: %v", err)
	}
	if _, err := resolve(t, strings.Replace(strings.Replace(traced, "PINS", "trace_replay: on", 1), "preset: WARM", "preset: C1, name: X", 1), open(t, "demo-48"), engine.Testbed{}); err == nil || !strings.Contains(err.Error(), "trace is not for preset C1") {
		t.Errorf("C1: %v", err)
	}
	for args, want := range map[string]string{
		"":                      "add --enable-trace-replay",
		"--enable-trace-replay": "",
		"--enable-trace-replay --speculative-config {}": "refuses trace replay beside speculative",
	} {
		if why := (engine.VLLM{}).CannotTrace(map[string]string{"args": args}); (want == "") != (why == "") || !strings.Contains(why, want) {
			t.Errorf("vllm, %q: %q", args, why)
		}
	}
}
