package sched

import "kvladder/arms/testbed/cache"

// maxRecords is how many loads are remembered.
const maxRecords = 512

// LoadRecord is one load from the store: for whom, how far the local cache and
// the store reached, in tokens, and what was written in each cache group.
type LoadRecord struct {
	ID        string  `json:"request_id"`
	Rank      int     `json:"rank"`
	Local     int     `json:"local_tokens"`
	External  int     `json:"external_tokens"`
	Failed    bool    `json:"failed"`
	Attention Written `json:"attention"`
	Window    Written `json:"window"`
	Recurrent Written `json:"recurrent"`
}

// Written lists positions of a group's block table and the slots that stood
// there. Slot -1 is a request's own running state, slot 0 the null block.
type Written struct {
	Positions []int `json:"positions"`
	Slots     []int `json:"slots"`
}

func (w *Written) add(position int, slot cache.ID) {
	w.Positions = append(w.Positions, position)
	w.Slots = append(w.Slots, int(slot))
}

func (e *Engine) note(r LoadRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.records) == maxRecords {
		e.records = append(e.records[:0], e.records[1:]...)
	}
	e.records = append(e.records, r)
}

// Loads returns the last loads, the oldest first.
func (e *Engine) Loads() []LoadRecord {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]LoadRecord{}, e.records...)
}
