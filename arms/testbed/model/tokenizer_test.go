package model

import (
	"slices"
	"strings"
	"testing"
)

func TestEncode(t *testing.T) {
	for text, want := range map[string][]int{
		"": {BOS},
		"note: tag T03 is 772 .\nquestion: tag T03 ?": {256, 381, 389, 335, 614, 265, 55, 50, 392, 10, 383, 389, 335, 391},
		" 4821":   {BOS, 262, '8', '2', '1'},
		"the the": {BOS, 't', 'h', 'e', 396},
		"é\x00":   {BOS, 0xc3, 0xa9, 0},
	} {
		if got := Encode(text); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
}

// TestTokens checks that the strings are distinct but for the comma, which is a
// byte and a mark, and that each is its own encoding, so that every id but BOS,
// EOS and the byte ',' can occur.
func TestTokens(t *testing.T) {
	if len(words) != Vocab-idWord || len(ids) != Vocab-3 {
		t.Fatalf("%d words and %d distinct strings, want %d and %d", len(words), len(ids), Vocab-idWord, Vocab-3)
	}
	for id := range Vocab {
		s := TokenString(id)
		if id == BOS || id == EOS {
			if s != "" {
				t.Errorf("token %d is %q, want nothing", id, s)
			}
		} else if got := Encode(s); id == ',' && slices.Equal(got, []int{BOS, 395}) {
			continue
		} else if !slices.Equal(got, []int{BOS, id}) {
			t.Errorf("token %d is %q, which encodes to %v", id, s, got)
		}
	}
	for id, want := range map[int]string{
		idSpacedDigit + 9: " 9", idKey + 63: " K63", idTag: " T00", idPin + 15: " P15", idMark: "fact:",
		idQuery: " ?", idStop: " .", 395: ",", idWord: " the", idIs: " is", 638: " few", -1: "", Vocab: "",
	} {
		if got := TokenString(id); got != want {
			t.Errorf("token %d is %q, want %q", id, got, want)
		}
	}
}

func TestVocabulary(t *testing.T) {
	for _, w := range Words() {
		if !strings.HasPrefix(w, " ") || len(Encode(w)) != 2 {
			t.Errorf("word %q is not one token with a leading space", w)
		}
	}
	if Key(7) != "K07" || Tag(31) != "T31" || Pin(0) != "P00" {
		t.Error("a name is wrong:", Key(7), Tag(31), Pin(0))
	}
	defer func() {
		if recover() == nil {
			t.Error("Tag(32) gave a name")
		}
	}()
	Tag(Tags)
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "fact: key K07 is 4821 .\n", " K9 K", "\xff\xfe the", strings.Repeat(" question", 3)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Encode(s)
		if Decode(got) != s {
			t.Errorf("%q came back as %q", s, Decode(got))
		}
		if got[0] != BOS || slices.Contains(got[1:], BOS) || slices.Contains(got, EOS) {
			t.Errorf("%q encodes to %v", s, got)
		}
	})
}
