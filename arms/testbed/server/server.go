// Package server speaks vLLM's HTTP dialect over the ranks of an embedded
// engine: completions and chat, tokenize, metrics, models, health and the calls
// an operator makes. Member names, nulls and their order follow what vLLM 0.32
// sends; logprobs are printed with every digit a float64 has, so that two
// replies can be compared bit for bit.
//
// What the engine cannot do is refused with a 400 and a reason. Nothing that
// would change an answer is ignored.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"kvladder/arms/testbed/sched"
)

// maxLogprobs is the most alternatives a request may ask for.
const maxLogprobs = 20

// maxBody bounds what is read of a request; 4,096 token ids need far less.
const maxBody = 8 << 20

// Config is what a Server is made from.
type Config struct {
	Name        string   // served model name
	Adapters    []string // each served as Name:adapter
	MaxModelLen int
	Ranks       []*sched.Engine
	Facts       Facts
	Log         io.Writer // one line for each request; nil for none
}

// Server is an http.Handler.
type Server struct {
	cfg  Config
	mux  *http.ServeMux
	turn atomic.Uint64 // of the round robin over ranks

	dead   atomic.Bool
	labels labels

	logging sync.Mutex
}

// Die makes /health fail from now on.
func (s *Server) Die() { s.dead.Store(true) }

// New returns a server. Its ranks must be running before requests arrive.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), labels: labels{name: cfg.Name}}
	for k := range cfg.Ranks {
		set := []string{"engine", strconv.Itoa(k), "model_name", cfg.Name}
		for name, v := range cfg.Facts.cacheConfig() {
			set = append(set, name, pythonRepr(v))
		}
		s.labels.config = append(s.labels.config, labelSet(set))
	}
	s.mux.HandleFunc("POST /v1/completions", s.completions)
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /detokenize", s.detokenize)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.HandleFunc("GET /ping", s.health)
	s.mux.HandleFunc("GET /version", s.version)
	s.mux.HandleFunc("GET /load", s.load)
	s.mux.HandleFunc("GET /server_info", s.serverInfo)
	s.mux.HandleFunc("POST /reset_prefix_cache", s.resetPrefixCache)
	s.mux.HandleFunc("GET /testbed/loads", s.loads)
	s.mux.HandleFunc("POST /testbed/expire", s.expire)
	s.mux.HandleFunc("POST /testbed/evict_rank", s.evictRank)
	s.mux.HandleFunc("POST /testbed/fail_loads", s.failLoads)
	s.mux.HandleFunc("POST /testbed/lockstep", s.lockstep)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return s
}

// ServeHTTP gives every reply the request's id, or a new one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = fmt.Sprintf("%016x", rand.Uint64())
	}
	w.Header().Set("X-Request-Id", id)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestID{}, id)))
}

type requestID struct{}

func idOf(r *http.Request) string { return r.Context().Value(requestID{}).(string) }

func (s *Server) logf(format string, args ...any) {
	s.logging.Lock()
	defer s.logging.Unlock()
	fmt.Fprintf(s.cfg.Log, format+"\n", args...)
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.dead.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) load(w http.ResponseWriter, r *http.Request) {
	n := 0
	for _, e := range s.cfg.Ranks {
		st := e.Stats()
		n += st.Running + st.Waiting
	}
	writeJSON(w, http.StatusOK, map[string]int{"server_load": n})
}

// resetPrefixCache answers 200 whether or not there was something in the way,
// as vLLM does; the log says which. Read the pool gauges to know.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	external := false
	if v := r.URL.Query().Get("reset_external"); v != "" {
		b, err := strconv.ParseBool(v)
		if err != nil {
			fail(w, badRequest("reset_external must be a boolean, got %q", v))
			return
		}
		external = b
	}
	for k, e := range s.cfg.Ranks {
		ok, err := e.ResetLocal()
		if err == nil && external {
			err = e.ResetStore()
		}
		if err != nil {
			fail(w, err)
			return
		}
		s.logf("reset id=%s rank=%d local=%t external=%t", idOf(r), k, ok, external)
	}
	w.WriteHeader(http.StatusOK)
}

// rank chooses the engine for a request: the one its header names, or the next.
func (s *Server) rank(r *http.Request) (int, error) {
	n := len(s.cfg.Ranks)
	h := r.Header.Get("X-data-parallel-rank")
	if h == "" {
		return int((s.turn.Add(1) - 1) % uint64(n)), nil
	}
	k, err := strconv.Atoi(h)
	if err != nil {
		return 0, badRequest("X-data-parallel-rank must be an integer, got %q", h)
	}
	if k < 0 || k >= n {
		return 0, badRequest("data_parallel_rank %d is out of range [0, %d).", k, n)
	}
	return k, nil
}

// apiError is an error with its place in vLLM's error object.
type apiError struct {
	status  int
	kind    string
	param   string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...)}
}

// fail answers with err in vLLM's shape and returns the status sent.
func fail(w http.ResponseWriter, err error) int {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{status: http.StatusInternalServerError, kind: "InternalServerError", message: err.Error()}
		if errors.Is(err, sched.ErrClosed) {
			e.status, e.kind = http.StatusServiceUnavailable, "ServiceUnavailableError"
		}
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": param, "code": e.status,
	}})
	return e.status
}

// readJSON decodes a request body into v.
func readJSON(r *http.Request, v any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return badRequest("body could not be read: %v", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		var e *json.UnmarshalTypeError
		if errors.As(err, &e) {
			bad := badRequest("%s must be of another type than JSON %s", e.Field, e.Value)
			bad.param = e.Field
			return bad
		}
		var own *apiError
		if errors.As(err, &own) {
			return own
		}
		return badRequest("body is not valid JSON: %v", err)
	}
	return nil
}

func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("server: reply cannot be encoded: " + err.Error()) // only our own types get here
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encode(v))
}
