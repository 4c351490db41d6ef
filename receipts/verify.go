package receipts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Checker is what Verify needs to do the work again. A nil member leaves that part out,
// and the report says so.
type Checker struct {
	// Assess is the pure function from plan, set and records to a result. The records come
	// one by one, once; an error among them is the last.
	Assess func(q Question, recs iter.Seq2[probes.Record, error]) (scoring.Result, error)
	// Decode reads a reply's bytes again, in the dialect of the set.
	Decode func(dialect string, r *probes.Reply) (probes.Decoded, error)
	// RequestID derives the id that a record's request must have carried, from the digest of
	// the plan or, in a run with a beacon, from what Beacon.IDs makes of it.
	RequestID func(from digest.Digest, r *probes.Record) string
	// Keys are the public keys whose signatures count.
	Keys []Key
	// Witnesses are the keys of cosigners whose clocks are believed.
	Witnesses []Key
}

// Question is what an assessor is asked: the records of a run, judged by a plan.
type Question struct {
	Plan       arms.Plan     // that governs; another than the registered one where it was amended
	Registered digest.Digest // of the plan that the run names
	Set        *prompts.Set
}

// Report is what Verify found. Exit is 0 where the receipt holds, 1 where it does not and 3
// where there was nothing to read.
type Report struct {
	OK        bool       `json:"ok"`
	Exit      int        `json:"exit"`
	Order     string     `json:"order"`     // the level that holds, "" when unreadable
	SignedBy  []string   `json:"signed_by"` // names of the given keys that signed it
	Problems  []Problem  `json:"problems"`
	Warnings  []string   `json:"warnings"` // what could not be checked here
	Witnessed []Sighting `json:"witnessed,omitempty"`
	Beacon    *Published `json:"beacon,omitempty"` // that holds, and that the data depend on

	unread int // problems that are files which this user may not read
}

// Problem is one thing that does not hold: where, and what.
type Problem struct {
	Path string `json:"path"` // a file of the folder, or a member of the receipt
	What string `json:"what"`
}

func (r *Report) add(path, format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && errors.Is(err, fs.ErrPermission) {
			r.unread++
		}
	}
	r.Problems = append(r.Problems, Problem{Path: path, What: fmt.Sprintf(format, args...)})
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *Report) close() Report {
	r.OK = len(r.Problems) == 0
	if !r.OK && r.Exit == 0 {
		r.Exit = scoring.ExitCorrupt
		if r.unread == len(r.Problems) { // whoever may not read refutes nothing
			r.Exit = scoring.ExitInvalid
		}
	}
	return *r
}

// Verify checks the receipt at path and, where the run folder is there, everything the
// receipt says of it. It trusts nothing that it can recompute:
//
//  1. the receipt's bytes, against the sidecar and their canonical form;
//  2. every file of the folder, against the digest listed; no file more, none less;
//  3. plan and set, against the registration;
//  4. every record: its chain, the bytes sent and received, what they decode to, how many
//     there are against the schedule;
//  5. the result, assessed again from the transcript, which must be the sealed one exactly;
//  6. every test, from the integers and outcomes in the receipt, and what a receipt must
//     never say (see lint).
//
// A receipt without its folder gets 1, 3 and 6, and the warnings list what is missing. A
// path that is a folder must be whole.
func Verify(path string, c Checker) Report {
	rep := &Report{SignedBy: []string{}, Problems: []Problem{}, Warnings: []string{}}
	file, err := receiptFile(path)
	var raw []byte
	if err == nil {
		raw, err = readFile(file, mostReceipt)
	}
	if err != nil {
		rep.Exit = scoring.ExitInvalid
		rep.add(path, "%v", err)
		return rep.close()
	}
	name := filepath.Base(file)
	if what, hint := checkSeal(file, raw); what != "" {
		rep.add(name, "%s", strings.TrimSuffix(what+"; "+hint, "; "))
		return rep.close()
	}
	r, err := parse(raw, true)
	if err != nil {
		rep.Exit = scoring.ExitInvalid
		rep.add(name, "%v", err)
		return rep.close()
	}
	sealed, err := tree(json.RawMessage(raw))
	if err != nil {
		rep.add(name, "%v", err)
		return rep.close()
	}
	k := checkForm(rep, name, raw)
	if k == nil {
		return rep.close()
	}
	if what := k.unlike(sealed, r); what != "" {
		rep.add(name, "it is not what this program would write for the same content: %s", what)
		return rep.close()
	}
	rep.Order = O0

	root := filepath.Dir(file)
	folder := root
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		if !anyEvidence(root, r) {
			folder = ""
		}
	}
	checkSignature(rep, root, raw, c.Keys)
	if b := r.Predicate.Beacon; b != nil {
		if err := b.Check(); err != nil {
			rep.add("predicate.beacon", "%v", err)
		}
	}
	if governing, err := r.Governing(); err != nil {
		rep.add("predicate.amendments", "%v", err)
	} else {
		checkStatement(rep, name, r, &governing, k, sealed)
		recheck(rep, r, governing.Design.Rule)
		lint(rep, r, &governing)
	}
	if folder == "" {
		for _, e := range r.Predicate.Evidence {
			rep.warn("not here and not checked: %s (%d bytes, %s)", e.Name, e.Size, e.Digest.Digest().Short())
		}
		if claimed := r.Predicate.Order.Level; claimed != O0 {
			rep.warn("the receipt says order %s, which its folder alone could show", claimed)
		}
		return rep.close()
	}
	if checkEvidence(rep, folder, r) {
		checkFolder(rep, folder, r, k, sealed, c)
	}
	return rep.close()
}

func anyEvidence(root string, r *Receipt) bool {
	for _, e := range r.Predicate.Evidence {
		name := filepath.FromSlash(e.Name)
		if !filepath.IsLocal(name) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			return true
		}
	}
	return false
}

// checkEvidence re-hashes the folder. False: what plan, set, transcript or ledger say is
// not worth reading, since their bytes are not the sealed ones.
func checkEvidence(rep *Report, folder string, r *Receipt) bool {
	files, err := Walk(folder)
	if err != nil {
		rep.add(folder, "%v", err)
		return false
	}
	listed := map[string]Evidence{}
	sound := true
	for i, e := range r.Predicate.Evidence {
		if i > 0 && r.Predicate.Evidence[i-1].Name >= e.Name {
			rep.add(e.Name, "the evidence is not sorted by name, each file once")
		}
		listed[e.Name] = e
	}
	here := map[string]bool{}
	for _, f := range files {
		here[f.Name] = true
		e, ok := listed[f.Name]
		switch {
		case !ok:
			rep.add(f.Name, "the receipt does not list this file")
			continue
		case e.Digest != f.Digest:
			rep.add(f.Name, "it was changed: its digest is %s, the receipt says %s", f.Digest.Digest().Short(), e.Digest.Digest().Short())
		case e != f:
			rep.add(f.Name, "the receipt describes it as %+v, it is %+v", e, f)
		default:
			continue
		}
		sound = sound && !f.Required
	}
	for _, e := range r.Predicate.Evidence {
		if !here[e.Name] {
			rep.add(e.Name, "it is missing: the receipt lists it with %d bytes", e.Size)
			sound = sound && !e.Required
		}
		if hex, ok := strings.CutPrefix(e.Name, ObjectDir+"/"); ok && hex != e.Digest.SHA256 {
			rep.add(e.Name, "an object is named by its digest, which is %s", e.Digest.Digest().Short())
		}
	}
	return sound
}

// checkFolder reads plan, set, ledger and transcript, whose bytes are the sealed ones, and
// does the work again.
func checkFolder(rep *Report, folder string, r *Receipt, k *knownForm, sealed any, c Checker) {
	p := &r.Predicate
	pb, err := readFile(filepath.Join(folder, PlanFile), mostReceipt)
	if err != nil {
		rep.add(PlanFile, "%v", err)
		return
	}
	if d := digest.Of(pb); d != p.Prereg.Plan {
		rep.add(PlanFile, "its digest is %s, the registration is %s", d.Short(), p.Prereg.Plan.Short())
		return
	}
	ledger, lerr := ReadLedger(filepath.Join(folder, LedgerFile))
	if lerr != nil && !errors.Is(lerr, os.ErrNotExist) {
		rep.add(LedgerFile, "%v", lerr)
	}
	as, _, problems := readAmendments(folder, ledger, pb, &p.Plan.Design)
	for _, what := range problems {
		rep.add(LedgerFile, "%s", what)
	}
	if !rawEqual(append([]Amendment{}, as...), append([]Amendment{}, p.Amendments...)) {
		rep.add("predicate.amendments", "the ledger gives: %s", differences(p.Amendments, as))
		return
	}
	governing, err := r.Governing()
	if err != nil {
		rep.add("predicate.amendments", "%v", err)
		return
	}
	if derived, have, err := chainOrder(pb); err != nil {
		rep.add(PlanFile, "%v", err)
	} else if !p.Plan.Design.Imported && !slices.Equal(derived, have) {
		rep.add("predicate.plan.chains", "they stand in the order %v, the plan's digest gives %v: the order was chosen", have, derived)
	}
	set := checkSet(rep, folder, p)
	s := newScan(rep, folder, r, &governing, set, c)
	line := 0
	for rec, err := range records(folder) {
		if err != nil {
			rep.add(TranscriptFile, "%v", err)
			return
		}
		line++
		s.record(line, &rec)
	}
	s.end()
	s.ledgered(ledger)
	order := orderOf(p.Plan.Design.Imported, ledger, lerr, p.Prereg.Plan, s.first)
	if order != p.Order {
		rep.add("predicate.order", "the receipt says %+v, the folder shows %+v", p.Order, order)
	}
	rep.Order = order.Level
	if s.ids > 0 {
		rep.Order = O0 // requests that do not name the plan show nothing about its place
	}
	rep.Witnessed = checkCheckpoints(rep, folder, p.Prereg.Plan, c)
	beacon := checkBeacon(rep, p, ledger)
	if rep.Order == O1 {
		rep.Order = timed(rep.Witnessed, beacon, as)
		if beacon != nil {
			rep.Beacon = beacon.published()
		}
	}
	if s.first != p.Prereg.Plan {
		rep.add(TranscriptFile, "its first record does not name the plan %s", p.Prereg.Plan.Short())
	}
	if want := s.pins.read(); !rawEqual(want, p.PinsRead) {
		rep.add("predicate.pins_read", "the transcript's records read otherwise: %s", differences(p.PinsRead, want))
	}
	// A receipt without timings makes no statement about them.
	if p.Timings != nil && !rawEqual(s.times.timings(s.pins.dead), p.Timings) {
		rep.add("predicate.timings", "the transcript's records took otherwise: %s", differences(p.Timings, s.times.timings(s.pins.dead)))
	}
	if set == nil {
		return
	}
	if c.Assess == nil {
		rep.warn("the result was not recomputed from the transcript")
		return
	}
	if what := s.absurd(); what != "" {
		rep.add(TranscriptFile, "it cannot be scored again: %s", what)
		return
	}
	got, registered, exploratory, err := analyses(pb, as, func(plan arms.Plan) (scoring.Result, error) {
		return c.Assess(Question{Plan: plan, Registered: p.Prereg.Plan, Set: set}, records(folder))
	})
	if err != nil {
		rep.add(TranscriptFile, "it cannot be scored again: %v", err)
		return
	}
	// These four are the seal's to say, not the assessor's.
	got.Plan, got.Set, got.Order, got.Receipt = p.Result.Plan, p.Result.Set, p.Result.Order, ""
	if what := k.unlike(member(sealed, "predicate", "result"), got); what != "" {
		rep.add("predicate.result", "the transcript gives another result: %s", what)
	}
	if !rawEqual(registered, p.Registered) {
		rep.add("predicate.registered", "the transcript gives: %s", differences(p.Registered, registered))
	}
	if !rawEqual(exploratory, p.Exploratory) {
		rep.add("predicate.exploratory", "the transcript gives: %s", differences(p.Exploratory, exploratory))
	}
}

// member descends into a decoded JSON object.
func member(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// checkSet finds the one set of the folder that the plan registered.
func checkSet(rep *Report, folder string, p *Predicate) *prompts.Set {
	files, err := filepath.Glob(filepath.Join(folder, SetDir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		rep.add(SetDir, "there is no set in the folder")
		return nil
	}
	slices.Sort(files)
	for _, f := range files {
		name := SetDir + "/" + filepath.Base(f)
		s, err := prompts.Open(f)
		if err != nil {
			rep.add(name, "%v", err)
			continue
		}
		if s.Digest == p.Prereg.Set {
			return s
		}
		rep.add(name, "its digest is %s, the registration is %s", s.Digest.Short(), p.Prereg.Set.Short())
	}
	return nil
}

// checkStatement compares everything in the receipt that follows from its plan and result.
func checkStatement(rep *Report, name string, r *Receipt, governing *arms.Plan, k *knownForm, sealed any) {
	p := &r.Predicate
	pb, err := r.planBytes()
	if err != nil {
		rep.add("predicate.plan", "%v", err)
		return
	}
	if pd := digest.Of(pb); pd != p.Prereg.Plan {
		rep.add("predicate.plan", "its digest is %s, the registration is %s", pd.Short(), p.Prereg.Plan.Short())
	}
	checkClasses(rep, p)
	if p.Plan.Set.Digest != p.Prereg.Set {
		rep.add("predicate.prereg.set", "the plan's set is %s, not %s", p.Plan.Set.Digest.Short(), p.Prereg.Set.Short())
	}
	if p.Result.Plan != string(p.Prereg.Plan) || p.Result.Set != string(p.Prereg.Set) || p.Result.Order != p.Order.Level || p.Result.Receipt != "" {
		rep.add("predicate.result", "it names another plan, set, order or receipt than the predicate")
	}
	want, err := statement(*governing, p.Result, nil, nil)
	if err != nil {
		rep.add(name, "%v", err)
		return
	}
	if want.Predicate.Claims, err = claims(*governing, pb, p.Amendments); err != nil {
		rep.add("predicate.claims", "%v", err)
		return
	}
	for _, part := range []struct {
		path string
		want any
	}{
		{"predicate.exercise", want.Predicate.Exercise},
		{"predicate.floors", want.Predicate.Floors},
		{"predicate.tests", want.Predicate.Tests},
		{"predicate.predictions", want.Predicate.Predictions},
		{"predicate.claims", want.Predicate.Claims},
		{"predicate.not_claimed", want.Predicate.NotClaimed},
		{"predicate.unproven", want.Predicate.Unproven},
	} {
		if what := k.unlike(member(sealed, strings.Split(part.path, ".")...), part.want); what != "" {
			rep.add(part.path, "plan and result give: %s", what)
		}
	}
	// A receipt from before the floor had numbers of its own has none here.
	if p.Thresholds != nil && !rawEqual(p.Thresholds, want.Predicate.Thresholds) {
		rep.add("predicate.thresholds", "the result's floors give: %s", differences(p.Thresholds, want.Predicate.Thresholds))
	}
	n := len(want.Subject)
	if len(r.Subject) < n || !rawEqual(r.Subject[:n], want.Subject) && !rawEqual(r.Subject[:n], olderSubjects(*governing)) {
		rep.add("subject", "it does not begin with the plan's pins under test")
	}
	for _, s := range r.Subject {
		if _, err := digest.Parse(string(s.Digest.Digest())); err != nil {
			rep.add("subject", "%s: %v", s.Name, err)
		}
	}
}

// checkClasses looks at amendments as far as a receipt alone can: an amendment of class C
// follows those of class B, which follow those of class A, and each keeps to its class.
func checkClasses(rep *Report, p *Predicate) {
	for i, a := range p.Amendments {
		at := fmt.Sprintf("predicate.amendments[%d]", i)
		if !slices.Contains([]string{ClassA, ClassB, ClassC}, a.Class) {
			rep.add(at, "there is no class %q", a.Class)
		} else if what := permitted(a.Class, a.Edits); what != "" {
			rep.add(at, "%s", what)
		}
		if i > 0 && (p.Amendments[i-1].Class > a.Class || p.Amendments[i-1].Entry >= a.Entry) {
			rep.add(at, "it stands in another place than the ledger can have it")
		}
	}
	if (p.Exploratory != nil) != hasClass(p.Amendments, ClassC) {
		rep.add("predicate.exploratory", "amendments of class C and an exploratory analysis come together or not at all")
	}
	if (p.Registered != nil) != (hasClass(p.Amendments, ClassA) || hasClass(p.Amendments, ClassB)) {
		rep.add("predicate.registered", "amendments of class A or B and the analysis as registered come together or not at all")
	}
}
