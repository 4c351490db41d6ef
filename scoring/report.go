package scoring

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"kvladder/probes"
	"kvladder/scoring/compare"
)

// explain settles what the verdict's row says beside its word.
func (s *scorer) explain(j *judgement) {
	switch j.verdict.Row {
	case 2, 4, 7, 8, 9:
		if j.path == "" {
			j.path = "unproven"
		}
		if j.verdict.Row == 8 {
			j.path = "unproven"
		}
	default:
		j.path = ""
	}
	if j.verdict.Reason == "" {
		j.verdict.Reason = j.reason
	}
	if j.verdict.Reason != "" {
		return
	}
	switch j.verdict.Row {
	case 9:
		j.verdict.Reason = j.unequalBits()
	case 10:
		var parts []string
		if j.cols.ArmOnly > 0 {
			parts = append(parts, fmt.Sprintf("%d requests fail in the arm only", j.cols.ArmOnly))
		}
		if j.cols.UnequalBit {
			parts = append(parts, fmt.Sprintf("%d comparable requests have an unequal bit", len(j.differ)))
		}
		if j.cols.Pending {
			parts = append(parts, "first-token logprobs or flips exceed the floor")
		}
		again := "not replicated"
		if len(j.readings) > 1 {
			again = "not confirmed by the replicate"
		}
		j.verdict.Reason = strings.Join(parts, ", ") + ": " + again
	case 13:
		for _, w := range j.warnings {
			if why, ok := strings.CutPrefix(w, "not exercised: "); ok {
				j.verdict.Reason = why
			}
		}
	case 16:
		n := 0
		if j.exercisedN != nil {
			n = *j.exercisedN
		}
		j.verdict.Reason = fmt.Sprintf("%d exercised stable requests of at least %d, %d classes of at least %d", n, s.in.Design.Rule.NMin, j.classes, s.in.Design.Rule.GMin)
	}
}

// unequalBits says in words what a corruption without a wrong answer is: how many requests
// differ from the reference in a bit, by how much at most, and which.
func (j *judgement) unequalBits() string {
	const few = 5
	most, where, other := 0.0, "", 0
	for _, p := range j.readings[0].stable {
		if !slices.Contains(j.differ, p.arm.prompt.ID) {
			continue
		}
		if p.fork >= 0 {
			other++
		}
		if p.d0 != nil && *p.d0 > most {
			most, where = *p.d0, "at the first token"
		}
		for _, d := range p.prefix {
			if d > most {
				most, where = d, "before any token differs"
			}
		}
	}
	ids, more := j.differ, ""
	if len(ids) > few {
		ids, more = ids[:few], fmt.Sprintf(" and %d more", len(j.differ)-few)
	}
	failed := "no answer is wrong, but "
	if j.cols.ArmOnly > 0 {
		failed = fmt.Sprintf("%d requests fail in the arm only, and ", j.cols.ArmOnly)
	}
	out := fmt.Sprintf("%s%d of %d comparable requests differ bitwise from reference %s in the registered run and %s in the replicate, where control passes do not differ in a bit",
		failed, len(j.differ), j.comparedBits, j.spec.Reference, j.bitsAgain)
	if most > 0 {
		out += fmt.Sprintf("; largest |Δ logprob| %.3g (%s)", most, where)
	}
	if other > 0 {
		out += fmt.Sprintf("; %d generate another token", other)
	}
	return out + "; they are " + strings.Join(ids, ", ") + more
}

// result writes everything down.
func (s *scorer) result() Result {
	out := Result{
		Schema: ResultSchema, Ladder: s.in.Design.Ladder, Plan: s.in.PlanDigest, Set: s.in.SetDigest,
		Order: s.in.Order, Warnings: append([]string{}, s.warnings...), Arms: []ArmResult{},
	}
	if s.t.plan != nil {
		if out.Plan == "" {
			out.Plan = string(s.t.plan.Plan)
		}
		if out.Set == "" {
			out.Set = string(s.t.plan.Set)
		}
	}
	if out.Set == "" && s.in.Set != nil {
		out.Set = string(s.in.Set.Digest)
	}
	if out.Order == "" {
		out.Order = "O0"
	}
	for i := range s.in.Design.Arms {
		out.Arms = append(out.Arms, s.armResult(&s.in.Design.Arms[i]))
	}
	s.onlyUnder(&out)
	out.Verdict, out.Exit = ladderVerdict(out.Arms)
	return out
}

func (s *scorer) armResult(spec *ArmSpec) ArmResult {
	a, j := s.t.arm(0, spec.Name), s.judged[spec.Name]
	pass := judgedPass(spec)
	r := ArmResult{
		Name: spec.Name, Preset: spec.Preset, Role: spec.Role, Group: text(spec.Group), Reference: text(spec.Reference),
		ScheduleDiff: append([]string{}, spec.ScheduleDiff...), Incarnations: []Incarnation{}, Columns: map[string]string{},
		OnlyUnder: map[string]string{}, Invariants: []Invariant{}, FailedIDs: []string{}, Unstable: []string{},
		Detectors: map[string]int{}, AnswersRight: map[string]int{}, FlaggedIDs: []string{}, Lifetime: map[string]any{},
		Outcomes: []Outcome{}, Warnings: []string{}, PMax: s.in.Design.Rule.PMax,
	}
	if spec.Pin != (Pin{}) {
		pin := spec.Pin
		r.Pin = &pin
	}
	if len(spec.Expected) > 0 && s.in.Set != nil {
		l, e := 0, 0
		for i := range s.in.Set.Prompts {
			x := spec.Expected[s.in.Set.Prompts[i].ID]
			l, e = l+x.Local, e+x.External
		}
		r.ExpectedLocal, r.ExpectedExternal = &l, &e
	}
	rows := a.rows(s.in.Set, pass)
	s.counts(&r, rows, j)
	if a != nil {
		s.tokens(&r, a, rows, pass)
		s.life(&r, a)
		if r.Soak = a.soak; r.Soak != nil && r.Soak.Decided != nil && r.Soak.Stopped == nil && r.Soak.Decided.Pass < r.Soak.Ran {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the stopping rule decided in pass %d, and the soak went on to pass %d", r.Soak.Decided.Pass, r.Soak.Ran))
		}
		if a.ranks.Asked > 0 {
			r.Ranks = &Ranks{a.ranks.Asked, a.ranks.Proven}
		}
		for _, id := range dedupe(a.twice) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("request %s was recorded twice in a pass: the first is counted", id))
		}
		for _, id := range dedupe(a.foreign) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("request %s is not in the set: not scored", id))
		}
	}
	if j == nil {
		s.soundness(&r, spec)
		if spec.Role == Forced {
			r.Sound = ""
			s.forced(&r, spec, a)
		}
		s.outcomes(&r, rows, nil)
		return r
	}
	s.verdictOf(&r, j)
	if len(j.readings) > 0 {
		s.readingOf(&r, j)
	}
	s.outcomes(&r, rows, j)
	r.Warnings = append(r.Warnings, j.warnings...)
	return r
}

// soundness gives a control the columns that apply to it: they go to every arm that leans
// on it. A control has no verdict.
func (s *scorer) soundness(r *ArmResult, spec *ArmSpec) {
	p, why := Yes, ""
	if !s.in.Design.Imported {
		p, why = s.pinsOf(spec, 0)
	}
	alive, _, died := s.t.arm(0, spec.Name).alive()
	h, lacks := s.complete(spec)
	r.Columns = map[string]string{"P": p.String(), "A": alive.String(), "H": h.String()}
	r.Sound = s.sound(spec)
	for _, w := range []string{why, died, lacks} {
		if w != "" {
			r.Warnings = append(r.Warnings, w)
		}
	}
}

// sound judges a control by itself: its failures and those of its further processes are no
// more than chance explains, of as many request passes as were answered.
func (s *scorer) sound(spec *ArmSpec) string {
	n, failed := 0, 0
	for _, x := range append([]*ArmSpec{spec}, s.floorsOf(spec.Name)...) {
		for _, w := range s.t.arm(0, x.Name).allRows(s.in.Set) {
			if w.answered {
				n++
				if w.failed {
					failed++
				}
			}
		}
	}
	low := compare.Lower95(failed, n)
	if n == 0 || low == nil {
		return Unknown.String()
	}
	return columnOf(*low <= s.in.Design.Rule.ControlMax).String()
}

// counts what the rows of the judged pass came to, whoever they are compared with.
func (s *scorer) counts(r *ArmResult, rows []*row, j *judgement) {
	unstable := map[string]bool{}
	if j != nil && len(j.readings) > 0 {
		for _, id := range j.readings[0].unstable {
			unstable[id] = true
		}
	}
	r.N = len(rows)
	for _, w := range rows {
		if w.substantive {
			r.Substantive++
		}
		if w.damaged {
			r.Damaged++
		}
		for _, f := range w.fired {
			r.Detectors[f]++
		}
		for name, right := range w.right {
			if right {
				r.AnswersRight[name]++
			} else {
				r.AnswersRight[name] += 0
			}
		}
		if !w.target() {
			r.BystanderN++
		}
		if unstable[w.prompt.ID] {
			r.Unstable = append(r.Unstable, w.prompt.ID)
			continue
		}
		if w.failed {
			r.Failed++
			r.FailedIDs = append(r.FailedIDs, w.prompt.ID)
			if !w.target() {
				r.BystanderFailed++
			}
		}
	}
	if r.N > 0 && r.Substantive == 0 {
		r.Warnings = append(r.Warnings, "no reply says anything: nothing was judged")
	}
}

// tokens sums the four-way split over the judged pass; where requests do not say, the
// counters of the arm do.
func (s *scorer) tokens(r *ArmResult, a *armRun, rows []*row, pass int) {
	sum := func(of func(*row) *int) *int {
		n := 0
		for _, w := range rows {
			v := of(w)
			if v == nil {
				return nil
			}
			n += *v
		}
		if len(rows) == 0 {
			return nil
		}
		return &n
	}
	total := func(have *int, role, name string) *int {
		if have != nil {
			return have
		}
		v := a.total(role, pass)
		if v == nil || len(a.odd) > 0 {
			r.Warnings = append(r.Warnings, name+" tokens are not known")
			return nil
		}
		r.Warnings = append(r.Warnings, name+" tokens are known for the arm only")
		return ptr(int(math.Round(*v)))
	}
	r.LocalTokens = total(sum(func(w *row) *int { return w.local }), probes.LocalHits, "local")
	r.ExternalTokens = total(sum(func(w *row) *int { return w.external }), probes.ExternalHits, "external")
	r.ComputedTokens = sum(func(w *row) *int { return w.computed })
	r.Unaccounted = sum(func(w *row) *int { return w.unaccounted })
	r.CountersTrusted = s.countersTrusted(a, pass)
	for _, w := range rows {
		if w.queries != nil && *w.queries > 0 && w.tokens != nil && *w.tokens > 0 &&
			math.Abs(float64(*w.queries)/float64(*w.tokens)-1) > 0.05 || w.unaccounted != nil && *w.unaccounted != 0 {
			r.FlaggedIDs = append(r.FlaggedIDs, w.prompt.ID)
		}
	}
	for _, w := range a.allRows(s.in.Set) { // of every pass: the account is one
		if w.odd && !slices.Contains(r.FlaggedIDs, w.prompt.ID) {
			r.FlaggedIDs = append(r.FlaggedIDs, w.prompt.ID)
		}
	}
}

// life tells the processes an arm talked to and how long it lived without a fault.
func (s *scorer) life(r *ArmResult, a *armRun) {
	at := map[string]int{}
	add := func(in Incarnation) *Incarnation {
		if i, ok := at[in.ID]; ok {
			return &r.Incarnations[i]
		}
		at[in.ID] = len(r.Incarnations)
		r.Incarnations = append(r.Incarnations, in)
		return &r.Incarnations[len(r.Incarnations)-1]
	}
	for _, f := range a.incarnation {
		add(Incarnation{ID: f.ID, Start: f.Start})
	}
	for _, seen := range a.identity {
		id := seen.fact.Process
		if id == "" {
			id = seen.incarnation
		}
		if id == "" {
			continue
		}
		in := add(Incarnation{ID: id, Start: seen.fact.Start})
		if in.Start == "" {
			in.Start = seen.fact.Start
		}
		if seen.fact.Restarts != nil {
			in.Restarts = seen.fact.Restarts
		}
	}
	for _, f := range a.stopped {
		in := add(Incarnation{ID: f.fact.ID})
		in.End, in.Exit = ptr(f.at), f.fact.Exit
	}
	events, requests, partial, first, last := 0, 0, 0, int64(0), int64(0)
	if c, _, _ := a.alive(); c == No {
		events = 1
	}
	for _, w := range a.allRows(s.in.Set) {
		if w.answered {
			requests++
		}
		if w.local != nil && w.external != nil && *w.local > 0 && *w.external > 0 {
			partial++
		}
		if first == 0 || w.reply.SentAt < first {
			first = w.reply.SentAt
		}
		last = max(last, w.reply.LastAt)
	}
	if requests == 0 {
		return
	}
	r.Lifetime["events"], r.Lifetime["requests"], r.Lifetime["partial_hits"] = events, requests, partial
	if last > first {
		minutes := round12(float64(last-first) / float64(time.Minute/time.Microsecond))
		r.Lifetime["minutes"] = minutes
		if iv, err := compare.PoissonRate(compare.Events{Count: events, Exposure: minutes}, 0.95, compare.UpperSided); err == nil {
			if m := iv.MTBFAtLeast(); m != nil {
				r.Lifetime["mtbf_minutes_at_least"] = round12(*m)
			}
		}
	}
	if len(a.deaths) > 0 {
		r.DiedAt = text(a.deaths[0].at)
	}
}

func (s *scorer) verdictOf(r *ArmResult, j *judgement) {
	v := j.verdict
	r.Verdict, r.Row, r.Sub, r.Kind, r.Reason = ptr(v.Word), ptr(v.Row), text(v.Sub), text(v.Kind), text(v.Reason)
	r.Exit = ptr(v.Exit())
	r.Columns = j.cols.Map()
	if v.Row == 0 {
		r.Row = nil
	}
	switch v.Row {
	case 2, 4, 7, 8, 9:
		r.Variable = text(j.spec.Pin.Name)
		r.Path = text(j.path)
	}
	if j.invariants != nil {
		r.Invariants = j.invariants
	}
	r.Upper95, r.Upper95Geometry = roundedPtr(j.upper), roundedPtr(j.upperClass)
	r.Registered = s.in.Design.Rule.Replicates
	r.Geometries, r.Exercised = j.classes, j.exercisedN
}

// readingOf writes the registered pairing: the tests with their integers, and what the
// token streams look like beside the reference's.
func (s *scorer) readingOf(r *ArmResult, j *judgement) {
	d := j.readings[0]
	if len(d.pairs) == 0 {
		return
	}
	r.Floor, r.Clusters = s.floorFigures(j), s.clusters(j)
	r.ArmOnly, r.ControlOnly = ptr(d.c()), ptr(d.refOnly)
	r.PMcNemar, r.PMcNemarHolm = roundedPtr(d.pMcNemar), roundedPtr(d.pMcNemarHolm)
	r.PExceedance, r.PExceedanceHolm = roundedPtr(d.pExceedance), roundedPtr(d.pExceedanceHolm)
	r.ExceedanceK, r.FloorM, r.ProcessRank = d.exceedanceK, d.floorM, text(d.rank)
	r.Comparable = ptr(j.comparedBits)
	r.BitEqual = ptr(j.bitEqual)
	identical, forks, exposure, censored, compared := 0, 0, 0, 0, 0
	var d0, prefix, zipped, kld []float64
	texts := false
	for _, p := range d.pairs {
		if !p.comparedTokens {
			continue
		}
		compared++
		exposure += p.exposure
		if p.identical {
			identical++
		} else {
			forks++
		}
		if p.censored {
			censored++
		}
		if p.d0 != nil {
			d0 = append(d0, *p.d0)
		}
		texts = texts || p.arm.reply.Tokens[0].ID < 0
		prefix, zipped, kld = append(prefix, p.prefix...), append(zipped, p.zipped...), append(kld, p.kld()...)
	}
	if compared == 0 {
		r.Warnings = append(r.Warnings, "no tokens to compare: the replies hold text only")
		return
	}
	if texts {
		r.Warnings = append(r.Warnings, "tokens are compared by their text: the server gave no ids")
	}
	r.Identical, r.Forks, r.Exposure, r.Censored = &identical, &forks, &exposure, &censored
	r.D0Mean, r.D0Max = meanOf(d0), maxOf(d0)
	r.PrefixMean, r.PrefixMax, r.PrefixP99 = meanOf(prefix), maxOf(prefix), percentile(prefix, 0.99)
	r.ZippedMean, r.ZippedMax = meanOf(zipped), maxOf(zipped)
	r.KLDMean = meanOf(kld)
	if tau, ok := s.threshold(d, s.in.Design.Rule.thresholds().NearTie); ok {
		n := 0
		for _, p := range d.pairs {
			if p.margin != nil && *p.margin > tau {
				n++
			}
		}
		r.HardFlips = &n
	} else if forks > 0 {
		r.Warnings = append(r.Warnings, "hard flips are not counted: no flip between control processes gives their margin")
	}
	if limit, ok := s.threshold(d, s.in.Design.Rule.thresholds().D0Flag); ok {
		for _, p := range d.stable {
			if p.sameStart && p.d0 != nil && *p.d0 > limit && *p.d0 > 0 {
				r.FlaggedIDs = append(r.FlaggedIDs, p.arm.prompt.ID)
			}
		}
	}
	r.FlaggedIDs = dedupe(r.FlaggedIDs)
	for _, p := range d.stable {
		if p.sameStart && !p.startMeasured {
			r.Warnings = append(r.Warnings, "splits are compared as geometry expects them: they were not measured")
			break
		}
	}
	r.Replicates = len(j.readings) - 1
	if r.Replicates > 0 {
		for i, again := range j.readings[1:] {
			r.Warnings = append(r.Warnings, fmt.Sprintf("replicate %d: %d fail in the arm only, %d in the control only", i+1, again.c(), again.refOnly))
		}
	}
}

func (s *scorer) outcomes(r *ArmResult, rows []*row, j *judgement) {
	byID := map[string]*pair{}
	unstable := map[string]bool{}
	if j != nil && len(j.readings) > 0 {
		for _, p := range j.readings[0].pairs {
			byID[p.arm.prompt.ID] = p
		}
		for _, id := range j.readings[0].unstable {
			unstable[id] = true
		}
	}
	for _, w := range rows {
		o := Outcome{ID: w.prompt.ID, Class: w.class(), Failed: w.failed, Fired: w.fired, Unstable: unstable[w.prompt.ID],
			Answered: w.answered, Local: w.local, External: w.external, Computed: w.computed}
		if p := byID[w.prompt.ID]; p != nil && p.comparedTokens {
			o.Identical, o.BitEqual, o.D0 = &p.identical, p.bit, roundedPtr(p.d0)
			if p.fork >= 0 {
				o.Fork = &p.fork
			}
		}
		r.Outcomes = append(r.Outcomes, o)
	}
}

// onlyUnder marks an attribution whose twin in another group is clean on the same ids.
func (s *scorer) onlyUnder(out *Result) {
	for i := range out.Arms {
		a := &out.Arms[i]
		if a.Group == nil || a.Verdict == nil || *a.Verdict != CorruptionAttributed {
			continue
		}
		for k := range out.Arms {
			b := &out.Arms[k]
			if s.twins(a.Name, b.Name) || b.Group == nil || *b.Group == *a.Group || b.Preset != a.Preset || b.Verdict == nil || *b.Verdict != CleanBounded || !sameIDs(a, b) {
				continue
			}
			a.OnlyUnder[s.groupPin(a.Name, b.Name)] = *a.Group
		}
	}
}

// twins says whether one of two arms is of a twin ladder: that is another mode of the engine,
// not another dtype.
func (s *scorer) twins(a, b string) bool {
	x, ok := s.in.Design.ByName(a)
	y, ok2 := s.in.Design.ByName(b)
	return ok && ok2 && (x.TwinOf != "") != (y.TwinOf != "")
}

func sameIDs(a, b *ArmResult) bool {
	return slices.EqualFunc(a.Outcomes, b.Outcomes, func(x, y Outcome) bool { return x.ID == y.ID })
}

// groupPin is the pin that the groups of two twins differ in.
func (s *scorer) groupPin(a, b string) string {
	x, ok := s.in.Design.ByName(a)
	y, ok2 := s.in.Design.ByName(b)
	if ok && ok2 {
		for _, name := range slices.Sorted(maps.Keys(x.Pins)) {
			if x.Pins[name] == x.Group && y.Pins[name] == y.Group {
				return name
			}
		}
	}
	return "kv_cache_dtype"
}

// ladderVerdict is the worst arm, by exit 3 where the plan was broken anywhere, else
// corrupt before dead before invalid before undecided before clean. It names the arms.
func ladderVerdict(arms []ArmResult) (string, int) {
	order := []int{ExitCorrupt, ExitDied, ExitInvalid, ExitCannot, ExitClean}
	names := map[string][]string{}
	exits := map[string]int{}
	var words []string
	for i := range arms {
		a := &arms[i]
		if a.Verdict == nil {
			continue
		}
		w := *a.Verdict
		if w == CannotTell {
			w = InconclusiveUnknown
		}
		if names[w] == nil {
			words = append(words, w)
		}
		names[w] = append(names[w], a.Name)
		exits[w] = *a.Exit
	}
	if len(words) == 0 {
		return "no arm was judged", ExitCannot
	}
	rank := func(w string) int {
		if w == InvalidPrereg {
			return -1
		}
		return slices.Index(order, exits[w])
	}
	sort.SliceStable(words, func(i, k int) bool { return rank(words[i]) < rank(words[k]) })
	parts := make([]string, 0, len(words))
	for _, w := range words {
		parts = append(parts, w+": "+strings.Join(names[w], ", "))
	}
	return strings.Join(parts, "; "), exits[words[0]]
}

// Suspects lists the judged arms whose verdict waits for a registered replicate that the
// records do not hold.
func Suspects(r Result) []string {
	out := []string{}
	for i := range r.Arms {
		a := &r.Arms[i]
		if a.Verdict == nil || *a.Verdict != SuspectUnconfirmed {
			continue
		}
		if a.Replicates < a.Registered {
			out = append(out, a.Name)
		}
	}
	return out
}

func meanOf(x []float64) *float64 {
	if m, err := compare.MeanSE(x); err == nil {
		return rounded(m.Value)
	}
	return nil
}

func maxOf(x []float64) *float64 {
	if len(x) == 0 {
		return nil
	}
	return rounded(slices.Max(x))
}

func percentile(x []float64, q float64) *float64 {
	v, err := compare.Percentile(x, q)
	if err != nil {
		return nil
	}
	return rounded(v)
}

func dedupe(x []string) []string {
	out := []string{}
	seen := map[string]bool{}
	for _, v := range x {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
