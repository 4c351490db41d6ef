// Package fault holds the defects that the embedded engine can be started with.
//
// Each is one file, its variants included, and an entry of the table below. A
// fault replaces functions at one turn of sched.Path and nothing else, so that
// what it does to a request is done by the KV that went astray and never by a
// hand on the output. Most of them are retold from public reports on serving
// engines and KV connectors; the numbers are the ones those reports go by here,
// and a letter or a word behind a number names a variant.
package fault

import (
	"fmt"
	"slices"
	"strings"

	"kvladder/arms/testbed/sched"
)

// Fault is one defect.
type Fault struct {
	ID      string // as in --fault
	Summary string // one line, for people
	Plant   func(*sched.Path)
}

// all lists the faults by id.
var all = []Fault{
	maxOverGroups,
	scalesDropped,
	halfPage,
	mixedSourceSplice,
	nullStored,
	nullLoaded,
	scanFromZero,
	frontSlice,
	cursorSkips,
	cursorAsserts,
	dirtyPages,
	unalignedSnapshot,
	adapterForgotten,
	imageForgotten,
	localSaltForgotten,
	allForgotten,
	saltForgotten,
	processRoot,
	epochForgotten,
	privatePools,
	rankZeroAnswers,
	storeOvertakes,
	lateWrite,
	unpinnedHit,
	failureSwallowed,
	shortTail,
	countsMovedTwice,
}

// All returns every known fault, sorted by id.
func All() []Fault { return slices.Clone(all) }

// UnknownError is what Plant returns for an id that is not in the table.
type UnknownError struct {
	ID    string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown fault %q: known are %s", e.ID, strings.Join(e.Known, ", "))
}

// Plant returns the path of a healthy engine with the given faults planted. Ids
// are matched without regard to case.
func Plant(ids []string) (sched.Path, error) {
	path := sched.Healthy()
	for _, id := range ids {
		i := slices.IndexFunc(all, func(f Fault) bool { return strings.EqualFold(f.ID, id) })
		if i < 0 {
			known := make([]string, len(all))
			for j, f := range all {
				known[j] = f.ID
			}
			return path, &UnknownError{ID: id, Known: known}
		}
		all[i].Plant(&path)
	}
	return path, nil
}

// Parse splits a comma-separated list of ids, dropping blanks.
func Parse(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
