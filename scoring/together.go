package scoring

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
)

// fillSplits gives rows that no counter of their own splits what else is known of them: the
// engine's own account of the request; or, where the arm's counters say that one source gave
// nothing at all in the pass, all of the reply's cached tokens from the other. Requests that
// ran side by side are of this kind.
func (s *scorer) fillSplits() {
	for _, a := range s.t.arms {
		byID, complete := map[string]probes.Load{}, map[int]bool{}
		for _, f := range a.loads {
			complete[f.Pass] = f.Complete
			for _, l := range f.Loads {
				byID[l.RequestID] = l
			}
		}
		for pass, rows := range a.passes {
			local, external := a.total(probes.LocalHits, pass), a.total(probes.ExternalHits, pass)
			for _, w := range rows {
				if w.local != nil && w.external != nil {
					continue
				}
				l, told := byID[w.reply.RequestID]
				cached := w.reply.Usage.Cached
				switch {
				case told:
					w.local, w.external, w.weaker = ptr(l.Local), ptr(l.External), "the engine's account of each request"
				case cached != nil && *cached == 0:
					w.local, w.external, w.weaker = ptr(0), ptr(0), "the reply's cached tokens, which are none"
				case complete[pass] && cached != nil:
					w.local, w.external, w.weaker = cached, ptr(0), "the reply's cached tokens, since the engine lists no load for the request"
				case cached != nil && local != nil && *local == 0:
					w.local, w.external, w.weaker = ptr(0), cached, "the reply's cached tokens, since the local cache gave the pass nothing"
				case cached != nil && external != nil && *external == 0:
					w.local, w.external, w.weaker = cached, ptr(0), "the reply's cached tokens, since the store gave the pass nothing"
				}
				if w.computed == nil && w.tokens != nil {
					switch {
					case w.local != nil && w.external != nil:
						w.computed = ptr(max(0, *w.tokens-*w.local-*w.external))
					case cached != nil:
						w.computed = ptr(max(0, *w.tokens-*cached))
					}
				}
			}
		}
	}
}

// concurrent asks of an arm that is judged at several clients whether so many requests
// really ran at once.
func (s *scorer) concurrent(j *judgement) (Column, string) {
	if j.spec.Preset != "CONC" || j.spec.Concurrency < 2 {
		return Yes, ""
	}
	peak, readings := 0, 0
	for _, f := range j.arm.running {
		if f.Pass == judgedPass(j.spec) {
			peak, readings = max(peak, f.Peak), readings+f.Readings
		}
	}
	want := min(j.spec.Concurrency, len(s.in.Set.Prompts))
	switch {
	case readings == 0:
		return Unknown, "no reading says how many requests ran at once"
	case peak < want:
		return No, fmt.Sprintf("at most %d requests were seen running at once, %d clients sent them (%d readings)", peak, want, readings)
	}
	return Yes, ""
}

// pressed asks of a small pool whether it was one: blocks were taken back while the pass ran,
// and what was asked did not fit.
func (s *scorer) pressed(j *judgement) (Column, string) {
	var pool *probes.PoolFact
	for i := range j.arm.pools {
		pool = &j.arm.pools[i]
	}
	if pool == nil || pool.Tokens <= 0 {
		return Unknown, "the engine did not report the size of its pool"
	}
	block := max(1, s.in.Set.Geometry.AttentionBlock)
	if active := distinctChunks(s.in.Set, block) * block; active <= pool.Tokens {
		return No, fmt.Sprintf("the requests have %d tokens and the pool has room for %d: nothing presses", active, pool.Tokens)
	}
	known, any := false, false
	for _, role := range []string{probes.Preemptions, probes.Evictions} {
		if v := j.arm.total(role, judgedPass(j.spec)); v != nil {
			known, any = true, any || *v > 0
		}
	}
	switch {
	case any:
		return Yes, ""
	case !known || j.arm.total(probes.Evictions, judgedPass(j.spec)) == nil:
		return Unknown, "no preemption was counted, and no counter says whether blocks were evicted"
	}
	return No, "no block was evicted and no request preempted"
}

// sharedHits is the invariant of arms that ask the same tokens under two identities.
const sharedHits = "hits across identities = 0"

// positive is the pass in which the same identity asks again: the judged one, where the Set
// holds both identities, and the one behind it, where the configuration is the identity.
func positive(spec *ArmSpec) int {
	if spec.Identity == "config" {
		return judgedPass(spec) + 1
	}
	return judgedPass(spec)
}

// sameIdentity finds the row that asks a request's tokens again under the identity that
// filled the cache: its own in the next pass, or that of its pair.
func (s *scorer) sameIdentity(j *judgement, w *row) *row {
	again := j.arm.passes[positive(j.spec)]
	if j.spec.Identity == "config" {
		return again[w.prompt.ID]
	}
	if !w.prompt.Cross() {
		return w
	}
	for i := range s.in.Set.Prompts {
		p := &s.in.Set.Prompts[i]
		if p.Body == w.prompt.Prime.Body {
			return again[p.ID]
		}
	}
	return nil
}

// crossing checks that no request was answered from what another identity stored. A request
// that geometry gives something of its own identity's earlier requests proves nothing and is
// left out.
func (s *scorer) crossing(a *armRun) (probes.InvariantFact, bool) {
	if a == nil || a.spec.Exercise != "XID" {
		return probes.InvariantFact{}, false
	}
	f := probes.InvariantFact{Name: sharedHits}
	asked, unknown, hits, first := 0, 0, 0, ""
	for _, w := range a.rows(s.in.Set, judgedPass(a.spec)) {
		if a.spec.Identity != "config" && !w.prompt.Cross() {
			continue
		}
		took := w.external
		if a.spec.Identity != "config" {
			if took = nil; w.local != nil && w.external != nil {
				took = ptr(*w.local + *w.external)
			}
		}
		if e := a.spec.Expected[w.prompt.ID]; e.External > 0 || a.spec.Identity != "config" && e.Local > 0 {
			continue
		}
		asked++
		switch {
		case took == nil:
			unknown++
		case *took > 0:
			if hits++; first == "" {
				first = fmt.Sprintf("%s took %d tokens", w.prompt.ID, *took)
			}
		}
	}
	switch {
	case hits > 0:
		f.Held, f.Seen = ptr(false), fmt.Sprintf("%d of %d requests were served from another identity's cache: %s", hits, asked, first)
	case asked == 0:
		f.Seen = "no request asks across identities"
	case unknown > 0:
		f.Seen = fmt.Sprintf("the split of %d of %d requests is not known", unknown, asked)
	default:
		f.Held, f.Seen = ptr(true), fmt.Sprintf("0 of %d requests", asked)
	}
	return f, true
}

// noLeak is the invariant about private values.
const noLeak = "no leak"

// longWord is the length from which one private value is proof by itself: shorter ones
// coincide by chance.
const longWord = 8

var digits = regexp.MustCompile(`[0-9]+`)

// leaks looks for private values of one document in the replies to others: two different
// ones of one owner in the arm, or one of at least eight digits. Values that the own prompt
// holds, or that two documents share, say nothing.
func (s *scorer) leaks(a *armRun) (probes.InvariantFact, bool) {
	owners := map[string]string{} // codeword -> document
	shared := map[string]bool{}
	own := map[string]map[string]bool{} // prompt -> its values
	for i := range s.in.Set.Prompts {
		p := &s.in.Set.Prompts[i]
		own[p.ID] = map[string]bool{}
		for _, c := range codewords(p) {
			own[p.ID][c] = true
			if o, seen := owners[c]; seen && o != p.Document {
				shared[c] = true
			}
			owners[c] = p.Document
		}
	}
	if a == nil || len(owners) == 0 || !slices.ContainsFunc(s.in.Set.Prompts, func(p prompts.Prompt) bool { return len(p.Codewords) > 0 }) {
		return probes.InvariantFact{}, false
	}
	found := map[string]map[string]string{} // owner -> codeword -> prompt in whose reply it was seen
	f := probes.InvariantFact{Name: noLeak, Held: ptr(true)}
	n := 0
	for _, w := range a.allRows(s.in.Set) {
		n++
		for _, c := range digits.FindAllString(w.reply.Text+" "+w.reply.Reasoning, -1) {
			owner, known := owners[c]
			if !known || shared[c] || own[w.prompt.ID][c] || owner == w.prompt.Document {
				continue
			}
			if found[owner] == nil {
				found[owner] = map[string]string{}
			}
			found[owner][c] = w.prompt.ID
		}
	}
	f.Seen = fmt.Sprintf("%d replies hold no two private values of another owner", n)
	names := make([]string, 0, len(found))
	for o := range found {
		names = append(names, o)
	}
	slices.Sort(names)
	for _, o := range names {
		words := make([]string, 0, len(found[o]))
		long := false
		for c := range found[o] {
			words = append(words, c)
			long = long || len(c) >= longWord
		}
		slices.Sort(words)
		if len(words) < 2 && !long {
			continue
		}
		in := map[string]bool{}
		for _, c := range words {
			in[found[o][c]] = true
		}
		where := make([]string, 0, len(in))
		for id := range in {
			where = append(where, id)
		}
		slices.Sort(where)
		f.Held, f.Seen = ptr(false), fmt.Sprintf("private values %s of %s in the replies to %s", strings.Join(words, ", "), o, strings.Join(where, ", "))
		break
	}
	return f, true
}

// codewords of a prompt: those that it lists, else the answers it is asked for.
func codewords(p *prompts.Prompt) []string {
	if len(p.Codewords) > 0 {
		return p.Codewords
	}
	var out []string
	for _, n := range p.Expect.Needles {
		if digits.FindString(n.Answer) == n.Answer {
			out = append(out, n.Answer)
		}
	}
	return out
}

// nullBlock checks that the block which stands for nothing was not written to.
func (s *scorer) nullBlock(a *armRun) (probes.InvariantFact, bool) {
	if a == nil {
		return probes.InvariantFact{}, false
	}
	before, after := map[string]float64{}, map[string]float64{}
	for _, sm := range a.samples {
		into := map[string]map[string]float64{"before": before, "after": after}[sm.Phase]
		if sm.Error != "" || into == nil || sm.Pass != judgedPass(a.spec) {
			continue
		}
		for _, v := range sm.Values {
			if v.Role == probes.NullBlock {
				into[v.Rank] = v.Value
			}
		}
	}
	if len(before) == 0 || len(after) == 0 {
		return probes.InvariantFact{}, false
	}
	f := probes.InvariantFact{Name: "null block unchanged", Held: ptr(true), Seen: fmt.Sprintf("%d ranks", len(after))}
	for _, rank := range sortedStrings(after) {
		if b, ok := before[rank]; !ok || b != after[rank] {
			f.Held, f.Seen = ptr(false), fmt.Sprintf("the checksum of rank %q went from %.0f to %.0f", rank, b, after[rank])
			break
		}
	}
	return f, true
}

func sortedStrings[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// invariantsOf are all statements about an arm that must hold: those the harness checked,
// and those that follow from the records.
func (s *scorer) invariantsOf(a *armRun) []probes.InvariantFact {
	if a == nil {
		return nil
	}
	out := slices.Clone(a.invariants)
	for _, check := range []func(*armRun) (probes.InvariantFact, bool){s.crossing, s.leaks, s.nullBlock} {
		f, ok := check(a)
		if ok && !slices.ContainsFunc(out, func(h probes.InvariantFact) bool { return h.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return out
}
