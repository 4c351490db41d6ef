package scoring

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPredictionHolds(t *testing.T) {
	verdict, path := CleanBounded, "external"
	zero, some := 0, 59200
	p := 0.0078125
	trusted := true
	a := &ArmResult{Name: "COLD", Verdict: &verdict, Path: &path, Failed: 7, FailedIDs: []string{"p2", "p1"},
		ExternalTokens: &some, LocalTokens: &zero, PMcNemar: &p, CountersTrusted: &trusted,
		Columns: map[string]string{"K": "y"}, Detectors: map[string]int{"needle": 7}, Pin: &Pin{Name: "connector"}}
	check := func(member string, value any, want bool) {
		t.Helper()
		pr, err := ParsePrediction(member, value)
		if err != nil {
			t.Errorf("%s %v: %v", member, value, err)
			return
		}
		if got := pr.Holds(pr.Measured(a)); got != want {
			t.Errorf("%s %v: holds %v, want %v (measured %v)", member, value, got, want, pr.Measured(a))
		}
	}
	check("failed", 7, true)
	check("failed", uint64(7), true)
	check("failed", 7.0, true)
	check("failed", json.Number("7"), true)
	check("failed", 0, false)
	check("failed", "<=7", true)
	check("failed", "<7", false)
	check("failed", "<= 6", false)
	check("failed", ">=7", true)
	check("failed", ">6.5", true)
	check("failed", "!=7", false)
	check("failed", "!=0", true)
	check("failed", "==7", true)
	check("external_tokens", ">0", true)
	check("local_tokens", ">0", false)
	check("local_tokens", 0, true)
	check("verdict", "CLEAN_BOUNDED", true)
	check("verdict", "!=CLEAN_BOUNDED", false)
	check("verdict", "!=CORRUPTION_ATTRIBUTED", true)
	check("path", "local", false)
	check("p_mcnemar", 0.0078125000000001, true) // within 1e-10 relative
	check("p_mcnemar", 0.00781251, false)
	check("p_mcnemar", "<=0.04", true)
	check("counters_trusted", true, true)
	check("counters_trusted", "!=true", false)
	check("failed_ids", []any{"p1", "p2"}, true) // in any order
	check("failed_ids", []any{"p1"}, false)
	check("columns.K", "y", true)
	check("detectors.needle", 7, true)
	check("pin.name", "connector", true)
	// What was not measured holds nothing but null: absent is not zero, and not "other" either.
	check("computed_tokens", 0, false)
	check("computed_tokens", ">=0", false)
	check("computed_tokens", "!=3", false)
	check("computed_tokens", nil, true)
	check("columns.P", "!=n", false)
	check("verdict", nil, false)
}

func TestParsePredictionRefuses(t *testing.T) {
	check := func(member string, value any, want string) {
		t.Helper()
		_, err := ParsePrediction(member, value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %v: error %v, want one that says %q", member, value, err, want)
		}
	}
	check("faild", 0, `no member "faild"`)
	check("faild", 0, "failed_ids") // the hint
	check("failed", "0", "is a text and the member is a number")
	check("failed", ">many", "does not compare with a number")
	check("failed", ">NaN", "does not compare with a number")
	check("failed", 0.5, "can never be met")
	check("failed", true, "is not a number")
	check("exit", 7, "exits are 0 to 4")
	check("verdict", "CLEAN", `no verdict "CLEAN"`)
	check("verdict", ">CLEAN_BOUNDED", "texts have no order")
	check("verdict", 3, "is not a text")
	check("counters_trusted", "yes", "true or false")
	check("counters_trusted", 1, "true or false")
	check("failed_ids", "p1", "list of texts")
	check("columns", "y", "name one")
	check("outcomes", 3, "list of records")
	check("lifetime.minutes", 3, "no fixed type")
	check("failed.x", 3, "has no parts")
	check("pin.nam", "x", `no member "pin.nam"`)
	check("Failed", 0, "no member")
}
