package engine

import (
	"kvladder/arms"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Slots predicts reuse in an engine that keeps one conversation per slot, as llama-server
// does: a request reuses the longest prefix that it shares with what its slot holds, and
// at least one token is computed (tools/server, "n_past was set to").
//
// What a request generates is not known beforehand, so a prompt that goes on after another
// prompt's end is predicted to share no more than that prompt.
type Slots struct {
	Reuse bool // off: every prompt is computed anew
	Files bool // save and restore steps have an effect
}

// Expect walks through the steps and returns one map, prompt id -> reuse, for each replay
// and prime step in order. What a restore put into a slot counts as external for as long
// as the slot keeps it. Prompts that name no slot go where the engine likes, and nothing is
// promised of them.
func (g Slots) Expect(s *prompts.Set, steps []arms.Step) []map[string]scoring.Reuse {
	type content struct {
		tokens   []int
		restored int // the first so many of them came from a file
	}
	slots, files := map[int]content{}, map[int]content{}
	ask := func(p *prompts.Prompt, tokens []int) scoring.Reuse {
		if p.Slot == nil {
			return scoring.Reuse{}
		}
		var r scoring.Reuse
		c := slots[*p.Slot]
		if g.Reuse {
			shared := 0
			for shared < min(len(c.tokens), len(tokens)-1) && c.tokens[shared] == tokens[shared] {
				shared++
			}
			r.External = min(shared, c.restored)
			r.Local = shared - r.External
		}
		slots[*p.Slot] = content{tokens: tokens, restored: r.External}
		return r
	}
	var out []map[string]scoring.Reuse
	for _, st := range steps {
		switch st.Do {
		case "reset", "stop", "restart":
			clear(slots)
		case "save":
			if g.Files {
				for i, c := range slots {
					files[i] = c
				}
			}
		case "restore":
			if g.Files {
				for i, c := range files {
					slots[i] = content{tokens: c.tokens, restored: len(c.tokens)}
				}
			}
		case "replay", "prime":
			pass := make(map[string]scoring.Reuse, len(s.Prompts))
			for i := range s.Prompts {
				p := &s.Prompts[i]
				if st.Do == "prime" && p.Prime != nil {
					ask(p, p.Tokens[:min(p.Prime.Tokens, len(p.Tokens))])
				}
				pass[p.ID] = ask(p, p.Tokens)
			}
			out = append(out, pass)
		}
	}
	return out
}
