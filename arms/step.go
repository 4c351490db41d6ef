package arms

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Step is one step of an arm's schedule.
type Step struct {
	Do   string   `json:"do"` // one of Steps
	Args []string `json:"args,omitempty"`
	Pass int      `json:"pass,omitempty"` // for replay: which pass of the arm this is, 1-based
}

// The steps a schedule is made of, each with what it does.
var Steps = map[string]string{
	"launch":         "start the process, with other pins where they are named: launch PIN=VALUE...",
	"replay":         "send every prompt of the set, one after another on each client",
	"prime":          "for each prompt: send its prime, then the whole prompt (one pass)",
	"primes":         "send the prime of every prompt that has one, and nothing else",
	"drain":          "wait until the engine's store counters stand still",
	"reset":          "drop the local cache alone",
	"restart":        "stop the process and start it again over the same store: restart PIN=VALUE...",
	"save":           "have the engine write its reuse state (llama-server slots)",
	"restore":        "have the engine read it back",
	"flood":          "send unlike requests until N times the tokens of the reported pool went through it: flood N",
	"expire":         "drop what the external store holds and leave the local cache",
	"evict-rank":     "drop what one rank's store holds: evict-rank K",
	"abort":          "beside the next pass, send N requests and close each connection within MS milliseconds: abort N MS; in lockstep, send the last prompt N times and have the engine take each for closed within K of its steps: abort N K steps",
	"fail-load":      "make the next N loads from the store fail: fail-load N",
	"corrupt":        "flip bytes of a stored file: corrupt FILE OFFSET N",
	"damage":         "change stored values in the engine's own format, so that it takes them: damage WHAT HOW",
	"copy-store":     "copy the store, and use the copy from the next launch on: copy-store NAME",
	"check-identity": "read who answers, and end the arm when it is not the process that was launched",
	"ask-liveness":   "ask one prompt of the set outside of any pass; a wrong answer is a failing row",
	"wait":           "let at least N seconds pass since the arm began: wait N",
	"stop":           "stop the process",
}

// between are the steps that may stand before or after an arm's own requests.
var between = []string{"drain", "reset", "flood", "expire", "evict-rank", "abort", "fail-load", "corrupt", "damage", "copy-store", "check-identity", "ask-liveness", "save", "restore"}

// check says what is wrong with the words of a step, "" when nothing is.
func (s StepLine) check() string {
	most := 1_000_000_000
	if s[0] == "flood" {
		most = 1000 // pools, as the member of that name
	}
	whole := func(least int, at ...int) string {
		if len(s) != 1+len(at) {
			return ""
		}
		for _, i := range at {
			if n, err := strconv.Atoi(s[i]); err != nil || n < least || n > most {
				return fmt.Sprintf("%s: %q is not a whole number from %d to %d", s[0], s[i], least, most)
			}
		}
		return "ok"
	}
	want, found := "", "ok"
	switch s[0] {
	case "flood", "fail-load":
		want, found = "N", whole(1, 1)
	case "evict-rank":
		want, found = "K", whole(0, 1)
	case "abort":
		want = "N MS, or N K steps"
		if found = whole(1, 1, 2); found == "" && inSteps(s[1:]) {
			found = cmp.Or(s[:3].check(), "ok")
		}
	case "corrupt":
		want = "FILE OFFSET N"
		if len(s) != 4 {
			found = ""
		} else if _, err := CorruptRange(s[2], s[3]); err != nil {
			found = s[0] + ": " + err.Error()
		}
	case "damage":
		want = "what to do and how much"
		if len(s) < 2 {
			found = ""
		}
	case "copy-store":
		want = "NAME"
		if len(s) != 2 || strings.ContainsAny(s[1], "/\\.") {
			found = ""
		}
	case "ask-liveness":
		want = "at most one prompt id"
		if len(s) > 2 {
			found = ""
		}
	case "launch", "restart":
		want = "PIN=VALUE pairs"
		for _, w := range s[1:] {
			if name, _, ok := strings.Cut(w, "="); !ok || name == "" {
				found = ""
			}
		}
	default:
		want = "nothing behind it"
		if len(s) > 1 {
			found = ""
		}
	}
	switch found {
	case "ok":
		return ""
	case "":
		return s[0] + " takes " + want
	}
	return found
}

// whileDown parts the steps before a restarted arm's requests: what is done to the store
// while no process has it open, and what needs one.
func whileDown(lines []StepLine) (down, up []StepLine) {
	for _, l := range lines {
		if l[0] == "corrupt" || l[0] == "damage" || l[0] == "copy-store" {
			down = append(down, l)
		} else {
			up = append(up, l)
		}
	}
	return down, up
}

// engineCannot says why an engine cannot do a step, "" when it can.
func engineCannot(eng Engine, line StepLine) string {
	can, lacks := true, ""
	switch line[0] {
	case "damage":
		d, ok := eng.(Damager)
		if !ok {
			return "the format of its store is not known here: corrupt flips bytes"
		}
		return d.CheckDamage(line[1:])
	case "expire":
		_, can = eng.(Expirer)
		lacks = "its store cannot be told to forget"
	case "evict-rank":
		_, can = eng.(RankEvicter)
		lacks = "the store of one rank cannot be told to forget"
	case "fail-load":
		_, can = eng.(LoadFailer)
		lacks = "its loads cannot be made to fail"
	case "flood":
		_, can = eng.(PoolReader)
		lacks = "it does not report the size of its pool, so a flood cannot be sized"
	}
	if can {
		return ""
	}
	return lacks
}

// overrides reads the PIN=VALUE words of a launch.
func overrides(args []string) map[string]string {
	out := map[string]string{}
	for _, w := range args {
		k, v, _ := strings.Cut(w, "=")
		out[k] = v
	}
	return out
}

// betweenOnly refuses steps that would change the schedule of a preset from outside.
func betweenOnly(lines []StepLine) string {
	for _, l := range lines {
		if !slices.Contains(between, l[0]) {
			return fmt.Sprintf("step %q cannot stand there; use one of %s, or write an arm of preset custom", l[0], strings.Join(between, ", "))
		}
	}
	return ""
}

// Range is which bytes of a stored file the step corrupt flips: Count of them from Offset, or
// from that share of the file's size where Share is set, in percent. A negative Offset counts
// from the file's end.
type Range struct {
	Offset, Count int64
	Share         *float64
}

// CorruptRange reads OFFSET and N of the step corrupt.
func CorruptRange(offset, count string) (Range, error) {
	var r Range
	if part, percent := strings.CutSuffix(offset, "%"); percent {
		share, err := strconv.ParseFloat(part, 64)
		if err != nil || !(share >= 0 && share < 100) {
			return r, fmt.Errorf("offset %q is not a percentage below 100", offset)
		}
		r.Share = &share
	} else {
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			return r, fmt.Errorf("offset %q is neither a whole number nor a percentage", offset)
		}
		r.Offset = n
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 || n > 1<<40 {
		return r, fmt.Errorf("count %q is not a positive whole number", count)
	}
	r.Count = n
	return r, nil
}
