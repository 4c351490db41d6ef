package draw

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kvladder/prompts"
)

// splitter is a tokenizer for tests: each match of parts is a token, and its id is fixed by
// the order in which texts are first seen. Names and digits come apart as most do.
type splitter struct {
	ids   map[string]int
	text  []string
	calls int
}

var parts = regexp.MustCompile(`(?s) ?[a-z]+:?| ?[KT]\d\d| ?\d| ?[.?,]| ?[A-Z][a-z]*| ?.`)

func newSplitter() *splitter { return &splitter{ids: map[string]int{}, text: []string{"<bos>"}} }

func (s *splitter) Name() string { return "splitter" }

func (s *splitter) Encode(_ context.Context, text string) ([]int, error) {
	s.calls++
	out := []int{0}
	for _, p := range parts.FindAllString(text, -1) {
		id, ok := s.ids[p]
		if !ok {
			id = len(s.text)
			s.ids[p] = id
			s.text = append(s.text, p)
		}
		out = append(out, id)
	}
	return out, nil
}

func (s *splitter) decode(ids []int) string {
	var b strings.Builder
	for _, id := range ids[:] {
		if id > 0 {
			b.WriteString(s.text[id])
		}
	}
	return b.String()
}

var (
	hybrid = prompts.Geometry{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64}
	vllm   = Wire{Dialect: "vllm", Model: "m"}
)

func spec(kind string, seed uint64) Spec {
	return Spec{Kind: kind, Name: kind, Seed: seed, Geometry: hybrid, Wire: vllm}
}

func mustDraw(t *testing.T, tok Tokenizer, s Spec) *prompts.Set {
	t.Helper()
	set, err := Draw(context.Background(), tok, s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// paged are the kinds that any geometry with a boundary can carry.
var paged = []string{"mixed", "needle", "brief", "shared-prefix", "partial-hit", "t1", "sub-block", "prose", "wide"}

// Over many seeds, each kind keeps what the package promises about every prompt.
func TestEveryPromptHolds(t *testing.T) {
	for _, kind := range paged {
		for seed := range uint64(4) {
			tok := newSplitter()
			set, err := Draw(context.Background(), tok, spec(kind, seed))
			if err != nil {
				if strings.Contains(err.Error(), "try another seed") {
					continue
				}
				t.Fatalf("%s, seed %d: %v", kind, seed, err)
			}
			for _, p := range set.Prompts {
				check(t, fmt.Sprintf("%s, seed %d, %s", kind, seed, p.ID), tok, set, p)
			}
		}
	}
}

func check(t *testing.T, at string, tok *splitter, set *prompts.Set, p prompts.Prompt) {
	t.Helper()
	n := len(p.Tokens)
	text := tok.decode(p.Tokens)
	whole, _ := tok.Encode(context.Background(), text)
	if !slices.Equal(whole, p.Tokens) {
		t.Errorf("%s: pieces are not what the whole text encodes to:\n%s", at, text)
	}
	if last := (n - 1) / 64 * 64; p.Class.LengthMod != n%64 || p.Class.Local+p.Class.External != last {
		t.Errorf("%s: class %+v of %d tokens", at, p.Class, n)
	}
	if set.Kind != "sub-block" && n%64 == 0 || set.Kind == "sub-block" && n >= 64 {
		t.Errorf("%s: %d tokens", at, n)
	}
	if p.Body != vllm.Body(p.Tokens, set.MaxTokens, nil) {
		t.Errorf("%s: body %s", at, p.Body)
	}
	if p.Prime != nil {
		if got := (p.Prime.Tokens - 1) / 64 * 64; got != p.Class.Local || p.Prime.Tokens >= n {
			t.Errorf("%s: a prime of %d tokens leaves %d, the class says %d", at, p.Prime.Tokens, got, p.Class.Local)
		}
		if p.Prime.Body != vllm.Body(p.Tokens[:p.Prime.Tokens], 1, nil) {
			t.Errorf("%s: prime %s", at, p.Prime.Body)
		}
	}
	// No name is defined twice, and names are at least 7 tokens apart, the question's too.
	seen, before := map[string]bool{}, -7
	for i, id := range p.Tokens {
		s := strings.TrimSpace(tok.text[id])
		if len(s) != 3 || s[0] != 'K' && s[0] != 'T' {
			continue
		}
		if i-before < 7 || i < 7 {
			t.Errorf("%s: %s at %d, the one before at %d", at, s, i, before)
		}
		before = i
		if i < n-2 && seen[s] {
			t.Errorf("%s: %s is defined twice", at, s)
		}
		seen[s] = true
	}
	if tags := strings.Count(text, "note:"); tags > 12 {
		t.Errorf("%s: %d tags", at, tags)
	}
	if set.Kind == "prose" {
		if p.Expect.Needles != nil {
			t.Errorf("%s: needles in prose", at)
		}
		return
	}
	if len(p.Expect.Needles) != 1 {
		t.Fatalf("%s: %d needles", at, len(p.Expect.Needles))
	}
	x := p.Expect.Needles[0]
	if got, want := tok.decode(p.Tokens[x.Offset:x.End]), " "+x.Key+" is "+x.Answer+" ."; got != want {
		t.Errorf("%s: rows [%d, %d) are %q, want %q", at, x.Offset, x.End, got, want)
	}
	word, rides := "key", "attention"
	if x.Key[0] == 'T' {
		word, rides = "tag", "recurrent"
	}
	if !strings.HasSuffix(text, "question: "+word+" "+x.Key+" ?") || x.Rides != rides || !x.Scored {
		t.Errorf("%s: %+v is asked by %q", at, x, text[len(text)-30:])
	}
	if reusable := (n - 1) / 64 * 64; x.End > reusable && set.Kind != "sub-block" && set.Kind != "t1" && set.Kind != "shared-prefix" {
		t.Errorf("%s: asked rows end at %d, reuse ends at %d", at, x.End, reusable)
	}
}

func TestEqualSpecsGiveEqualBytes(t *testing.T) {
	for _, kind := range paged {
		a, b := mustDraw(t, newSplitter(), spec(kind, 1)), mustDraw(t, newSplitter(), spec(kind, 1))
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: two draws differ", kind)
		}
		if c := mustDraw(t, newSplitter(), spec(kind, 4)); c.Digest == a.Digest {
			t.Errorf("%s: seeds 1 and 4 give one set", kind)
		}
	}
}

// A value stands for one document of a set: in the wrong reply it names where it came from.
func TestValuesAreOfOneDocument(t *testing.T) {
	for _, kind := range []string{"mixed", "needle", "shared-prefix", "partial-hit", "t1"} {
		tok := newSplitter()
		owner := map[string]string{}
		for _, p := range mustDraw(t, tok, spec(kind, 1)).Prompts {
			for _, m := range regexp.MustCompile(`is (\d+) \.`).FindAllStringSubmatch(tok.decode(p.Tokens), -1) {
				if o, ok := owner[m[1]]; ok && o != p.Document {
					t.Errorf("%s: %s is a value of %s and of %s", kind, m[1], o, p.Document)
				}
				owner[m[1]] = p.Document
			}
		}
		if len(owner) < 30 {
			t.Errorf("%s: only %d values", kind, len(owner))
		}
	}
}

// common is the length of the prefix that two prompts share.
func common(a, b []int) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestMixedShares(t *testing.T) {
	set := mustDraw(t, newSplitter(), spec("mixed", 1))
	sharers := 0
	for i, p := range set.Prompts {
		for _, q := range set.Prompts[:i] {
			n := common(p.Tokens, q.Tokens)
			if p.Document != q.Document {
				if n > 8 {
					t.Errorf("%s and %s share %d tokens", p.ID, q.ID, n)
				}
				continue
			}
			sharers++
			if n <= 128 || n > 160 || p.Class.Local != q.Class.Local {
				t.Errorf("%s shares %d tokens with %s; local %d and %d", p.ID, n, q.ID, p.Class.Local, q.Class.Local)
			}
			if x := p.Expect.Needles[0]; x.End > n {
				t.Errorf("%s asks for rows up to %d, shared are %d", p.ID, x.End, n)
			}
		}
	}
	if sharers != 12 || set.Classes() < 32 || len(set.Prompts) != 48 {
		t.Errorf("%d of %d share, %d classes", sharers, len(set.Prompts), set.Classes())
	}
}

// hits is a cache at token level: what prompts were sent, and where the recurrent state of
// each is kept locally.
type hits struct {
	sent      [][]int
	snapshots [][]int // the tokens that each snapshot stands behind
	stored    [][]int
}

// attention is how far a prompt's blocks of 16 are known.
func (h *hits) attention(p []int) int {
	n := 0
	for _, s := range h.sent {
		n = max(n, min(common(p, s), len(p)-1)/16*16)
	}
	return n
}

func deepest(p []int, of [][]int, limit int) int {
	n := 0
	for _, s := range of {
		if len(s) <= limit && common(p, s) == len(s) {
			n = max(n, len(s))
		}
	}
	return n
}

func (h *hits) send(p []int) {
	last := (len(p) - 1) / 64 * 64
	h.sent = append(h.sent, p)
	h.snapshots = append(h.snapshots, p[:last])
	for b := 64; b <= len(p); b += 64 {
		h.stored = append(h.stored, p[:b])
	}
}

// The arithmetic above divergentHit, replayed on the cache above for many seeds.
func TestDivergentHit(t *testing.T) {
	for seed := range uint64(8) {
		set, err := Draw(context.Background(), newSplitter(), spec("t1", seed))
		if err != nil {
			if strings.Contains(err.Error(), "try another seed") {
				continue
			}
			t.Fatal(err)
		}
		var h hits
		before, within, right := 0, 0, 0
		for i, p := range set.Prompts {
			at := fmt.Sprintf("seed %d, %s", seed, p.ID)
			limit := len(p.Tokens) - 1
			hit := h.attention(p.Tokens)
			local := deepest(p.Tokens, h.snapshots, min(hit, limit))
			store := max(local, deepest(p.Tokens, h.stored, limit))
			x := p.Expect.Needles[0]
			switch i % t1Group {
			case 0: // seed: nothing is known
				if hit != 0 || store != 0 {
					t.Errorf("%s: a seed finds %d and %d", at, hit, store)
				}
			case 1: // longer: both rules agree
				if hit != local || store != local || local != p.Class.Local {
					t.Errorf("%s: the longer one finds attention %d, state %d, store %d", at, hit, local, store)
				}
				if x.End > local && x.Rides == "recurrent" {
					t.Errorf("%s: asks for [%d, %d)", at, x.Offset, x.End)
				}
			default:
				if local != p.Class.Local || store <= local || hit <= store || hit-store != 48 {
					t.Errorf("%s: a follower finds attention %d, state %d, store %d", at, hit, local, store)
				}
				switch tag := x.Rides == "recurrent"; {
				case tag && x.Offset >= store && x.End <= hit:
					within++
				case tag && x.Offset >= local && x.End <= store:
					before++
				case !tag, x.End <= local, x.Offset >= hit:
					right++
				default:
					t.Errorf("%s: [%d, %d) lies across %d, %d or %d", at, x.Offset, x.End, local, store, hit)
				}
			}
			h.send(p.Tokens)
		}
		if within < 12 || before < 4 || right < 10 {
			t.Errorf("seed %d: %d tags behind the boundary, %d before it, %d that stay right", seed, within, before, right)
		}
		if set.Classes() < 32 {
			t.Errorf("seed %d: %d classes", seed, set.Classes())
		}
	}
}

func TestSharedPrefixGroups(t *testing.T) {
	set := mustDraw(t, newSplitter(), spec("shared-prefix", 1))
	for i := 0; i < len(set.Prompts); i += groupSize {
		g := set.Prompts[i : i+groupSize]
		cut := common(g[0].Tokens, g[1].Tokens)
		if cut%64 < 16 || cut < 64 {
			t.Errorf("group of %s shares %d tokens", g[0].ID, cut)
		}
		for j, p := range g {
			for _, q := range g[:j] {
				if n := common(p.Tokens, q.Tokens); n != cut {
					t.Errorf("%s and %s share %d, others %d", p.ID, q.ID, n, cut)
				}
			}
			if x := p.Expect.Needles[0]; x.End > cut {
				t.Errorf("%s asks for [%d, %d), shared are %d", p.ID, x.Offset, x.End, cut)
			}
		}
	}
}

func TestPartialHitSweeps(t *testing.T) {
	set := mustDraw(t, newSplitter(), spec("partial-hit", 1))
	rests := map[int]bool{}
	for _, p := range set.Prompts {
		rests[p.Class.LengthMod] = true
		if p.Prime == nil || p.Class.Local == 0 || p.Class.External == 0 {
			t.Errorf("%s: %+v", p.ID, p.Class)
		}
	}
	if len(rests) != 48 || set.Random {
		t.Errorf("%d rests, random %v", len(rests), set.Random)
	}
}

func TestSlots(t *testing.T) {
	s := Spec{Kind: "slots", Name: "s", Geometry: prompts.Geometry{Mode: "slot", AttentionBlock: 1}, Wire: Wire{Dialect: "llamacpp"}, Seed: 1}
	set := mustDraw(t, newSplitter(), s)
	if len(set.Prompts) != 12 || set.Path != "/completion" || set.MaxTokens != 24 || set.Classes() < 3 {
		t.Errorf("%d prompts to %s, %d classes", len(set.Prompts), set.Path, set.Classes())
	}
	for i, p := range set.Prompts {
		n := len(p.Tokens)
		if n%64 != 1 || n < 300 || n > 600 || p.Tokens[0] != 0 {
			t.Errorf("%s: %d tokens, the first is %d", p.ID, n, p.Tokens[0])
		}
		if p.Slot == nil || *p.Slot != i || !strings.Contains(p.Body, fmt.Sprintf(`"id_slot":%d,`, i)) {
			t.Errorf("%s: slot %v, body …%s", p.ID, p.Slot, p.Body[len(p.Body)-120:])
		}
		if p.Expect.Needles != nil || p.Class.Local != n-1 {
			t.Errorf("%s: %+v", p.ID, p)
		}
	}
	s.Wire = vllm
	if _, err := Draw(context.Background(), newSplitter(), s); err == nil {
		t.Error("slots in a dialect without slots")
	}
}

func TestSlotPaths(t *testing.T) {
	draw := func(kind string) *prompts.Set {
		t.Helper()
		s := Spec{Kind: kind, Name: "s", Geometry: prompts.Geometry{Mode: "slot", AttentionBlock: 1}, Wire: Wire{Dialect: "llamacpp"}, Seed: 1}
		set := mustDraw(t, newSplitter(), s)
		s.Wire = vllm
		if _, err := Draw(context.Background(), newSplitter(), s); err == nil {
			t.Errorf("%s in a dialect without slots", kind)
		}
		for _, p := range set.Prompts {
			if named := strings.Contains(p.Body, `"id_slot":`); named != (kind != "slots-free") || named != (p.Slot != nil) {
				t.Errorf("%s, %s: slot %v, body …%s", kind, p.ID, p.Slot, p.Body[len(p.Body)-120:])
			}
			if n := len(p.Tokens); n%16 != 1 && kind != "slots-grow" || p.Tokens[0] != 0 {
				t.Errorf("%s, %s: %d tokens, the first is %d", kind, p.ID, n, p.Tokens[0])
			}
		}
		return set
	}
	for _, kind := range []string{"slots-short", "slots-free"} {
		set := draw(kind)
		if len(set.Prompts) != 12 || set.Classes() != 12 {
			t.Errorf("%s: %d prompts, %d classes", kind, len(set.Prompts), set.Classes())
		}
		for i, p := range set.Prompts {
			if n := len(p.Tokens); n < 65 || n > 16*16+1 || p.Slot != nil && *p.Slot != i {
				t.Errorf("%s, %s: %d tokens, slot %v", kind, p.ID, n, p.Slot)
			}
		}
	}
	pairs := draw("slots-pairs").Prompts
	for i := 0; i < len(pairs); i += 2 {
		long, short := pairs[i].Tokens, pairs[i+1].Tokens
		head := pairs[i].Class.Local
		if *pairs[i].Slot != i/2 || *pairs[i+1].Slot != i/2 || len(long)-len(short) < 32 || head < 17 ||
			!slices.Equal(long[:head], short[:head]) || !slices.Equal(long[len(long)-len(short)+head:], short[head:]) {
			t.Errorf("%s and %s: %d and %d tokens, %d shared", pairs[i].ID, pairs[i+1].ID, len(long), len(short), head)
		}
	}
	grow := draw("slots-grow").Prompts
	for i := 0; i < len(grow); i += 3 {
		a, more, half := grow[i].Tokens, grow[i+1].Tokens, grow[i+2].Tokens
		cut := grow[i+2].Class.Local
		if *grow[i+2].Slot != i/3 || !slices.Equal(a, more[:len(a)]) || len(more)-len(a) < 32 || len(half) != len(a) || !slices.Equal(a[:cut], half[:cut]) || slices.Equal(a, half) {
			t.Errorf("%s: %d, %d and %d tokens, cut at %d", grow[i].ID, len(a), len(more), len(half), cut)
		}
	}
	for kind, n := range map[string]int{"slots-pairs": 3, "slots-grow": 4} {
		s := Spec{Kind: kind, Name: "s", N: n, Geometry: prompts.Geometry{Mode: "slot", AttentionBlock: 1}, Wire: Wire{Dialect: "llamacpp"}, Seed: 1}
		if _, err := Draw(context.Background(), newSplitter(), s); err == nil {
			t.Errorf("%s of %d", kind, n)
		}
	}
}

func TestFile(t *testing.T) {
	s := spec("file", 0)
	s.File = strings.NewReader(`{"id":"x","document":"doc","prompt":"river stone","key":"q","answer":"7","match":"ints"}

{"tokens":[0,5,6,7],"prime":3,"role":"bystander","max_tokens":2,"script":"any"}
{"tokens":[9],"needles":[{"key":"k","answer":"a","offset":0,"end":1,"scored":false}]}
`)
	set := mustDraw(t, newSplitter(), s)
	a, b, c := set.Prompts[0], set.Prompts[1], set.Prompts[2]
	if a.ID != "x" || a.Document != "doc" || len(a.Tokens) != 3 || a.Expect.Needles[0].Answer != "7" || a.Expect.Needles[0].Offset != -1 || !a.Expect.Needles[0].Scored {
		t.Errorf("%+v", a)
	}
	if b.ID != "r02" || b.Document != "r02" || b.Role != prompts.Bystander || b.Prime.Tokens != 3 || !strings.Contains(b.Body, `"max_tokens":2,`) || b.Expect.Script != "any" {
		t.Errorf("%+v", b)
	}
	if c.Expect.Needles[0].Scored {
		t.Errorf("%+v", c)
	}
	for want, line := range map[string]string{
		"line 1: give either prompt or tokens": `{"id":"x"}`,
		"line 2: ":                             "\n{",
		"unknown field":                        `{"prompt":"a","anwser":"b"}`,
		"role \"victim\"":                      `{"prompt":"a","role":"victim"}`,
		"a prime of 4 tokens is no part of":    `{"tokens":[1,2,3,4],"prime":4}`,
		"either answer or needles":             `{"tokens":[1],"answer":"a","needles":[]}`,
		"prompt id \"x\" is used twice":        `{"id":"x","tokens":[1]}` + "\n" + `{"id":"x","tokens":[2]}`,
		"line 3 is the same prompt as line 1":  `{"prompt":"river"}` + "\n\n" + `{"prompt":"river","answer":"stone"}`,
		"max_tokens 0: ask for 1":              `{"tokens":[1],"max_tokens":0}`,
		"a set needs at least one prompt":      "",
	} {
		s.File = strings.NewReader(line)
		if _, err := Draw(context.Background(), newSplitter(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	s.File = nil
	if _, err := Draw(context.Background(), newSplitter(), s); err == nil {
		t.Error("no file, no complaint")
	}
}

func TestBodies(t *testing.T) {
	slot := 2
	for want, got := range map[string]string{
		`{"model":"a \"b\"","prompt":[1,22],"max_tokens":8,"temperature":0,"seed":0,"logprobs":20,"return_token_ids":true,"stream":false}`:         Wire{Dialect: "vllm", Model: `a "b"`}.Body([]int{1, 22}, 8, nil),
		`{"model":"m","prompt":[1],"max_tokens":1,"temperature":0,"seed":0,"logprobs":20,"return_token_ids":true,"cache_salt":"s","stream":false}`: Wire{Dialect: "vllm", Model: "m", Salt: "s"}.Body([]int{1}, 1, nil),
		`{"prompt":[1,2],"n_predict":24,"temperature":0,"seed":1,"n_probs":20,"return_tokens":true,"id_slot":2,"stream":false}`:                    Wire{Dialect: "llamacpp"}.Body([]int{1, 2}, 24, &slot),
		`{"prompt":[1],"n_predict":1,"temperature":0,"seed":1,"n_probs":20,"return_tokens":true,"stream":false}`:                                   Wire{Dialect: "llamacpp", Model: "m"}.Body([]int{1}, 1, nil),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("not JSON: %s", got)
		}
	}
}

func TestDrawRefuses(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		`kind "poem" is unknown`:              func(s *Spec) { s.Kind = "poem" },
		`dialect "grpc" is unknown`:           func(s *Spec) { s.Wire.Dialect = "grpc" },
		"a set needs a name":                  func(s *Spec) { s.Name = "" },
		"-1 requests":                         func(s *Spec) { s.N = -1 },
		"100001 requests":                     func(s *Spec) { s.N = MaxN + 1 },
		"replies of -1 tokens":                func(s *Spec) { s.MaxTokens = -1 },
		"block sizes 16, 64 and 1000000000: ": func(s *Spec) { s.Geometry.StoreChunk = 1e9 },
		"meet every 4194240 tokens":           func(s *Spec) { s.Geometry.StoreChunk = 65535 },
		`name "a/b" of the set`:               func(s *Spec) { s.Name = "a/b" },
		`name "\x1b[2J" of the set`:           func(s *Spec) { s.Name = "\x1b[2J" },
		"groups are of 8":                     func(s *Spec) { s.Kind, s.N = "t1", 12 },
		"needs a recurrent boundary":          func(s *Spec) { s.Kind, s.Geometry.RecurrentBlock = "t1", 0 },
		"a boundary of 16 tokens":             func(s *Spec) { s.Kind, s.Geometry.RecurrentBlock = "sub-block", 0 },
	} {
		s := spec("mixed", 1)
		change(&s)
		if _, err := Draw(context.Background(), newSplitter(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestEnough(t *testing.T) {
	k := Kind{N: 48, Classes: 32}
	if k.enough(48, 32) != nil || k.enough(12, 5) != nil {
		t.Error("refused")
	}
	if err := k.enough(48, 31); err == nil || !strings.Contains(err.Error(), "try another seed") {
		t.Error(err)
	}
}

// Other engines' geometry: no recurrent group, and one whose boundary is no power of two.
func TestOtherGeometries(t *testing.T) {
	for _, g := range []prompts.Geometry{
		{Mode: "paged", AttentionBlock: 128},
		{Mode: "paged", AttentionBlock: 16, StoreChunk: 256},
		{Mode: "paged", AttentionBlock: 528, RecurrentBlock: 528, StoreChunk: 1056},
	} {
		for _, kind := range []string{"needle", "partial-hit", "mixed"} {
			s := spec(kind, 1)
			s.Geometry, s.Cue, s.N = g, "\nanswer:", 8
			tok := newSplitter()
			for _, p := range mustDraw(t, tok, s).Prompts {
				b := g.Boundary()
				n := len(p.Tokens)
				if n%b == 0 || p.Class.LengthMod != n%b || p.Class.Local+p.Class.External != (n-1)/b*b {
					t.Errorf("%+v: %d tokens, %+v", g, n, p.Class)
				}
				if kind != "needle" && (p.Class.Local%max(b, g.StoreChunk) != 0 || p.Class.External == 0) {
					t.Errorf("%+v: %+v", g, p.Class)
				}
				if x := p.Expect.Needles[0]; g.RecurrentBlock == 0 && x.Rides != "attention" {
					t.Errorf("%+v: %s rides on %s", g, x.Key, x.Rides)
				}
				if !strings.HasSuffix(tok.decode(p.Tokens), " ?\nanswer:") {
					t.Errorf("no cue in %q", tok.decode(p.Tokens[n-8:]))
				}
			}
		}
	}
}

// broken is a tokenizer that fails in a given way.
type broken struct {
	*splitter
	spoil func(text string, ids []int) ([]int, error)
}

func (b broken) Encode(ctx context.Context, text string) ([]int, error) {
	ids, _ := b.splitter.Encode(ctx, text)
	return b.spoil(text, ids)
}

func TestUnfitTokenizers(t *testing.T) {
	for want, spoil := range map[string]func(string, []int) ([]int, error){
		"gone":                       func(string, []int) ([]int, error) { return nil, errors.New("gone") },
		"filler words are one token": func(s string, ids []int) ([]int, error) { return append(ids, 1), nil },
		"has no tokens":              func(s string, ids []int) ([]int, error) { return ids[:min(len(ids), 1+strings.Count("0Z", s))], nil },
		"does not begin as other texts": func(s string, ids []int) ([]int, error) {
			if len(s) > 1 {
				ids[0] = 9
			}
			return ids, nil
		},
		`"\n" is 2 tokens`: func(s string, ids []int) ([]int, error) {
			if s == "\n" {
				ids = append(ids, 1)
			}
			return ids, nil
		},
	} {
		if _, err := Draw(context.Background(), broken{newSplitter(), spoil}, spec("mixed", 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A server is asked for each piece once, not for each prompt.
func TestPiecesAreAskedOnce(t *testing.T) {
	tok := newSplitter()
	set := mustDraw(t, tok, spec("mixed", 1))
	total := 0
	for _, p := range set.Prompts {
		total += len(p.Tokens)
	}
	if tok.calls > 800 || total < 9000 {
		t.Errorf("%d calls for %d tokens", tok.calls, total)
	}
}

func TestDeck(t *testing.T) {
	got := deck(stream(1, "x"), 10, []int{50, 25, 25}, []int{1, 2, 3})
	count := map[int]int{}
	for _, x := range got {
		count[x]++
	}
	// 10 x .50 = 5; 10 x .75 = 7.5, rounded up: 3 more; the rest 2
	if len(got) != 10 || count[1] != 5 || count[2] != 3 || count[3] != 2 {
		t.Errorf("%v", got)
	}
}

// SplitMix64 from state 0, as its authors' C gives it.
func TestRandomIsSplitMix64(t *testing.T) {
	r := &random{}
	for _, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := r.next(); got != want {
			t.Errorf("%#x, want %#x", got, want)
		}
	}
}

// ending is a tokenizer that ends the context at its nth question and counts those behind it.
type ending struct {
	Tokenizer
	left, behind int
	end          context.CancelFunc
}

func (e *ending) Encode(ctx context.Context, text string) ([]int, error) {
	switch {
	case e.left > 0:
		e.left--
	case e.left == 0:
		e.left--
		e.end()
	default:
		e.behind++
	}
	return e.Tokenizer.Encode(ctx, text)
}

// Whoever interrupts a draw does not wait for the rest of it.
func TestDrawEndsWithItsContext(t *testing.T) {
	for _, k := range Kinds() {
		s := spec(k.Name, 0)
		if s.File = strings.NewReader(strings.Repeat("{\"prompt\":\"a\"}\n", 10)); strings.HasPrefix(k.Name, "slots") {
			s.Wire.Dialect = "llamacpp"
		}
		s.Continue = echo
		ctx, cancel := context.WithCancel(context.Background())
		tok := &ending{Tokenizer: newSplitter(), left: 3, end: cancel}
		if k.Name == "file" {
			tok.left = 0
		}
		if _, err := Draw(ctx, tok, s); !errors.Is(err, context.Canceled) || tok.behind > 1 {
			t.Errorf("%s: %v after %d more questions", k.Name, err, tok.behind)
		}
		cancel()
	}
}

// A draw that outgrows its bound is ended, whatever kind it is of.
func TestDrawIsBounded(t *testing.T) {
	for _, k := range Kinds() {
		s := spec(k.Name, 0)
		s.N, s.MaxTokens = k.N, 8
		if k.Name == "file" {
			s.File = strings.NewReader("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n")
		}
		if strings.HasPrefix(k.Name, "slots") {
			s.Wire.Dialect = "llamacpp"
		}
		s.Continue = echo
		d := newDesk(newSplitter(), s)
		d.most = 100
		if _, err := k.draw(context.Background(), d); err == nil || !strings.Contains(err.Error(), "ask for fewer requests") {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}

// echo goes on with the first n ids of the text.
func echo(_ context.Context, ids []int, n int) ([]int, error) { return ids[:n], nil }
