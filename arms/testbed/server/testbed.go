package server

import (
	"net/http"
	"strconv"

	"kvladder/arms/testbed/sched"
)

// What no serving engine has: the calls that make something happen to the store,
// and the list of what was loaded from it.

// loads is GET /testbed/loads: the last loads of every rank, those of rank 0
// first, and of each rank the oldest first.
func (s *Server) loads(w http.ResponseWriter, r *http.Request) {
	all := []sched.LoadRecord{}
	for _, e := range s.cfg.Ranks {
		all = append(all, e.Loads()...)
	}
	writeJSON(w, http.StatusOK, map[string]any{"loads": all})
}

// expire is POST /testbed/expire: the store forgets everything.
func (s *Server) expire(w http.ResponseWriter, r *http.Request) {
	for _, e := range s.cfg.Ranks {
		if err := e.ResetStore(); err != nil {
			fail(w, err)
			return
		}
	}
	s.logf("expire id=%s", idOf(r))
	w.WriteHeader(http.StatusOK)
}

// evictRank is POST /testbed/evict_rank?rank=k: one rank's share of the store is
// lost. Ranks of the tensor split are counted within each data-parallel rank.
func (s *Server) evictRank(w http.ResponseWriter, r *http.Request) {
	tensor := max(1, s.cfg.Facts.TensorParallel)
	k, ok := count(w, r, "rank", tensor*len(s.cfg.Ranks)-1)
	if !ok {
		return
	}
	if err := s.cfg.Ranks[k/tensor].ResetStore(k % tensor); err != nil {
		fail(w, err)
		return
	}
	s.logf("evict id=%s rank=%d", idOf(r), k)
	w.WriteHeader(http.StatusOK)
}

// failLoads is POST /testbed/fail_loads?n=k: the next k loads of a chunk fail on
// each rank, about every second one until k have.
func (s *Server) failLoads(w http.ResponseWriter, r *http.Request) {
	n, ok := count(w, r, "n", 1<<20)
	if !ok {
		return
	}
	for _, e := range s.cfg.Ranks {
		if err := e.FailLoads(n); err != nil {
			fail(w, err)
			return
		}
	}
	s.logf("fail_loads id=%s n=%d", idOf(r), n)
	w.WriteHeader(http.StatusOK)
}

// lockstep is POST /testbed/lockstep?clients=n: n clients send requests from now
// on, each one at a time, and no step is taken while one of them has none in the
// engine. The reply tells the most requests that were running at once since n
// last was 0.
func (s *Server) lockstep(w http.ResponseWriter, r *http.Request) {
	n, ok := count(w, r, "clients", 1<<10)
	if !ok {
		return
	}
	if len(s.cfg.Ranks) > 1 {
		fail(w, badRequest("data-parallel ranks take their steps apart: lockstep needs one rank, there are %d", len(s.cfg.Ranks)))
		return
	}
	peak, err := s.cfg.Ranks[0].Lockstep(n)
	if err != nil {
		fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"peak_running": peak})
}

// abortAfter is the header by which a request asks to be aborted after so many
// steps, as if its client had gone then.
const abortAfter = "X-Abort-After-Steps"

// patience reads that header; 0 is none.
func patience(r *http.Request) (int, error) {
	h := r.Header.Get(abortAfter)
	if h == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(h)
	if err != nil || n < 1 {
		return 0, badRequest("%s must be a positive integer, got %q", abortAfter, h)
	}
	return n, nil
}

// count reads a query parameter from 0 to most, or answers why not.
func count(w http.ResponseWriter, r *http.Request, name string, most int) (int, bool) {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 || n > most {
		fail(w, badRequest("%s must be an integer from 0 to %d, got %q", name, most, r.URL.Query().Get(name)))
		return 0, false
	}
	return n, true
}
