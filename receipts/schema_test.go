package receipts

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what a test compares with")

// The published schema names every member that this program writes. A new member is added to
// it, never required, by
//
//	go test ./receipts -run TestSchemaIsPublished -update
func TestSchemaIsPublished(t *testing.T) {
	doc := must(grownSchema(SchemaJSON))
	b := append(must(json.MarshalIndent(doc, "", " ")), '\n')
	if *update {
		if err := os.WriteFile("schema/receipt-1.schema.json", b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(b, SchemaJSON) {
		t.Error("schema/receipt-1.schema.json lacks members that receipts have now: run this test with -update")
	}
}

func TestSchemaRefuses(t *testing.T) {
	set := testSet(2)
	b := must(os.ReadFile(filepath.Join(sealed(t, testPlan(set), set), ReceiptFile)))
	check := func(old, new, want string) {
		t.Helper()
		c := bytes.Replace(b, []byte(old), []byte(new), 1)
		if want != "" && bytes.Equal(b, c) {
			t.Fatalf("%q is not in the receipt", old)
		}
		var rep Report
		checkForm(&rep, ReceiptFile, c)
		if len(rep.Problems) == 0 && want != "" || len(rep.Problems) > 0 && (want == "" || !strings.Contains(rep.Problems[0].What, want)) {
			t.Errorf("%s -> %s: %+v, want %q", old, new, rep.Problems, want)
		}
	}
	check("", "", "")
	check(`"warnings":[`, `"vouched":true,"warnings":[`, "vouched")
	check(`"not_claimed":["anything else"],`, ``, "not_claimed")
	check(`"substantive":2`, `"substantive":"2"`, "want integer")
	check(`"set":"sha256:`, `"set":"md5:`, "pattern")
}

// A member younger than a receipt is not asked of it; one that the receipt should have is.
func TestOlderReceiptLacksYoungerMembers(t *testing.T) {
	k := &knownForm{added: map[string]bool{"young": true}}
	sealed := must(tree(map[string]any{"list": []any{map[string]any{"id": "a", "old": 1}}}))
	if what := k.unlike(sealed, map[string]any{"list": []any{map[string]any{"id": "a", "old": 1, "young": 2}}, "young": []string{"x"}}); what != "" {
		t.Error(what)
	}
	if what := k.unlike(sealed, map[string]any{"list": []any{map[string]any{"id": "a", "old": 2, "young": 2}}}); !strings.Contains(what, "old is 1, recomputed 2") {
		t.Error(what)
	}
	if what := k.unlike(sealed, map[string]any{"list": []any{map[string]any{"id": "a", "old": 1}}, "other": 1}); what == "" {
		t.Error("a member that is no younger than the receipt may be missing")
	}
}

// Receipts of every schema that was ever written hold, with the folder they came from or
// alone. What is in testdata/schema-* is never made again.
func TestOldReceiptsHold(t *testing.T) {
	n := 0
	keeper := must(ParseKey("testdata/schema-1/keeper.pub"))
	for _, dir := range must(filepath.Glob("testdata/schema-*/*")) {
		if filepath.Ext(dir) == ".pub" {
			continue
		}
		path := dir
		if _, err := os.Stat(filepath.Join(dir, TranscriptFile)); err != nil {
			path = filepath.Join(dir, ReceiptFile)
		}
		c, signed := testChecker, strings.HasSuffix(dir, "-signed")
		if signed {
			c.Keys = []Key{keeper}
		}
		if rep := Verify(path, c); !rep.OK || signed != (len(rep.SignedBy) == 1) {
			t.Errorf("%s: %+v", dir, rep)
		}
		if _, err := Open(path); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		n++
	}
	if n < 6 {
		t.Fatalf("%d old receipts: this test looked at nothing", n)
	}
}
