package scoring

import (
	"maps"
	"slices"
	"strings"
)

// loadFailures counts the requests of the judged pass during which loads from the store failed, and
// says what became of them apart from the others: one whose missing part was computed after all
// has been seen to answer wrongly, and that is no finding about what the store brought back.
func (s *scorer) loadFailures(j *judgement, rows []*row) int {
	recovered, ended := map[string]bool{}, map[string]bool{}
	for _, f := range j.arm.loadsFailed {
		if f.Pass != judgedPass(j.spec) {
			continue
		}
		if f.Recovered {
			recovered[f.Prompt] = true
		} else {
			ended[f.Prompt] = true
		}
	}
	if len(recovered)+len(ended) == 0 {
		return 0
	}
	answered := 0
	for _, w := range rows {
		if recovered[w.prompt.ID] && w.answered && w.reply.Status < 400 && w.reply.Error == "" {
			answered++
		}
	}
	if len(recovered) > 0 {
		j.warn("load failures: %d requests were computed after a load had failed, %d of them answered: to be read apart from the others: %s", len(recovered), answered, strings.Join(slices.Sorted(maps.Keys(recovered)), " "))
	}
	if len(ended) > 0 {
		j.warn("load failures: %d requests were ended by the engine since a load had failed: %s", len(ended), strings.Join(slices.Sorted(maps.Keys(ended)), " "))
	}
	return len(recovered) + len(ended)
}
