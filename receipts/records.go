package receipts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// mostProblems bounds what is said about one kind of fault in the records: a receipt with
// ten thousand wrong rows is as wrong as one with ten.
const mostProblems = 10

// checkRecords looks at every record of the transcript.
func checkRecords(rep *Report, folder string, r *Receipt, set *prompts.Set, recs []probes.Record, c Checker) {
	plan := &r.Predicate.Plan
	imported := plan.Design.Imported
	found := 0
	problem := func(i int, format string, args ...any) {
		found++
		if found <= mostProblems {
			rep.add(fmt.Sprintf("%s:%d", TranscriptFile, i+1), format, args...)
		}
	}
	for i := range recs {
		rec := &recs[i]
		switch rec.Kind {
		case probes.KindSample:
			if what := checkSample(folder, rec.Sample); what != "" {
				problem(i, "arm %s: %s", rec.Arm, what)
			}
		case probes.KindReply:
			for _, what := range checkReply(rec, set, r, c, imported) {
				problem(i, "arm %s, prompt %s: %s", rec.Arm, rec.Reply.Prompt, what)
			}
		}
	}
	if found > mostProblems {
		rep.add(TranscriptFile, "and %d more records that do not hold", found-mostProblems)
	}
	if c.Decode == nil {
		rep.warn("the replies were not decoded again")
	}
	if c.RequestID == nil {
		rep.warn("the request ids were not derived again")
	}
	checkSchedule(rep, r, set, recs)
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

func checkReply(rec *probes.Record, set *prompts.Set, r *Receipt, c Checker, imported bool) []string {
	var out []string
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	reply := rec.Reply
	prompt, ok := set.ByID(reply.Prompt)
	if !ok {
		fail("the set has no such prompt")
		return out
	}
	raw, err := reply.Bytes()
	if err != nil {
		fail("%v", err)
		return out
	}
	// A reply that never began may have no digest; one that has bytes must have theirs.
	if got := digest.Of(raw); got != reply.Received && (len(raw) > 0 || reply.Received != "") {
		fail("the bytes received have the digest %s, the record says %s", got.Short(), reply.Received.Short())
	}
	if what := checkSent(reply, prompt, r); what != "" && !(imported && reply.Sent == "") {
		fail("%s", what)
	}
	if c.RequestID != nil && !imported {
		if want := c.RequestID(r.Predicate.Prereg.Plan, rec); want != reply.RequestID {
			fail("its request id is %q, the plan gives %q", reply.RequestID, want)
		}
	}
	if len(raw) == 0 && !imported && !sameDecoded(probes.Decoded{}, reply.Decoded) {
		fail("no byte was received, and the record holds an answer")
	}
	if c.Decode != nil && len(raw) > 0 {
		got, err := c.Decode(set.Dialect, reply)
		switch {
		case err != nil && reply.Error == "":
			fail("the bytes received do not decode, and the record says that they did: %v", err)
		case !sameDecoded(got, reply.Decoded):
			fail("the bytes received decode otherwise: %s", differences(reply.Decoded, got))
		}
	}
	return out
}

// checkSent compares the digest of what went on the wire with the frozen body, or, where a
// rank was pinned in the body, with a body that differs from the frozen one in that alone.
func checkSent(reply *probes.Reply, prompt *prompts.Prompt, r *Receipt) string {
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
	if by.RankBy != "body" {
		return "the body differs from the frozen one, and the plan pins nothing in bodies"
	}
	if !equalButFor(reply.SentBody, frozen, by.RankField) {
		return fmt.Sprintf("the body differs from the frozen one in more than %q", by.RankField)
	}
	return ""
}

// equalButFor compares two JSON objects without one of their members.
func equalButFor(a, b, member string) bool {
	var x, y map[string]json.RawMessage
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	delete(x, member)
	delete(y, member)
	p, err1 := digest.Canonical(x)
	q, err2 := digest.Canonical(y)
	return err1 == nil && err2 == nil && bytes.Equal(p, q)
}

// sameDecoded takes the short way first: the canonical comparison, for which an absent list
// equals an empty one, is slow over millions of tokens.
func sameDecoded(a, b probes.Decoded) bool { return reflect.DeepEqual(a, b) || rawEqual(a, b) }

// checkSchedule counts the replies of every arm against its passes. Only an arm that claims
// a complete harness (column H) and a living engine owes all of them; no arm may hold the
// same request twice.
func checkSchedule(rep *Report, r *Receipt, set *prompts.Set, recs []probes.Record) {
	plan := &r.Predicate.Plan
	dead := abandoned(recs)
	type key struct {
		arm, attempt, client, prompt string
		run, pass                    int
		prime                        bool
	}
	type pass struct {
		arm, client string
		pass        int
	}
	seen := map[key]int{}
	whole := map[pass]int{}
	clients := map[string]map[string]bool{}
	said := 0
	complain := func(i int, format string, args ...any) {
		if said++; said <= mostProblems {
			rep.add(fmt.Sprintf("%s:%d", TranscriptFile, i+1), format, args...)
		}
	}
	for i, rec := range recs {
		if rec.Kind != probes.KindReply || dead[rec.Attempt] {
			continue
		}
		spec, ok := plan.Design.ByName(rec.Arm)
		if !ok {
			complain(i, "a reply for arm %q, which the plan does not have", rec.Arm)
			continue
		}
		if rec.Reply.Pass < 1 || rec.Reply.Pass > spec.Passes {
			complain(i, "arm %s: pass %d of %d", rec.Arm, rec.Reply.Pass, spec.Passes)
			continue
		}
		k := key{rec.Arm, rec.Attempt, rec.Reply.Client, rec.Reply.Prompt, rec.Run, rec.Reply.Pass, rec.Reply.Prime}
		if first, twice := seen[k]; twice {
			complain(i, "arm %s, prompt %s: the same request as in line %d", rec.Arm, rec.Reply.Prompt, first+1)
			continue
		}
		seen[k] = i
		if rec.Run == 0 && !rec.Reply.Prime {
			whole[pass{rec.Arm, rec.Reply.Client, rec.Reply.Pass}]++
			if clients[rec.Arm] == nil {
				clients[rec.Arm] = map[string]bool{}
			}
			clients[rec.Arm][rec.Reply.Client] = true
		}
	}
	for _, spec := range plan.Design.Arms {
		a, ok := r.Arm(spec.Name)
		if !ok || a.Columns["H"] != "y" || a.Columns["A"] == "n" || plan.Design.Imported {
			continue
		}
		if len(clients[spec.Name]) == 0 {
			rep.add(TranscriptFile, "arm %s is said to be complete and has no reply", spec.Name)
		}
		for _, client := range sortedKeys(clients[spec.Name]) {
			for n := 1; n <= spec.Passes; n++ {
				if got := whole[pass{spec.Name, client, n}]; got != len(set.Prompts) {
					rep.add(TranscriptFile, "arm %s, pass %d: %d replies for %d requests, and the arm is said to be complete", spec.Name, n, got, len(set.Prompts))
				}
			}
		}
	}
	replicated := map[string]bool{}
	for _, rec := range recs {
		if rec.Run > 0 {
			replicated[rec.Arm] = true
		}
	}
	for _, a := range r.Predicate.Result.Arms {
		if a.Verdict != nil && *a.Verdict == scoring.SuspectUnconfirmed && plan.Design.Rule.Replicates > 0 && !plan.Design.Imported && !replicated[a.Name] {
			rep.add(TranscriptFile, "arm %s is suspected and the registered replicate is missing", a.Name)
		}
	}
}

// firstDifference describes where two byte strings part, for people.
func firstDifference(a, b []byte) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	cut := func(s []byte) string {
		return strings.ToValidUTF8(string(s[min(n, len(s)):min(n+24, len(s))]), "?")
	}
	return fmt.Sprintf("at byte %d it has %q, expected %q", n, cut(a), cut(b))
}
