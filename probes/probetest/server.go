// Package probetest is an inference server that misbehaves in transport only: slow to be
// ready, jittery, hanging, cutting its bodies, answering with the wrong thing. It knows
// nothing of caches or tokens; damaged content comes from an engine.
//
//  1. Start a Server with the Answers it gives, one per request, the last for ever.
//  2. Send it requests.
//  3. Ask it what it Saw.
package probetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Answer replies to one request, whose body has been read into Seen.
type Answer func(w http.ResponseWriter, r *http.Request, s Seen)

// Seen is one request as it arrived.
type Seen struct {
	Method string
	Path   string // with its query
	Header http.Header
	Body   []byte
	Length int64 // Content-Length, -1 when chunked
}

// Server gives its answers in order and repeats the last one.
type Server struct {
	URL string

	http *httptest.Server

	mu      sync.Mutex
	answers []Answer
	routes  map[string]Answer
	seen    []Seen
}

// Start serves until Close; with no answers every request gets 404.
func Start(answers ...Answer) *Server {
	s := &Server{answers: answers, routes: map[string]Answer{}}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	return s
}

// Route gives one path an answer of its own, outside the order of the others.
func (s *Server) Route(path string, a Answer) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes[path] = a
	return s
}

// Close ends the server and every connection, hanging ones included.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Saw is every request so far, in order of arrival.
func (s *Server) Saw() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away in the middle of its request
	}
	seen := Seen{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body, Length: r.ContentLength}
	s.mu.Lock()
	s.seen = append(s.seen, seen)
	a, ok := s.routes[r.URL.Path]
	if !ok && len(s.answers) > 0 {
		a, ok = s.answers[0], true
		if len(s.answers) > 1 {
			s.answers = s.answers[1:]
		}
	}
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	a(w, r, seen)
}
