package probes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kvladder/probes"
)

// A transcript is written line by line and read back; a changed byte is refused by line.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "transcript.jsonl")

	w, err := probes.OpenWriter(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{probes.FactPlan, probes.FactArmStart, probes.FactArmEnd} {
		if err := w.Append(probes.Record{Kind: probes.KindFact, Arm: "B", Fact: &probes.Fact{Name: name}}); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}

	recs, err := probes.ReadAll(path)
	fmt.Println(len(recs), recs[2].Seq, recs[2].Fact.Name, err)

	b, _ := os.ReadFile(path)
	b = bytes.Replace(b, []byte("arm-start"), []byte("arm-stirt"), 1)
	for _, err := range probes.NewReader("transcript.jsonl", bytes.NewReader(b)).All() {
		var changed *probes.ChangedError
		if errors.As(err, &changed) {
			fmt.Println("changed in line", changed.Line)
		}
	}
	// Output:
	// 3 3 arm-end <nil>
	// changed in line 2
}
