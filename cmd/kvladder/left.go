package main

import (
	"context"
	"slices"
	"strings"

	"kvladder/arms"
	"kvladder/cmd/kvladder/internal/climb"
)

// leftView is something that carries a launcher's label, in the JSON of doctor.
type leftView struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Folder string `json:"folder"` // the run folder it was launched for
	Start  string `json:"start"`
	State  string `json:"state"`
	InUse  bool   `json:"in_use"` // a kvladder climbs in that folder, or that cannot be told
	Ended  bool   `json:"ended"`  // by this call
	Error  string `json:"error"`  // why it could not be ended
}

// leftovers lists what the launchers' processes of this user are, and with clean ends those
// whose run folder nobody climbs in. Everything else on the machine is nobody's business here.
func leftovers(ctx context.Context, clean bool, usable func(launcher string) bool) (out []leftView, problems []string) {
	out, problems = []leftView{}, []string{}
	for _, name := range strings.Split(names(launchers), ", ") {
		l, ok := launchers[name]("").(arms.Labeller)
		if !ok || !usable(name) {
			continue // what does not answer can tell nothing: that it does not is told elsewhere
		}
		left, err := l.Left(ctx)
		if err != nil {
			problems = append(problems, "launcher "+name+": what it left could not be listed: "+err.Error())
			continue
		}
		slices.SortFunc(left, func(a, b arms.Left) int { return strings.Compare(a.Folder+a.ID, b.Folder+b.ID) })
		for _, x := range left {
			v := leftView{Kind: x.Kind, ID: x.ID, Folder: x.Folder, Start: x.Start, State: x.State}
			release, idle := climb.Claim(x.Folder)
			v.InUse = !idle
			if clean && idle {
				if err := x.End(ctx); err != nil {
					v.Error = err.Error()
				} else {
					v.Ended = true
				}
			}
			release()
			out = append(out, v)
		}
	}
	return out, problems
}
