package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kvladder/arms"
	"kvladder/arms/launch"
	"kvladder/cmd/kvladder/internal/show"
)

// doctorView is the JSON document of `kvladder doctor`.
type doctorView struct {
	Version   string           `json:"version"`
	Cache     string           `json:"cache"`
	Loopback  string           `json:"loopback"` // "ok" or why not
	Engines   []doctorEngine   `json:"engines"`
	Launchers []doctorLauncher `json:"launchers"`
	Left      []leftView       `json:"left"` // what the launchers of killed climbs left running
	Warnings  []string         `json:"warnings"`
}

// doctorLauncher is a launcher and what it works with. What was found was asked, not guessed.
type doctorLauncher struct {
	Name   string `json:"name"`
	With   string `json:"with"`   // the program that it calls
	Usable bool   `json:"usable"` //
	What   string `json:"what"`   // its version, or why it cannot be used
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
	var asJSON, clean bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "say what is here: engines, launchers, ports, what each can exercise",
		Long: `doctor says what is here: engines, launchers, ports, and what each can exercise.

Containers and jobs outlive a climb that is killed. They carry a label, and doctor lists them;
with --clean it ends those whose run folder nobody climbs in. What carries no label of
kvladder's, or is another user's, it neither lists nor touches.`,
		Args: args(cobra.NoArgs, "only flags"),
		RunE: func(cmd *cobra.Command, a []string) error {
			v, err := diagnose(cmd.Context(), clean)
			if err != nil {
				return err
			}
			var failed error
			for _, x := range v.Left {
				if x.Error != "" {
					failed = fmt.Errorf("%s %s could not be ended: %s", x.Kind, x.ID, x.Error)
				}
			}
			if asJSON {
				return errors.Join(printJSON(stdout, v), failed)
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
			showLaunchers(stdout, v)
			return failed
		},
	}
	cmd.Flags().BoolVar(&clean, "clean", false, "end what killed climbs have left running")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// showLaunchers prints launchers and what they left, for people.
func showLaunchers(w io.Writer, v doctorView) {
	var rows [][]string
	for _, l := range v.Launchers {
		usable := "no"
		if l.Usable {
			usable = "yes"
		}
		rows = append(rows, []string{l.Name, l.With, usable, l.What})
	}
	fmt.Fprintln(w)
	show.Table(w, []string{"launcher", "with", "usable", "found"}, rows)
	for _, what := range v.Warnings {
		fmt.Fprintf(w, "warning: %s\n", what)
	}
	if len(v.Left) == 0 {
		return
	}
	rows = nil
	hint := false
	for _, x := range v.Left {
		what := "left"
		switch {
		case x.Error != "":
			what = "could not be ended: " + x.Error
		case x.Ended:
			what = "ended"
		case x.InUse:
			what = "in use"
		default:
			hint = true
		}
		rows = append(rows, []string{x.Kind, x.ID[:min(12, len(x.ID))], x.Start, x.State, x.Folder, what})
	}
	fmt.Fprintln(w)
	show.Table(w, []string{"launched", "id", "start", "state", "for", "is"}, rows)
	if hint {
		fmt.Fprintln(w, "hint: kvladder doctor --clean ends what is left")
	}
}

func diagnose(ctx context.Context, clean bool) (doctorView, error) {
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
	self, err := selfPath()
	if err != nil {
		return doctorView{}, err
	}
	for _, name := range strings.Split(names(engines), ", ") {
		eng := engines[name]()
		d := doctorEngine{Name: name, Cannot: map[string]string{}}
		for _, p := range arms.PresetNames() {
			if why := eng.Cannot(p); why != "" {
				d.Cannot[p] = why
			}
		}
		spec, err := eng.Spec(eng.Pins(), arms.Address{Host: "127.0.0.1", Port: 1}, arms.Resources{Cache: cache, Self: self, Store: filepath.Join(os.TempDir(), "store"), Slots: os.TempDir()})
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
	for _, l := range []struct {
		name, with string
		version    func() (string, error)
	}{
		{"attach", "", func() (string, error) { return "built in: --attach ARM=URL", nil }},
		{"container", "docker", func() (string, error) { return launch.RuntimeVersion(ctx, "docker") }},
		{"container", "podman", func() (string, error) { return launch.RuntimeVersion(ctx, "podman") }},
		{"local", "", func() (string, error) { return "built in", nil }},
		{"slurm", "sbatch", func() (string, error) { return launch.SlurmVersion(ctx) }},
	} {
		d := doctorLauncher{Name: l.name, With: l.with}
		version, err := l.version()
		if d.Usable, d.What = err == nil, version; err != nil {
			d.What = err.Error()
		}
		v.Launchers = append(v.Launchers, d)
	}
	v.Left, v.Warnings = leftovers(ctx, clean, func(name string) bool {
		return slices.ContainsFunc(v.Launchers, func(l doctorLauncher) bool { return l.Name == name && l.Usable })
	})
	return v, nil
}
