package foreign

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

// Preset is that of every imported arm.
const Preset = "import"

// Source is one arm with the name it is to have and the file it comes from.
type Source struct {
	Name      string
	File      *File
	Arm       Arm
	Snapshots []Snapshot
}

// Options say what the arms are to one another.
type Options struct {
	Reference string   // name of the arm the others are judged against; "" = the first
	Floors    []string // names of further processes of the reference's configuration
	Tool      string
}

// Import is what a run would have left of the same requests.
type Import struct {
	Set     *prompts.Set
	Plan    *arms.Plan
	Records []probes.Record // in the order in which they belong into a transcript
	Objects [][]byte        // files and texts that the records name by digest
	Notes   []string        // what could not be used, for people; the plan holds them too
}

var armName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

// Build pairs the rows of all arms. Arms that answer different questions are refused: a
// request is the same where its id and its pass are, and then its right answers and the
// length of its prompt must be the same too.
func Build(sources []Source, o Options) (*Import, error) {
	if err := checkSources(sources, &o); err != nil {
		return nil, err
	}
	im := &Import{}
	qs, err := questions(sources)
	if err != nil {
		return nil, err
	}
	if err := im.freeze(sources, qs, o); err != nil {
		return nil, err
	}
	if err := im.plan(sources, qs, o); err != nil {
		return nil, err
	}
	return im, im.record(sources, qs, o)
}

func checkSources(sources []Source, o *Options) error {
	if len(sources) < 2 {
		return errors.New("one arm says nothing: give a reference and an arm to judge, as NAME=FILE NAME=FILE")
	}
	names := []string{}
	for _, s := range sources {
		switch {
		case s.Name == "":
			return fmt.Errorf("%s does not say which arm it holds: give it as NAME=%s", s.File.Name, s.File.Name)
		case !armName.MatchString(s.Name):
			return fmt.Errorf("arm name %q: want letters, digits, dots, dashes and underscores", s.Name)
		case slices.Contains(names, s.Name):
			return fmt.Errorf("arm %q is given twice", s.Name)
		}
		names = append(names, s.Name)
	}
	if o.Reference == "" {
		o.Reference = names[0]
	}
	have := strings.Join(names, ", ")
	if !slices.Contains(names, o.Reference) {
		return fmt.Errorf("reference %q is none of the arms: they are %s", o.Reference, have)
	}
	for _, f := range o.Floors {
		if !slices.Contains(names, f) {
			return fmt.Errorf("floor %q is none of the arms: they are %s", f, have)
		}
	}
	if !slices.ContainsFunc(names, func(n string) bool { return o.role(n) == scoring.Judged }) {
		return errors.New("every arm is the reference or a floor: no arm is left to judge")
	}
	return nil
}

func (o Options) role(name string) string {
	switch {
	case name == o.Reference:
		return scoring.Control
	case slices.Contains(o.Floors, name):
		return scoring.Floor
	}
	return scoring.Judged
}

// question is one request that at least one arm answers.
type question struct {
	requestID, pass string
	id              string // of the prompt
	tokens          *int
	mod             *int
	prefix          *int
	expected        []answer
	from            string // the arm that it was read from
}

type questionKey struct{ id, pass string }

// questions gathers the requests of all arms, in the order of the first arm that has them.
func questions(sources []Source) ([]*question, error) {
	by := map[questionKey]*question{}
	passes := map[string]map[string]bool{}
	var out []*question
	for _, s := range sources {
		common := 0
		for _, r := range s.Arm.rows {
			k := questionKey{r.requestID, r.pass}
			q := by[k]
			if q == nil {
				q = &question{requestID: r.requestID, pass: r.pass, tokens: r.promptTokens, mod: r.promptMod, prefix: r.prefix, expected: r.expected, from: s.Name}
				by[k] = q
				out = append(out, q)
				if passes[q.requestID] == nil {
					passes[q.requestID] = map[string]bool{}
				}
				passes[q.requestID][q.pass] = true
				continue
			}
			common++
			if err := q.join(r, s.Name); err != nil {
				return nil, err
			}
		}
		if s.Name != sources[0].Name && common == 0 {
			return nil, fmt.Errorf("arm %s has no request in common with those before it: rows are paired by request_id and pass", s.Name)
		}
	}
	taken := map[string]bool{}
	for _, q := range out {
		q.id = q.requestID
		if len(passes[q.requestID]) > 1 {
			q.id = q.requestID + "/" + q.pass
		}
		if taken[q.id] {
			return nil, fmt.Errorf("two requests would be named %q: rename one", q.id)
		}
		taken[q.id] = true
	}
	return out, nil
}

// join adds what another arm says of the same request, which must not contradict.
func (q *question) join(r *row, arm string) error {
	if q.tokens != nil && r.promptTokens != nil && *q.tokens != *r.promptTokens {
		return fmt.Errorf("request %s has %d prompt tokens in arm %s and %d in arm %s: these are different questions", q.requestID, *q.tokens, q.from, *r.promptTokens, arm)
	}
	if len(q.expected) > 0 && len(r.expected) > 0 && !slices.Equal(q.expected, r.expected) {
		return fmt.Errorf("request %s has other right answers in arm %s than in arm %s: these are different questions", q.requestID, arm, q.from)
	}
	if len(q.expected) == 0 {
		q.expected = r.expected
	}
	q.tokens, q.mod, q.prefix = cmp.Or(q.tokens, r.promptTokens), cmp.Or(q.mod, r.promptMod), cmp.Or(q.prefix, r.prefix)
	return nil
}

// freeze makes the Set. The prompts themselves are not in the rows: the body of each is what
// is known of it.
func (im *Import) freeze(sources []Source, qs []*question, o Options) error {
	block, scored, sha := 0, []string(nil), ""
	for _, s := range sources {
		for _, n := range s.Snapshots {
			block = cmp.Or(block, n.Block)
		}
		if len(s.Arm.ScoredNames) > 0 && (scored == nil || s.Name == o.Reference) {
			scored = s.Arm.ScoredNames
		}
		if s.Arm.PromptsSHA != "" && sha != "" && s.Arm.PromptsSHA != sha {
			im.note(s.Name, "another digest of its prompts is stated than for the arms before it")
		}
		sha = cmp.Or(sha, s.Arm.PromptsSHA)
	}
	h := prompts.Header{Name: "import", Kind: "file", Dialect: Dialect, Licence: "that of the rows",
		Geometry: prompts.Geometry{Mode: "paged", AttentionBlock: block},
		Note:     "requests of imported rows; their prompts are not known, only what the rows say of them"}
	var ps []prompts.Prompt
	unanswered := 0
	for _, q := range qs {
		known := map[string]any{"request_id": q.requestID}
		if q.pass != "" {
			known["pass"] = q.pass
		}
		if q.tokens != nil {
			known["prompt_tokens"] = *q.tokens
		}
		if sha != "" {
			known["prompts_sha256"] = sha
		}
		p := prompts.Prompt{ID: q.id, Role: prompts.Target, Document: q.requestID, Tokens: []int{}}
		right := map[string]string{}
		for _, a := range q.expected {
			n := prompts.Needle{Key: a.key, Answer: a.value, Match: "field", Offset: -1, End: -1, Scored: a.key != "A4"}
			if a.list && strings.ContainsAny(a.value, "0123456789") {
				n.Match = "ints"
			}
			if scored != nil {
				n.Scored = slices.Contains(scored, a.key)
			}
			p.Expect.Needles = append(p.Expect.Needles, n)
			right[a.key] = a.value
		}
		if len(right) > 0 {
			known["expected"] = right
		} else {
			unanswered++
		}
		if q.prefix != nil { // prompts cut from one text at one place are asked again and again
			p.Document = fmt.Sprintf("first %d tokens", *q.prefix)
		}
		p.Class = class(q, block)
		body, err := digest.Canonical(known)
		if err != nil {
			return fmt.Errorf("request %s: %w", q.requestID, err)
		}
		p.Body = string(body)
		ps = append(ps, p)
	}
	if unanswered > 0 {
		im.note("", fmt.Sprintf("%d of %d requests have no right answer to compare with: only their texts are judged", unanswered, len(qs)))
	}
	var err error
	im.Set, err = prompts.Freeze(h, ps)
	return err
}

// class is the prompt's length modulo the engine's block, where that is known.
func class(q *question, block int) prompts.Class {
	switch {
	case q.mod != nil:
		return prompts.Class{Label: fmt.Sprintf("mod %d", *q.mod), LengthMod: *q.mod}
	case q.tokens == nil:
		return prompts.Class{Label: "length unknown"}
	case block > 0:
		return prompts.Class{Label: fmt.Sprintf("mod %d", *q.tokens%block), LengthMod: *q.tokens % block}
	}
	return prompts.Class{Label: fmt.Sprintf("length %d", *q.tokens), LengthMod: *q.tokens}
}

func (im *Import) note(arm, what string) {
	if arm != "" {
		what = "arm " + arm + ": " + what
	}
	im.Notes = append(im.Notes, what)
}

// plan writes the design: every arm that is not a control is judged against the reference,
// over a path that is declared to be an external store.
func (im *Import) plan(sources []Source, qs []*question, o Options) error {
	rule := scoring.DefaultRule()
	rule.Replicates = 0 // nothing can be asked again
	var names, files, judged []string
	ref := ""
	for _, s := range sources {
		names = append(names, s.Name)
		files = append(files, fmt.Sprintf("%s %s %s", s.Name, s.File.Digest, s.File.Name))
		if s.Name == o.Reference {
			ref = label(s)
		}
		if o.role(s.Name) == scoring.Judged {
			judged = append(judged, s.Name)
		}
	}
	p := &arms.Plan{
		Schema: arms.PlanSchema, Ladder: "import-" + strings.Join(names, "-"), Engine: "import", Launcher: "import",
		Question: fmt.Sprintf("do the imported rows of %s fail where those of %s do not?", strings.Join(judged, ", "), o.Reference),
		Set: arms.PlanSet{Name: im.Set.Name, Digest: im.Set.Digest, Requests: len(im.Set.Prompts), Classes: im.Set.Classes(),
			Geometry: im.Set.Geometry, Dialect: Dialect},
		Subject: []string{}, Pins: map[string]string{}, Predict: map[string]map[string]any{}, Claims: []arms.Claim{},
		NotClaimed: []string{"that the rows were made after any plan", "that an arm ran as it is declared"},
		Unproven:   []string{"the order of plan and data", "the pins of every arm", "that nothing but the declared variable differs"},
		Problems:   []arms.Problem{},
		Source:     strings.Join(files, "\n") + "\n",
	}
	p.Design = scoring.Design{Ladder: p.Ladder, Question: p.Question, Rule: rule, Imported: true}
	chains := map[string]*arms.Chain{}
	var order []string
	for _, s := range sources {
		a := scoring.ArmSpec{Name: s.Name, Preset: Preset, Role: o.role(s.Name), Process: process(s), Passes: 1, Judge: 1, Exercise: "none",
			PinsDiffer: []scoring.Pin{}, Pins: map[string]string{"declared": label(s)}}
		a.Chain = a.Process
		switch a.Role {
		case scoring.Judged:
			a.Reference, a.ReferencePass, a.Path, a.Exercise, a.Connector = o.Reference, 1, "external", Preset, true
			a.Pin = scoring.Pin{Name: label(s), Arm: s.Name, Reference: o.Reference}
			a.PinsDiffer = []scoring.Pin{a.Pin}
			a.Why = "declared against: " + ref
		case scoring.Floor:
			a.FloorOf = o.Reference
		}
		p.Design.Arms = append(p.Design.Arms, a)
		c := chains[a.Chain]
		if c == nil {
			c = &arms.Chain{Name: a.Chain, Steps: []arms.ChainStep{}}
			chains[a.Chain] = c
			order = append(order, a.Chain)
		}
		c.Arms = append(c.Arms, s.Name)
		c.Steps = append(c.Steps, arms.ChainStep{Do: "import", Arm: s.Name, Pass: 1})
		im.armNotes(s, len(qs))
	}
	for _, name := range order {
		p.Chains = append(p.Chains, *chains[name])
	}
	for _, n := range im.Notes {
		p.Problems = append(p.Problems, arms.Problem{Code: "IMPORT", What: n})
	}
	im.Plan = p
	return nil
}

// armNotes gathers what of an arm's rows could not be used.
func (im *Import) armNotes(s Source, asked int) {
	if n := s.Arm.Rows(); n != asked {
		im.note(s.Name, fmt.Sprintf("%d of the %d requests are there", n, asked))
	}
	counts := map[string]int{}
	var order []string
	for _, r := range s.Arm.rows {
		for _, n := range r.notes {
			if counts[n]++; counts[n] == 1 {
				order = append(order, n)
			}
		}
	}
	for _, n := range order {
		im.note(s.Name, fmt.Sprintf("%s (in %d rows)", n, counts[n]))
	}
	for _, snap := range s.Snapshots {
		if snap.Err != nil {
			im.note(s.Name, fmt.Sprintf("%s: %v", snap.Name, snap.Err))
		}
	}
}

// label is what an arm is declared to be.
func label(s Source) string { return cmp.Or(s.Arm.Label, s.Arm.Name, s.Name) }

// process names the engine process of an arm: arms whose snapshots name one start time were
// served by one process.
func process(s Source) string {
	for _, n := range s.Snapshots {
		if n.Start != "" {
			return "started " + n.Start
		}
	}
	return s.Name
}

// fact makes a Record of a fact; its value is always one that has a JSON form.
func fact(name, source string, value any) probes.Record {
	f := &probes.Fact{Name: name, Source: source}
	if value != nil {
		f.Value, _ = json.Marshal(value)
	}
	return probes.Record{Kind: probes.KindFact, Fact: f}
}

// Files is the fact that says which files an arm was read from.
const Files = "import"

// filesFact lists the files of an arm.
type filesFact struct {
	File    string        `json:"file"`
	Digest  digest.Digest `json:"digest"` // of the file as it is on disk, an object of the folder
	Rows    int           `json:"rows"`
	Label   string        `json:"label"`             // how the file declares the arm
	Prompts string        `json:"prompts,omitempty"` // digest of the prompts as the file states it
	Beside  []besideFact  `json:"beside"`
}

type besideFact struct {
	File   string        `json:"file"`
	Digest digest.Digest `json:"digest"`
	Text   digest.Digest `json:"text,omitempty"` // of the unpacked text
	Error  string        `json:"error,omitempty"`
}

// record writes what a run would have written.
func (im *Import) record(sources []Source, qs []*question, o Options) error {
	pd, _, err := im.Plan.Digest()
	if err != nil {
		return err
	}
	ids := map[questionKey]string{}
	for _, q := range qs {
		ids[questionKey{q.requestID, q.pass}] = q.id
	}
	kept := map[digest.Digest]bool{}
	keep := func(b []byte) {
		if d := digest.Of(b); !kept[d] {
			kept[d] = true
			im.Objects = append(im.Objects, b)
		}
	}
	im.Records = append(im.Records, fact(probes.FactPlan, "", probes.PlanFact{Plan: pd, Set: im.Set.Digest, Tool: o.Tool}))
	for _, s := range sources {
		at := process(s)
		add := func(r probes.Record) {
			r.Arm, r.Chain, r.Incarnation = s.Name, at, at
			im.Records = append(im.Records, r)
		}
		keep(s.File.Bytes)
		files := filesFact{File: s.File.Name, Digest: s.File.Digest, Rows: s.Arm.Rows(), Label: label(s), Prompts: s.Arm.PromptsSHA, Beside: []besideFact{}}
		for _, n := range s.Snapshots {
			b := besideFact{File: n.Name, Digest: digest.Of(n.Bytes), Text: n.Digest}
			if n.Err != nil {
				b.Error = n.Err.Error()
			}
			if len(n.Bytes) > 0 {
				keep(n.Bytes)
			}
			if n.Err == nil {
				keep(n.Text)
			}
			files.Beside = append(files.Beside, b)
		}
		add(fact(Files, s.File.Name, files))
		add(fact(probes.FactArmStart, "", nil))
		seen := func(phase string) {
			for _, n := range s.Snapshots {
				if n.Phase != phase {
					continue
				}
				sample := &probes.Sample{Phase: phase, Pass: 1, Source: n.Name, Digest: n.Digest, Values: n.Values}
				if n.Err != nil {
					sample.Digest, sample.Error = "", n.Err.Error()
				}
				add(probes.Record{Kind: probes.KindSample, Sample: sample})
				if n.Start != "" {
					add(fact(probes.FactIdentity, n.Name, probes.IdentityFact{Phase: phase, Pass: 1, Start: n.Start, Alive: true}))
				}
			}
		}
		seen("before")
		for _, r := range s.Arm.rows {
			reply := &probes.Reply{Prompt: ids[questionKey{r.requestID, r.pass}], Pass: 1, RequestID: r.requestID, Path: s.File.Name,
				Status: 200, Decoded: r.decoded, Counters: r.counters}
			if r.failure != "" {
				reply.Status, reply.Error, reply.ErrorKind = r.status, r.failure, "transport"
				if r.status != 0 {
					reply.ErrorKind = "http"
				}
			}
			reply.SetRaw(r.raw)
			add(probes.Record{Kind: probes.KindReply, Reply: reply})
		}
		seen("after")
		add(fact(probes.FactArmEnd, "", probes.ArmEndFact{Sent: s.Arm.Rows(), Records: s.Arm.Rows()}))
	}
	for _, c := range im.Plan.Chains {
		r := fact(probes.FactChainEnd, "", nil)
		r.Chain = c.Name
		im.Records = append(im.Records, r)
	}
	return nil
}
