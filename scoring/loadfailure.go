package scoring

import (
	"maps"
	"slices"
	"strings"

	"kvladder/probes"
)

// loadFailures counts the requests of the judged pass during which loads from the store failed, and
// says what became of them apart from the others: one whose missing part was computed after all
// has been seen to answer wrongly, and that is no finding about what the store brought back. It
// returns how many of the requests that could hit had to be computed, of those that were not
// ended.
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
	n := 0
	for _, w := range rows {
		if (recovered[w.prompt.ID] || ended[w.prompt.ID]) && !j.arm.endedByLoad(w) {
			n++
		}
	}
	return n
}

// endedByLoad says whether the engine ended a request without an answer because a load from the
// store had failed, and said so: the policy "fail" of vLLM. That is no fault of the
// harness and no wrong answer; the request took nothing from the store and is judged in nothing.
func (a *armRun) endedByLoad(w *row) bool {
	if w.answered || w.reply.Status < 500 && w.reply.Finish != "error" {
		return false
	}
	return slices.ContainsFunc(a.loadsFailed, func(f probes.LoadFailedFact) bool {
		return !f.Recovered && f.Prompt == w.prompt.ID && f.Pass == max(1, w.reply.Pass)
	})
}
