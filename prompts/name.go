package prompts

import (
	"fmt"
	"strings"
)

// MaxName is the most characters of a name.
const MaxName = 64

// CheckName says what is wrong with the name of a Set, an arm, a dtype or a ladder, and nil
// when nothing is. Names become file names, members of JSON and lines on a terminal: they are
// 1 to MaxName letters, digits, '.', '_' and '-' of ASCII, and begin with a letter, a digit or
// '_', so that none is hidden, leaves its folder, reads as a flag or speaks to a terminal.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("it is empty: use letters, digits, '.', '_' and '-'")
	case len(name) > MaxName:
		return fmt.Errorf("it has %d characters: %d are the most", len(name), MaxName)
	case name[0] == '.' || name[0] == '-':
		return fmt.Errorf("it begins with %q: begin with a letter or a digit", name[0])
	case strings.Contains(name, ".."):
		return fmt.Errorf("it holds %q: use one '.' at a time", "..")
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
		default:
			return fmt.Errorf("it holds %q: use letters, digits, '.', '_' and '-' alone", r)
		}
	}
	return nil
}
