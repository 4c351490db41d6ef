package receipts

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/scoring"
)

// Weight says what kind of thing changed.
type Weight string

const (
	WeightPin     Weight = "pin"     // what was run
	WeightScore   Weight = "score"   // what was measured
	WeightVerdict Weight = "verdict" // what was decided
	WeightNote    Weight = "note"    // anything that no answer depends on
)

// Change is one difference, at a path like "arms[COLD].failed".
type Change struct {
	Path   string `json:"path"`
	Old    any    `json:"old"`
	New    any    `json:"new"`
	Weight Weight `json:"weight"`
}

// DiffReport is what two receipts say about each other. Exit is 0 where nothing but notes
// and pins under test differs, 1 where something does, 3 where the question is another.
type DiffReport struct {
	Comparable bool     `json:"comparable"`
	Exit       int      `json:"exit"`
	Transition string   `json:"transition"` // "CLEAN_BOUNDED -> CORRUPTION_ATTRIBUTED (worse)", or one verdict
	Changes    []Change `json:"changes"`
}

// Diff compares two receipts in the order of pins, exercise, counts, statistics and
// verdicts; arms are paired by name and requests by id. Statistics within 1e-10 of each
// other, relative, are the same. Receipts of another Set or of other rules are not
// compared: the changes then name the keys that differ, and nothing else.
func Diff(a, b *Receipt) DiffReport {
	d := &differ{}
	d.unlike(a, b)
	if len(d.changes) > 0 {
		return DiffReport{Exit: scoring.ExitInvalid, Changes: d.changes}
	}
	d.pins(a, b)
	d.arms(a, b, weightOfExercise)
	d.arms(a, b, weightOfCount)
	d.arms(a, b, weightOfStatistic)
	d.arms(a, b, weightOfVerdict)
	d.ladder(a, b)
	d.notes(a, b)
	rep := DiffReport{Comparable: true, Changes: d.changes, Transition: transition(&a.Predicate.Result, &b.Predicate.Result)}
	if rep.Changes == nil {
		rep.Changes = []Change{}
	}
	if d.different {
		rep.Exit = scoring.ExitCorrupt
	}
	return rep
}

type differ struct {
	changes   []Change
	different bool
}

func (d *differ) add(path string, old, new any, w Weight) {
	d.changes = append(d.changes, Change{Path: path, Old: old, New: new, Weight: w})
	if w == WeightScore || w == WeightVerdict {
		d.different = true
	}
}

// unlike finds what makes two receipts answers to different questions.
func (d *differ) unlike(a, b *Receipt) {
	if x, y := a.Predicate.Prereg.Set, b.Predicate.Prereg.Set; x != y {
		d.add("prereg.set", x, y, WeightPin)
	}
	leaves("plan.design.rule", a.Predicate.Plan.Design.Rule, b.Predicate.Plan.Design.Rule, func(path string, x, y any) {
		d.add(path, x, y, WeightPin)
	})
}

func (d *differ) pins(a, b *Receipt) {
	subject := func(name string) bool {
		return slices.Contains(a.Predicate.Plan.Subject, name) && slices.Contains(b.Predicate.Plan.Subject, name)
	}
	pin := func(path, name string, x, y any) {
		d.add(path, x, y, WeightPin)
		if !subject(name) {
			d.different = true
		}
	}
	pa, pb := &a.Predicate.Plan, &b.Predicate.Plan
	for _, f := range []struct{ name, x, y string }{{"engine", pa.Engine, pb.Engine}, {"launcher", pa.Launcher, pb.Launcher}} {
		if f.x != f.y {
			pin("plan."+f.name, f.name, f.x, f.y)
		}
	}
	compareMaps(pa.Pins, pb.Pins, func(k string, x, y any) { pin("pins."+k, k, x, y) })
	for _, name := range armNames(specNames(pa), specNames(pb)) {
		sa, oka := pa.Design.ByName(name)
		sb, okb := pb.Design.ByName(name)
		if !oka || !okb {
			d.add("arms["+name+"]", presence(oka), presence(okb), WeightPin)
			d.different = true
			continue
		}
		compareMaps(sa.Pins, sb.Pins, func(k string, x, y any) {
			// A shared pin has been reported once already.
			if pa.Pins[k] != pb.Pins[k] && x == pa.Pins[k] && y == pb.Pins[k] {
				return
			}
			pin("arms["+name+"].pins."+k, k, x, y)
		})
		leaves("arms["+name+"].schedule", scheduleOf(*sa), scheduleOf(*sb), func(path string, x, y any) { pin(path, "", x, y) })
	}
	leaves("chains", chainsByName(pa), chainsByName(pb), func(path string, x, y any) { pin(path, "", x, y) })
	leaves("replay", pa.Replay, pb.Replay, func(path string, x, y any) { pin(path, "", x, y) })
	ra, rb := pinsReadByArm(a), pinsReadByArm(b)
	for _, k := range union(ra, rb) {
		x, y := ra[k].value(), rb[k].value()
		// What was asked differently is reported above; a reading that differs although the same was asked is news.
		if ra[k].Asked == rb[k].Asked && x != y {
			pin("pins_read["+k+"]", ra[k].Name, x, y)
		}
	}
}

type readValue struct{ probes.PinRead }

func (r readValue) value() any {
	if r.Read == nil {
		return nil
	}
	return *r.Read
}

func pinsReadByArm(r *Receipt) map[string]readValue {
	m := map[string]readValue{}
	for _, p := range r.Predicate.PinsRead {
		m[p.Arm+"."+p.Name] = readValue{p.PinRead}
	}
	return m
}

func compareMaps(x, y map[string]string, emit func(k string, x, y any)) {
	for _, k := range union(x, y) {
		v, okv := x[k]
		w, okw := y[k]
		if v == w && okv == okw {
			continue
		}
		var old, new any
		if okv {
			old = v
		}
		if okw {
			new = w
		}
		emit(k, old, new)
	}
}

func presence(here bool) any {
	if here {
		return "present"
	}
	return nil
}

func specNames(p *arms.Plan) []string {
	var out []string
	for _, a := range p.Design.Arms {
		out = append(out, a.Name)
	}
	return out
}

// armNames is the order of a, followed by what only b has.
func armNames(a, b []string) []string {
	out := slices.Clone(a)
	for _, n := range b {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// schedule is the part of an arm that says what is done, without its pins and without what
// geometry expects of them.
type schedule struct {
	Preset        string   `json:"preset"`
	Role          string   `json:"role"`
	Group         string   `json:"group"`
	Chain         string   `json:"chain"`
	Process       string   `json:"process"`
	Passes        int      `json:"passes"`
	Judge         int      `json:"judge"`
	Connector     bool     `json:"connector"`
	Reference     string   `json:"reference"`
	ReferencePass int      `json:"reference_pass"`
	FloorOf       string   `json:"floor_of"`
	Split         bool     `json:"split"`
	ScheduleDiff  []string `json:"schedule_diff"`
	Path          string   `json:"path"`
	Exercise      string   `json:"exercise"`
}

func scheduleOf(a scoring.ArmSpec) schedule {
	return schedule{Preset: a.Preset, Role: a.Role, Group: a.Group, Chain: a.Chain, Process: a.Process, Passes: a.Passes, Judge: a.Judge,
		Connector: a.Connector, Reference: a.Reference, ReferencePass: a.ReferencePass, FloorOf: a.FloorOf, Split: a.Split,
		ScheduleDiff: a.ScheduleDiff, Path: a.Path, Exercise: a.Exercise}
}

// chainsByName forgets the order of independent chains, which the plan's own digest shuffles.
func chainsByName(p *arms.Plan) map[string]arms.Chain {
	m := map[string]arms.Chain{}
	for _, c := range p.Chains {
		m[c.Name] = c
	}
	return m
}

// Members of an arm's result by block. A member that is in none is a note, or is compared
// through another; TestEveryMemberHasAWeight sees to it that none is forgotten.
var (
	weightOfExercise = block{WeightScore, []string{"expected_local", "expected_external", "local_tokens", "external_tokens", "computed_tokens",
		"unaccounted_tokens", "counters_trusted", "exercised", "geometries", "ranks", "invariants"}}
	weightOfCount = block{WeightScore, []string{"n", "substantive", "failed", "failed_ids", "unstable", "arm_only", "control_only", "damaged", "detectors",
		"answers_right", "bystander_n", "bystander_failed", "identical", "forks", "hard_flips", "exposure", "censored", "bit_equal", "comparable", "flagged_ids", "lifetime", "replicates", "replicates_registered"}}
	weightOfStatistic = block{WeightScore, []string{"p_mcnemar", "p_mcnemar_holm", "p_exceedance", "p_exceedance_holm", "exceedance_k", "floor_m", "process_rank",
		"d0_mean", "d0_max", "prefix_mean", "prefix_p99", "prefix_max", "zipped_mean", "zipped_max", "kld_mean", "upper95", "upper95_geometry", "p_max"}}
	weightOfVerdict = block{WeightVerdict, []string{"columns", "row", "sub", "kind", "reason", "exit", "variable", "path", "only_under", "died_at", "verdict"}}
	notDiffed       = []string{"name", "preset", "role", "group", "reference", "pin", "schedule_diff", // of the plan
		"incarnations", "warnings", // notes
		"outcomes"} // by request, beside failed_ids
)

type block struct {
	weight  Weight
	members []string
}

func (d *differ) arms(a, b *Receipt, blk block) {
	for _, name := range armNames(resultNames(a), resultNames(b)) {
		x, okx := a.Arm(name)
		y, oky := b.Arm(name)
		if !okx || !oky {
			if blk.weight == WeightVerdict {
				d.add("arms["+name+"]", presence(okx), presence(oky), WeightVerdict)
			}
			continue
		}
		vx, vy := reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem()
		for _, member := range blk.members {
			f, ok := jsonField(vx.Type(), member)
			if !ok {
				continue
			}
			path := "arms[" + name + "]." + member
			emit := func(path string, old, new any) { d.add(path, old, new, blk.weight) }
			if ids, ok := vx.FieldByIndex(f.Index).Interface().([]string); ok {
				gainedAndLost(path, ids, vy.FieldByIndex(f.Index).Interface().([]string), emit)
				continue
			}
			walk(path, vx.FieldByIndex(f.Index), vy.FieldByIndex(f.Index), emit)
		}
		if slices.Equal(blk.members, weightOfCount.members) {
			d.outcomes("arms["+name+"]", x.Outcomes, y.Outcomes)
		}
	}
}

// gainedAndLost compares two lists of ids as sets: old names what was lost, new what came.
func gainedAndLost(path string, a, b []string, emit func(path string, old, new any)) {
	lost, gained := without(a, b), without(b, a)
	if len(lost) > 0 {
		emit(path+".lost", lost, nil)
	}
	if len(gained) > 0 {
		emit(path+".gained", nil, gained)
	}
}

func without(a, b []string) []string {
	var out []string
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	sort.Strings(out)
	return out
}

// outcomes compares requests by id: what each came to and whether its answer is the same.
func (d *differ) outcomes(arm string, a, b []scoring.Outcome) {
	xs, ys := map[string]scoring.Outcome{}, map[string]scoring.Outcome{}
	for _, o := range a {
		xs[o.ID] = o
	}
	for _, o := range b {
		ys[o.ID] = o
	}
	for _, id := range union(xs, ys) {
		x, okx := xs[id]
		y, oky := ys[id]
		path := fmt.Sprintf("%s.outcomes[%s]", arm, id)
		if !okx || !oky {
			d.add(path, presence(okx), presence(oky), WeightScore)
			continue
		}
		// Whether it failed or was unstable is said by failed_ids and unstable.
		x.Failed, y.Failed, x.Unstable, y.Unstable = false, false, false, false
		leaves(path, x, y, func(path string, old, new any) { d.add(path, old, new, WeightScore) })
	}
}

func resultNames(r *Receipt) []string {
	var out []string
	for _, a := range r.Predicate.Result.Arms {
		out = append(out, a.Name)
	}
	return out
}

func (d *differ) ladder(a, b *Receipt) {
	x, y := &a.Predicate.Result, &b.Predicate.Result
	if x.Verdict != y.Verdict {
		d.add("verdict", x.Verdict, y.Verdict, WeightVerdict)
	}
	if x.Exit != y.Exit {
		d.add("exit", x.Exit, y.Exit, WeightVerdict)
	}
	xs, ys := map[string]Prediction{}, map[string]Prediction{}
	for _, p := range a.Predicate.Predictions {
		xs[p.Arm+"."+p.Member] = p
	}
	for _, p := range b.Predicate.Predictions {
		ys[p.Arm+"."+p.Member] = p
	}
	for _, k := range union(xs, ys) {
		p, okp := xs[k]
		q, okq := ys[k]
		switch {
		case !okp || !okq:
			d.add("predictions["+k+"]", presence(okp), presence(okq), WeightNote)
		case !rawEqual(p.Predicted, q.Predicted):
			d.add("predictions["+k+"].predicted", p.Predicted, q.Predicted, WeightNote)
		case p.Held != q.Held:
			d.add("predictions["+k+"].held", p.Held, q.Held, WeightVerdict)
		}
	}
}

func (d *differ) notes(a, b *Receipt) {
	note := func(path string, x, y any) {
		if !rawEqual(x, y) {
			d.add(path, x, y, WeightNote)
		}
	}
	pa, pb := &a.Predicate, &b.Predicate
	note("prereg.plan", pa.Prereg.Plan, pb.Prereg.Plan)
	note("order.level", pa.Order.Level, pb.Order.Level)
	leaves("tool", pa.Tool, pb.Tool, note)
	note("plan.question", pa.Plan.Question, pb.Plan.Question)
	note("plan.ladder", pa.Plan.Ladder, pb.Plan.Ladder)
	note("subject", names(a.Subject), names(b.Subject))
	note("warnings", pa.Warnings, pb.Warnings)
	note("result.warnings", pa.Result.Warnings, pb.Result.Warnings)
	for _, name := range resultNames(a) {
		x, _ := a.Arm(name)
		if y, ok := b.Arm(name); ok {
			note("arms["+name+"].warnings", x.Warnings, y.Warnings)
		}
	}
}

func names(rs []Resource) []string {
	out := []string{}
	for _, r := range rs {
		out = append(out, r.Name+"="+r.Digest.SHA256)
	}
	return out
}

// transition is the ladder's verdict from one receipt to the other, with its direction.
func transition(a, b *scoring.Result) string {
	if a.Verdict == b.Verdict && a.Exit == b.Exit {
		return orNone(a.Verdict)
	}
	// Exits in the order of how bad they are for who serves the model.
	rank := map[int]int{scoring.ExitClean: 0, scoring.ExitCannot: 1, scoring.ExitInvalid: 2, scoring.ExitDied: 3, scoring.ExitCorrupt: 4}
	direction := "sideways"
	switch x, y := rank[a.Exit], rank[b.Exit]; {
	case y > x:
		direction = "worse"
	case y < x:
		direction = "better"
	}
	return fmt.Sprintf("%s -> %s (%s)", orNone(a.Verdict), orNone(b.Verdict), direction)
}

func jsonField(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && f.IsExported() {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// leaves walks two values of one type and emits the leaves that differ.
func leaves[T any](path string, a, b T, emit func(path string, old, new any)) {
	walk(path, reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem(), emit)
}

// walk descends plain exported structs, maps with text keys, pointers and slices. Lists of
// scalars are compared as one value; lists of structs by the member that names them, since
// a place in a list is no identity.
func walk(path string, a, b reflect.Value, emit func(path string, old, new any)) {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				emit(path, valueOf(a), valueOf(b))
			}
			return
		}
		if a.Elem().Type() != b.Elem().Type() {
			emit(path, valueOf(a), valueOf(b))
			return
		}
		walk(path, a.Elem(), b.Elem(), emit)
	case reflect.Struct:
		for i := range a.NumField() {
			f := a.Type().Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || tag == "-" {
				continue
			}
			at := path
			if !f.Anonymous {
				if tag == "" {
					tag = f.Name
				}
				at = path + "." + tag
			}
			walk(at, a.Field(i), b.Field(i), emit)
		}
	case reflect.Map:
		keys := map[string]bool{}
		for _, m := range []reflect.Value{a, b} {
			for _, k := range m.MapKeys() {
				keys[k.String()] = true
			}
		}
		for _, k := range sortedKeys(keys) {
			key := reflect.ValueOf(k).Convert(a.Type().Key())
			x, y := a.MapIndex(key), b.MapIndex(key)
			if !x.IsValid() || !y.IsValid() {
				emit(path+"."+k, valueOf(x), valueOf(y))
				continue
			}
			walk(path+"."+k, x, y, emit)
		}
	case reflect.Slice:
		xs, ok1 := named(a)
		ys, ok2 := named(b)
		if !ok1 || !ok2 {
			if a.Len()+b.Len() > 0 && !rawEqual(a.Interface(), b.Interface()) {
				emit(path, valueOf(a), valueOf(b))
			}
			return
		}
		for _, k := range union(xs, ys) {
			x, okx := xs[k]
			y, oky := ys[k]
			if !okx || !oky {
				emit(path+"["+k+"]", presence(okx), presence(oky))
				continue
			}
			walk(path+"["+k+"]", x, y, emit)
		}
	case reflect.Float64, reflect.Float32:
		if !near(a.Float(), b.Float()) {
			emit(path, a.Float(), b.Float())
		}
	default:
		if !a.Equal(b) {
			emit(path, valueOf(a), valueOf(b))
		}
	}
}

// named gives the elements of a list of structs by name; false where they have none.
func named(v reflect.Value) (map[string]reflect.Value, bool) {
	if v.Type().Elem().Kind() != reflect.Struct {
		return nil, false
	}
	out := map[string]reflect.Value{}
	for i := range v.Len() {
		f, ok := jsonField(v.Type().Elem(), "name")
		if !ok {
			if f, ok = jsonField(v.Type().Elem(), "id"); !ok {
				return nil, false
			}
		}
		key := v.Index(i).FieldByIndex(f.Index).String()
		if _, twice := out[key]; twice {
			return nil, false
		}
		out[key] = v.Index(i)
	}
	return out, true
}

func valueOf(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}
