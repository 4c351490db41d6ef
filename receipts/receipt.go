// Package receipts holds what is kept: the run folder, the sealed statement of what a
// ladder came to, and what two such statements say about each other.
//
//  1. A run appends to its ledger (AppendLedger) and its transcript, and keeps logs and
//     objects beside them. Whoever changes the plan meanwhile writes an amendment (Amend),
//     whose class is its place in the ledger. Checkpoint signs the ledger's Merkle tree.
//  2. Seal re-reads the folder, lists every file by digest (Walk), writes receipt.json once
//     and receipt.json.sha256 beside it.
//  3. Open gives a Receipt back, from raw bytes first: a receipt that does not match its
//     sidecar, or is not canonical, is reached through *UnverifiedError alone.
//  4. Verify re-hashes the folder and recomputes whatever can be recomputed.
//  5. Diff compares two receipts and Trend a row of them, Gate decides whether a patch did
//     what it promised, and a Policy what a project makes of that. All need the receipts
//     only, never the folders.
//
// # The format
//
// A receipt is one JSON document in the canonical form of RFC 8785, without a final line
// feed. Its digest is the sha256 of the file's own bytes, kept in receipt.json.sha256 as the
// one line that sha256sum writes, so that the whole check of the seal is
//
//	sha256sum -c receipt.json.sha256
//
// The document is an in-toto Statement (https://in-toto.io/Statement/v1): "_type",
// "subject" (what was judged, each with a sha256), "predicateType" (PredicateType) and
// "predicate" (Predicate). Digests inside resources are in-toto digest sets,
// {"sha256": "<64 hexadecimal digits>"}; digests elsewhere are "sha256:<hex>".
// "predicate.plan" is the plan verbatim. Its canonical bytes are those of plan.json, and
// their digest is the pre-registration, so that it can be checked from the receipt alone:
//
//	sha256sum plan.json         # is predicate.prereg.plan
//
// A run folder is
//
//	plan.json                 the canonical bytes of the plan
//	set/NAME.jsonl, .sha256   the frozen requests
//	transcript.jsonl          what was seen, one record a line, each naming the one before
//	ledger.jsonl              what was decided and when, see LedgerEntry
//	objects/sha256/HEX        larger things, named by their content
//	logs/*                    what the engines printed
//	ledger.checkpoint         the signed root of the ledger, optional
//	ledger.cosigned           the same with witnesses' cosignatures, optional, not covered
//	receipt.json, .sha256     the seal
//	receipt.dsse.json         a signature of it, optional
//	report.html, *.lock       not covered
//
// # How it may grow
//
// A new member that may be absent keeps the Schema. A member whose meaning changes, or one
// that a reader must not overlook, takes a new Schema string, and the old reader is kept.
// Open and Diff overlook members they do not know; Verify does not, since it vouches for
// all of a receipt: it holds every receipt against SchemaJSON, where each object is closed.
// Members that came later are marked there and asked of no older receipt, so that what held
// once holds for ever; testdata/schema-* keeps receipts of each schema to see to it.
//
// # Amendments
//
// Where "predicate.amendments" is there, "predicate.plan" is still the registered plan, and
// the plan that governs is that one with the edits of the amendments of class A and B.
// "predicate.result" and all that follows from it is by the governing plan;
// "predicate.registered" says what the registered plan alone gives, and
// "predicate.exploratory" what all amendments give, those of class C included.
package receipts

import (
	"encoding/json"
	"fmt"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/receipts/digest"
	"kvladder/scoring"
)

const (
	// Schema names the form of the predicate.
	Schema = "kvladder/receipt/1"
	// StatementType is the in-toto Statement that a receipt is shaped as.
	StatementType = "https://in-toto.io/Statement/v1"
	// PredicateType is the type of the predicate, versioned with Schema.
	PredicateType = "urn:kvladder:receipt:1"
)

// Receipt is the sealed statement. Those that Open returns also hold the bytes they were
// read from.
type Receipt struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Predicate  `json:"predicate"`

	raw  []byte
	path string
}

// Resource is an in-toto ResourceDescriptor: a name and the digest it is matched by.
type Resource struct {
	Name        string            `json:"name"`
	Digest      DigestSet         `json:"digest"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DigestSet maps algorithm names to lower-case hexadecimal digests.
type DigestSet struct {
	SHA256 string `json:"sha256"`
}

func digestSet(d digest.Digest) DigestSet { return DigestSet{SHA256: d.Hex()} }

// Digest is the same digest as "sha256:<hex>".
func (s DigestSet) Digest() digest.Digest { return digest.Digest("sha256:" + s.SHA256) }

// Predicate is what the statement says of its subject.
type Predicate struct {
	Schema   string         `json:"schema"`
	Tool     Tool           `json:"tool"`
	Prereg   Prereg         `json:"prereg"`
	Order    Order          `json:"order"`
	Beacon   *Beacon        `json:"beacon,omitempty"` // that the request ids carry; the ledger holds it too
	Plan     arms.Plan      `json:"plan"`             // verbatim: its canonical bytes are what Prereg.Plan digests
	PinsRead []PinRead      `json:"pins_read"`
	Result   scoring.Result `json:"result"`

	Exercise    []Exercise   `json:"exercise"`
	Floors      []Floor      `json:"floors"`
	Thresholds  []Thresholds `json:"thresholds,omitempty"` // what the registered formulas come to over each judged arm's floor
	Tests       []Test       `json:"tests"`
	Predictions []Prediction `json:"predictions"`

	Amendments  []Amendment `json:"amendments,omitempty"`  // of the plan, in their order
	Registered  *Analysis   `json:"registered,omitempty"`  // by the plan as registered, where amendments of class A or B govern Result
	Exploratory *Analysis   `json:"exploratory,omitempty"` // by all amendments, where one is of class C: it decides nothing
	Timings     []Timing    `json:"timings,omitempty"`

	Claims     []arms.Claim `json:"claims"`
	NotClaimed []string     `json:"not_claimed"`
	Unproven   []string     `json:"unproven"`
	Evidence   []Evidence   `json:"evidence"`
	Warnings   []string     `json:"warnings"`
}

// Tool is the program that sealed the receipt.
type Tool struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	Binary  digest.Digest `json:"binary,omitempty"` // of the executable
	GoSum   digest.Digest `json:"go_sum,omitempty"` // of the module sums it was built with
}

// Prereg names what was fixed before the run.
type Prereg struct {
	Plan digest.Digest `json:"plan"`
	Set  digest.Digest `json:"set"`
}

// PinRead is one pin of an arm as the engine stated it.
type PinRead struct {
	Arm string `json:"arm"`
	probes.PinRead
}

// Exercise is whether an arm's reuse path ran, in tokens, with what geometry foretold.
type Exercise struct {
	Arm              string `json:"arm"`
	Rule             string `json:"rule"`
	Path             string `json:"path"`
	Holds            string `json:"holds"` // column X: "y", "n" or "-"
	Requests         *int   `json:"requests"`
	Classes          int    `json:"classes"`
	ExpectedLocal    *int   `json:"expected_local"`
	ExpectedExternal *int   `json:"expected_external"`
	Local            *int   `json:"local"`
	External         *int   `json:"external"`
	Computed         *int   `json:"computed"`
	Unaccounted      *int   `json:"unaccounted"`
	Trusted          *bool  `json:"trusted"`
}

// Floor is what a control or floor arm showed.
type Floor struct {
	Arm       string   `json:"arm"`
	Of        string   `json:"of"` // the arm whose configuration it repeats, "" for a control of its own
	Split     bool     `json:"split"`
	Processes int      `json:"processes"`
	N         int      `json:"n"`
	Failed    int      `json:"failed"`
	D0Values  int      `json:"d0_values"`
	D0Max     *float64 `json:"d0_max"`
}

// Thresholds are the floor of a judged arm in numbers: the spread within processes (W) and
// between them (P), and the registered formulas with the values that P gives them. The
// formulas are in the plan, "/design/rule/thresholds"; the numbers came from controls alone.
type Thresholds struct {
	Arm string `json:"arm"`
	scoring.FloorFigures
}

// Test is one test that may carry a verdict, with the integers it is computed from.
type Test struct {
	Arm   string   `json:"arm"`
	Name  string   `json:"name"`        // "mcnemar" or "exceedance"
	B     *int     `json:"b,omitempty"` // failed under the reference only
	C     *int     `json:"c,omitempty"` // failed in the arm only
	K     *int     `json:"k,omitempty"` // arm values above the floor's largest
	M     *int     `json:"m,omitempty"` // floor values
	P     *float64 `json:"p"`
	Holm  *float64 `json:"holm"`
	Alpha float64  `json:"alpha"`
}

// Digest is the digest of the receipt's bytes; "" for a receipt that was not read by Open.
func (r *Receipt) Digest() digest.Digest {
	if r.raw == nil {
		return ""
	}
	return digest.Of(r.raw)
}

// planBytes are the canonical bytes of the plan as the receipt holds it: what the
// registration is a digest of, whatever members plans have gained since.
func (r *Receipt) planBytes() (json.RawMessage, error) {
	if r.raw == nil {
		_, b, err := r.Predicate.Plan.Digest()
		return b, err
	}
	var head struct {
		Predicate struct {
			Plan json.RawMessage `json:"plan"`
		} `json:"predicate"`
	}
	err := json.Unmarshal(r.raw, &head)
	return head.Predicate.Plan, err
}

// Governing is the plan that the result was judged by: the registered one, with the
// amendments that were made before a judged arm began.
func (r *Receipt) Governing() (arms.Plan, error) {
	if len(r.Predicate.Amendments) == 0 {
		return r.Predicate.Plan, nil
	}
	b, err := r.planBytes()
	if err != nil {
		return arms.Plan{}, err
	}
	return amendedPlan(b, r.Predicate.Amendments, ClassA, ClassB)
}

// Bytes are the bytes the receipt was read from.
func (r *Receipt) Bytes() []byte { return r.raw }

// Path is the file the receipt was read from.
func (r *Receipt) Path() string { return r.path }

// Marshal is the receipt in canonical form.
func (r *Receipt) Marshal() ([]byte, error) { return digest.Canonical(r) }

// Result is the judged ladder with the receipt's own digest in it: what people are shown.
func (r *Receipt) Result() scoring.Result {
	res := r.Predicate.Result
	res.Receipt = string(r.Digest())
	return res
}

// Arm finds an arm's result.
func (r *Receipt) Arm(name string) (*scoring.ArmResult, bool) {
	return armOf(&r.Predicate.Result, name)
}

func armOf(res *scoring.Result, name string) (*scoring.ArmResult, bool) {
	for i := range res.Arms {
		if res.Arms[i].Name == name {
			return &res.Arms[i], true
		}
	}
	return nil, false
}

// parse reads a receipt's bytes without judging them beyond their form. Unknown members
// are refused when strict.
func parse(b []byte, strict bool) (*Receipt, error) {
	var head struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Predicate     struct {
			Schema string `json:"schema"`
		} `json:"predicate"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("not a receipt: %w", err)
	}
	switch {
	case head.Type != StatementType:
		return nil, fmt.Errorf("not a receipt: its _type is %q, want %q", head.Type, StatementType)
	case head.PredicateType != PredicateType || head.Predicate.Schema != Schema:
		return nil, fmt.Errorf("schema %q (%s): this program reads %q (%s)", head.Predicate.Schema, head.PredicateType, Schema, PredicateType)
	}
	r := new(Receipt)
	if err := unmarshal(b, r, strict); err != nil {
		return nil, fmt.Errorf("not a receipt of schema %s: %w", Schema, err)
	}
	r.raw = b
	return r, nil
}
