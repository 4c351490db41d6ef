package scoring

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring/compare"
)

// countersTrusted says whether the local cache was asked about as many tokens as were sent
// as prompts, within five in a hundred, and nothing that the server says of its requests
// contradicts the rest; nil where that cannot be known. A preemption makes the engine ask
// again, so nothing is said then.
func (s *scorer) countersTrusted(a *armRun, pass int) *bool {
	if len(a.odd) > 0 {
		return ptr(false)
	}
	queries, tokens, n := 0.0, 0.0, 0
	for _, w := range a.rows(s.in.Set, pass) {
		for _, c := range w.reply.Counters {
			if d, ok := c.Delta(); ok && c.Role == probes.Preemptions && d > 0 {
				return nil
			}
		}
		if w.queries != nil && w.tokens != nil {
			queries, tokens, n = queries+float64(*w.queries), tokens+float64(*w.tokens), n+1
		}
	}
	if n == 0 {
		q, t := a.total(probes.LocalQueries, pass), a.total(probes.PromptTokens, pass)
		if p := a.total(probes.Preemptions, pass); q == nil || t == nil || p != nil && *p > 0 {
			return nil
		}
		queries, tokens = *q, *t
	}
	if tokens == 0 || isC0(a.spec) { // nothing was sent, or the cache is off
		return nil
	}
	return ptr(math.Abs(queries/tokens-1) <= 0.05)
}

// localOf is a row's local hit where the counters behind it can be trusted.
func (j *judgement) localOf(w *row) *int {
	if j.trusted != nil && !*j.trusted {
		return nil
	}
	return w.local
}

// carried says whether the path gave a request any token; nil = not known.
func (j *judgement) carried(w *row, path string) *bool {
	local, external := j.localOf(w), w.external
	switch path {
	case "local":
		return above(local)
	case "external":
		return above(external)
	case "mixed":
		return both(above(local), above(external))
	}
	l, e := above(local), above(external)
	switch {
	case l != nil && *l || e != nil && *e:
		return ptr(true)
	case l == nil || e == nil:
		return nil
	}
	return ptr(false)
}

func above(n *int) *bool {
	if n == nil {
		return nil
	}
	return ptr(*n > 0)
}

func both(a, b *bool) *bool {
	switch {
	case a != nil && !*a || b != nil && !*b:
		return ptr(false)
	case a == nil || b == nil:
		return nil
	}
	return ptr(true)
}

// limb is what the exercise rule of an arm asks of one request.
func (s *scorer) limb(j *judgement, w *row) *bool {
	switch j.spec.Exercise {
	case "C1", "REPLAY":
		return j.carried(w, "local")
	case "WARM", "RST":
		return j.carried(w, "external")
	case "PART":
		return j.carried(w, "mixed")
	case "COLD":
		return s.storedIn(j, w)
	case "XID":
		if same := s.sameIdentity(j, w); same != nil {
			return j.carried(same, j.spec.Path)
		}
		return nil
	}
	return j.carried(w, j.spec.Path)
}

// must says whether geometry expects the request to take reuse that can be measured.
func must(spec *ArmSpec, id string) bool {
	e := spec.Expected[id]
	switch path := spec.Exercise; {
	case path == "COLD":
		return e.Local+e.External > 0
	case path == "WARM" || path == "RST" || path != "C1" && path != "REPLAY" && path != "PART" && spec.Path == "external":
		return e.External > 0
	case path == "PART" || path != "C1" && path != "REPLAY" && spec.Path == "mixed":
		return e.Local > 0 && e.External > 0
	}
	return e.Local > 0
}

// hit says whether the request took the reuse that geometry expects of it.
func (s *scorer) hit(j *judgement, w *row) *bool {
	if j.spec.Exercise == "COLD" {
		return j.carried(w, "")
	}
	return s.limb(j, w)
}

// storedTotal is how many chunks an arm wrote, with where that is known from.
func (s *scorer) storedTotal(a *armRun, pass int) (*float64, string) {
	var most *float64
	source := ""
	take := func(v *float64, from string) {
		if v != nil && (most == nil || *v > *most) {
			most, source = v, from
		}
	}
	sum, n := 0.0, 0
	for _, w := range a.rows(s.in.Set, pass) {
		if w.stored != nil {
			sum, n = sum+*w.stored, n+1
		}
	}
	if n > 0 {
		take(&sum, "the counters of the requests")
	}
	if len(a.odd) == 0 {
		take(a.total(probes.StoredChunks, pass), "the counters of the arm")
	}
	start, end := a.store("start"), a.store("end")
	if start != nil && end != nil {
		if start.Chunks != nil && end.Chunks != nil {
			take(ptr(float64(*end.Chunks-*start.Chunks)), "the store")
		} else if start.Files != nil && end.Files != nil {
			take(ptr(float64(*end.Files-*start.Files)), "the store's files")
		}
	}
	if most == nil && len(a.odd) == 0 {
		if v := a.total(probes.StoredBytes, pass); v != nil {
			take(v, "the bytes the arm stored")
		}
	}
	return most, source
}

func (a *armRun) store(when string) *probes.StoreFact {
	var found *probes.StoreFact
	for i := range a.stores {
		if a.stores[i].When == when && (found == nil || when == "end") {
			found = &a.stores[i]
		}
	}
	return found
}

// empty says whether a store held nothing; nil = not known.
func empty(f *probes.StoreFact) *bool {
	switch {
	case f == nil:
		return nil
	case f.Chunks != nil:
		return ptr(*f.Chunks == 0)
	case f.Files != nil:
		return ptr(*f.Files == 0)
	case f.Bytes != nil:
		return ptr(*f.Bytes == 0)
	}
	return nil
}

// storedIn says whether a request wrote a chunk. Writing lags behind the reply, so where
// the arm's total is larger than what the requests account for, the length of the prompt
// tells: one that fills a chunk had one to store.
func (s *scorer) storedIn(j *judgement, w *row) *bool {
	total, from := j.stored, j.storedFrom
	if total == nil {
		return nil
	}
	if *total <= 0 {
		return ptr(false)
	}
	if from == "the counters of the requests" && w.stored != nil {
		return ptr(*w.stored > 0)
	}
	chunk := s.in.Set.Geometry.StoreChunk
	if chunk <= 0 {
		chunk = s.in.Set.Geometry.Boundary()
	}
	if w.tokens == nil {
		return nil
	}
	j.warn("stored chunks per request from the prompt's length: the counters know the arm only")
	return ptr(*w.tokens >= chunk)
}

// columnX: was the path exercised at all, by the rule of the preset.
func (s *scorer) columnX(j *judgement) {
	j.exercised = map[string]bool{}
	no := func(c Column, sub, format string, args ...any) {
		j.cols.X, j.cols.Exercise = c, sub
		j.warn("not exercised: "+format, args...)
	}
	if j.arm == nil {
		no(Unknown, Unproven, "no records")
		return
	}
	pass := judgedPass(j.spec)
	j.trusted = s.countersTrusted(j.arm, pass)
	for _, what := range j.arm.odd {
		j.warn("the counters are not trusted: %s", what)
	}
	if j.trusted != nil && !*j.trusted && len(j.arm.odd) == 0 {
		j.warn("local cache queries do not match the prompt tokens: local hits are not trusted")
	}
	j.stored, j.storedFrom = s.storedTotal(j.arm, pass)
	rows := j.arm.rows(s.in.Set, pass)
	j.exerciseOK = len(rows) > 0
	labels := map[string]bool{}
	targets, mustN, mustHit, unknown, unasked, ended := 0, 0, 0, 0, 0, 0
	lost, lostIn := map[string]int{}, []lostCounter(nil)
	for _, w := range rows {
		if w.weaker != "" {
			j.warn("split from %s", w.weaker)
		}
		for _, name := range w.unreadable {
			if lost[name]++; lost[name] == 1 {
				lostIn = append(lostIn, lostCounter{name, w.prompt.ID, w.weaker})
			}
		}
		if !w.target() {
			continue
		}
		if j.arm.endedByLoad(w) { // its hit was counted, and came to nothing
			ended++
			continue
		}
		targets++
		if must(j.spec, w.prompt.ID) {
			h := s.hit(j, w)
			switch {
			case h != nil && *h:
				mustN, mustHit = mustN+1, mustHit+1
			case h == nil && len(j.arm.odd) > 0: // of an account that is not believed nothing is asked
				unasked++
			default:
				mustN++
			}
		}
		took := s.limb(j, w)
		switch {
		case took == nil:
			unknown++
		case *took:
			j.exercised[w.prompt.ID] = true
			labels[w.class()] = true
		}
	}
	for _, c := range lostIn {
		instead := "nothing stands in for it"
		if c.instead != "" {
			instead = "the split is from " + c.instead
		}
		j.warn("counter %s is no count, or fell, in %d of %d requests, first in %s: %s", c.name, lost[c.name], len(rows), c.first, instead)
	}
	mustN = max(mustHit, mustN-max(j.spec.FailLoads-ended, s.loadFailures(j, rows))) // a load that failed is computed instead
	mayHit := mustN+unasked+ended > 0
	if unknown > 0 {
		j.exerciseOK = false
	}
	expected := len(j.spec.Expected) > 0
	if j.spec.Exercise == "COLD" {
		if s.shortForStore(rows) {
			expected, mayHit = true, false
		} else {
			mayHit = true
		}
	}
	if why := j.arm.refused(); why != "" && len(j.exercised) == 0 {
		no(No, Refused, "the engine did not take back what it had stored: %s", why)
		return
	}
	if expected && !mayHit && len(j.exercised) == 0 {
		no(No, CannotHit, "geometry expects no reuse in any request")
		return
	}
	switch j.spec.Exercise {
	case "COLD":
		before := empty(j.arm.store("start"))
		if before == nil {
			no(Unknown, Unproven, "the store was not proved empty at the start")
			return
		}
		if !*before {
			no(No, Unproven, "the store was not empty at the start")
			return
		}
		switch {
		case j.stored == nil:
			no(Unknown, Unproven, "nothing says whether chunks were stored")
			return
		case *j.stored <= 0:
			no(No, ReuseLost, "nothing was stored")
			return
		}
	case "WARM", "RST":
		before := empty(j.arm.store("start"))
		if before != nil && *before {
			no(No, ReuseLost, "the store was empty at the start")
			return
		}
		if before == nil && len(j.exercised) == 0 {
			no(Unknown, Unproven, "nothing says what the store held at the start")
			return
		}
	}
	few := 1 // COLD and REPLAY ask whether it happened; how much of it there was is for the power column
	switch j.spec.Exercise {
	case "C1", "WARM", "RST", "PART":
		few = s.need(targets)
	}
	if unknown > 0 {
		if what := s.witness(j); what != "" {
			j.warn("%s", what)
		}
	}
	switch {
	case len(j.exercised) == 0 && unknown > 0 && len(j.arm.odd) > 0:
		no(Unknown, Unproven, "what the server says of its requests contradicts itself: %s", j.arm.odd[0])
		return
	case len(j.exercised) == 0 && unknown > 0:
		no(Unknown, Unproven, "no counter says what the requests took")
		return
	case len(j.exercised) == 0 && ended > 0:
		no(No, ReuseLost, "no request took the path: the engine ended %d of them since a load had failed", ended)
		return
	case len(j.exercised) == 0:
		no(No, ReuseLost, "no request took the path")
		return
	case unknown > 0 && len(j.exercised) < s.in.Design.Rule.NMin:
		no(Unknown, Unproven, "the split of %d requests is not known", unknown)
		return
	case len(labels) < 2:
		no(No, Trivial, "only %d geometry", len(labels))
		return
	case mustN > 0 && float64(mustHit) < s.in.Design.Rule.HitShare*float64(mustN):
		no(No, ReuseLost, "%d of the %d requests that must hit did", mustHit, mustN)
		return
	case len(j.exercised) < few && mustN >= few:
		no(No, ReuseLost, "%d requests took the path, at least %d had to and could", len(j.exercised), few)
		return
	case len(j.exercised) < few:
		no(No, Trivial, "only %d requests took the path, at least %d had to", len(j.exercised), few)
		return
	}
	if c, why := s.concurrent(j); c != Yes {
		no(c, subOf(c), "%s", why)
		return
	}
	if j.spec.Exercise == "PRESS" {
		if c, why := s.pressed(j); c != Yes {
			no(c, subOf(c), "%s", why)
			return
		}
	}
	if j.spec.Exercise == "WARM" {
		if proved, why := s.resetProved(j, rows); proved != Yes {
			no(proved, Unproven, "%s", why)
			return
		}
	}
	j.cols.X = Yes
}

// refused says what the engine refused to take back, "" when nothing.
func (a *armRun) refused() string {
	for _, st := range a.steps {
		if st.Step == "restore" && st.Done && st.Proved != nil && !*st.Proved {
			return st.Seen
		}
	}
	return ""
}

// lostCounter is a counter that was there and could not be read as a count.
type lostCounter struct{ name, first, instead string }

// subOf is the finer word for an exercise that did not happen, or is not known to have.
func subOf(c Column) string {
	if c == No {
		return ReuseLost
	}
	return Unproven
}

func (s *scorer) shortForStore(rows []*row) bool {
	chunk := s.in.Set.Geometry.StoreChunk
	if chunk <= 0 || len(rows) == 0 {
		return false
	}
	for _, w := range rows {
		if w.tokens == nil || *w.tokens >= chunk {
			return false
		}
	}
	return true
}

// resetProved asks whether the local cache was really dropped: the first request after the
// reset found nothing locally, although the same prompt had been there before. Only
// counters show it, never the status of the call.
func (s *scorer) resetProved(j *judgement, rows []*row) (Column, string) {
	for _, r := range j.arm.resets {
		if r.Proved != nil && !*r.Proved {
			return No, "the local cache was not dropped by the reset"
		}
	}
	wave := firstWave(rows)
	if len(wave) == 0 {
		return Unknown, "the reset cannot be proved: no request followed it"
	}
	c, why := s.resetShownBy(j, wave[0])
	for _, w := range wave[1:] { // of several clients, any of the first requests shows it
		if again, _ := s.resetShownBy(j, w); again == Yes {
			return Yes, ""
		}
	}
	return c, why
}

// firstWave are the requests that were sent before any reply came back, in order: one,
// where there is one client.
func firstWave(rows []*row) []*row {
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.reply.SentAt, b.reply.SentAt), cmp.Compare(a.seq, b.seq))
	})
	for i, w := range out {
		for _, before := range out[:i] {
			if w.reply.SentAt >= before.reply.LastAt {
				return out[:i]
			}
		}
	}
	return out
}

// resetShownBy asks one of the first requests after a reset.
func (s *scorer) resetShownBy(j *judgement, first *row) (Column, string) {
	local := j.localOf(first)
	if local == nil {
		return Unknown, "the reset cannot be proved: local hits are not known"
	}
	if *local > 0 {
		return No, fmt.Sprintf("the reset did nothing: the first request after it took %d tokens locally", *local)
	}
	kept := func(rows map[string]*row) bool {
		w := rows[first.prompt.ID]
		return w != nil && w.answered && w.seq < first.seq &&
			(w.local != nil && *w.local > 0 || w.tokens != nil && *w.tokens >= s.in.Set.Geometry.Boundary())
	}
	for i := range s.in.Design.Arms { // it was there before: sent to the same process, and long enough to be kept
		spec := &s.in.Design.Arms[i]
		a := s.t.arm(0, spec.Name)
		if a == nil || spec.Chain != j.spec.Chain || spec.Process != j.spec.Process {
			continue
		}
		for _, rows := range a.passes {
			if kept(rows) {
				return Yes, ""
			}
		}
	}
	return Unknown, "the reset cannot be proved: the first prompt after it was not in the local cache before"
}

// columnU: enough exercised stable requests and classes for the registered bound.
func (s *scorer) columnU(j *judgement) {
	if len(j.readings) == 0 {
		return
	}
	r := j.readings[0]
	rule := s.in.Design.Rule
	failedClass := map[string]bool{}
	n, failed, stableN, stableFailed := 0, 0, 0, 0
	for _, p := range r.stable {
		stableN++
		if p.arm.failed {
			stableFailed++
		}
		if !j.exercised[p.arm.prompt.ID] {
			continue
		}
		n++
		label := p.arm.class()
		failedClass[label] = failedClass[label] || p.arm.failed
		if p.arm.failed {
			failed++
		}
	}
	classes, bad := len(failedClass), 0
	for _, f := range failedClass {
		if f {
			bad++
		}
	}
	j.classes = classes
	if !j.exerciseOK && n == 0 {
		j.upper = compare.Upper95(stableFailed, stableN)
		j.warn("the bound counts all stable requests: which of them took the path is not known")
		return
	}
	j.exercisedN = &n
	j.upper, j.upperClass = compare.Upper95(failed, n), compare.Upper95(bad, classes)
	j.cols.U = columnOf(n >= rule.NMin && classes >= rule.GMin && j.upperClass != nil && *j.upperClass <= rule.PMax)
	if s.in.Set != nil && !s.in.Set.Random {
		j.warn("%d classes covered: the set was not drawn at random, so the class bound is no rate", classes)
	}
}

// storeInvariant is the default invariant of arms that fill a store.
const storeInvariant = "stored >= expected chunks"

// columnV: registered invariants that are violated in the arm and not in its reference.
func (s *scorer) columnV(j *judgement) {
	j.cols.V = No
	if j.arm == nil {
		return
	}
	facts := s.invariantsOf(j.arm)
	if f, ok := s.storedEnough(j); ok {
		registered := false
		for _, have := range facts {
			registered = registered || have.Name == f.Name
		}
		if !registered {
			facts = append(facts, f)
		}
	}
	inReference := map[string]bool{}
	if ref := s.t.arm(0, j.spec.Reference); ref != nil {
		for _, f := range s.invariantsOf(ref) {
			if f.Held != nil && !*f.Held {
				inReference[f.Name] = true
			}
		}
	}
	for _, f := range facts {
		j.invariants = append(j.invariants, Invariant{f.Name, f.Held, f.Seen})
		j.cols.Registered = true
		switch {
		case f.Held == nil:
			if j.cols.V == No {
				j.cols.V = Unknown
			}
			j.warn("invariant %q could not be checked", f.Name)
		case !*f.Held && inReference[f.Name]:
			j.warn("invariant %q is violated in the reference too", f.Name)
		case !*f.Held && j.cols.V != Yes:
			j.cols.V, j.cols.Invariant = Yes, f.Name
			j.cols.Leak = isLeak(f.Name)
			if j.reason == "" {
				j.reason = f.Seen
			}
		}
	}
}

func isLeak(name string) bool { return name == "no leak" || name == "leak" }

// storedEnough checks a store that was empty at the start against the chunks that the
// prompts must have filled. The prompt's last token is never needed from a store, so a
// chunk that ends with it is not asked for: only a shortfall counts, and it has to be one.
// Where anything else may explain a shortfall, nothing is said.
func (s *scorer) storedEnough(j *judgement) (probes.InvariantFact, bool) {
	if j.spec.Exercise != "COLD" && j.spec.Exercise != "PART" && j.spec.Exercise != "PRESS" || s.in.Design.Imported {
		return probes.InvariantFact{}, false
	}
	chunk := s.in.Set.Geometry.StoreChunk
	start := j.arm.store("start")
	if chunk <= 0 || start == nil || start.Chunks == nil || *start.Chunks != 0 || len(j.arm.deaths) > 0 {
		return probes.InvariantFact{}, false
	}
	end := s.atRest(j)
	if j.spec.Exercise == "PRESS" { // between the pass that fills the store and the flood
		if end = nil; j.arm.store("filled") != nil {
			end = j.arm.store("filled").Chunks
		}
	}
	if end == nil {
		return probes.InvariantFact{}, false
	}
	rows := j.arm.rows(s.in.Set, judgedPass(j.spec))
	if len(rows) != len(s.in.Set.Prompts) {
		return probes.InvariantFact{}, false
	}
	for _, w := range rows {
		if !w.answered || w.reply.Status >= 400 || len(w.prompt.Tokens) == 0 {
			return probes.InvariantFact{}, false
		}
	}
	want := distinctChunks(s.in.Set, chunk)
	got := *end
	if v := j.arm.total(probes.StoredChunks, judgedPass(j.spec)); v != nil && j.spec.Exercise != "PRESS" && len(j.arm.odd) == 0 {
		got = max(got, int(*v))
	}
	return probes.InvariantFact{Name: storeInvariant, Held: ptr(got >= want), Seen: fmt.Sprintf("%d chunks stored, %d expected", got, want)}, true
}

// atRest is how many chunks the store held once it had come to rest after an arm: what is
// still being written is not lost. That is the arm's own end where it was drained first,
// else what the next drained arm of the chain found at its start; nil where nobody waited.
func (s *scorer) atRest(j *judgement) *int {
	drained := func(a *armRun) bool {
		return slices.ContainsFunc(a.steps, func(st probes.StepFact) bool {
			return st.Step == "drain" && st.Done && st.Proved != nil && *st.Proved
		})
	}
	if drained(j.arm) {
		if f := j.arm.store("end"); f != nil {
			return f.Chunks
		}
		return nil
	}
	after := false
	for i := range s.in.Design.Arms {
		spec := &s.in.Design.Arms[i]
		if spec == j.spec {
			after = true
			continue
		}
		a := s.t.arm(0, spec.Name)
		if !after || spec.Chain != j.spec.Chain || a == nil || !drained(a) {
			continue
		}
		if f := a.store("start"); f != nil {
			return f.Chunks
		}
		return nil
	}
	return nil
}

// distinctChunks counts the full chunks of all prompts, a shared beginning once.
func distinctChunks(set *prompts.Set, chunk int) int {
	type key struct {
		salt string
		hash uint64
		end  int
	}
	seen := map[key]bool{}
	for i := range set.Prompts {
		p := &set.Prompts[i]
		h := uint64(14695981039346656037)
		for at, t := range p.Tokens[:max(0, len(p.Tokens)-1)] {
			h = (h ^ uint64(t)) * 1099511628211
			h ^= h >> 29
			if (at+1)%chunk == 0 {
				seen[key{p.Salt, h, at + 1}] = true
			}
		}
	}
	return len(seen)
}

// columnE: did the registered path carry anything where the arm alone fails.
func (s *scorer) columnE(j *judgement) {
	j.path = ""
	if j.arm == nil || len(j.readings) == 0 {
		return
	}
	switch {
	case j.cols.A == No:
		s.pathAtDeath(j)
		return
	case j.cols.V == Yes:
		j.path = "unproven"
		if s.anyCarried(j) {
			j.path = j.spec.Path
		}
	}
	var rows []*row
	if j.cols.F != Yes && j.cols.B == No {
		for _, p := range j.readings[0].stable {
			if slices.Contains(j.differ, p.arm.prompt.ID) {
				rows = append(rows, p.arm)
			}
		}
	} else {
		for _, r := range j.readings {
			for _, p := range r.armOnly {
				rows = append(rows, p.arm)
			}
			if len(rows) > 0 {
				break
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	c, path := s.pathOf(j, rows)
	j.cols.E = c
	if j.path == "" {
		j.path = path
	}
}

func (s *scorer) pathOf(j *judgement, rows []*row) (Column, string) {
	targets, known, all := 0, true, true
	for _, w := range rows {
		took := (*bool)(nil)
		if w.target() {
			targets++
			took = j.carried(w, j.spec.Path)
		} else if s.anyCarried(j) { // the damage of a load shows in whoever else was there
			took = ptr(true)
		} else {
			took = j.carried(w, j.spec.Path)
		}
		switch {
		case took == nil:
			known = false
		case !*took:
			all = false
		}
	}
	switch {
	case !all:
		return No, "unproven"
	case known && targets == 0 && j.spec.Path == "external":
		return Yes, "external (bystander)"
	case known && j.spec.Path != "":
		return Yes, j.spec.Path
	case known:
		return Yes, "unproven"
	}
	total := s.pathTotal(j)
	if total == nil {
		return Unknown, "unproven"
	}
	if *total == 0 {
		return No, "unproven"
	}
	j.warn("known for the arm only: the path carried %.0f tokens, not known in which requests", *total)
	return Unknown, "unproven"
}

// pathTotal is what the registered path carried in the arm as a whole, from the counters
// before and after it.
func (s *scorer) pathTotal(j *judgement) *float64 {
	if len(j.arm.odd) > 0 {
		return nil
	}
	pass := judgedPass(j.spec)
	local, external := j.arm.total(probes.LocalHits, pass), j.arm.total(probes.ExternalHits, pass)
	if j.trusted != nil && !*j.trusted {
		local = nil
	}
	switch j.spec.Path {
	case "local":
		return local
	case "external":
		return external
	case "mixed":
		if local != nil && external != nil {
			return ptr(math.Min(*local, *external))
		}
	}
	return nil
}

// anyCarried says whether the registered path is known to have carried a token anywhere in
// the arm.
func (s *scorer) anyCarried(j *judgement) bool {
	for _, w := range j.arm.allRows(s.in.Set) {
		if took := j.carried(w, j.spec.Path); took != nil && *took {
			return true
		}
	}
	t := s.pathTotal(j)
	return t != nil && *t > 0
}

// pathAtDeath names the path of the requests in flight when the engine died: as measured,
// else as planned.
func (s *scorer) pathAtDeath(j *judgement) {
	ids := map[string]bool{}
	for _, d := range j.arm.deaths {
		if d.fact.Prompt != "" {
			ids[d.fact.Prompt] = true
		}
	}
	var rows []*row
	for _, w := range j.arm.allRows(s.in.Set) {
		if !w.answered {
			ids[w.prompt.ID] = true
		}
		if ids[w.prompt.ID] && !w.answered {
			rows = append(rows, w)
		}
	}
	j.path = "unproven"
	if len(ids) == 0 {
		return
	}
	measured := false
	for _, w := range rows {
		// a request that ended before the engine counted it moved no counter at all: that is
		// nothing measured, and not a path that carried nothing
		if took := j.carried(w, j.spec.Path); took != nil && (*took || w.counted()) {
			measured = true
			if *took {
				j.path = j.spec.Path
			}
		}
	}
	if measured {
		return
	}
	for id := range ids {
		if must(j.spec, id) {
			j.path = j.spec.Path
			j.warn("path planned, not measured")
		}
	}
}
