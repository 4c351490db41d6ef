package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHostileFolders gives the verbs that read what others made folders that were made to
// hurt: each gets one line or a report, an exit code of its own, little memory and no time.
func TestHostileFolders(t *testing.T) {
	old := filepath.Join("..", "..", "receipts", "testdata", "schema-1")
	sound, err := filepath.Abs(filepath.Join(old, "t1-base", "receipt.json"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	receipt := func(dir, text string) {
		path := filepath.Join(dir, "receipt.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%x  receipt.json\n", sha256.Sum256([]byte(text)))
		if err := os.WriteFile(path+".sha256", []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(dir string) {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(old, "clean"))); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dir, name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	const other = `{"_type":"https://in-toto.io/Statement/v1","predicate":{},"predicateType":"https://slsa.dev/provenance/v1","subject":[]}`
	for name, c := range map[string]struct {
		make func(dir string)
		says string // of verify
		exit int    // of verify
	}{
		"nothing":          {func(dir string) {}, "the run was not finished", 3},
		"an empty receipt": {func(dir string) { receipt(dir, "") }, "not canonical JSON", 1},
		"no object":        {func(dir string) { receipt(dir, "[]") }, "not a receipt", 3},
		"another tool's":   {func(dir string) { receipt(dir, other) }, "provenance", 3},
		"a later schema": {func(dir string) {
			receipt(dir, strings.ReplaceAll(string(b), "kvladder/receipt/1", "kvladder/receipt/9"))
		}, "kvladder/receipt/9", 3},
		"a million brackets": {func(dir string) { receipt(dir, strings.Repeat("[", 1_000_000)) }, "not canonical JSON", 1},
		"a million objects":  {func(dir string) { receipt(dir, strings.Repeat(`{"a":`, 1_000_000)) }, "not canonical JSON", 1},
		"a pair of one name": {func(dir string) { receipt(dir, `{"_type":"x","_type":"y"}`) }, "not canonical JSON", 1},
		"no number":          {func(dir string) { receipt(dir, `{"_type":NaN}`) }, "not canonical JSON", 1},
		"a number too large": {func(dir string) { receipt(dir, `{"_type":1e999}`) }, "not canonical JSON", 1},
		"half a character":   {func(dir string) { receipt(dir, `{"_type":"\ud800"}`) }, "not canonical JSON", 1},
		"a receipt of a pipe": {func(dir string) {
			receipt(dir, "{}")
			os.Remove(in(dir, "receipt.json"))
			fifo(t, in(dir, "receipt.json"))
		}, "no regular file", 3},
		"a sidecar of a pipe": {func(dir string) {
			receipt(dir, "{}")
			os.Remove(in(dir, "receipt.json.sha256"))
			fifo(t, in(dir, "receipt.json.sha256"))
		}, "no regular file", 1},
		"a receipt that is a device": {func(dir string) {
			receipt(dir, "{}")
			os.Remove(in(dir, "receipt.json"))
			os.Symlink("/dev/zero", in(dir, "receipt.json"))
		}, "no regular file", 3},
		"a receipt of a terabyte":  {func(dir string) { receipt(dir, "{}"); os.Truncate(in(dir, "receipt.json"), 1<<40) }, "are the most", 3},
		"a sidecar of a terabyte":  {func(dir string) { receipt(dir, "{}"); os.Truncate(in(dir, "receipt.json.sha256"), 1<<40) }, "are the most", 1},
		"a signature of a pipe":    {func(dir string) { whole(dir); fifo(t, in(dir, "receipt.dsse.json")) }, "no regular file", 1},
		"a cosignature of a pipe":  {func(dir string) { whole(dir); fifo(t, in(dir, "ledger.cosigned")) }, "no regular file", 1},
		"a pipe among the logs":    {func(dir string) { whole(dir); fifo(t, in(dir, "logs/x.log")) }, "not a regular file", 1},
		"a link out of the folder": {func(dir string) { whole(dir); os.Symlink("/etc/passwd", in(dir, "logs/x.log")) }, "not a regular file", 1},
		"a folder that is a link":  {func(dir string) { whole(dir); os.Symlink("/", in(dir, "objects/root")) }, "not a regular file", 1},
		"a link in place of the log": {func(dir string) {
			whole(dir)
			os.Remove(in(dir, "logs/warm.log"))
			os.Symlink("warm", in(dir, "logs/warm.log"))
		}, "not a regular file", 1},
		"a path out of the folder": {func(dir string) {
			whole(dir)
			rewrite(t, dir, receipt, `"name":"logs/warm.log"`, `"name":"logs/../../../etc/passwd"`)
		}, "it is missing", 1},
		"an absolute path": {func(dir string) {
			whole(dir)
			rewrite(t, dir, receipt, `"name":"logs/warm.log"`, `"name":"/etc/passwd"`)
		}, "it is missing", 1},
		"an object's path": {func(dir string) {
			whole(dir)
			rewrite(t, dir, receipt, `"name":"objects/sha256/`, `"name":"objects/sha256/../`)
		}, "named by its digest", 1},
		"a count of requests": {func(dir string) { whole(dir); rewrite(t, dir, receipt, `"arm_only":0`, `"arm_only":9007199254740991`) }, "there are 4 outcomes", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(dir)
			code, out, errs := bounded(t, "verify", dir)
			if code != c.exit || !strings.Contains(out+errs, c.says) || len(out+errs) > 20000 {
				t.Errorf("verify: exit %d, want %d and %q:\n%.2000s%.2000s", code, c.exit, c.says, out, errs)
			}
			for _, args := range [][]string{{"show", dir}, {"diff", sound, dir}, {"diff", dir, sound, sound}, {"gate", "--base", dir, "--patched", sound},
				{"gate", "--base", sound, "--patched", sound, "--reverted", dir}, {"audit", dir}} {
				code, out, errs := bounded(t, args...)
				refused := code == 3 && out == "" && strings.Count(errs, "\n") == 1 && strings.HasPrefix(errs, "error: ")
				read := strings.Contains(c.says, "regular file") || c.exit == 1 // the receipt itself can be read
				if !refused && !(read && code <= 3) && args[0] != "audit" || len(errs) > 2000 || strings.Contains(errs, "panic") || strings.Contains(errs, "goroutine ") {
					t.Errorf("%v: exit %d\n%.2000s%.2000s", args, code, out, errs)
				}
			}
		})
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{"": "it is empty", strings.Repeat("[", 1_000_000): "are the most", strings.Repeat("[", 60_000): "nested deeper", strings.Repeat("- ", 30_000): "nested deeper", "a: &a [*a, *a]": "", "schema: kvladder/policy/1\nschema: x": "", strings.Repeat(" ", 2<<20): "are the most"} {
		os.WriteFile(policy, []byte(text), 0o644)
		code, out, errs := bounded(t, "gate", "--base", sound, "--patched", sound, "--policy", policy)
		if code != 3 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("policy %.20q: exit %d\n%.500s%.500s", text, code, out, errs)
		}
	}
}

// rewrite changes the first occurrence of a text in a folder's receipt, under a digest that fits.
func rewrite(t *testing.T, dir string, receipt func(dir, text string), old, new string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "receipt.json"))
	if err != nil || !strings.Contains(string(b), old) {
		t.Fatalf("%q is not in the receipt (%v)", old, err)
	}
	receipt(dir, strings.Replace(string(b), old, new, 1))
}

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// bounded runs the program and asks that it ends by itself and stays small.
func bounded(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	code, stdout, stderr, mib := measured(t, args...)
	if mib > 512 {
		t.Errorf("%v held %.0f MiB", args, mib)
	}
	return code, stdout, stderr
}

// measured runs the program, which must end within a quarter of an hour, and says how much
// memory it held at most.
func measured(tb testing.TB, args ...string) (code int, stdout, stderr string, mib float64) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	var o, e strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		code = exitCode(err)
	}
	if ctx.Err() != nil {
		tb.Fatalf("%v does not end", args)
	}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		mib = float64(ru.Maxrss) / 1024
	}
	return code, o.String(), e.String(), mib
}
