package server

import (
	"math"
	"testing"
)

// TestShown: what of a growing text may be sent. "é" is c3 a9, "€" e2 82 ac.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		text string
		hold int
		want string
	}{
		{"abc", 0, "abc"},
		{"abc", 2, "a"},
		{"abc", 5, ""},
		{"a\xc3", 0, "a"},
		{"a\xc3\xa9", 0, "aé"},
		{"a\xe2\x82", 0, "a"},
		{"a\xe2\x82\xac", 0, "a€"},
		{"a\xe2\x82\xac", 1, "a"}, // what is left is unfinished again
		{"a\xff", 0, "a\xff"},     // never the start of anything
		{"\xa9", 0, "\xa9"},
	} {
		if got := shown(c.text, c.hold); got != c.want {
			t.Errorf("shown(%q, %d) = %q, want %q", c.text, c.hold, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		-0.10174782046245845: "-0.10174782046245845",
		-1e-9:                "-1e-09",
		0:                    "0",
		math.Inf(-1):         "-9999",
	} {
		if got := string(encode(number(x))); got != want {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
	if got := string(encode(number(math.NaN()))); got != "null" {
		t.Errorf("NaN is written %s", got)
	}
}

// TestRanking keeps the order and drops a second token of the same name.
func TestRanking(t *testing.T) {
	r := ranking{{"b", -1}, {"a", -2}, {"b", -3}, {"<\n", -4}}
	if got, want := string(encode(r)), `{"b":-1,"a":-2,"<\n":-4}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
