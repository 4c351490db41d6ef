package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
	"kvladder/arms/engine"
	"kvladder/probes"
)

// What the operator's calls send, and what is made of the answers.
func TestTestbedAdmin(t *testing.T) {
	var asked []string
	answers := map[string]string{
		"/testbed/loads": `{"loads":[
			{"request_id":"a","rank":1,"local_tokens":64,"external_tokens":128,"failed":false,"attention":{"positions":[4,5,6,7,8,9,10,11],"slots":[9,8,7,6,5,4,3,2]},
			 "window":{"positions":[9,10,11],"slots":[1,2,0]},"recurrent":{"positions":[2],"slots":[-1]}},
			{"request_id":"b","rank":0,"local_tokens":0,"external_tokens":64,"failed":true,"attention":{"positions":null,"slots":null},"window":{},"recurrent":{}}]}`,
		"/server_info": `{"testbed":{"blocks":96,"geometry":{"attention_block":16,"recurrent_block":64}}}`,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
		w.Write([]byte(answers[r.URL.Path]))
	}))
	defer srv.Close()
	ctx, e, bed := context.Background(), probes.Endpoint{URL: srv.URL}, engine.Testbed{}
	for _, err := range []error{bed.Expire(ctx, e), bed.EvictRank(ctx, e, 1), bed.FailLoads(ctx, e, 12)} {
		if err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff([]string{"POST /testbed/expire", "POST /testbed/evict_rank?rank=1", "POST /testbed/fail_loads?n=12"}, asked); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
	got, complete, err := bed.Loads(ctx, e)
	if err != nil || !complete {
		t.Fatal(complete, err)
	}
	want := []arms.Load{
		{Load: probes.Load{RequestID: "a", Rank: 1, Local: 64, External: 128}, Block: 16, Null: map[string]int{"window": 1},
			Written: map[string][]int{"attention": {4, 5, 6, 7, 8, 9, 10, 11}, "window": {9, 10, 11}, "recurrent": {11}}},
		{Load: probes.Load{RequestID: "b", External: 64}, Block: 16, Failed: true, Null: map[string]int{},
			Written: map[string][]int{"attention": {}, "window": {}, "recurrent": {}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
	pool, err := bed.Pool(ctx, e)
	if err != nil || pool != (probes.PoolFact{Blocks: 96, Tokens: 1536}) {
		t.Errorf("pool %+v, %v", pool, err)
	}
	// a list as long as the engine remembers may lack the first
	one := `{"request_id":"x","rank":0,"local_tokens":0,"external_tokens":0}`
	answers["/testbed/loads"] = `{"loads":[` + strings.Repeat(one+",", 511) + one + `]}`
	if _, complete, err := bed.Loads(ctx, e); complete || err != nil {
		t.Errorf("512 loads of one rank are called complete: %v", err)
	}
	answers["/server_info"] = `{}`
	if _, err := bed.Pool(ctx, e); err == nil {
		t.Error("a server that states no pool has one")
	}
}
