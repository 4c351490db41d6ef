package launch

import (
	"fmt"
	"strings"
)

// words splits a pin into words, which blanks separate. A word may be in single or double
// quotes, or have quoted parts, to hold blanks; there are no escapes and no substitutions:
//
//	python3 -c "import vllm; print(vllm.__file__)"
func words(s string) ([]string, error) {
	var out []string
	var word strings.Builder
	open, in := rune(0), false
	for _, c := range s {
		switch {
		case open != 0:
			if c == open {
				open = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			open, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if open != 0 {
		return nil, fmt.Errorf("%.80q has a quote %c that does not close", s, open)
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}
