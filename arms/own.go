package arms

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kvladder/scoring"
)

// needsC1 says whether an arm with a process of its own is judged against C1 or its twin in
// C1's process.
func needsC1(e Entry) bool {
	return e.Preset == "CONC" || e.Preset == "SOAK" || e.Preset == "custom" && strings.HasPrefix(e.Reference, "C1")
}

// cannot says why the engine cannot run an entry, "" when it can: its preset, the preset
// that it is based on, its steps, its identities.
func (r *resolver) cannot(e *Entry) string {
	ask := []string{e.Preset}
	if e.Preset == "CONC" || e.Preset == "SOAK" {
		ask = append(ask, e.base())
	}
	if e.Preset == "custom" {
		ask = nil
	}
	for _, p := range ask {
		if why := r.eng.Cannot(p); why != "" {
			return why
		}
	}
	var steps []StepLine
	for _, lines := range [][]StepLine{e.Before, e.After, e.Steps} {
		steps = append(steps, lines...)
	}
	if e.Preset == "PRESS" || e.Preset == "C0-late" {
		steps = append(steps, StepLine{"flood"})
	}
	for _, line := range steps {
		if why := engineCannot(r.eng, line); why != "" {
			return "step " + line[0] + ": " + why
		}
	}
	if e.Preset == "XID" && e.Identity != "config" {
		id, ok := r.eng.(Identifier)
		if !ok {
			return "its requests carry no " + e.Identity
		}
		if why := id.CannotIdentify(e.Identity); why != "" {
			return why
		}
	}
	return ""
}

// timetable writes the steps of one chain.
type timetable struct {
	chain       *Chain
	arm         *scoring.ArmSpec
	concurrency int
}

func (t *timetable) do(words ...string) {
	t.chain.Steps = append(t.chain.Steps, ChainStep{Do: words[0], Arm: t.arm.Name, Args: words[1:], Concurrency: t.concurrency})
}

// diff is a step that the reference does not have.
func (t *timetable) diff(words ...string) {
	t.do(words...)
	t.arm.ScheduleDiff = append(t.arm.ScheduleDiff, strings.Join(words, " "))
}

func (t *timetable) lines(ls []StepLine) {
	for _, l := range ls {
		t.diff(l...)
	}
}

// pass sends the set; the arm has one pass more.
func (t *timetable) pass(do string) int {
	t.arm.Passes++
	t.chain.Steps = append(t.chain.Steps, ChainStep{Do: do, Arm: t.arm.Name, Pass: t.arm.Passes, Concurrency: t.concurrency})
	return t.arm.Passes
}

// begin opens a chain of one arm.
func begin(a *scoring.ArmSpec, g Dtype, concurrency int) *timetable {
	a.Chain, a.Process, a.Passes = a.Name, a.Name, 0
	if concurrency > 1 {
		a.Concurrency = concurrency
	}
	return &timetable{chain: &Chain{Name: a.Name, Group: g.Name, Arms: []string{a.Name}}, arm: a, concurrency: concurrency}
}

// end closes a chain and takes it and its arm into the plan.
func (r *resolver) end(t *timetable) {
	t.do("stop")
	r.plan.Design.Arms = append(r.plan.Design.Arms, *t.arm)
	r.plan.Chains = append(r.plan.Chains, *t.chain)
}

// concTwins adds the twins of the CONC arms to the process of a control: the same clients,
// without the connector.
func (r *resolver) concTwins(g Dtype, suffix, preset, process string, i int, split bool, base Entry, own []Entry, ch *Chain) error {
	for _, e := range own {
		if e.Preset != "CONC" {
			continue
		}
		tn := preset + "-CONC"
		p := presets[tn]
		if preset == "C1" {
			p.reference, p.refPass = "C0-"+e.Name, 1
		}
		a, err := r.armOf(g, process+"-"+e.Name+suffix, tn, p, Entry{Name: process + "-" + e.Name, Pins: base.Pins, at: e.at}, suffix)
		if err != nil {
			return err
		}
		a.Chain, a.Process, a.Concurrency = ch.Name, ch.Name, e.Concurrency
		t := &timetable{chain: ch, arm: &a, concurrency: e.clients()}
		do := "replay"
		if preset == "C1" {
			switch e.base() {
			case "COLD":
				t.do("reset")
			case "PART":
				t.do("reset")
				do = "prime"
			}
		}
		if e.base() == "PART" {
			do = "prime"
		}
		pass := t.pass(do)
		if preset == "C1" {
			a.Judge = pass
		}
		if i > 0 {
			r.floor(&a, preset+"-"+e.Name+suffix, split)
		}
		ch.Arms = append(ch.Arms, a.Name)
		r.plan.Design.Arms = append(r.plan.Design.Arms, a)
	}
	return nil
}

// families adds the twins that need a process of their own: PRESS has another pool, XID
// other requests before its pass.
func (r *resolver) families(g Dtype, suffix string, e Entry, c0, c1 int) error {
	twin := func(base string, n int, p preset, write func(t *timetable)) error {
		for i := range n {
			name, split := base+"-"+e.Name, false
			if i > 0 {
				name = fmt.Sprintf("%s-%d", name, i+1)
			}
			if base == "C0" && n >= 2 && i == n-1 {
				name, split = base+"-"+e.Name+"-split", true
			}
			a, err := r.armOf(g, name+suffix, base+"-"+e.Preset, p, Entry{Name: name, Preset: base + "-" + e.Preset, Pins: e.Pins, at: e.at}, suffix)
			if err != nil {
				return err
			}
			t := begin(&a, g, e.Concurrency)
			write(t)
			if i > 0 {
				r.floor(&a, base+"-"+e.Name+suffix, split)
			}
			r.end(t)
		}
		return nil
	}
	switch e.Preset {
	case "PRESS":
		write := func(t *timetable) {
			t.do("launch")
			t.pass("replay")
			t.do("flood", e.floods())
			if pass := t.pass("replay"); t.arm.Role == scoring.Judged {
				t.arm.Judge = pass
			}
		}
		if err := twin("C0", c0, presets["C0-PRESS"], write); err != nil {
			return err
		}
		p := presets["C1-PRESS"]
		p.reference, p.refPass = "C0-"+e.Name, 2
		return twin("C1", c1, p, write)
	case "XID":
		if e.Identity != "config" && !r.hasCross() {
			return r.fail("arm %s needs prompts whose prime is all of them under another identity, set %s has none: freeze an xid set", e.Name, r.s.Name)
		}
		p := presets["C1-XID"]
		p.reference, p.refPass = "C0", 2
		return twin("C1", c1, p, func(t *timetable) {
			t.arm.Identity = e.Identity
			t.do("launch")
			if e.Identity != "config" {
				t.diff("primes")
			}
			t.arm.Judge = t.pass("replay")
			if e.Identity == "config" {
				t.pass("replay")
			}
		})
	}
	return nil
}

// late is C0 on a fresh pool, and again after several pool sizes went through it.
func (r *resolver) late(g Dtype, suffix string, e Entry) error {
	early, err := r.arm(g, "C0-early"+suffix, "C0-early", Entry{Name: "C0-early", Pins: e.Pins, at: e.at}, suffix)
	if err != nil {
		return err
	}
	late, err := r.arm(g, e.Name+suffix, "C0-late", e, suffix)
	if err != nil {
		return err
	}
	t := begin(&early, g, e.Concurrency)
	early.Chain, early.Process = late.Name, late.Name
	t.chain.Name, t.chain.Arms = late.Name, []string{early.Name, late.Name}
	t.do("launch")
	t.pass("replay")
	r.plan.Design.Arms = append(r.plan.Design.Arms, early)
	late.Chain, late.Process = late.Name, late.Name
	t.arm = &late
	t.diff("flood", e.floods())
	t.lines(e.Before)
	t.pass("replay")
	t.lines(e.After)
	r.end(t)
	return nil
}

// clients is how many send a pass. CONC has to show that n requests ran at once, and a gauge
// that is read now and then hardly ever meets the moment when all of n clients have one
// running: half as many more send, or as many as the file states.
func (e *Entry) clients() int {
	if e.Clients > 0 {
		return e.Clients
	}
	if e.Preset == "CONC" {
		return e.Concurrency + (e.Concurrency+1)/2
	}
	return e.Concurrency
}

// floods is how many pool sizes are sent; C0-late sends several.
func (e *Entry) floods() string {
	switch {
	case e.Flood > 0:
		return strconv.Itoa(e.Flood)
	case e.Preset == "C0-late":
		return "3"
	}
	return "1"
}

// ownChain writes the chain of a connector arm that shares its process with no other.
func (r *resolver) ownChain(g Dtype, suffix string, e Entry) error {
	p := presets[e.Preset]
	switch e.Preset {
	case "PRESS":
		p.reference, p.refPass = "C1-"+e.Name, 2
	case "CONC":
		b := presets[e.base()]
		p.reference, p.refPass, p.path, p.exercise = "C1-"+e.Name, 1, b.path, b.exercise
	case "XID":
		p.reference, p.refPass = "C1-"+e.Name, 1
	case "SOAK":
		b := presets[e.base()]
		p.reference, p.refPass, p.path, p.exercise = b.reference, b.refPass, b.path, b.exercise
	case "custom":
		p = preset{config: e.Config, role: scoring.Judged, path: e.Path, exercise: e.Exercise, reference: e.Reference, refPass: max(1, e.ReferencePass)}
	}
	a, err := r.armOf(g, e.Name+suffix, e.Preset, p, e, suffix)
	if err != nil {
		return err
	}
	a.FailLoads = failLoads(append(append([]StepLine{}, e.Before...), e.Steps...))
	t := begin(&a, g, e.clients())
	if e.Concurrency > 0 {
		a.Concurrency = e.Concurrency
	}
	a.Connector = p.config == "store"
	switch e.Preset {
	case "custom":
		err = r.custom(t, e)
	case "PRESS":
		t.do("launch")
		t.pass("replay")
		t.do("flood", e.floods())
		t.diff("drain")
		t.lines(e.Before)
		a.Judge = t.pass("replay")
	case "XID":
		a.Identity = e.Identity
		err = r.xid(t, e)
	case "CONC":
		r.based(t, e, 1)
	case "SOAK":
		r.based(t, e, e.Passes)
		if e.Stop != nil {
			a.Stop = e.Stop.stop(a.Passes - e.Passes + 1)
		}
	}
	if err != nil {
		return err
	}
	if e.Preset != "custom" {
		t.lines(e.After)
	}
	r.end(t)
	return nil
}

// xid: what identity A stored, asked by identity B and then by A again.
func (r *resolver) xid(t *timetable, e Entry) error {
	if e.Identity != "config" {
		t.do("launch")
		t.do("primes")
		t.diff("drain")
		t.diff("reset")
		t.lines(e.Before)
		t.arm.Judge = t.pass("replay")
		return nil
	}
	words := []string{"launch"}
	for _, k := range sortedKeys(e.From) {
		if _, ok := r.known[k]; !ok {
			return &FileError{File: r.l.file, What: fmt.Sprintf("arm %s: from: engine %s has no pin %q", e.Name, r.eng.Name(), k), Hint: "its pins: " + strings.Join(sortedKeys(r.known), ", ")}
		}
		if string(e.From[k]) == t.arm.Pins[k] {
			return r.fail("arm %s: from: %s is %s in the arm too: that is no other configuration", e.Name, k, e.From[k])
		}
		words = append(words, k+"="+string(e.From[k]))
	}
	t.diff(words...)
	t.pass("replay")
	t.diff("drain")
	t.diff("save")
	t.diff("stop")
	down, up := whileDown(e.Before)
	t.lines(down)
	t.do("launch")
	t.diff("restore")
	t.lines(up)
	t.arm.Judge = t.pass("replay")
	t.diff("drain")
	t.diff("reset")
	t.pass("replay")
	return nil
}

// based runs the schedule of another connector arm, in rounds.
func (r *resolver) based(t *timetable, e Entry, rounds int) {
	b, a := e.base(), t.arm
	down, up := []StepLine(nil), e.Before
	if b == "RST" {
		down, up = whileDown(e.Before)
	}
	t.do("launch")
	if b != "COLD" {
		a.ScheduleDiff = append(a.ScheduleDiff, "fill")
		t.pass("replay")
	}
	for i := range rounds {
		if i > 0 && e.Minutes > 0 {
			t.diff("wait", strconv.Itoa(int(e.Minutes*60*float64(i)/float64(max(1, rounds-1)))))
		}
		do := "replay"
		switch b {
		case "WARM":
			t.diff("drain")
			t.diff("reset")
		case "RST":
			t.diff("drain")
			t.diff("save")
			t.diff("stop")
		case "PART":
			t.diff("drain")
			t.diff("reset")
			do = "prime"
		}
		if b == "RST" {
			t.lines(down)
			t.diff("launch")
			t.diff("restore")
		}
		t.lines(up)
		a.Judge = t.pass(do)
	}
	slices.Sort(a.ScheduleDiff)
	a.ScheduleDiff = slices.Compact(a.ScheduleDiff)
}

// custom writes the steps as the file states them; the last pass is judged.
func (r *resolver) custom(t *timetable, e Entry) error {
	for _, s := range e.Steps {
		switch s[0] {
		case "replay", "prime":
			t.arm.Judge = t.pass(s[0])
		case "restart":
			t.diff("stop")
			t.diff(append([]string{"launch"}, s[1:]...)...)
		case "launch":
			t.diff(s...)
		default:
			t.diff(s...)
		}
		if s[0] == "launch" || s[0] == "restart" {
			for k := range overrides(s[1:]) {
				if _, ok := r.known[k]; !ok {
					return &FileError{File: r.l.file, What: fmt.Sprintf("arm %s: step %s: engine %s has no pin %q", e.Name, s[0], r.eng.Name(), k), Hint: "its pins: " + strings.Join(sortedKeys(r.known), ", ")}
				}
			}
		}
	}
	return nil
}

// hasCross says whether a prompt of the set is sent under another identity first.
func (r *resolver) hasCross() bool {
	for i := range r.s.Prompts {
		if r.s.Prompts[i].Cross() {
			return true
		}
	}
	return false
}

// unordered says whether what a request finds depends on which others were there first, so
// that geometry predicts nothing for it.
func (r *resolver) unordered(a *scoring.ArmSpec) bool {
	n := max(a.Concurrency, r.plan.Replay.Concurrency)
	return n > 1 && (a.Exercise == "COLD" || a.Exercise == "PRESS" || strings.HasSuffix(a.Preset, "-PRESS"))
}

// nothingInAnyOrder says whether the i-th pass of steps finds nothing whichever request comes
// first: nothing is expected of the one order that was worked out, what the pass before it
// left is gone by a flood, a reset or a restart, and no two requests begin with the same
// block, so that none can find another's.
func (r *resolver) nothingInAnyOrder(steps []Step, i int, want map[string]scoring.Reuse) bool {
	if len(want) == 0 {
		return false
	}
	for _, x := range want {
		if x != (scoring.Reuse{}) {
			return false
		}
	}
	emptied, n := true, 0
	for _, st := range steps {
		switch st.Do {
		case "flood", "reset", "restart":
			emptied = true
		case "replay", "prime":
			if n == i && !emptied {
				return false
			}
			emptied = false
			n++
		}
	}
	begun := map[string]bool{}
	for _, p := range r.s.Prompts {
		head := fmt.Sprint(p.Tokens[:min(len(p.Tokens), max(1, r.s.Geometry.AttentionBlock))])
		if begun[head] {
			return false
		}
		begun[head] = true
	}
	return true
}

func failLoads(lines []StepLine) int {
	n := 0
	for _, l := range lines {
		if l[0] == "fail-load" {
			k, _ := strconv.Atoi(l[1])
			n += k
		}
	}
	return n
}
