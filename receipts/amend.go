package receipts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kvladder/arms"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Classes of an amendment. A registration is never edited; what came later is written down
// beside it, and what it may change depends on what had been seen by then. The class is
// read off the ledger's order, never off a date and never declared.
const (
	ClassA = "A" // no arm had begun: anything that is not already bound to the run
	ClassB = "B" // controls and floors had begun: nothing that decides a verdict
	ClassC = "C" // a judged arm had begun: exploratory, and no verdict is better for it
)

// AmendmentSchema names the form of an amendment's document.
const AmendmentSchema = "kvladder/amendment/1"

// amendmentDocument is the object that a ledger entry of kind "amendment" names.
type amendmentDocument struct {
	Schema string        `json:"schema"`
	Why    string        `json:"why"`
	From   digest.Digest `json:"from"` // of the plan as it stood
	To     digest.Digest `json:"to"`   // of the plan as it stands from then on
	Edits  []Edit        `json:"edits"`
}

// Amendment is one change of the plan after its registration.
type Amendment struct {
	Entry  int64         `json:"entry"`  // of the ledger
	Class  string        `json:"class"`  // "A", "B" or "C", by what the ledger holds before the entry
	Why    string        `json:"why"`    //
	Object digest.Digest `json:"object"` // of the amendment's document
	Plan   digest.Digest `json:"plan"`   // of the plan with all amendments up to this one
	Edits  []Edit        `json:"edits"`
}

// Analysis is what the ladder comes to under another plan than the one that governs it.
type Analysis struct {
	Plan       digest.Digest `json:"plan"`
	Amendments []int64       `json:"amendments"` // ledger entries that made the plan
	Verdict    string        `json:"verdict"`
	Exit       int           `json:"exit"`
	Arms       []ArmVerdict  `json:"arms"`
}

// ArmVerdict is one arm's verdict alone.
type ArmVerdict struct {
	Arm     string  `json:"arm"`
	Verdict *string `json:"verdict"`
	Exit    *int    `json:"exit"`
}

// amendable are the members of a plan that no step of the run reads. Whatever else differs
// makes another run, which needs its own registration. Rule members that the climb itself
// reads are bound too.
var (
	amendable = []string{"/predict", "/claims", "/not_claimed", "/unproven", "/question", "/design/question", "/design/rule", "/problems", "/source"}
	bound     = []string{"/design/rule/replicates", "/design/rule/stall_seconds"}
)

func under(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// permitted says why an amendment of this class may not make these edits, "" where it may.
func permitted(class string, es []Edit) string {
	for _, e := range es {
		if !under(e.Path, amendable) || under(e.Path, bound) {
			return fmt.Sprintf("%s is part of what is run: register the changed ladder and run it in a folder of its own", e.Path)
		}
		// Which requests fail, every alpha and every threshold of the table are rules.
		if class == ClassB && under(e.Path, []string{"/design/rule"}) {
			return fmt.Sprintf("%s decides a verdict, and controls have been seen: an amendment of class B may not touch failures, alpha or the rules of the table", e.Path)
		}
	}
	return ""
}

// classOf reads the class of an amendment off the entries that precede it.
func classOf(before []LedgerEntry, d *scoring.Design) string {
	class := ClassA
	for _, e := range before {
		if e.Kind != LedgerArmStart {
			continue
		}
		spec, ok := d.ByName(e.Object.Arm)
		if !ok || spec.Role == scoring.Judged {
			return ClassC
		}
		class = ClassB
	}
	return class
}

// Amend writes an amendment of the run in folder: a document with the edits that make the
// amended plan of the plan as it stands, and a ledger entry that names it. The registration
// stays as it is. An amendment that its class does not permit is refused, and so is one of
// a sealed folder.
func Amend(folder string, amended arms.Plan, why string) (Amendment, error) {
	fail := func(format string, args ...any) (Amendment, error) {
		return Amendment{}, fmt.Errorf("amend %s: %w", folder, fmt.Errorf(format, args...))
	}
	if strings.TrimSpace(why) == "" {
		return fail("an amendment needs a reason")
	}
	if _, err := os.Stat(filepath.Join(folder, ReceiptFile)); err == nil {
		return fail("it is sealed: what is sealed is not amended; seal another analysis of it in another folder")
	}
	pb, err := readFile(filepath.Join(folder, PlanFile), mostReceipt)
	if err != nil {
		return fail("%w", err)
	}
	path := filepath.Join(folder, LedgerFile)
	ledger, err := ReadLedger(path)
	if err != nil {
		return fail("%w", err)
	}
	var registered arms.Plan
	if err := json.Unmarshal(pb, &registered); err != nil {
		return fail("%s: %w", PlanFile, err)
	}
	if d := digest.Of(pb); len(ledger) == 0 || ledger[0].Object.Plan != d {
		return fail("the ledger does not register %s (%s)", PlanFile, d.Short())
	}
	old, _, what := readAmendments(folder, ledger, json.RawMessage(pb), &registered.Design)
	if len(what) > 0 {
		return fail("an earlier amendment does not hold: %s", what[0])
	}
	from, err := tree(json.RawMessage(pb))
	if err != nil {
		return fail("%w", err)
	}
	fromDigest := digest.Of(pb)
	for _, a := range old {
		if from, err = apply(from, a.Edits); err != nil {
			return fail("%w", err)
		}
		fromDigest = a.Plan
	}
	likeRegistered(&amended, &registered)
	to, err := tree(amended)
	if err != nil {
		return fail("%w", err)
	}
	toDigest, _, err := amended.Digest()
	if err != nil {
		return fail("%w", err)
	}
	es := edits("", from, to)
	if len(es) == 0 {
		return fail("the ladder resolves to the plan as it stands (%s): there is nothing to amend", fromDigest.Short())
	}
	class := classOf(ledger, &registered.Design)
	if what := permitted(class, es); what != "" {
		return fail("%s", what)
	}
	object, b, err := digest.OfJSON(amendmentDocument{Schema: AmendmentSchema, Why: why, From: fromDigest, To: toDigest, Edits: es})
	if err != nil {
		return fail("%w", err)
	}
	dir := filepath.Join(folder, filepath.FromSlash(ObjectDir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail("%w", err)
	}
	var exists *ExistsError
	if err := WriteOnce(filepath.Join(dir, object.Hex()), b); err != nil && !errors.As(err, &exists) {
		return fail("%w", err)
	}
	e, err := AppendLedger(path, LedgerAmendment, LedgerObject{Plan: digest.Of(pb), Amendment: object, What: why})
	if err != nil {
		return fail("%w", err)
	}
	return Amendment{Entry: e.Seq, Class: class, Why: why, Object: object, Plan: toDigest, Edits: es}, nil
}

// likeRegistered takes from the registered plan what a ladder does not decide: the order of
// independent chains, which a plan's own digest shuffles, and which arms are attached.
func likeRegistered(amended, registered *arms.Plan) {
	place := map[string]int{}
	for i, c := range registered.Chains {
		place[c.Name] = i + 1
	}
	slices.SortStableFunc(amended.Chains, func(a, b arms.Chain) int { return place[a.Name] - place[b.Name] })
	for i := range amended.Design.Arms {
		if a, ok := registered.Design.ByName(amended.Design.Arms[i].Name); ok {
			amended.Design.Arms[i].Attached = a.Attached
		}
	}
}

// readAmendments reads the ledger's amendments and their documents. What does not hold is
// said in problems, and the amendments from the first such one on are left out.
func readAmendments(folder string, ledger []LedgerEntry, registered json.RawMessage, d *scoring.Design) (out []Amendment, last any, problems []string) {
	last, err := tree(registered)
	if err != nil {
		return nil, nil, []string{err.Error()}
	}
	at := digest.Of(registered)
	for i, e := range ledger {
		if e.Kind != LedgerAmendment {
			continue
		}
		fail := func(format string, args ...any) ([]Amendment, any, []string) {
			return out, last, append(problems, fmt.Sprintf("entry %d: ", e.Seq)+fmt.Sprintf(format, args...))
		}
		if _, err := digest.Parse(string(e.Object.Amendment)); err != nil {
			return fail("it names no document: %v", err)
		}
		b, err := readFile(filepath.Join(folder, filepath.FromSlash(ObjectDir), e.Object.Amendment.Hex()), mostReceipt)
		if err != nil {
			return fail("its document is not among the objects: %s", e.Object.Amendment.Short())
		}
		var doc amendmentDocument
		if err := unmarshal(b, &doc, true); err != nil || doc.Schema != AmendmentSchema || digest.Of(b) != e.Object.Amendment {
			return fail("its document is not an amendment of schema %s with that digest", AmendmentSchema)
		}
		if doc.From != at || doc.Why != e.Object.What {
			return fail("it amends the plan %s, which stood at %s", doc.From.Short(), at.Short())
		}
		class := classOf(ledger[:i], d)
		if what := permitted(class, doc.Edits); what != "" {
			return fail("%s", what)
		}
		next, err := apply(last, doc.Edits)
		if err != nil {
			return fail("%v", err)
		}
		if got, _, err := digest.OfJSON(next); err != nil || got != doc.To {
			return fail("its edits do not give the plan %s", doc.To.Short())
		}
		last, at = next, doc.To
		out = append(out, Amendment{Entry: e.Seq, Class: class, Why: doc.Why, Object: e.Object.Amendment, Plan: doc.To, Edits: doc.Edits})
	}
	return out, last, problems
}

// amendedPlan is the registered plan with the amendments of the given classes.
func amendedPlan(registered json.RawMessage, as []Amendment, classes ...string) (arms.Plan, error) {
	var p arms.Plan
	t, err := tree(registered)
	if err != nil {
		return p, err
	}
	for _, a := range as {
		if !slices.Contains(classes, a.Class) {
			continue
		}
		if t, err = apply(t, a.Edits); err != nil {
			return p, fmt.Errorf("amendment of entry %d: %w", a.Entry, err)
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

// hasClass reports whether one of the amendments is of the class.
func hasClass(as []Amendment, class string) bool {
	return slices.ContainsFunc(as, func(a Amendment) bool { return a.Class == class })
}

// analyses judges the run three times where it was amended: by the plan that governs it
// (the registered one with the amendments made before a judged arm began), which gives the
// result; by the registered plan alone; and by all amendments, which is exploratory and
// stands beside the result, never in its place.
func analyses(registered json.RawMessage, as []Amendment, assess func(arms.Plan) (scoring.Result, error)) (res scoring.Result, asRegistered, exploratory *Analysis, err error) {
	governing, err := amendedPlan(registered, as, ClassA, ClassB)
	if err != nil {
		return res, nil, nil, err
	}
	if res, err = assess(governing); err != nil {
		return res, nil, nil, err
	}
	if hasClass(as, ClassA) || hasClass(as, ClassB) {
		if asRegistered, err = analysis(registered, as, assess); err != nil {
			return res, nil, nil, err
		}
	}
	if hasClass(as, ClassC) {
		exploratory, err = analysis(registered, as, assess, ClassA, ClassB, ClassC)
	}
	return res, asRegistered, exploratory, err
}

func analysis(registered json.RawMessage, as []Amendment, assess func(arms.Plan) (scoring.Result, error), classes ...string) (*Analysis, error) {
	p, err := amendedPlan(registered, as, classes...)
	if err != nil {
		return nil, err
	}
	res, err := assess(p)
	if err != nil {
		return nil, err
	}
	x := &Analysis{Plan: digest.Of(registered), Amendments: []int64{}, Verdict: res.Verdict, Exit: res.Exit, Arms: []ArmVerdict{}}
	for _, a := range as {
		if slices.Contains(classes, a.Class) {
			x.Plan = a.Plan
			x.Amendments = append(x.Amendments, a.Entry)
		}
	}
	for _, a := range res.Arms {
		x.Arms = append(x.Arms, ArmVerdict{Arm: a.Name, Verdict: a.Verdict, Exit: a.Exit})
	}
	return x, nil
}

// claims of a receipt are those of the plan that governs it. Amendments that came after the
// data may take a claim back (refuted, withdrawn) and may assert another; a claim that they
// call measured is an assertion still, since the plan did not foresee it.
func claims(governing arms.Plan, registered json.RawMessage, as []Amendment) ([]arms.Claim, error) {
	out := append([]arms.Claim{}, governing.Claims...)
	if !hasClass(as, ClassC) {
		return out, nil
	}
	p, err := amendedPlan(registered, as, ClassA, ClassB, ClassC)
	if err != nil {
		return nil, err
	}
	for _, c := range p.Claims {
		i := slices.IndexFunc(out, func(o arms.Claim) bool { return o.Text == c.Text })
		switch {
		case i >= 0 && (c.Status == ClaimRefuted || c.Status == ClaimWithdrawn):
			out[i].Status, out[i].Evidence = c.Status, c.Evidence
		case i < 0:
			if c.Status == ClaimMeasured {
				c.Status = ClaimAsserted
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// Standings of a claim.
const (
	ClaimAsserted  = "asserted"
	ClaimMeasured  = "measured"
	ClaimRefuted   = "refuted"
	ClaimWithdrawn = "withdrawn"
)

// lintClaims asks that every claim has a standing, that a measured or refuted one names its
// evidence, and that what is superseded is there, stands no longer and is superseded once.
func lintClaims(rep *Report, list []arms.Claim) {
	by := map[string]int{}
	for i, c := range list {
		at := fmt.Sprintf("predicate.claims[%d]", i)
		switch c.Status {
		case ClaimMeasured, ClaimRefuted:
			if len(c.Evidence) == 0 {
				rep.add(at, "a %s claim names no evidence", c.Status)
			}
		case ClaimAsserted, ClaimWithdrawn:
		default:
			rep.add(at, "its status is %q, want %s, %s, %s or %s", c.Status, ClaimAsserted, ClaimMeasured, ClaimRefuted, ClaimWithdrawn)
		}
		if slices.ContainsFunc(list[:i], func(o arms.Claim) bool { return o.Text == c.Text }) {
			rep.add(at, "the same claim is there twice")
		}
		if c.Supersedes == "" {
			continue
		}
		j := slices.IndexFunc(list, func(o arms.Claim) bool { return o.Text == c.Supersedes })
		switch {
		case j < 0:
			rep.add(at, "it supersedes %q, which nobody claims", c.Supersedes)
		case j == i:
			rep.add(at, "it supersedes itself")
		case list[j].Status != ClaimRefuted && list[j].Status != ClaimWithdrawn:
			rep.add(at, "it supersedes a claim that still stands as %s", list[j].Status)
		}
		if first, twice := by[c.Supersedes]; twice {
			rep.add(at, "predicate.claims[%d] supersedes the same claim", first)
		}
		by[c.Supersedes] = i
	}
}
