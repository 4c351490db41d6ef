// Synthetic writes a model of random weights as a GGUF file: a few megabytes that
// llama-server serves like any other model, in hundredths of a second a prompt. What it says
// means nothing; that it says the same over every path through a cache is what is asked.
//
//	go run ./arms/engine/llamacpp/synthetic -shape lfm2 -seed 1 FILE
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	shape := flag.String("shape", "llama", "llama, llama-2 or lfm2")
	seed := flag.Uint64("seed", 1, "of the weights")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "error: name one file to write")
		os.Exit(3)
	}
	if err := write(*shape, *seed, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(3)
	}
}

// write writes the file beside its place and moves it there when it is whole.
func write(shape string, seed uint64, file string) error {
	g, err := model(shape, seed)
	if err != nil {
		return err
	}
	f, err := os.Create(file + ".part")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := g.write(f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(file+".part", file)
}
