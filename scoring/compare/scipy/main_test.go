package main

import (
	"math/rand/v2"
	"testing"
)

// The tables must be worth comparing: all three tests, no figure outside 0..1, and among
// them the edges that a comparison is for.
func TestTables(t *testing.T) {
	n := map[string]int{}
	edges := map[string]int{}
	err := tables(300, rand.New(rand.NewPCG(38, 0)), func(x table) error {
		n[x.Test]++
		for name, v := range x.Out {
			if !(v >= 0 && v <= 1) {
				t.Errorf("%s %v: %s is %v", x.Test, x.In, name, v)
			}
		}
		if x.In[0] == 0 {
			edges[x.Test]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []string{"fisher", "mcnemar", "clopper-pearson"} {
		if n[test] != 300 || edges[test] == 0 {
			t.Errorf("%s: %d tables, %d of them at an edge", test, n[test], edges[test])
		}
	}
}
