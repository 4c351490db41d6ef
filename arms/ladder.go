// Package arms holds what is run: ladders of arms, the plan that a ladder resolves to, and
// the contracts of the engines and launchers that bring an arm up.
//
//  1. ParseLadder reads a ladder file, strictly: an unknown member, a duplicate or a wrong
//     type is an error with line and column.
//  2. Ladder.Resolve opens the Set, expands presets into arms and chains, checks that each
//     arm differs from its reference in exactly one pin, computes the reuse that geometry
//     predicts, and returns a Plan. The digest of the plan is the pre-registration.
//     A step that the engine lacks an interface for (Expirer, LoadFailer ...) is refused here.
//  3. Up launches one process of a plan and waits until it answers.
package arms

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"kvladder/prompts"
	"kvladder/scoring"
)

// Ladder is a ladder file: a question, a Set, an engine, a launcher (local where none is named),
// shared pins, arms and rules. An arm states only what differs from its reference. Pins of the
// launcher, such as an image's digest, stand among those of the engine.
type Ladder struct {
	Name       string                    `yaml:"ladder"`
	Question   string                    `yaml:"question"`
	Why        string                    `yaml:"why"`
	Engine     string                    `yaml:"engine"`
	Launcher   string                    `yaml:"launcher"`
	Set        string                    `yaml:"set"`
	Pins       map[string]Scalar         `yaml:"pins"`
	Subject    []string                  `yaml:"subject"`
	DT         []Dtype                   `yaml:"dt"`
	Twin       bool                      `yaml:"twin"` // every arm once more in the engine's batch-invariant mode, with controls and a store of its own
	Arms       []Entry                   `yaml:"arms"`
	Floors     Floors                    `yaml:"floors"`
	Rules      Rules                     `yaml:"rules"`
	Replay     ReplayFile                `yaml:"replay"`
	Parallel   int                       `yaml:"parallel"`
	Predict    map[string]map[string]any `yaml:"predict"`
	NotClaimed []string                  `yaml:"not_claimed"`
	Unproven   []string                  `yaml:"unproven"`
	Claims     []Claim                   `yaml:"claims"`

	file   string
	source []byte
	tree   ast.Node // where the members stand
	by     Launcher // for its pins; nil = it has none
}

// LaunchBy tells the ladder its launcher, whose pins an arm may then state, and whose
// refusals are those of the ladder.
func (l *Ladder) LaunchBy(by Launcher) { l.by = by }

// File is where the ladder was read from; a relative Set is looked up beside it.
func (l *Ladder) File() string { return l.file }

// Scalar is a pin value as the file writes it: a string, a number or a truth value.
type Scalar string

// UnmarshalYAML takes the scalar's own text, so that `0.90` stays `0.90`. The truth values
// true, yes and on are "on"; false, no and off are "off".
func (s *Scalar) UnmarshalYAML(n ast.Node) error {
	switch n.Type() {
	case ast.MappingType, ast.SequenceType, ast.MappingValueType, ast.NullType:
		return fieldError(n, "a pin is a string, a number or a truth value")
	case ast.BoolType:
		if n.(*ast.BoolNode).Value {
			*s = "on"
		} else {
			*s = "off"
		}
		return nil
	}
	if sn, ok := n.(*ast.StringNode); ok {
		*s = Scalar(sn.Value)
		return nil
	}
	*s = Scalar(strings.TrimSpace(n.GetToken().Value))
	return nil
}

// Dtype is one value of the dtype axis: a name alone sets the pin kv_cache_dtype; a mapping
// may set further pins that the dtype needs.
type Dtype struct {
	Name string            `yaml:"name"`
	Pins map[string]Scalar `yaml:"pins"`
}

// UnmarshalYAML accepts `fp8` for `{name: fp8, pins: {kv_cache_dtype: fp8}}`.
func (d *Dtype) UnmarshalYAML(n ast.Node) error {
	if n.Type() != ast.MappingType && n.Type() != ast.MappingValueType {
		var s Scalar
		if err := s.UnmarshalYAML(n); err != nil {
			return err
		}
		d.Name, d.Pins = string(s), map[string]Scalar{"kv_cache_dtype": s}
		return nil
	}
	type plain Dtype
	if err := decodeNode(n, (*plain)(d)); err != nil {
		return err
	}
	if d.Name == "" {
		return fieldError(n, "a dtype needs a name")
	}
	return nil
}

// Entry is one arm of the file: the name of a preset, or a mapping.
type Entry struct {
	Name   string            `yaml:"name"`
	Preset string            `yaml:"preset"`
	Pins   map[string]Scalar `yaml:"pins"`
	Why    string            `yaml:"why"`
	Before []StepLine        `yaml:"before"` // steps right before the arm's own requests; corrupt and copy-store with the process down where the preset restarts it
	After  []StepLine        `yaml:"after"`  // steps right behind them

	Base        string            `yaml:"base"`        // CONC, SOAK: the preset whose schedule they run; WARM where none is named
	Concurrency int               `yaml:"concurrency"` // requests at once; CONC needs it, PRESS, SOAK and custom may have it
	Clients     int               `yaml:"clients"`     // CONC: how many send, where more than the concurrency that is to be shown
	Identity    string            `yaml:"identity"`    // XID: salt, adapter, image or config
	From        map[string]Scalar `yaml:"from"`        // XID of config: pins of the process that fills the store
	Passes      int               `yaml:"passes"`      // SOAK: rounds
	Minutes     float64           `yaml:"minutes"`     // SOAK: the rounds are spread over at least so long
	Trace       bool              `yaml:"trace"`       // COLD, REPLAY, WARM, RST, PART: once more along the reference's tokens (trace replay)
	Stop        *StopFile         `yaml:"stop"`        // SOAK: the rule by which it may end early
	Flood       int               `yaml:"flood"`       // PRESS, C0-late: pool sizes that are sent between the passes

	Config        string     `yaml:"config"` // custom: C0, C1 or store
	Reference     string     `yaml:"reference"`
	ReferencePass int        `yaml:"reference_pass"`
	Exercise      string     `yaml:"exercise"`
	Path          string     `yaml:"path"`
	Steps         []StepLine `yaml:"steps"`

	at int // which of the file's arms it is, from 1; 0 = not known
}

// StopFile is the stopping rule of a soak: `{rule: sprt, p0: 0.001, p1: 0.05}`, or rule
// e-process, which ends by an alarm alone. Alpha, and the beta of an SPRT, are 0.05 where none
// is stated.
type StopFile struct {
	Rule  string   `yaml:"rule"`
	P0    float64  `yaml:"p0"`
	P1    float64  `yaml:"p1"`
	Alpha *float64 `yaml:"alpha"`
	Beta  *float64 `yaml:"beta"`
}

// stop is the rule as it is registered, counting from a pass on.
func (f *StopFile) stop(from int) *scoring.Stop {
	s := &scoring.Stop{Rule: f.Rule, P0: f.P0, P1: f.P1, Alpha: 0.05, From: from}
	if s.Rule == scoring.StopSPRT {
		s.Beta = 0.05
	}
	set(&s.Alpha, f.Alpha)
	set(&s.Beta, f.Beta)
	return s
}

// UnmarshalYAML accepts `WARM` for `{preset: WARM}`.
func (e *Entry) UnmarshalYAML(n ast.Node) error {
	if sn, ok := n.(*ast.StringNode); ok {
		e.Preset, e.Name = sn.Value, sn.Value
		return nil
	}
	type plain Entry
	if err := decodeNode(n, (*plain)(e)); err != nil {
		return err
	}
	if e.Preset == "" {
		return fieldError(n, "an arm needs a preset: one of "+strings.Join(PresetNames(), ", "))
	}
	if e.Name == "" {
		e.Name = e.Preset
	}
	return nil
}

// StepLine is one step written as words: `corrupt slot-0.bin 4096 64`.
type StepLine []string

// UnmarshalYAML splits the words and checks the step's name.
func (s *StepLine) UnmarshalYAML(n ast.Node) error {
	sn, ok := n.(*ast.StringNode)
	if !ok {
		return fieldError(n, "a step is a line of words, like `corrupt FILE OFFSET N`")
	}
	w := strings.Fields(sn.Value)
	if len(w) == 0 {
		return fieldError(n, "an empty step")
	}
	if _, ok := Steps[w[0]]; !ok {
		return fieldError(n, fmt.Sprintf("unknown step %q; known: %s", w[0], strings.Join(sortedKeys(Steps), ", ")))
	}
	if why := StepLine(w).check(); why != "" {
		return fieldError(n, why)
	}
	*s = w
	return nil
}

// Floors is how many processes of each control configuration are run, itself included.
type Floors struct {
	C0 int `yaml:"C0"`
	C1 int `yaml:"C1"`
}

// Rules overrides members of the default rule.
type Rules struct {
	NMin       *int     `yaml:"n_min"`
	GMin       *int     `yaml:"g_min"`
	PMax       *float64 `yaml:"p_max"`
	Alpha      *Alpha   `yaml:"alpha"`
	ControlMax *float64 `yaml:"control_max"`
	HitShare   *float64 `yaml:"hit_share"`
	Replicates *int     `yaml:"replicates"`
	Stall      *float64 `yaml:"stall_seconds"`

	Thresholds *ThresholdsFile `yaml:"thresholds"`
	Bootstrap  *BootstrapFile  `yaml:"bootstrap"`
}

// ThresholdsFile overrides formulas over the floor, whose grammar is that of scoring.Formula:
// `near_tie: 2 * p99(P.margin)`. They are made of control data between processes alone.
type ThresholdsFile struct {
	D0Flag  *string `yaml:"d0_flag"`
	NearTie *string `yaml:"near_tie"`
}

// BootstrapFile overrides the registered resampling of clusters: `{seed: 7, resamples: 5000,
// by: document}`.
type BootstrapFile struct {
	Seed      *int    `yaml:"seed"`
	Resamples *int    `yaml:"resamples"`
	By        *string `yaml:"by"`
}

// resampling is what a ladder registers that says nothing of it.
var resampling = scoring.Resampling{Seed: 38, Resamples: 2000, By: scoring.ByGeometry}

// Alpha holds the two significance levels.
type Alpha struct {
	Failures   *float64 `yaml:"failures"`
	Divergence *float64 `yaml:"divergence"`
}

// ReplayFile is how requests are sent.
type ReplayFile struct {
	Concurrency int    `yaml:"concurrency"` // clients that every pass of the ladder is sent by; 0 = one
	Ranks       int    `yaml:"ranks"`
	RankBy      string `yaml:"rank_by"`
	Field       string `yaml:"rank_field"`
	Timeout     int    `yaml:"timeout_seconds"`
	Lockstep    bool   `yaml:"lockstep"` // the engine waits for every client between two of its requests: see Conductor
}

// FileError is a fault of a ladder file, with its place.
type FileError struct {
	File      string
	Line, Col int
	What      string
	Hint      string
}

func (e *FileError) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d:%d", e.Line, e.Col)
	}
	s += ": " + e.What
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// nodeError carries a place inside the file up to ParseLadder.
type nodeError struct {
	line, col  int
	what, hint string
}

func (e *nodeError) Error() string { return e.what }

func fieldError(n ast.Node, what string) error {
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return &nodeError{what: what}
	}
	return &nodeError{line: t.Position.Line, col: t.Position.Column, what: what}
}

func decodeNode(n ast.Node, v any) error {
	return yaml.NodeToValue(n, v, yaml.Strict(), yaml.DisallowUnknownField())
}

// ReadLadder reads the ladder file at path.
func ReadLadder(path string) (*Ladder, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, &FileError{File: path, What: "no such ladder file", Hint: "kvladder init writes a starter ladder"}
		}
		return nil, &FileError{File: path, What: err.Error(), Hint: "name a ladder file that can be read"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLadder+1))
	if err != nil {
		return nil, &FileError{File: path, What: err.Error(), Hint: "name a ladder file that can be read"}
	}
	return ParseLadder(path, b)
}

// ParseLadder reads a ladder from the bytes of its file, with or without a byte order mark.
// Every error is a *FileError.
func ParseLadder(file string, b []byte) (*Ladder, error) {
	l := &Ladder{file: file, source: bytes.Clone(b)}
	fail := func(err error) error {
		fe := &FileError{File: file, What: err.Error()}
		var ne *nodeError
		var ye yaml.Error
		switch {
		case errors.As(err, &ne):
			fe.Line, fe.Col, fe.What, fe.Hint = ne.line, ne.col, ne.what, ne.hint
		case errors.As(err, &ye):
			fe.What = ye.GetMessage()
			if t := ye.GetToken(); t != nil && t.Position != nil {
				fe.Line, fe.Col = t.Position.Line, t.Position.Column
				var te *yaml.TypeError
				if errors.As(err, &te) && te.DstType != nil {
					fe.What = fmt.Sprintf("%s is wanted here, got %q", kindWord(te.DstType), t.Value)
				}
				if m, ok := strings.CutPrefix(fe.What, "unknown field "); ok {
					fe.What = "unknown member " + m
					fe.Hint = suggest(strings.Trim(m, `"`), ladderMembers)
				}
			}
		}
		return fe
	}
	if len(b) > maxLadder {
		return nil, &FileError{File: file, What: fmt.Sprintf("it has more than %d bytes", maxLadder), Hint: "is it a ladder file?"}
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if err := checkText(b); err != nil {
		return nil, fail(err)
	}
	if TooDeep(b) {
		return nil, &FileError{File: file, What: "it is nested deeper than a ladder can be", Hint: "is it a ladder file?"}
	}
	tree, err := parseTree(b)
	if err != nil {
		return nil, fail(err)
	}
	if l.tree = tree; tree != nil {
		if err := checkShape(tree, reflect.TypeFor[Ladder](), ""); err != nil {
			return nil, fail(err)
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict(), yaml.DisallowUnknownField())
	if err := dec.Decode(l); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &FileError{File: file, What: "the file is empty"}
		}
		return nil, fail(err)
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, &FileError{File: file, What: "a ladder file holds one document"}
	}
	for i := range l.Arms {
		l.Arms[i].at = i + 1
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

// kindWord says in words what a member holds.
func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a word"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Pointer:
		return kindWord(t.Elem())
	}
	return "a " + t.String()
}

var ladderMembers = []string{"ladder", "question", "why", "engine", "launcher", "set", "pins", "subject", "dt", "twin", "arms", "floors", "rules",
	"replay", "parallel", "predict", "not_claimed", "unproven", "claims", "name", "preset", "before", "n_min", "g_min", "p_max", "alpha",
	"after", "base", "concurrency", "clients", "identity", "from", "passes", "minutes", "trace", "stop", "rule", "p0", "p1", "beta", "flood", "config", "reference", "reference_pass", "exercise", "path",
	"steps", "control_max", "hit_share", "replicates", "stall_seconds", "thresholds", "d0_flag", "near_tie", "bootstrap", "seed", "resamples", "by", "failures", "divergence", "ranks", "rank_by", "rank_field", "timeout_seconds", "lockstep"}

// suggest names the known word closest to the one that was written.
func suggest(got string, known []string) string {
	best, at := 3, ""
	for _, k := range known {
		if d := distance(strings.ToLower(got), strings.ToLower(k)); d < best {
			best, at = d, k
		}
	}
	if at == "" {
		return "known members: " + strings.Join(known[:18], ", ")
	}
	return "did you mean " + at + "?"
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cur := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(cur+1, row[j]+1, prev+cost)
			prev = cur
		}
	}
	return row[len(b)]
}

func (l *Ladder) check() error {
	switch {
	case l.Name == "":
		return l.wrong(nil, "add `ladder: NAME`", "the ladder has no name")
	case l.Set == "":
		return l.wrong(nil, "add `set: FILE`, made by kvladder freeze", "the ladder names no set")
	case l.Engine == "":
		return l.wrong(nil, "add `engine: NAME`; kvladder doctor lists them", "the ladder names no engine")
	case len(l.Arms) == 0:
		return l.wrong(nil, "add `arms: [C0, C1, COLD, WARM]`", "the ladder has no arms")
	case len(l.Arms) > maxArms:
		return l.wrong([]any{"arms"}, "make several ladders of it", "%d arms, %d are the most", len(l.Arms), maxArms)
	case len(l.DT) > maxDtypes:
		return l.wrong([]any{"dt"}, "make several ladders of it", "%d dtypes, %d are the most", len(l.DT), maxDtypes)
	}
	if err := prompts.CheckName(l.Name); err != nil {
		return l.wrong([]any{"ladder"}, "", "ladder name %.80q: %v", l.Name, err)
	}
	if l.Launcher == "" {
		l.Launcher = "local"
	}
	for i, g := range l.DT {
		if err := prompts.CheckName(g.Name); err != nil {
			return l.wrong([]any{"dt", i}, "", "dtype %.80q: %v", g.Name, err)
		}
	}
	for i, c := range l.Claims {
		switch c.Status {
		case "asserted", "measured", "refuted", "withdrawn":
		default:
			return l.wrong([]any{"claims", i}, "use asserted, measured, refuted or withdrawn", "claim %q has status %q", c.Text, c.Status)
		}
	}
	if err := l.Replay.check(l); err != nil {
		return err
	}
	seen := map[string]int{}
	for i, e := range l.Arms {
		at := []any{"arms", i}
		if _, ok := presets[e.Preset]; !ok {
			return l.wrong(at, "known presets: "+strings.Join(PresetNames(), ", "), "arm %.80q: unknown preset %.80q", e.Name, e.Preset)
		}
		if err := prompts.CheckName(e.Name); err != nil {
			return l.wrong(at, "", "arm %.80q: %v", e.Name, err)
		}
		if first, twice := seen[e.Name]; twice {
			return l.wrong(at, "give one of them another name", "arm %s is named twice, here and at %s", e.Name, l.place("arms", first))
		}
		seen[e.Name] = i
		if _, preset := presets[e.Name]; preset && e.Name != e.Preset {
			return l.wrong(at, "give it another name", "arm %s runs preset %s under the name of another preset: its references would be taken for something else", e.Name, e.Preset)
		}
		if what, hint := e.check(); what != "" {
			return l.wrong(at, hint, "arm %s: %s", e.Name, what)
		}
	}
	return nil
}

// maxArms and maxDtypes keep a plan at a size that somebody can read.
const (
	maxArms   = 64
	maxDtypes = 16
)

// place is line and column of a member.
func (l *Ladder) place(path ...any) string {
	n, _ := find(l.tree, path...)
	if n == nil {
		return l.file
	}
	line, col := placeOf(n)
	return fmt.Sprintf("%s:%d:%d", l.file, line, col)
}

func (r *ReplayFile) check(l *Ladder) error {
	at := []any{"replay", "rank_field"}
	switch r.RankBy {
	case "", "header", "body", "url":
	default:
		return l.wrong([]any{"replay", "rank_by"}, "use header, body or url", "replay.rank_by: %.80q is unknown", r.RankBy)
	}
	if r.Field == "" {
		return nil
	}
	if len(r.Field) > prompts.MaxName {
		return l.wrong(at, "", "replay.rank_field: it has %d characters, %d are the most", len(r.Field), prompts.MaxName)
	}
	// RFC 9110, section 5.6.2: what a field name is made of. A member of a body gets no more.
	for _, c := range r.Field {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)) {
			return l.wrong(at, "use a name such as X-data-parallel-rank or routed_dp_rank", "replay.rank_field: %.80q holds %q, which no field name has", r.Field, c)
		}
	}
	return nil
}

// SetPath is the path of the Set file.
func (l *Ladder) SetPath() string {
	if filepath.IsAbs(l.Set) {
		return l.Set
	}
	return filepath.Join(filepath.Dir(l.file), l.Set)
}

// rule is the default rule with the file's overrides.
func (l *Ladder) rule() (scoring.Rule, error) {
	r, f := scoring.DefaultRule(), l.Rules
	set(&r.NMin, f.NMin)
	set(&r.GMin, f.GMin)
	set(&r.PMax, f.PMax)
	set(&r.ControlMax, f.ControlMax)
	set(&r.HitShare, f.HitShare)
	set(&r.Replicates, f.Replicates)
	set(&r.StallSecs, f.Stall)
	if f.Alpha != nil {
		set(&r.Alpha.Failures, f.Alpha.Failures)
		set(&r.Alpha.Divergence, f.Alpha.Divergence)
	}
	t, b := scoring.DefaultThresholds(), resampling
	if f.Thresholds != nil {
		set(&t.D0Flag, (*scoring.Formula)(f.Thresholds.D0Flag))
		set(&t.NearTie, (*scoring.Formula)(f.Thresholds.NearTie))
	}
	if f.Bootstrap != nil {
		set(&b.Seed, f.Bootstrap.Seed)
		set(&b.Resamples, f.Bootstrap.Resamples)
		set(&b.By, f.Bootstrap.By)
	}
	if err := t.Check(); err != nil {
		return r, l.wrong([]any{"rules", "thresholds"}, `such as near_tie: "p99(P.margin)"`, "rules.thresholds.%v", err)
	}
	if err := b.Check(); err != nil {
		return r, l.wrong([]any{"rules", "bootstrap"}, "bootstrap: {seed: 38, resamples: 2000, by: geometry}", "rules.bootstrap: %v", err)
	}
	r.Thresholds, r.Bootstrap = &t, &b
	bad := func(name string, v any, want string) error {
		path := []any{"rules"}
		for _, p := range strings.Split(name, ".") {
			path = append(path, p)
		}
		return l.wrong(path, "it must be "+want, "rules.%s: %v", name, v)
	}
	switch {
	case r.NMin < 1:
		return r, bad("n_min", r.NMin, "at least 1")
	case r.GMin < 1:
		return r, bad("g_min", r.GMin, "at least 1")
	case !(r.PMax > 0 && r.PMax < 1):
		return r, bad("p_max", r.PMax, "between 0 and 1")
	case !(r.Alpha.Failures > 0 && r.Alpha.Failures < 0.5):
		return r, bad("alpha.failures", r.Alpha.Failures, "between 0 and 0.5")
	case !(r.Alpha.Divergence > 0 && r.Alpha.Divergence < 0.5):
		return r, bad("alpha.divergence", r.Alpha.Divergence, "between 0 and 0.5")
	case !(r.HitShare > 0 && r.HitShare <= 1):
		return r, bad("hit_share", r.HitShare, "between 0 and 1")
	case !(r.ControlMax > 0 && r.ControlMax < 1):
		return r, bad("control_max", r.ControlMax, "between 0 and 1")
	case !(r.StallSecs > 0):
		return r, bad("stall_seconds", r.StallSecs, "above 0")
	case r.Replicates < 0 || r.Replicates > 5:
		return r, bad("replicates", r.Replicates, "between 0 and 5")
	}
	return r, nil
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// Pin sets shared pins, over those of the file.
func (l *Ladder) Pin(pins map[string]string) {
	if l.Pins == nil {
		l.Pins = map[string]Scalar{}
	}
	for k, v := range pins {
		l.Pins[k] = Scalar(v)
	}
}
