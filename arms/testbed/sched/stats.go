package sched

import "kvladder/arms/testbed/cache"

// Stats is what one rank has counted since it started. Tokens and bytes are
// totals; Running, Waiting and the pools are as of the last step.
type Stats struct {
	Running, Waiting               int
	LocalQueries, LocalHits        int // tokens
	ExternalQueries, ExternalHits  int // tokens
	PromptTokens, GenerationTokens int
	LocalTokens, ExternalTokens    int // of PromptTokens
	ComputedTokens                 int // of PromptTokens
	Preemptions                    int
	Finished                       map[string]int // by reason
	StoreBytes, LoadBytes          int64
	ChunksStored, ChunksLoaded     int
	StoreFailures, LoadFailures    int
	Corrupted                      int // requests that met logits without a number
	Steps                          int
	Evictions                      int    // findable slots recycled, all groups
	OfferedNull                    int    // null blocks written to the store
	NullChecksum                   uint32 // over the null blocks of all groups, as of the last step that left nobody computing
	Loading, Copying               int    // under way: loads, copies to the store
	Drafts                         int    // steps that drafted
	DraftTokens, AcceptedTokens    int
	ChunksPresent                  int
	Attention, Window, States      cache.Counts
}

// clone returns a copy that shares nothing.
func (s Stats) clone() Stats {
	m := make(map[string]int, len(s.Finished))
	for k, v := range s.Finished {
		m[k] = v
	}
	s.Finished = m
	return s
}
