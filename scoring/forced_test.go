package scoring

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"kvladder/probes"
)

// newForced is a lab with WARM once more along the tokens of C1's second pass. A server that
// knows the member answers with them; one that does not answers as it would.
func newForced(t *testing.T) *lab {
	l := newLab(t, 40, 40)
	a := *l.spec("WARM")
	a.Name, a.Role, a.ForcedOf, a.Chain, a.Process, a.Path = "WARM-forced", Forced, "WARM", "WARM-forced", "forced", ""
	l.design.Arms = append(l.design.Arms, a)
	l.reply["WARM-forced"] = func(r *probes.Reply, i int) { l.name(r, i) }
	return l
}

// name puts the tokens of the healthy answer into the body of a request.
func (l *lab) name(r *probes.Reply, i int) {
	healthy := l.answer(&ArmSpec{Preset: "C1"}, 2, i)
	var ids []int
	for _, t := range healthy.Tokens {
		ids = append(ids, t.ID)
	}
	b, err := json.Marshal(map[string]any{"prompt": []int{i}, probes.TraceField: ids})
	if err != nil {
		l.t.Fatal(err)
	}
	r.SentBody = string(b)
}

// Every position is aligned: a reply that would have left the reference at its first token is
// compared at its second too.
func TestForcedAlignsEveryPosition(t *testing.T) {
	l := newForced(t)
	l.reply["WARM"] = wrong(8)
	l.reply["WARM-forced"] = func(r *probes.Reply, i int) {
		l.name(r, i)
		r.Tokens = slices.Clone(r.Tokens)
		for k := range r.Tokens {
			shift := 0.25 * float64(k+1)
			r.Tokens[k].Logprob, r.Tokens[k].Top = ptr(*r.Tokens[k].Logprob-shift), nil
		}
	}
	l.write()
	r := l.assess()
	w := want(t, r, "WARM", CorruptionAttributed, 7, "")
	f := arm(t, r, "WARM-forced").Forced
	if f == nil || f.Of != "WARM" || f.Reference != "C1" || f.Asked != 40 || f.Honoured != 40 || f.Note != "" {
		t.Fatalf("%+v", f)
	}
	if f.Positions != 80 || math.Abs(*f.Mean-0.375) > 1e-9 || math.Abs(*f.Max-0.5) > 1e-9 || math.Abs(*f.D0Max-0.25) > 1e-9 || f.Where == nil || f.Where.Request != 2 || f.Where.Prompt != "p00" {
		t.Errorf("%+v: mean %v max %v", f, *f.Mean, *f.Max)
	}
	if f.Bits != 40 || f.BitEqual != 0 {
		t.Errorf("bits %d of %d", f.BitEqual, f.Bits)
	}
	// The free arm's aligned positions end at its first difference: 8 of 40 leave at once.
	if *w.Exposure != 8*1+32*2 {
		t.Errorf("exposure %d", *w.Exposure)
	}
	// And the forced arm carries no verdict, here or anywhere.
	if a := arm(t, r, "WARM-forced"); a.Verdict != nil || a.Exit != nil || a.Sound != "" || a.PMcNemar != nil {
		t.Errorf("a forced arm is judged: %+v", a.Verdict)
	}
}

func TestForcedHealthy(t *testing.T) {
	l := newForced(t)
	l.write()
	r := l.assess()
	want(t, r, "WARM", CleanBounded, 17, "")
	if f := arm(t, r, "WARM-forced").Forced; f.Honoured != 40 || *f.Max != 0 || f.BitEqual != 40 || f.Bits != 40 || f.Where != nil {
		t.Errorf("%+v", f)
	}
	if r.Exit != ExitClean {
		t.Errorf("exit %d", r.Exit)
	}
}

// A server that ignores the member samples as usual: that is seen, and only what is aligned all
// the same is compared.
func TestTraceThatIsNotHonoured(t *testing.T) {
	l := newForced(t)
	l.reply["WARM-forced"] = func(r *probes.Reply, i int) {
		l.name(r, i)
		if i < 8 { // these would have gone another way, and did
			r.Tokens = slices.Clone(r.Tokens)
			r.Tokens[1].ID, r.Tokens[1].Top = 9, nil
			r.Tokens[1].Logprob = ptr(-3.0)
		}
	}
	l.write()
	a := arm(t, l.assess(), "WARM-forced")
	f := a.Forced
	if f.Asked != 40 || f.Honoured != 32 || f.Note != TraceNotHonoured {
		t.Fatalf("%+v", f)
	}
	// 32 whole replies of two tokens, and the first token of the 8: none of the positions behind.
	if f.Positions != 72 || *f.Max != 0 || f.Bits != 32 {
		t.Errorf("%d positions, max %v, %d bits", f.Positions, *f.Max, f.Bits)
	}
	if !strings.Contains(fmt.Sprint(a.Warnings), "TRACE_NOT_HONOURED: 8 of 40 replies are not the tokens that were asked for") {
		t.Errorf("%q", a.Warnings)
	}
}

// A request that names nothing, or something else than the reference said, shows nothing.
func TestTraceOfNothing(t *testing.T) {
	l := newForced(t)
	l.reply["WARM-forced"] = func(r *probes.Reply, i int) {
		if i == 0 {
			return
		}
		l.name(r, i)
		if i == 1 {
			r.SentBody = strings.Replace(r.SentBody, "[201,3]", "[201,9]", 1)
			r.Tokens = slices.Clone(r.Tokens)
			r.Tokens[1].ID = 9
		}
	}
	l.write()
	a := arm(t, l.assess(), "WARM-forced")
	if f := a.Forced; f.Asked != 38 || f.Honoured != 38 || f.Note != "" {
		t.Errorf("%+v", f)
	}
	for _, w := range []string{"2 requests named no tokens of the reference", "request p01 was given other tokens than those of C1"} {
		if !strings.Contains(fmt.Sprint(a.Warnings), w) {
			t.Errorf("%q lacks %q", a.Warnings, w)
		}
	}
}
