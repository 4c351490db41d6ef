package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
)

func newInitCmd(stdout, stderr io.Writer) *cobra.Command {
	var engineName, set, out string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "write a commented starter ladder",
		Example: `  kvladder init --engine testbed --set sets/mine.jsonl --out mine.yaml
  kvladder plan mine.yaml`,
		Args: args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			eng, err := findEngine(engineName)
			if err != nil {
				return err
			}
			text := starter(eng, set)
			if out == "-" {
				_, err := io.WriteString(stdout, text)
				return err
			}
			if err := writeNew(out, []byte(text)); err != nil {
				return err
			}
			fmt.Fprintf(stderr, "wrote %s; next: kvladder plan %s\n", out, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&engineName, "engine", "testbed", "engine: "+names(engines))
	cmd.Flags().StringVar(&set, "set", "SET.jsonl", "the frozen set, made by kvladder freeze; looked up beside the ladder file")
	cmd.Flags().StringVar(&out, "out", "ladder.yaml", "`FILE` to write, - for stdout")
	return cmd
}

// starter is a ladder with every arm that the engine can run.
func starter(eng arms.Engine, set string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ladder: mine\nquestion: does reuse change what the model says?\nengine: %s\nset: %s\n\n# pins shared by all arms; this engine knows: %s\npins: {}\n\narms:\n", eng.Name(), set, names(eng.Pins()))
	for _, p := range []string{"C0", "C1", "COLD", "REPLAY", "WARM", "RST", "PART"} {
		if why := eng.Cannot(p); why != "" {
			fmt.Fprintf(&b, "  # %s: %s\n", p, why)
			continue
		}
		fmt.Fprintf(&b, "  - %-7s # %s\n", p, arms.PresetDoc(p))
	}
	b.WriteString("floors: {C0: 3, C1: 3} # control processes of each kind\n\n# every threshold has a default; state smaller ones only for a smaller set\n# rules: {n_min: 24, g_min: 29, p_max: 0.10}\n\n# what you expect, before the run\n# predict:\n#   WARM: {failed: 0, external_tokens: \">0\"}\n")
	return b.String()
}
