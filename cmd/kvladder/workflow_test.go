package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// workflow is the part of a workflow file that a runner executes.
type workflow struct {
	Env  map[string]string `yaml:"env"`
	Jobs map[string]struct {
		Steps []struct {
			Name string `yaml:"name"`
			Run  string `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// job runs the steps of a job of the example as a runner would, in dir and with what env adds,
// until one fails. It returns that step's name, "" where all pass, and all that was printed.
func job(root, name, dir string, env ...string) (failed, all string, err error) {
	b, err := os.ReadFile(filepath.Join(root, "receipts", "examples", "kvladder-gate.yml"))
	if err != nil {
		return "", "", err
	}
	var w workflow
	if err := yaml.Unmarshal(b, &w); err != nil {
		return "", "", err
	}
	ran := 0
	for _, s := range w.Jobs[name].Steps {
		if s.Run == "" {
			continue
		}
		cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", s.Run)
		cmd.Dir, cmd.Env = dir, os.Environ()
		for k, v := range w.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		all += string(out)
		if ran++; err != nil {
			return s.Name, all, nil
		}
	}
	if ran == 0 {
		return "", all, fmt.Errorf("job %q has no step", name)
	}
	return "", all, nil
}

// TestExampleWorkflow runs the gate job of the example as a runner would, with receipts of
// the public report: the patch that made things worse fails the build in its last step, the
// one that healed them passes.
func TestExampleWorkflow(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	old := func(name string) string {
		return filepath.Join(root, "receipts", "testdata", "schema-1", "t1-"+name, "receipt.json")
	}
	changed := filepath.Join(t.TempDir(), "receipt.json")
	for _, end := range []string{"", ".sha256"} {
		b, err := os.ReadFile(old("healed") + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(changed+end, []byte(strings.Replace(string(b), "t1-48", "t1-49", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ patched, fails, says string }{
		{old("healed"), "", "CONFIRMED"},
		{old("patched"), "gate", "REFUTED_WORSE"},
		{old("base"), "gate", "NOT_COMPARABLE"},
		{changed, "verify", "does not hold"},
	} {
		failed, all, err := job(root, "gate", t.TempDir(), "BASE="+old("base"), "PATCHED="+c.patched, "POLICY="+filepath.Join(root, "receipts", "examples", "gate-policy.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if failed != c.fails || !strings.Contains(all, c.says) {
			t.Errorf("%s: failed in step %q, want %q and %q:\n%s", c.patched, failed, c.fails, c.says, all)
		}
	}
}
