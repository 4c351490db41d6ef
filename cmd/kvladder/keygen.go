package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"kvladder/receipts"
)

func newKeygenCmd(stdout, stderr io.Writer) *cobra.Command {
	var name, out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "keygen --name NAME --out FILE",
		Short: "make an Ed25519 key that signs receipts",
		Long: `keygen writes a private key to FILE, readable by its owner alone, and the public one to
FILE.pub and to standard output: one line, short enough for a README. run --sign FILE signs
with it, verify --key FILE.pub asks for its signature.`,
		Example: `  kvladder keygen --name example.org/alice --out alice.key`,
		Args:    args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			if name == "" || out == "" {
				return errors.New("keygen needs --name and --out; kvladder keygen --help shows an example")
			}
			private, public, err := receipts.GenerateKey(name)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, os.ErrExist) {
				return fmt.Errorf("%s exists: a key is never written over; choose another name with --out", out)
			}
			if err != nil {
				return err
			}
			_, err = f.WriteString(private + "\n")
			if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
				return err
			}
			if err := receipts.WriteOnce(out+".pub", []byte(public+"\n")); err != nil {
				return err
			}
			if asJSON {
				return printJSON(stdout, map[string]string{"name": name, "private": out, "public": out + ".pub", "key": public})
			}
			fmt.Fprintln(stdout, public)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "whose key it is: a host name and a path, without spaces or plus signs")
	f.StringVar(&out, "out", "", "`FILE` of the private key; the public one is FILE.pub")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}
