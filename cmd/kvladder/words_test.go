package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Words that mean nothing are refused at once and in one short line.
func TestWordsThatMeanNothing(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(long, []byte("ladder: x\n"+strings.Repeat("y", 300_000)+": 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"testbed", "bogus"}, "testbed takes serve, got 1 arguments"},
		{[]string{"selftest", "--healthy", "-1"}, "--healthy -1"},
		{[]string{"selftest", "--parallel", "0"}, "--parallel 0"},
		{[]string{"plan", long}, " ... "},
	} {
		code, out, errs := kvladder(t, c.args...)
		if code != 3 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) || len(errs) > 5000 {
			t.Errorf("%.60q: exit %d, %.100q, %.300q", c.args, code, out, errs)
		}
	}
	if code, out, _ := kvladder(t, "testbed"); code != 0 || !strings.Contains(out, "serve") {
		t.Errorf("testbed alone: exit %d, %.200q", code, out)
	}
}
