package audit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var floorMissing = Lint{
	Code:  "FLOOR_MISSING",
	Title: "arms are compared and no arm shows what two equal servers differ by",
	Explain: `Two processes of one configuration do not give the same numbers, and often not the same
texts: kernels depend on how requests are batched and split. How far apart two equal servers
lie is the floor; a difference below it is no difference. Here arms are compared and none of
them is a second process of the control.

Differences of texts or log probabilities between these arms cannot be judged. Wrong answers
still can, request by request. A floor is the control once more, in a new process.`,
	Look: func(e *Evidence) []Finding {
		arms := e.arms()
		floor := false
		controls := map[string]bool{}
		var names []string
		for _, a := range arms {
			if !slices.Contains(names, a.name) {
				names = append(names, a.name)
			}
			all := a.name + " " + a.about + " " + a.at.text("role", "kind", "preset")
			floor = floor || floorWords.MatchString(all)
			if controlWords.MatchString(all) {
				controls[a.name] = true
			}
		}
		e.values(func(_ *File, v *Value) { floor = floor || strings.Contains(strings.ToLower(v.Key), "floor") })
		if floor || len(names) < 2 || len(controls) > 1 {
			return nil
		}
		a := arms[0]
		return []Finding{at(a.file, a.at, fmt.Sprintf("no floor arm: %d arms (%s) and none is a second process of the control", len(names), strings.Join(names, ", ")))}
	},
	Fires:  map[string]string{"ladder.json": `{"arms": {"L0": {"description": "control, no connector"}, "L1": {"description": "store attached"}}}`},
	Silent: map[string]string{"ladder.json": `{"arms": {"L0": {"description": "control, no connector"}, "L0-again": {"description": "the same in a new process"}, "L1": {"description": "store attached"}}}`},
}

var (
	floorWords   = regexp.MustCompile(`(?i)\b(floor|noise[ _-]?band|again|repeat|rerun|second control|control[ _-]?(2|b|two)|c0[ _-]?(b|c|2|3|late|split))\b`)
	controlWords = regexp.MustCompile(`(?i)\b(control|baseline)\b`)
)
