package scoring

import (
	"math/big"
	"regexp"
	"strings"

	"kvladder/prompts"
)

var integers = regexp.MustCompile(`[+-]?[0-9]+`)

// AnswerRight says whether text gives the needle's answer, by its match mode:
//
//   - "": the whole text, without surrounding white space, is the answer
//   - "field": the first line "<key>=<value>" has the answer as value, without
//     surrounding quotes, letter case ignored
//   - "ints": that line's value holds the same integers in the same order,
//     leading zeros ignored
//
// An unknown mode matches nothing: a wrong answer is seen, a wrong rule must be too.
func AnswerRight(n prompts.Needle, text string) bool {
	switch n.Match {
	case "":
		return strings.TrimSpace(text) == strings.TrimSpace(n.Answer)
	case "field":
		v, ok := field(text, n.Key)
		return ok && strings.EqualFold(v, unquote(n.Answer))
	case "ints":
		v, ok := field(text, n.Key)
		return ok && sameIntegers(v, n.Answer)
	}
	return false
}

// field is the value of the first line "key=value" of text.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, "=")
		if ok && strings.EqualFold(strings.TrimSpace(name), key) {
			return unquote(value), true
		}
	}
	return "", false
}

func unquote(s string) string {
	return strings.TrimSpace(strings.Trim(strings.TrimSpace(s), "\"'`"))
}

func sameIntegers(a, b string) bool {
	x, y := integers.FindAllString(a, -1), integers.FindAllString(b, -1)
	if len(x) != len(y) || len(x) == 0 {
		return false
	}
	for i := range x {
		p, ok := new(big.Int).SetString(x[i], 10)
		q, ok2 := new(big.Int).SetString(y[i], 10)
		if !ok || !ok2 || p.Cmp(q) != 0 {
			return false
		}
	}
	return true
}
