package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/show"
)

// doctorView is the JSON document of `kvladder doctor`.
type doctorView struct {
	Version  string         `json:"version"`
	Cache    string         `json:"cache"`
	Loopback string         `json:"loopback"` // "ok" or why not
	Engines  []doctorEngine `json:"engines"`
}

type doctorEngine struct {
	Name   string            `json:"name"`
	Found  bool              `json:"found"`
	What   string            `json:"what"`
	Cannot map[string]string `json:"cannot"` // preset -> why
	// NeverRun says that nobody has tried the adapter on its engine; "" where somebody has.
	NeverRun string `json:"never_run,omitempty"`
}

func newDoctorCmd(stdout, stderr io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "say what is here: engines, launchers, ports, what each can exercise",
		Args:  args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			v, err := diagnose()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(stdout, v)
			}
			fmt.Fprintf(stdout, "kvladder %s\nloopback %s\n\n", v.Version, v.Loopback)
			var rows [][]string
			for _, e := range v.Engines {
				var can []string
				for _, p := range arms.PresetNames() {
					if _, no := e.Cannot[p]; !no && !strings.Contains(p, "-") {
						can = append(can, p)
					}
				}
				rows = append(rows, []string{e.Name, e.What, strings.Join(can, " ")})
			}
			show.Table(stdout, []string{"engine", "found", "arms it can run"}, rows)
			for _, e := range v.Engines {
				if e.NeverRun != "" {
					fmt.Fprintf(stdout, "warning: %s\n", e.NeverRun)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func diagnose() (doctorView, error) {
	cache, err := cacheDir()
	if err != nil {
		return doctorView{}, err
	}
	v := doctorView{Version: toolVersion(), Cache: cache, Loopback: "ok"}
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		v.Loopback = err.Error()
	} else {
		l.Close()
	}
	for _, name := range strings.Split(names(engines), ", ") {
		eng := engines[name]()
		d := doctorEngine{Name: name, Cannot: map[string]string{}}
		for _, p := range arms.PresetNames() {
			if why := eng.Cannot(p); why != "" {
				d.Cannot[p] = why
			}
		}
		spec, err := eng.Spec(eng.Pins(), arms.Address{Host: "127.0.0.1", Port: 1}, arms.Resources{Cache: cache, Self: "kvladder", Store: filepath.Join(os.TempDir(), "store"), Slots: os.TempDir()})
		d.Found, d.What = true, "built in"
		if _, ok := eng.(arms.AttachOnly); ok {
			d.What = "starts nothing: --attach ARM=URL"
		}
		if err != nil {
			d.Found, d.What = false, err.Error()
		}
		for _, f := range spec.Files {
			d.What = "ready"
			if _, err := os.Stat(f); err != nil {
				d.Found, d.What = false, "missing "+f
				break
			}
		}
		if u, ok := eng.(arms.Unrun); ok {
			d.NeverRun = u.NeverRun()
		}
		v.Engines = append(v.Engines, d)
	}
	return v, nil
}
