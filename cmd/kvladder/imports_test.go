package main

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// floors is the order in which packages may import each other: a floor may import those
// before it and none after it.
var floors = []string{"receipts/digest", "prompts", "probes", "scoring", "arms", "receipts", "cmd"}

type listed struct {
	ImportPath string
	Imports    []string
}

// floorOf is the floor of a package of this module and whether it is the floor's root.
func floorOf(path string) (floor int, root bool) {
	rel := strings.TrimPrefix(path, "kvladder/")
	best := -1
	for i, f := range floors {
		if rel == f || strings.HasPrefix(rel, f+"/") {
			if best < 0 || len(f) > len(floors[best]) {
				best = i
			}
		}
	}
	return best, best >= 0 && rel == floors[best]
}

// verdictOn says what is wrong with one import, "" when nothing is.
func verdictOn(from, to string) string {
	ff, froot := floorOf(from)
	tf, troot := floorOf(to)
	switch {
	case ff < 0 || tf < 0:
		return "is on no floor"
	case tf > ff:
		return "goes up: " + floors[ff] + " may not import " + floors[tf]
	case tf < ff || floors[ff] == "cmd":
		return ""
	case froot && !troot && to != "kvladder/scoring/compare":
		return "is a root that imports its room"
	case !froot && !troot && room(from) != room(to) && !withinTestbed(from, to):
		return "is a room that imports another room"
	}
	return ""
}

// room is the folder of a package below its floor.
func room(path string) string {
	f, _ := floorOf(path)
	rest := strings.TrimPrefix(strings.TrimPrefix(path, "kvladder/"), floors[f]+"/")
	r, _, _ := strings.Cut(rest, "/")
	return r
}

// withinTestbed: the parts of the embedded engine are one room.
func withinTestbed(a, b string) bool { return room(a) == "testbed" && room(b) == "testbed" }

func TestImportsGoOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "kvladder/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen, cobra := 0, 0
	for {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, "kvladder/") {
				if what := verdictOn(p.ImportPath, imp); what != "" {
					t.Errorf("%s imports %s: it %s", p.ImportPath, imp, what)
				}
			}
			for module, only := range onlyImporters {
				if strings.HasPrefix(imp, module) {
					if module == "github.com/spf13/cobra" {
						cobra++
					}
					if !strings.HasPrefix(p.ImportPath+"/", only+"/") {
						t.Errorf("%s imports %s, which belongs to %s alone", p.ImportPath, imp, only)
					}
				}
			}
		}
	}
	if seen < 15 || cobra == 0 {
		t.Fatalf("go list gave %d packages and %d uses of cobra: this test looked at nothing", seen, cobra)
	}
}

// onlyImporters names the one place that may import a library.
var onlyImporters = map[string]string{
	"github.com/olekukonko/tablewriter": "kvladder/cmd/kvladder/internal/show",
	"github.com/sashabaranov/go-openai": "kvladder/probes/replay",
	"github.com/spf13/cobra":            "kvladder/cmd",
	"gonum.org/v1/gonum":                "kvladder/scoring/compare",
}

func TestImportRuleCanFail(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"kvladder/scoring", "kvladder/arms", "goes up"},
		{"kvladder/receipts/digest", "kvladder/receipts", "goes up"},
		{"kvladder/probes", "kvladder/probes/replay", "root that imports its room"},
		{"kvladder/arms/engine", "kvladder/arms/launch", "room that imports another room"},
		{"kvladder/scoring", "kvladder/scoring/detect", "root that imports its room"},
		{"kvladder/scoring", "kvladder/scoring/compare", ""},
		{"kvladder/arms/testbed/server", "kvladder/arms/testbed/model", ""},
		{"kvladder/receipts", "kvladder/receipts/digest", ""},
		{"kvladder/arms", "kvladder/scoring/compare", ""},
		{"kvladder/cmd/kvladder", "kvladder/arms/engine", ""},
	} {
		got := verdictOn(c.from, c.to)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s -> %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
