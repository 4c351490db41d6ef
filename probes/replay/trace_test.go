package replay

import (
	"slices"
	"strings"
	"testing"

	"kvladder/probes/probetest"
	"kvladder/receipts/digest"
)

// The tokens of the reply go at the end of the body and nothing else of it changes; what was
// sent is kept, so that the reply can be held against it. This server ignores them.
func TestSendTrace(t *testing.T) {
	s, c := start(t, probetest.JSON(probetest.Completion("m", "a")))
	r := c.Send(t.Context(), Request{Path: completions, Body: []byte(frozen), Trace: []int{5, 6}})
	want := strings.TrimSuffix(frozen, "}") + `,"trace_decode_token_ids":[5,6]}`
	if all := s.Saw(); r.Error != "" || string(all[len(all)-1].Body) != want || r.SentBody != want || r.Sent != digest.Of([]byte(want)) {
		t.Errorf("%+v", r)
	}
	if got := r.Trace(); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("the record says %v", got)
	}
	if len(r.Tokens) == 2 && r.Tokens[0].ID == 5 {
		t.Error("this server was to ignore it")
	}
	if r := c.Send(t.Context(), Request{Path: completions, Body: []byte(frozen)}); r.SentBody != "" || r.Trace() != nil {
		t.Errorf("without a trace: %+v", r)
	}
	if r := c.Send(t.Context(), Request{Path: completions, Body: []byte(want), Trace: []int{7}}); !strings.Contains(r.Error, `names "trace_decode_token_ids" already`) {
		t.Errorf("a frozen body with a trace of its own: %q", r.Error)
	}
}
