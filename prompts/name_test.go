package prompts

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for _, ok := range []string{"a", "C0-split", "fp8", "demo_48.v2", "_x", "9", strings.Repeat("n", MaxName)} {
		if err := CheckName(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a..b", "../a", "a/b", `a\b`, "a b", "a\tb", "a\n", "a\x00", "\x1b[31mred", "a@b", "-n", ".a", "é", "a\xff",
		strings.Repeat("n", MaxName+1)} {
		if err := CheckName(bad); err == nil {
			t.Errorf("%q was taken", bad)
		} else if strings.ContainsAny(err.Error(), "\x1b\x00\n") {
			t.Errorf("%q: the complaint repeats a control character: %q", bad, err)
		}
	}
}
