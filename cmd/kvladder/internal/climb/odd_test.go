package climb

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
)

// A flood is unlike every prompt of the set, and unlike itself, from the first block on; what
// it does not change stays as it was frozen.
func TestFiller(t *testing.T) {
	s := &prompts.Set{}
	for i := range 3 {
		p := prompts.Prompt{ID: fmt.Sprint("p", i)}
		for k := range 40 + i {
			p.Tokens = append(p.Tokens, 100*i+k)
		}
		ids, _ := json.Marshal(p.Tokens)
		p.Body = fmt.Sprintf(`{"model":"m","prompt":%s,"max_tokens":8,"temperature":0,"cache_salt":"a"}`, ids)
		s.Prompts = append(s.Prompts, p)
	}
	seen := map[string]int{}
	key := func(ids []int) string { return fmt.Sprint(ids[:16]) }
	for i, p := range s.Prompts {
		seen[key(p.Tokens)] = -1 - i
	}
	for k := range 9 {
		body, n, err := filler(s, k)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Model       string `json:"model"`
			Prompt      []int  `json:"prompt"`
			MaxTokens   int    `json:"max_tokens"`
			Temperature *int   `json:"temperature"`
			Salt        string `json:"cache_salt"`
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		want := s.Prompts[k%3].Tokens
		if n != len(want) || len(got.Prompt) != n || got.MaxTokens != 1 || got.Temperature == nil || got.Salt != "a" || got.Model != "m" {
			t.Errorf("request %d: %d tokens, body %s", k, n, body)
		}
		if !slices.Equal(slices.Sorted(slices.Values(got.Prompt)), want) {
			t.Errorf("request %d: not the ids of a prompt", k)
		}
		if other, twice := seen[key(got.Prompt)]; twice {
			t.Errorf("request %d begins like %d", k, other)
		}
		seen[key(got.Prompt)] = k
	}
	if _, _, err := filler(&prompts.Set{Prompts: []prompts.Prompt{{ID: "p", Body: "{}"}}}, 0); err == nil {
		t.Error("a prompt without ids was turned into another")
	}
}

// What a load wrote is held against where its tokens came from.
func TestMisplaced(t *testing.T) {
	load := func(local, external int, attention, window, recurrent []int) arms.Load {
		return arms.Load{Load: probes.Load{RequestID: "x", Local: local, External: external}, Block: 16,
			Written: map[string][]int{"attention": attention, "window": window, "recurrent": recurrent}, Null: map[string]int{}}
	}
	null := load(0, 64, []int{0, 1, 2, 3}, []int{0}, nil)
	null.Null["window"] = 1
	for _, c := range []struct {
		name string
		l    arms.Load
		want string
	}{
		{"all of it", load(64, 64, []int{4, 5, 6, 7}, []int{6, 7}, []int{7}), ""},
		{"in another order", load(64, 64, []int{7, 5, 6, 4}, nil, nil), ""},
		{"nothing local", load(0, 64, []int{0, 1, 2, 3}, []int{1, 2, 3}, []int{3}), ""},
		{"from the front", load(64, 64, []int{0, 1, 2, 3}, nil, nil), "block 0 written"},
		{"one short", load(64, 64, []int{4, 5, 6}, nil, nil), "3 blocks written"},
		{"one twice", load(64, 64, []int{4, 5, 6, 6}, nil, nil), "blocks written"},
		{"one too many", load(64, 64, []int{4, 5, 6, 7, 8}, nil, nil), "block 8 written"},
		{"the window before the load", load(64, 64, []int{4, 5, 6, 7}, []int{3}, nil), "group window: block 3"},
		{"a state of another boundary", load(64, 64, []int{4, 5, 6, 7}, nil, []int{3}), "group recurrent: block 3"},
		{"the null block", null, "stands for nothing"},
	} {
		if got := misplaced(c.l); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Damage is done where it was asked for, and to nothing when it does not fit.
func TestCorrupt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "a.kv")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 10), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := corrupt(dir, []string{"*.kv", "-3", "2"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil || fmt.Sprint(got) != "[0 0 0 0 0 0 0 255 255 0]" {
		t.Errorf("%v %v", got, err)
	}
	for _, args := range [][]string{{"*.kv", "9", "2"}, {"*.bin", "0", "1"}, {"*.kv", "x", "1"}, {"*.kv", "0", "0"}, {"*.kv"}} {
		if _, err := corrupt(dir, args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// Asked is the named prompt, or one with a known answer, or one that was answered before; a
// prompt that tells nothing is not asked.
func TestLivenessPrompt(t *testing.T) {
	known := prompts.Prompt{ID: "known", Expect: prompts.Expectation{Needles: []prompts.Needle{{Answer: "1", Scored: true}}}}
	plain, other := prompts.Prompt{ID: "plain"}, prompts.Prompt{ID: "other"}
	for _, c := range []struct {
		set   []prompts.Prompt
		said  map[string]string
		named []string
		want  string
	}{
		{[]prompts.Prompt{plain, known}, nil, nil, "known"},
		{[]prompts.Prompt{plain, other}, map[string]string{"other": "x"}, nil, "other"},
		{[]prompts.Prompt{plain, other}, nil, nil, ""},
		{[]prompts.Prompt{plain, known}, nil, []string{"plain"}, ""},
		{[]prompts.Prompt{plain, known}, map[string]string{"plain": "x"}, []string{"plain"}, "plain"},
		{[]prompts.Prompt{plain}, nil, []string{"nobody"}, ""},
	} {
		r := &chainRun{c: &Climb{Set: &prompts.Set{Prompts: c.set}}, said: c.said}
		got := ""
		if p := r.livenessPrompt(c.named); p != nil {
			got = p.ID
		}
		if got != c.want {
			t.Errorf("%v said %v named %v: %q, want %q", c.set, c.said, c.named, got, c.want)
		}
	}
}
