package fault

import (
	"errors"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	ids := make([]string, 0, len(all))
	for _, f := range All() {
		ids = append(ids, f.ID)
		if f.Summary == "" || f.Plant == nil {
			t.Errorf("%s is not complete", f.ID)
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(all) {
		t.Errorf("ids are not sorted and single: %v", ids)
	}
	All()[0].ID = "changed"
	if all[0].ID == "changed" {
		t.Error("All hands out the table itself")
	}
}

func TestParse(t *testing.T) {
	for list, want := range map[string][]string{
		"":            nil,
		"F01":         {"F01"},
		"F01,F02":     {"F01", "F02"},
		" F01, ,f02,": {"F01", "f02"},
	} {
		if got := Parse(list); !slices.Equal(got, want) {
			t.Errorf("Parse(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestPlant(t *testing.T) {
	if _, err := Plant([]string{"f12", "F01"}); err != nil {
		t.Error(err)
	}
	_, err := Plant([]string{"F01", "F00"})
	var unknown *UnknownError
	if !errors.As(err, &unknown) || unknown.ID != "F00" || len(unknown.Known) != len(all) {
		t.Errorf("got %v", err)
	}
}
