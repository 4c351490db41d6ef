package scoring

import (
	"errors"
	"fmt"
	"slices"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring/compare"
)

// Stop is the registered rule by which a soak may end before its length: a sequential test of
// a healthy failure rate P0 against a corrupt one P1, both per request. Without one a soak
// runs its length. The round in which the rule decides is finished, since a round is what is
// judged.
//
// Wald, "Sequential tests of statistical hypotheses" (Ann. Math. Stat. 1945); Ville, "Étude
// critique de la notion de collectif" (1939).
type Stop struct {
	Rule  string  `json:"rule"` // StopSPRT or StopEProcess
	P0    float64 `json:"p0"`
	P1    float64 `json:"p1"`
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta,omitempty"` // SPRT alone: an e-process accepts nothing
	From  int     `json:"from"`           // first pass that counts: one before it fills the store
}

// Rules of a Stop.
const (
	StopSPRT     = "sprt"      // ends by either boundary
	StopEProcess = "e-process" // ends by an alarm alone, E >= 1/alpha
)

// Decisions of a Stop.
const (
	StopReject   = "reject"   // the failures are those of P1
	StopAccept   = "accept"   // they are those of P0
	StopContinue = "continue" // neither boundary was reached
)

// Check says what is wrong with the rule.
func (s Stop) Check() error {
	if _, err := compare.BernoulliSteps(s.P0, s.P1); err != nil {
		return fmt.Errorf("p0 %v, p1 %v: want 0 < p0 < p1 < 1", s.P0, s.P1)
	}
	switch s.Rule {
	case StopSPRT:
		if _, err := compare.NewSPRT(s.Alpha, s.Beta); err != nil {
			return fmt.Errorf("alpha %v, beta %v: want both positive and their sum below 1", s.Alpha, s.Beta)
		}
	case StopEProcess:
		switch {
		case !(s.Alpha > 0 && s.Alpha < 1):
			return fmt.Errorf("alpha %v: want a value between 0 and 1", s.Alpha)
		case s.Beta != 0:
			return errors.New("beta: an e-process never accepts, so it has none")
		}
	default:
		return fmt.Errorf("rule %q is unknown: use %s or %s", s.Rule, StopSPRT, StopEProcess)
	}
	return nil
}

// Watch follows a soak reply by reply, in the order of the transcript. It is a pure function
// of what it is shown, so that a verifier comes to the same moment as the run did.
type Watch struct {
	stop      Stop
	detectors []Detector
	steps     compare.Steps
	bounds    compare.SPRT // of the e-process: the upper one alone
	llr       float64
	taken     []float64 // steps, for the onset
	failed    int
	decision  string
	at        int // replies that were seen when it decided
}

// NewWatch trusts the detectors that fire on their specimen.
func NewWatch(stop Stop, detectors []Detector) (*Watch, error) {
	if err := stop.Check(); err != nil {
		return nil, err
	}
	w := &Watch{stop: stop, decision: StopContinue}
	for _, d := range detectors {
		if r, e := d.Specimen(); d.Inspect(r, e).Fired {
			w.detectors = append(w.detectors, d)
		}
	}
	w.steps, _ = compare.BernoulliSteps(stop.P0, stop.P1)
	if stop.Rule == StopSPRT {
		w.bounds, _ = compare.NewSPRT(stop.Alpha, stop.Beta)
	}
	return w, nil
}

// Reply shows it a reply. One without an answer is no wrong answer, and one of a pass before
// the first that counts is none of the soak's.
func (w *Watch) Reply(r *probes.Reply, p *prompts.Prompt) {
	if r.Prime || max(1, r.Pass) < w.stop.From || unanswered(r) != "" {
		return
	}
	w.next(slices.ContainsFunc(w.detectors, func(d Detector) bool { return d.Inspect(r, p.Expect).Fired }))
}

func (w *Watch) next(failed bool) {
	step := w.steps.Quiet
	if failed {
		step = w.steps.Event
		w.failed++
	}
	w.taken, w.llr = append(w.taken, step), w.llr+step
	if w.decision != StopContinue {
		return // the round is finished and decides nothing more
	}
	switch {
	case w.stop.Rule == StopEProcess && (compare.EValue{Log: w.llr}).Alarm(w.stop.Alpha):
		w.decision, w.at = StopReject, len(w.taken)
	case w.stop.Rule == StopSPRT:
		switch w.bounds.Decide(w.llr) {
		case compare.RejectH0:
			w.decision, w.at = StopReject, len(w.taken)
		case compare.AcceptH0:
			w.decision, w.at = StopAccept, len(w.taken)
		}
	}
}

// Decided is what the rule came to, and how many requests it took; false while it goes on.
func (w *Watch) Decided() (decision string, requests int, ok bool) {
	return w.decision, w.at, w.decision != StopContinue
}

// onset is where the failures began, by the CUSUM over the same steps: the first request
// after the sum was last 0 before it passed the boundary at which the rule rejects.
func (w *Watch) onset() (alarm, onset *int) {
	limit := w.bounds.Reject
	if w.stop.Rule == StopEProcess {
		limit = compare.AlarmAt(w.stop.Alpha)
	}
	c, err := compare.CUSUM(w.taken, limit)
	if err != nil {
		return nil, nil
	}
	return c.Alarm, c.Onset
}

// Soak is what came of the rounds of a soak, request by request in the order in which they
// were recorded.
type Soak struct {
	Rule     *Stop    `json:"rule"`     // nil: none was registered, and it runs its length
	Passes   int      `json:"passes"`   // registered
	Ran      int      `json:"ran"`      // passes with a record
	Requests int      `json:"requests"` // answered, of the passes that count
	Failed   int      `json:"failed"`
	Decision string   `json:"decision"`  // accept, reject, continue; "" without a rule
	Decided  *Spot    `json:"decided"`   // where the rule decided
	Stopped  *int     `json:"stopped"`   // the pass after which the run ended, by its rule alone; nil: it ran its length
	LogRatio *float64 `json:"log_ratio"` // ln(P1/P0) of all requests, in nats
	Alarm    *Spot    `json:"alarm"`     // where the CUSUM passed the boundary
	Onset    *Spot    `json:"onset"`     // where the failures began by it
	Sequence *Range   `json:"sequence"`  // failure rate, 95 %, valid whenever one looks
}

// Spot is a request of a soak.
type Spot struct {
	Request int    `json:"request"` // counted from 1
	Pass    int    `json:"pass"`
	Prompt  string `json:"prompt"`
}

// Range is an interval.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// rounds works out what each soak came to, and lets the last round of one that its rule ended
// stand for the round that would have been judged.
func (s *scorer) rounds() {
	for _, a := range s.t.arms {
		if a.spec.Preset != "SOAK" || !a.started {
			continue
		}
		a.soak = s.soakOf(a)
		if a.soak.Stopped != nil {
			a.cutShort(*a.soak.Stopped)
		}
	}
}

func (s *scorer) soakOf(a *armRun) *Soak {
	k := &Soak{Rule: a.spec.Stop, Passes: max(1, a.spec.Passes)}
	from := a.firstRound()
	var rows []*row
	for pass, list := range a.passes {
		k.Ran = max(k.Ran, pass)
		if pass < from {
			continue
		}
		for _, w := range list {
			if w.answered {
				rows = append(rows, w)
			}
		}
	}
	slices.SortFunc(rows, func(x, y *row) int { return int(x.seq - y.seq) })
	spot := func(i int) *Spot {
		return &Spot{Request: i + 1, Pass: max(1, rows[i].reply.Pass), Prompt: rows[i].prompt.ID}
	}
	for _, w := range rows {
		k.Requests++
		if w.alone {
			k.Failed++
		}
	}
	if iv, err := compare.ConfidenceSequence(k.Failed, k.Requests, 0.95); err == nil {
		k.Sequence = &Range{round12(iv.Low), round12(iv.High)}
	}
	if k.Rule == nil {
		return k
	}
	w, err := NewWatch(*k.Rule, nil)
	if err != nil {
		a.harness = append(a.harness, "the registered stopping rule is none: "+err.Error())
		return k
	}
	for _, r := range rows {
		w.next(r.alone)
	}
	k.LogRatio = rounded(w.llr)
	k.Decision = w.decision
	if alarm, onset := w.onset(); alarm != nil && onset != nil {
		k.Alarm, k.Onset = spot(*alarm), spot(*onset)
	}
	if _, at, ok := w.Decided(); ok {
		k.Decided = spot(at - 1)
		if k.Ran < k.Passes && k.Decided.Pass == k.Ran && len(a.passes[k.Ran]) == len(s.in.Set.Prompts) && len(a.stops) > 0 {
			k.Stopped = &k.Ran
		}
	}
	return k
}

func (a *armRun) soakRan() int {
	if a.soak == nil {
		return 0
	}
	return a.soak.Ran
}

// firstRound is the first pass of a soak that counts.
func (a *armRun) firstRound() int {
	if a.spec.Stop != nil {
		return max(1, a.spec.Stop.From)
	}
	if slices.Contains(a.spec.ScheduleDiff, "fill") {
		return 2
	}
	return 1
}

// cutShort files what the last round left under the pass that is judged.
func (a *armRun) cutShort(last int) {
	judged := judgedPass(a.spec)
	a.cut = last
	if last == judged {
		return
	}
	a.passes[judged] = a.passes[last]
	delete(a.passes, last)
	for i, sm := range a.samples {
		if sm.Pass == last {
			c := *sm
			c.Pass = judged
			a.samples[i] = &c
		}
	}
	for i := range a.loads {
		if a.loads[i].Pass == last {
			a.loads[i].Pass = judged
		}
	}
	for i := range a.loadsFailed {
		if a.loadsFailed[i].Pass == last {
			a.loadsFailed[i].Pass = judged
		}
	}
	for i := range a.running {
		if a.running[i].Pass == last {
			a.running[i].Pass = judged
		}
	}
}

// owes says whether an arm owes the replies of a pass: a soak that its rule ended owes none of
// the rounds between its last and the one that stands for it.
func (a *armRun) owes(pass int) bool {
	return a.cut == 0 || pass < a.cut || pass == judgedPass(a.spec)
}
