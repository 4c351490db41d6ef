// Scipy writes random tables with what package compare makes of them, as JSON, one object a
// line. Beside it, check.py computes the same with SciPy and compares; run.sh does both:
//
//	make check-scipy
//
// An object is {"test": T, "in": [integers], "out": {name: number}} with T and its integers
//
//	fisher           a, b, c, d      one_sided (second row higher), two_sided
//	mcnemar          b, c            one_sided (arm fails more), two_sided
//	clopper-pearson  k, n            low2, high2 (two-sided 95 %), low1, high1 (one-sided)
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"kvladder/scoring/compare"
)

type table struct {
	Test string             `json:"test"`
	In   []int              `json:"in"`
	Out  map[string]float64 `json:"out"`
}

func main() {
	n := flag.Int("n", 10_000, "tables of each test")
	seed := flag.Uint64("seed", 38, "seed of the tables")
	flag.Parse()
	w := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(w)
	err := tables(*n, rand.New(rand.NewPCG(*seed, 0)), func(t table) error { return enc.Encode(t) })
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// tables draws n tables of each test. Half of them are small, where ties between equally
// likely tables are common; the others reach the sizes of a long ladder.
func tables(n int, rng *rand.Rand, emit func(table) error) error {
	size := func(large int) int {
		if rng.IntN(2) == 0 {
			return 1 + rng.IntN(12)
		}
		return 1 + rng.IntN(large)
	}
	for range n {
		r1, r2 := size(300), size(300)
		a, c := rng.IntN(r1+1), rng.IntN(r2+1)
		if rng.IntN(4) == 0 {
			a = 0 // a control that fails nowhere
		}
		f := compare.Fisher(a, r1-a, c, r2-c)
		if err := emit(table{"fisher", []int{a, r1 - a, c, r2 - c}, map[string]float64{"one_sided": f.OneSided, "two_sided": f.TwoSided}}); err != nil {
			return err
		}
		b, c := rng.IntN(size(200)), rng.IntN(size(200))
		m := compare.McNemar(b, c)
		if err := emit(table{"mcnemar", []int{b, c}, map[string]float64{"one_sided": m.OneSided, "two_sided": m.TwoSided}}); err != nil {
			return err
		}
		trials := size(5000)
		k := rng.IntN(trials + 1)
		two, err := compare.ClopperPearson(k, trials, 0.95, compare.TwoSided)
		if err != nil {
			return err
		}
		if err := emit(table{"clopper-pearson", []int{k, trials}, map[string]float64{
			"low2": two.Low, "high2": two.High, "low1": *compare.Lower95(k, trials), "high1": *compare.Upper95(k, trials)}}); err != nil {
			return err
		}
	}
	return nil
}
