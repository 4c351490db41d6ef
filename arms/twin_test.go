package arms_test

import (
	"strings"
	"testing"

	"kvladder/arms/engine"
)

const twinned = "ladder: t\nengine: testbed\nset: s.jsonl\ntwin: true\npins: {noise: order}\narms: [C0, C1, WARM]\nfloors: {C0: 2, C1: 2}\nrules: {n_min: 10, g_min: 10, p_max: 0.3}\n"

// A twin ladder has every arm once more, with one pin changed, controls and a store of its own.
func TestTwin(t *testing.T) {
	p, err := resolve(t, twinned, open(t, "demo-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, a := range p.Design.Arms {
		if a.TwinOf == "" {
			if a.Pins["noise"] != "order" || strings.Contains(a.Name, "@") {
				t.Errorf("%s: noise %s", a.Name, a.Pins["noise"])
			}
			continue
		}
		n++
		of, ok := p.Design.ByName(a.TwinOf)
		if !ok || of.Preset != a.Preset || a.Pins["noise"] != "none" || a.Name != of.Name+"@invariant" || a.Chain == of.Chain || of.Reference != "" && a.Reference != of.Reference+"@invariant" {
			t.Errorf("%+v, twin of %+v", a, of)
		}
	}
	if n != len(p.Design.Arms)/2 {
		t.Errorf("%d twins of %d arms", n, len(p.Design.Arms))
	}
	// Two judged arms in each ladder: 2^-c <= .04/2 at c = 6.
	if need := p.NeedArmOnly(); need != 6 {
		t.Errorf("needs %d: the twin thins the family", need)
	}
	// With dtypes each has its own twin.
	p, err = resolve(t, strings.Replace(twinned, "twin: true", "twin: true\ndt: [bf16, fp8]", 1), open(t, "demo-48"), engine.Testbed{})
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := p.Design.ByName("WARM@fp8-invariant"); !ok || a.TwinOf != "WARM@fp8" || a.Pins["kv_cache_dtype"] != "fp8" || a.Pins["noise"] != "none" {
		t.Errorf("%+v", a)
	}
}

func TestTwinRefused(t *testing.T) {
	for src, want := range map[string]string{
		strings.Replace(twinned, "pins: {noise: order}\n", "", 1): "t.yaml:4:7: twin: noise is none already: the ladder would be its own twin",
	} {
		if _, err := resolve(t, src, open(t, "demo-48"), engine.Testbed{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	llama := strings.NewReplacer("pins: {noise: order}\n", "", "testbed", "llamacpp", ", WARM", ", RST").Replace(twinned)
	if _, err := resolve(t, llama, open(t, "smollm2-12"), engine.LlamaCpp{}); err == nil || !strings.Contains(err.Error(), "has no batch-invariant mode") {
		t.Errorf("llamacpp: %v", err)
	}
}
