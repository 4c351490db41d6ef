package draw

import (
	"testing"

	"kvladder/prompts"
)

// However many are asked for, no two are cut alike, and each leaves something local and
// something that the store supplies: the least span is one unit of each.
func TestWideIsAsManyClassesAsRequests(t *testing.T) {
	for _, n := range []int{1, 48, 200} {
		for _, g := range []prompts.Geometry{
			{Mode: "paged", AttentionBlock: 16, RecurrentBlock: 64, StoreChunk: 64},
			{Mode: "paged", AttentionBlock: 16},
		} {
			sp := spec("wide", 3)
			sp.N, sp.Geometry = n, g
			s := mustDraw(t, newSplitter(), sp)
			if len(s.Prompts) != n || s.Classes() != n {
				t.Errorf("%d asked for: %d requests of %d classes", n, len(s.Prompts), s.Classes())
			}
			for _, p := range s.Prompts {
				if g.RecurrentBlock > 0 && p.Class.LengthMod == 0 || p.Class.Local < 64 || p.Class.External < 64 || p.Prime == nil || p.Prime.Tokens <= p.Class.Local {
					t.Fatalf("%s: %+v, prime %+v", p.ID, p.Class, p.Prime)
				}
			}
		}
	}
}
