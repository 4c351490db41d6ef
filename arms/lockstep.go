package arms

import "strconv"

// inSteps says whether the words behind abort count the engine's steps.
func inSteps(args []string) bool { return len(args) == 3 && args[2] == "steps" }

// AbortSteps is the most steps after which an abort is to happen, 0 where it is in
// milliseconds.
func (s ChainStep) AbortSteps() int {
	if !inSteps(s.Args) {
		return 0
	}
	n, _ := strconv.Atoi(s.Args[1]) // checked when the ladder was read
	return n
}

// legalLockstep refuses a lockstep that the engine cannot keep, and aborts that fall where
// the clock says inside of one.
func (r *resolver) legalLockstep() error {
	hint := "leave replay.lockstep out: the requests of a pass then meet as they come"
	if r.l.Replay.Lockstep {
		c, ok := r.eng.(Conductor)
		if !ok {
			return r.l.wrong([]any{"replay", "lockstep"}, hint, "replay.lockstep: engine %s does not wait for clients", r.eng.Name())
		}
		for _, a := range r.plan.Design.Arms {
			if why := c.CannotLockstep(a.Pins); why != "" {
				return r.l.wrong([]any{"replay", "lockstep"}, hint, "replay.lockstep: arm %s: %s", a.Name, why)
			}
		}
	}
	for _, ch := range r.plan.Chains {
		for _, st := range ch.Steps {
			switch {
			case st.Do != "abort":
			case r.l.Replay.Lockstep && st.AbortSteps() == 0:
				return r.fail("arm %s: in lockstep no request ends by the clock; write abort %s K steps", st.Arm, st.Args[0])
			case !r.l.Replay.Lockstep && st.AbortSteps() > 0:
				return r.fail("arm %s: abort %s steps needs replay: {lockstep: true}; or give milliseconds", st.Arm, st.Args[1])
			}
		}
	}
	return nil
}
