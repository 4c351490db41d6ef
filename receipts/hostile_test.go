package receipts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// variants calls visit with the document once for every member of it and every wrong value
// that the member can be given. Of a list the first two elements are visited.
func variants(doc any, visit func(what string, doc any)) {
	wrong := []any{nil, true, -1, 9007199254740991, 1e300, "", "x", []any{}, map[string]any{}, []any{nil}, []any{map[string]any{}, map[string]any{}}}
	var walk func(path string, v any, put func(any))
	walk = func(path string, v any, put func(any)) {
		for _, w := range wrong {
			put(w)
			visit(fmt.Sprintf("%s = %v", path, w), doc)
		}
		put(v)
		switch x := v.(type) {
		case map[string]any:
			for _, k := range sortedKeys(x) {
				old := x[k]
				delete(x, k)
				visit(path+"."+k+" taken away", doc)
				x[k] = old
				walk(path+"."+k, old, func(w any) { x[k] = w })
			}
		case []any:
			for i := range min(2, len(x)) {
				walk(fmt.Sprintf("%s[%d]", path, i), x[i], func(w any) { x[i] = w })
			}
		}
	}
	root := doc.(map[string]any)
	for _, k := range sortedKeys(root) {
		walk(k, root[k], func(w any) { root[k] = w })
	}
}

// shortened keeps the first few elements of every list.
func shortened(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			x[k] = shortened(x[k])
		}
	case []any:
		x = x[:min(len(x), 3)]
		for i := range x {
			x[i] = shortened(x[i])
		}
		return x
	}
	return v
}

// A receipt of which one member is anything at all, under a digest that fits: whoever reads
// it says what is wrong or compares what is there, in no time, and none comes to grief.
func TestAnyMemberMayBeAnything(t *testing.T) {
	set := testSet(2)
	amended, plan, _, err := amendedRun(t, 3, predictSix)
	if err != nil {
		t.Fatal(err)
	}
	sealAmended(t, amended, plan)
	sound := must(Open(sealed(t, testPlan(set), set)))
	dir := t.TempDir()
	file := filepath.Join(dir, ReceiptFile)
	n, held := 0, 0
	stride := 31 // KVLADDER_ALL=1 reads every one
	if os.Getenv("KVLADDER_ALL") != "" {
		stride = 1
	}
	for _, from := range []string{"testdata/schema-1/t1-patched", amended} {
		var doc any
		if err := json.Unmarshal(must(os.ReadFile(filepath.Join(from, ReceiptFile))), &doc); err != nil {
			t.Fatal(err)
		}
		original := must(Open(from))
		visited := 0
		variants(shortened(doc), func(what string, doc any) {
			if visited++; visited%stride > 0 {
				return
			}
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%s, %s: %v\n%s", from, what, r, debug.Stack())
				}
			}()
			n++
			b, err := digest.Canonical(doc)
			if err != nil {
				t.Fatal(err)
			}
			os.WriteFile(file, b, 0o644)
			os.WriteFile(file+".sha256", []byte(digest.Of(b).Hex()+"  receipt.json\n"), 0o644)
			start := time.Now()
			if rep := Verify(file, testChecker); rep.OK {
				held++
			} else if rep.Exit != scoring.ExitCorrupt && rep.Exit != scoring.ExitInvalid || len(rep.Problems) == 0 || len(rep.Problems) > 10000 {
				t.Errorf("%s: exit %d, %d problems", what, rep.Exit, len(rep.Problems))
			}
			if r, err := Open(file); err == nil {
				other := original
				if visited%2 > 0 {
					other = sound
				}
				Gate(other, r)
				GateReverted(r, other, r)
				Trend(r, other, r)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("%s: %v", what, d)
			}
		})
	}
	t.Logf("%d receipts, %d of them hold", n, held)
	if n < 400 {
		t.Errorf("only %d receipts were read", n)
	}
}

// Counts that no arm can have are refused before anything is computed from them.
func TestCountsThatCannotBe(t *testing.T) {
	set := testSet(4)
	check := func(member, want string, change func(a *scoring.ArmResult)) {
		t.Helper()
		dir := sealed(t, testPlan(set), set, "WARM/p2")
		reseal(t, dir, func(r *Receipt) { change(&r.Predicate.Result.Arms[1]) })
		rep := Verify(filepath.Join(dir, ReceiptFile), testChecker)
		found := false
		for _, p := range rep.Problems {
			found = found || strings.HasSuffix(p.Path, member) && strings.Contains(p.What, want)
		}
		if !found {
			t.Errorf("%s: %+v, want %q", member, rep.Problems, want)
		}
	}
	check(".arm_only", "there are 4 outcomes", func(a *scoring.ArmResult) { a.ArmOnly, a.ControlOnly = ptr(1<<53), ptr(1<<53) })
	check(".exceedance_k", "cannot be", func(a *scoring.ArmResult) { a.ExceedanceK = ptr(1 << 53) })
	check(".p_exceedance", "no count of values", func(a *scoring.ArmResult) { a.ExceedanceK, a.FloorM = ptr(4), ptr(1<<53) })

	l := &scoring.ArmResult{Lifetime: map[string]any{"events": 1e300, "requests": 10.0}}
	if _, ok := lifetimeOf(l, "requests"); ok {
		t.Error("1e300 deaths were counted")
	}
}

func TestReadsNoMoreThanItCan(t *testing.T) {
	dir := t.TempDir()
	check := func(want string, path string) {
		t.Helper()
		if _, err := readFile(path, 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	check("no regular file", "/dev/zero")
	check("no regular file", dir)
	big := filepath.Join(dir, "big")
	os.WriteFile(big, nil, 0o644)
	if b, err := readFile(big, 8); err != nil || len(b) != 0 {
		t.Error(err)
	}
	os.Truncate(big, 9)
	check("8 are the most", big)
	long := filepath.Join(dir, LedgerFile)
	os.WriteFile(long, nil, 0o644)
	os.Truncate(long, mostLine+1)
	if _, err := ReadLedger(long); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless line: %v", err)
	}
	if _, err := LedgerTree(long); err == nil {
		t.Error("an endless line has a place in a tree")
	}
}
