package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// mostProblems bounds what is said about one kind of fault in the records: a receipt with
// ten thousand wrong rows is as wrong as one with ten.
const mostProblems = 10

// scan reads a transcript once, from its first line to its last, and keeps no record: what
// it remembers grows with the number of requests, by a few bytes each.
type scan struct {
	rep      *Report
	folder   string
	r        *Receipt
	set      *prompts.Set
	prompts  map[string]*prompts.Prompt // of the set, by id
	c        Checker
	plan     *arms.Plan
	imported bool

	found      int // records that do not hold
	first      digest.Digest
	from       digest.Digest // what request ids are derived from
	ids        int           // request ids that are not
	pins       *pinScan
	started    map[place]int  // line of the first reply of an attempt of an arm
	replies    map[string]int // of an attempt
	seen       map[[16]byte]int
	schedule   []complaint
	whole      map[passOf]int
	clients    map[string]map[string]map[string]bool // attempt, arm, client
	replicated map[string]bool
	times      *timingScan
	runs       int      // the highest number of a climb
	chains     []string // in the order in which the registered run first climbed them
}

type place struct{ attempt, arm string }

type passOf struct {
	attempt, arm, client string
	pass                 int
}

// complaint is about a record that is only worth a word where its attempt was not abandoned.
type complaint struct {
	line    int
	attempt string
	what    string
}

func newScan(rep *Report, folder string, r *Receipt, plan *arms.Plan, set *prompts.Set, c Checker) *scan {
	byID := map[string]*prompts.Prompt{}
	if set != nil {
		for i := range set.Prompts {
			byID[set.Prompts[i].ID] = &set.Prompts[i]
		}
	}
	return &scan{prompts: byID, rep: rep, folder: folder, r: r, set: set, c: c, plan: plan, imported: plan.Design.Imported,
		from: r.Predicate.Beacon.IDs(r.Predicate.Prereg.Plan),
		pins: newPinScan(), started: map[place]int{}, replies: map[string]int{}, seen: map[[16]byte]int{}, whole: map[passOf]int{},
		clients: map[string]map[string]map[string]bool{}, replicated: map[string]bool{}, times: newTimingScan(plan)}
}

func (s *scan) problem(line int, format string, args ...any) {
	if s.found++; s.found <= mostProblems {
		s.rep.add(fmt.Sprintf("%s:%d", TranscriptFile, line), format, args...)
	}
}

// record looks at one record; line counts from 1.
func (s *scan) record(line int, rec *probes.Record) {
	if line == 1 {
		s.first = planNamed(rec)
	}
	s.pins.record(rec)
	s.times.record(rec)
	if rec.Run > 0 {
		s.replicated[rec.Arm] = true
	}
	s.runs = max(s.runs, rec.Run)
	if rec.Run < 0 {
		s.problem(line, "it is of climb %d", rec.Run)
	}
	switch rec.Kind {
	case probes.KindFact:
		if rec.Fact.Name == probes.FactAttempt && rec.Run == 0 && !slices.Contains(s.chains, rec.Chain) {
			s.chains = append(s.chains, rec.Chain)
		}
	case probes.KindSample:
		if what := checkSample(s.folder, rec.Sample); what != "" {
			s.problem(line, "arm %s: %s", rec.Arm, what)
		}
	case probes.KindReply:
		s.replies[rec.Attempt]++
		if _, ok := s.started[place{rec.Attempt, rec.Arm}]; !ok {
			s.started[place{rec.Attempt, rec.Arm}] = line
		}
		if s.set != nil {
			whats, id := s.checkReply(rec)
			for _, what := range whats {
				s.problem(line, "arm %s, prompt %s: %s", rec.Arm, rec.Reply.Prompt, what)
			}
			if !id {
				s.ids++
			}
		}
		s.scheduled(line, rec)
	}
}

// end says what only the whole transcript shows.
func (s *scan) end() {
	if s.found > mostProblems {
		s.rep.add(TranscriptFile, "and %d more records that do not hold", s.found-mostProblems)
	}
	attempts, replies := 0, 0
	for a := range s.pins.dead {
		if n := s.replies[a]; n > 0 {
			attempts, replies = attempts+1, replies+n
		}
	}
	if attempts > 0 { // whoever ends a climb on a failure and resumes must not look like one who did not
		s.rep.warn("%d climbs of chains were abandoned and climbed again; their %d replies are in the transcript and are not scored", attempts, replies)
	}
	if s.c.Decode == nil {
		s.rep.warn("the replies were not decoded again")
	}
	if s.c.RequestID == nil {
		s.rep.warn("the request ids were not derived again")
	}
	if s.set != nil {
		s.endSchedule()
	}
	s.chainOrder()
}

// chainOrder compares the order of the chains with the plan's, which its own digest
// decides, so that whoever reads the server's log finds the registration in it. A climb
// that was asked for one chain at a time, or goes on after an interruption, has another.
func (s *scan) chainOrder() {
	if s.imported || s.plan.Replay.Parallel > 1 || len(s.chains) == 0 {
		return
	}
	var want []string
	for _, c := range s.plan.Chains {
		if slices.Contains(s.chains, c.Name) {
			want = append(want, c.Name)
		}
	}
	if !slices.Equal(want, s.chains) {
		s.rep.warn("the chains were climbed in the order %v, the plan's is %v: the order in the server's log does not carry the registration", s.chains, want)
	}
}

// ledgered asks that the ledger opened every arm that the transcript has rows of.
func (s *scan) ledgered(ledger []LedgerEntry) {
	if s.imported || len(ledger) == 0 {
		return
	}
	open := map[place]bool{}
	for _, e := range ledger {
		if e.Kind == LedgerArmStart {
			open[place{e.Object.Attempt, e.Object.Arm}] = true
		}
	}
	said := 0
	for _, p := range slices.SortedFunc(maps.Keys(s.started), func(a, b place) int { return s.started[a] - s.started[b] }) {
		if !open[p] {
			if said++; said <= mostProblems {
				s.rep.add(LedgerFile, "the transcript has rows of arm %s (%s:%d), and no entry starts that arm%s", p.arm, TranscriptFile, s.started[p], inAttempt(p.attempt))
			}
		}
	}
}

// absurd says why the records are not worth scoring: a number that is no count of anything
// that was done, and that scoring would count up to.
func (s *scan) absurd() string {
	if s.runs > mostRuns {
		return fmt.Sprintf("a record is of climb %d, more than %d climbs of one ladder are none", s.runs, mostRuns)
	}
	for _, a := range s.plan.Design.Arms {
		if a.Passes > mostPasses {
			return fmt.Sprintf("the plan gives arm %s %d passes, more than %d are none", a.Name, a.Passes, mostPasses)
		}
	}
	return ""
}

func inAttempt(a string) string {
	if a == "" {
		return ""
	}
	return " in attempt " + a
}

// checkSample asks that the digest of a reading is backed by bytes, here or among the
// objects, and that something was read.
func checkSample(folder string, s *probes.Sample) string {
	switch {
	case s.Error != "":
		return ""
	case s.Digest == "" || s.Digest.Empty():
		return "the counters were read as nothing, and no error says so"
	case s.Raw == "":
		if _, err := os.Stat(filepath.Join(folder, filepath.FromSlash(ObjectDir), s.Digest.Hex())); err != nil {
			return "the text of the counters is neither in the record nor among the objects"
		}
	case digest.Of([]byte(s.Raw)) != s.Digest:
		return "the text of the counters has another digest than the record says"
	}
	return ""
}

// checkReply says what is wrong with a reply, and whether its request id is the plan's.
func (s *scan) checkReply(rec *probes.Record) (out []string, id bool) {
	prompt := s.prompts[rec.Reply.Prompt]
	id = true
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	reply := rec.Reply
	if prompt == nil {
		fail("the set has no such prompt")
		return out, id
	}
	raw, err := reply.Bytes()
	if err != nil {
		fail("%v", err)
		return out, id
	}
	// A reply that never began may have no digest; one that has bytes must have theirs.
	if got := digest.Of(raw); got != reply.Received && (len(raw) > 0 || reply.Received != "") {
		fail("the bytes received have the digest %s, the record says %s", got.Short(), reply.Received.Short())
	}
	if what := checkSent(rec.Arm, reply, prompt, s.r); what != "" && !(s.imported && reply.Sent == "") {
		fail("%s", what)
	}
	if s.c.RequestID != nil && !s.imported {
		if want := s.c.RequestID(s.from, rec); want != reply.RequestID {
			id = false
			fail("its request id is %q, the %s %q", reply.RequestID, givers(s.r.Predicate.Beacon), want)
		}
	}
	if len(raw) == 0 && !s.imported && !sameDecoded(probes.Decoded{}, reply.Decoded) {
		fail("no byte was received, and the record holds an answer")
	}
	if s.c.Decode != nil && len(raw) > 0 {
		got, err := s.c.Decode(s.set.Dialect, reply)
		if reply.Slot == nil {
			got.Slot = nil // read since later than the first receipts, which verify for ever; without it no rank is proven by it
		}
		switch {
		case err != nil && reply.Error == "":
			fail("the bytes received do not decode, and the record says that they did: %v", err)
		case !sameDecoded(got, reply.Decoded):
			fail("the bytes received decode otherwise: %s", differences(reply.Decoded, got))
		}
	}
	return out, id
}

func givers(b *Beacon) string {
	if b == nil {
		return "plan gives"
	}
	return "plan and the beacon give"
}

// checkSent compares the digest of what went on the wire with the frozen body, or, where a
// rank was pinned in the body or the reply's tokens were named, with a body that differs from
// the frozen one in that alone.
func checkSent(arm string, reply *probes.Reply, prompt *prompts.Prompt, r *Receipt) string {
	frozen := prompt.Body
	if reply.Prime {
		if prompt.Prime == nil {
			return "it is recorded as a prime, and the prompt has none"
		}
		frozen = prompt.Prime.Body
	}
	if reply.SentBody == "" {
		if want := digest.Of([]byte(frozen)); want != reply.Sent {
			return fmt.Sprintf("the bytes sent have the digest %s, the frozen body is %s", reply.Sent.Short(), want.Short())
		}
		return ""
	}
	if digest.Of([]byte(reply.SentBody)) != reply.Sent {
		return "the body kept is not the one whose digest was sent"
	}
	by := r.Predicate.Plan.Replay
	var may []string
	if by.RankBy == "body" {
		may = append(may, by.RankField)
	}
	if spec, ok := r.Predicate.Plan.Design.ByName(arm); ok && spec.Role == scoring.Forced && !reply.Prime {
		may = append(may, probes.TraceField)
	}
	if len(may) == 0 {
		return "the body differs from the frozen one, and the plan pins nothing in bodies"
	}
	if !equalButFor(reply.SentBody, frozen, may...) {
		return fmt.Sprintf("the body differs from the frozen one in more than %q", may)
	}
	return ""
}

// equalButFor compares two JSON objects without some of their members.
func equalButFor(a, b string, members ...string) bool {
	var x, y map[string]json.RawMessage
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	for _, m := range members {
		delete(x, m)
		delete(y, m)
	}
	p, err1 := digest.Canonical(x)
	q, err2 := digest.Canonical(y)
	return err1 == nil && err2 == nil && bytes.Equal(p, q)
}

// sameDecoded takes the short way first: the canonical comparison, for which an absent list
// equals an empty one, is slow over millions of tokens.
func sameDecoded(a, b probes.Decoded) bool { return reflect.DeepEqual(a, b) || rawEqual(a, b) }

// scheduled counts the replies of every arm against its passes. Only an arm that claims a
// complete harness (column H) and a living engine owes all of them; no arm may hold the
// same request twice.
func (s *scan) scheduled(line int, rec *probes.Record) {
	complain := func(format string, args ...any) {
		if len(s.schedule) <= 100*mostProblems {
			s.schedule = append(s.schedule, complaint{line, rec.Attempt, fmt.Sprintf(format, args...)})
		}
	}
	spec, ok := s.plan.Design.ByName(rec.Arm)
	if !ok {
		complain("a reply for arm %q, which the plan does not have", rec.Arm)
		return
	}
	reply := rec.Reply
	if reply.Pass < 1 || reply.Pass > spec.Passes {
		complain("arm %s: pass %d of %d", rec.Arm, reply.Pass, spec.Passes)
		return
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %d %v", rec.Arm, rec.Attempt, reply.Client, reply.Prompt, rec.Run, reply.Pass, reply.Prime))
	key := [16]byte(h[:16])
	if first, twice := s.seen[key]; twice {
		complain("arm %s, prompt %s: the same request as in line %d", rec.Arm, reply.Prompt, first)
		return
	}
	s.seen[key] = line
	if rec.Run == 0 && !reply.Prime {
		s.whole[passOf{rec.Attempt, rec.Arm, reply.Client, reply.Pass}]++
		if s.clients[rec.Attempt] == nil {
			s.clients[rec.Attempt] = map[string]map[string]bool{}
		}
		if s.clients[rec.Attempt][rec.Arm] == nil {
			s.clients[rec.Attempt][rec.Arm] = map[string]bool{}
		}
		s.clients[rec.Attempt][rec.Arm][reply.Client] = true
	}
}

func (s *scan) endSchedule() {
	dead := s.pins.dead
	said := 0
	for _, c := range s.schedule {
		if dead[c.attempt] {
			continue
		}
		if said++; said <= mostProblems {
			s.rep.add(fmt.Sprintf("%s:%d", TranscriptFile, c.line), "%s", c.what)
		}
	}
	clients := map[string]map[string]bool{} // arm, client
	for attempt, byArm := range s.clients {
		if dead[attempt] {
			continue
		}
		for arm, cs := range byArm {
			if clients[arm] == nil {
				clients[arm] = map[string]bool{}
			}
			maps.Copy(clients[arm], cs)
		}
	}
	type armPass struct {
		arm, client string
		pass        int
	}
	whole := map[armPass]int{}
	for p, n := range s.whole {
		if !dead[p.attempt] {
			whole[armPass{p.arm, p.client, p.pass}] += n
		}
	}
	for _, spec := range s.plan.Design.Arms {
		a, ok := s.r.Arm(spec.Name)
		if !ok || a.Columns["H"] != "y" || a.Columns["A"] == "n" || s.imported {
			continue
		}
		if len(clients[spec.Name]) == 0 {
			s.rep.add(TranscriptFile, "arm %s is said to be complete and has no reply", spec.Name)
		}
		for _, client := range sortedKeys(clients[spec.Name]) {
			said := 0
			for n := 1; n <= spec.Passes && said < mostProblems; n++ {
				if a.Soak != nil && a.Soak.Stopped != nil && n > *a.Soak.Stopped {
					break // its registered rule ended it there, which the result derives again
				}
				if got := whole[armPass{spec.Name, client, n}]; got != len(s.set.Prompts) {
					s.rep.add(TranscriptFile, "arm %s, pass %d: %d replies for %d requests, and the arm is said to be complete", spec.Name, n, got, len(s.set.Prompts))
					said++
				}
			}
		}
	}
	for _, a := range s.r.Predicate.Result.Arms {
		if a.Verdict != nil && *a.Verdict == scoring.SuspectUnconfirmed && s.plan.Design.Rule.Replicates > 0 && !s.imported && !s.replicated[a.Name] {
			s.rep.add(TranscriptFile, "arm %s is suspected and the registered replicate is missing", a.Name)
		}
	}
}
