package digest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Numbers of RFC 8785, appendix B, and a few on the edges of its notations.
func TestCanonicalNumbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0",
		0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		b, err := Canonical(math.Float64frombits(bits))
		if err != nil || string(b) != want {
			t.Errorf("%016x: %s (%v), want %s", bits, b, err, want)
		}
	}
}

func raw(s string) any { return json.RawMessage(s) }

func TestCanonicalDocuments(t *testing.T) {
	check := func(in, want string) {
		t.Helper()
		b, err := Canonical(raw(in))
		if err != nil || string(b) != want {
			t.Errorf("%s: %s (%v), want %s", in, b, err, want)
		}
		if again, err := Canonical(raw(string(b))); err != nil || string(again) != string(b) {
			t.Errorf("%s is no fixed point: %s (%v)", b, again, err)
		}
	}
	digestOf := func(in, want string) {
		t.Helper()
		b, err := Canonical(raw(in))
		if got := Of(b).Hex(); err != nil || got != want {
			t.Errorf("%s: digest %s of %s (%v), want %s", in, got, b, err, want)
		}
	}
	check(`[-0,1e21,1e-7,9007199254740993,18446744073709551615,0.1,1.0,-1.5E+3]`, `[0,1e+21,1e-7,9007199254740992,18446744073709552000,0.1,1,-1500]`)
	// RFC 8785, section 3.2.2, and its example of sorting in 3.2.3 (UTF-16 code units: U+1F600 before U+FB33).
	digestOf(`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
		"2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb")
	digestOf(`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
		"5e321556d22018a9656991a9e94f77ec175fa193e52a2429d312f8419ec8b08c")
	// No Unicode normalisation: a composed letter and its parts are two names.
	check("{\"e\\u0301\":1,\"\u00e9\":2}", "{\"e\u0301\":1,\"\u00e9\":2}")
	check(`{"b":1,"a":{"d":1,"c":[]}}`, `{"a":{"c":[],"d":1},"b":1}`)
	check(`"<>&\u2028"`, "\"<>&\u2028\"")
}

func TestCanonicalRefuses(t *testing.T) {
	for _, in := range []string{`{"a":1,"a":2}`, `"\ud800"`, `NaN`, `1e999`, `01`, `0x10`, `+1`, `.5`, ``, `{}{}`} {
		if b, err := Canonical(raw(in)); err == nil {
			t.Errorf("%s became %s", in, b)
		}
	}
	for _, v := range []any{math.NaN(), math.Inf(1), map[int]any{1: func() {}}} {
		if b, err := Canonical(v); err == nil {
			t.Errorf("%v became %s", v, b)
		}
	}
}

func TestDigest(t *testing.T) {
	if Of(nil) != OfNothing || !Of([]byte{}).Empty() || Of([]byte("x")).Empty() {
		t.Error("the digest of nothing")
	}
	// FIPS 180-2, appendix B.1.
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if d := Of([]byte("abc")); d.Hex() != abc || d.Short() != abc[:12] || Digest("sha256:abc").Short() != "abc" {
		t.Errorf("abc: %s", d)
	}
	if d, n, err := FromReader(strings.NewReader("abc")); err != nil || n != 3 || d.Hex() != abc {
		t.Errorf("reader: %s %d %v", d, n, err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	if d, n, err := OfFile(path); err != nil || n != 3 || d.Hex() != abc {
		t.Errorf("file: %s %d %v", d, n, err)
	}
	if _, _, err := OfFile(path + "x"); err == nil {
		t.Error("a file that is not there has a digest")
	}
	if d, b, err := OfJSON(map[string]int{"b": 1, "a": 2}); err != nil || string(b) != `{"a":2,"b":1}` || d != Of(b) {
		t.Errorf("json: %s %s %v", d, b, err)
	}
}

func TestParse(t *testing.T) {
	if d, err := Parse(string(OfNothing)); err != nil || d != OfNothing {
		t.Errorf("%s %v", d, err)
	}
	check := func(s, want string) {
		t.Helper()
		if _, err := Parse(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", s, err, want)
		}
	}
	check(OfNothing.Hex(), "does not begin with")
	check(string(OfNothing)[:70], "is not 64")
	check(strings.ToUpper(string(OfNothing)), "does not begin with")
	check("sha256:"+strings.ToUpper(OfNothing.Hex()), "is not 64 lower-case")
	check("sha256:"+strings.Repeat("g", 64), "is not hexadecimal")
}
