package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// goldenSeed is what testdata/golden.json says of one seed. The figures were
// made by another implementation of the same arithmetic.
type goldenSeed struct {
	Seed    uint64
	Weights map[string]string // name of a tensor, as [in][out]: digest
	Runs    []struct {
		DT    string
		Ids   []int
		Last  string // digest of the last position's logits
		State string // digest of the recurrent state after it
		All8  string // digest of the logits of every eighth position, joined
		Gen   []int  // greedy continuation
		Want  string // the answer it should be, digits only
		Text  string // the prompt, where recorded
	}
}

func goldens(t testing.TB) []goldenSeed {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g []goldenSeed
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g) != 2 {
		t.Fatalf("%d seeds, want 2", len(g))
	}
	return g
}

// digest is FNV-1a-64 over the little-endian bytes of x.
func digest(x []float32) string {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return fmt.Sprintf("%016x", fnv64(b))
}

// tensors lists the tensors of w under their golden names.
func (w *weights) tensors() map[string][]float32 {
	m := map[string][]float32{
		"E": w.embed, "U": w.unembed.w, "bU": w.unembedBias,
		"L2.k": w.l2.k.w, "L2.q": w.l2.q.w, "L2.v": w.l2.v.w, "L2.b": w.l2.beta.w,
		"L2.g": w.l2.gate.w, "L2.a": w.l2.alpha.w, "L2.o": w.l2.out.w,
		"M1.g": w.m1.gate.w, "M1.u": w.m1.up.w, "M1.d": w.m1.down.w,
		"M2.g": w.m2.gate.w, "M2.u": w.m2.up.w, "M2.d": w.m2.down.w,
	}
	for name, l := range map[string]*attention{"L0": w.l0, "L1": w.l1, "L3": w.l3} {
		m[name+".wq"], m[name+".wk"], m[name+".wv"], m[name+".wo"] = l.wq.w, l.wk.w, l.wv.w, l.wo.w
		m[name+".bq"], m[name+".bk"], m[name+".bv"], m[name+".bo"] = l.bq, l.bk, l.bv, l.bo
		if l.ws != nil {
			m[name+".ws"] = l.ws.w
		}
		for i, r := range newRotary(l.periods) {
			m[fmt.Sprintf("rope%d", l.periods[i])] = append(slices.Clone(r.cos), r.sin...)
		}
	}
	return m
}

func TestGoldenWeights(t *testing.T) {
	for _, g := range goldens(t) {
		if len(g.Weights) != 52 {
			t.Errorf("seed %d: %d tensors recorded, want 52", g.Seed, len(g.Weights))
		}
		got := buildWeights(g.Seed, 0).tensors()
		for name, want := range g.Weights {
			if x, ok := got[name]; !ok || digest(x) != want {
				t.Errorf("seed %d: tensor %s (%d numbers) has digest %s, want %s", g.Seed, name, len(x), digest(x), want)
			}
		}
	}
}

func TestGoldenRuns(t *testing.T) {
	for _, g := range goldens(t) {
		if len(g.Runs) != 6 {
			t.Errorf("seed %d: %d runs recorded, want 6", g.Seed, len(g.Runs))
		}
		checkRuns(t, g, 1)
	}
}

// checkRuns computes every nth run of g, step by step and as one prefill.
func checkRuns(t *testing.T, g goldenSeed, every int) {
	d := New(g.Seed).Decoder()
	for i := 0; i < len(g.Runs); i += every {
		r := g.Runs[i]
		t.Run(fmt.Sprintf("seed%d/%d-%s", g.Seed, i, r.DT), func(t *testing.T) {
			dt, err := ParseDType(r.DT)
			if err != nil {
				t.Fatal(err)
			}
			s := newSequence(dt, len(r.Ids)+8)
			var all, last []float32
			for i, id := range r.Ids {
				lg := d.Step(s, id, i%8 == 0 || i == len(r.Ids)-1)
				if i%8 == 0 {
					all = append(all, lg...)
				}
				last = append(last[:0], lg...)
			}
			check := func(what, got, want string) {
				if got != want {
					t.Errorf("digest of the %s is %s, want %s", what, got, want)
				}
			}
			check("last logits", digest(last), r.Last)
			check("state", digest(s.State[:]), r.State)
			check("logits of every eighth position", digest(all), r.All8)

			p := newSequence(dt, len(r.Ids))
			check("last logits after a prefill", digest(d.Prefill(p, r.Ids, true)), r.Last)
			check("state after a prefill", digest(p.State[:]), r.State)

			answer := greedy(d, s, last, 8)
			if !slices.Equal(answer, r.Gen) {
				t.Errorf("greedy continuation is %v, want %v", answer, r.Gen)
			}
		})
	}
}
