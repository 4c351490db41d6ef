package server

import (
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// job is a request on its way through the server, whatever its API.
type job struct {
	params  *params
	request sched.Request
	id      string // of the reply: "cmpl-…" or "chatcmpl-…"
	api     string // for the log
	created int64
	form    form
}

// form is what completions and chat do differently.
type form interface {
	// whole returns the reply to a request that does not stream.
	whole(*job, *output) any
	// open returns the chunk before the first token, or nil.
	open(*job) any
	// chunk returns the chunk for a piece of output.
	chunk(*job, *piece) any
	// object names the chunks.
	object() string
}

// output is everything a request produced.
type output struct {
	text       string
	events     []sched.Event // those with a token
	finish     string
	stopReason any
	split      sched.Split
}

// piece is what one chunk of a stream carries.
type piece struct {
	text       string
	offset     int // of the first event's text in the whole, in characters
	events     []sched.Event
	first      bool
	finish     any // string or nil
	stopReason any
}

// serve runs a job on its rank and answers.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, j *job) {
	began := time.Now()
	j.created = began.Unix()
	rank, err := s.rank(r)
	if err == nil {
		j.request.Patience, err = patience(r)
	}
	if err != nil {
		s.refuse(w, r, j.api, err)
		return
	}
	j.request.ID = idOf(r)
	events, err := s.cfg.Ranks[rank].Submit(r.Context(), j.request)
	if err != nil {
		if err != sched.ErrClosed {
			err = badRequest("%v", err)
		}
		s.refuse(w, r, j.api, err)
		return
	}
	var out output
	if j.params.Stream {
		out = s.stream(w, j, events)
	} else {
		out = collect(j.params, events, nil)
		s.answer(w, j, &out)
	}
	s.logf("request id=%s api=%s rank=%d prompt=%d local=%d external=%d computed=%d output=%d finish=%s ms=%d",
		idOf(r), j.api, rank, len(j.request.Prompt), out.split.Local, out.split.External, out.split.Computed,
		len(out.events), out.finish, time.Since(began).Milliseconds())
}

// answer sends the whole reply, or what became of it.
func (s *Server) answer(w http.ResponseWriter, j *job, out *output) {
	switch out.finish {
	case sched.FinishAbort, sched.FinishError:
		fail(w, &apiError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: "request ended early: " + out.finish})
	default:
		writeJSON(w, http.StatusOK, j.form.whole(j, out))
	}
}

// refuse answers a request that never reached the engine.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, api string, err error) {
	status := fail(w, err)
	s.logf("request id=%s api=%s status=%d error=%q", idOf(r), api, status, err.Error())
}

// collect gathers the events of a request. each, if not nil, sees the pieces
// that a stream sends.
func collect(p *params, events <-chan sched.Event, each func(*piece)) output {
	var out output
	var text strings.Builder
	sent, chars, first := 0, 0, true
	var pending []sched.Event
	for ev := range events {
		out.split = ev.Split
		last := -1
		if ev.HasToken {
			out.events = append(out.events, ev)
			pending = append(pending, ev)
			last = ev.Token.ID
			text.WriteString(model.Decode([]int{last}))
		}
		visible := shown(text.String(), p.holdBack())
		if ev.Finish != "" {
			out.finish = ev.Finish
			visible = text.String()
			if ev.Finish == sched.FinishStop {
				var n int
				out.stopReason, n = p.stopped(visible, last)
				visible = visible[:n]
			}
			out.text = visible
		}
		if each == nil || (len(visible) <= sent && ev.Finish == "" && !p.ReturnTokenIDs) {
			continue // the token waits for the text it is part of
		}
		pc := &piece{text: visible[min(sent, len(visible)):], offset: chars, events: pending, first: first, stopReason: out.stopReason}
		if ev.Finish != "" {
			pc.finish = ev.Finish
		}
		each(pc)
		for _, ev := range pending {
			chars += utf8.RuneCountInString(model.Decode([]int{ev.Token.ID}))
		}
		first, pending = false, nil
		sent = max(sent, len(visible))
	}
	return out
}

// stream sends server-sent events: the pieces, the usage if asked for, [DONE].
func (s *Server) stream(w http.ResponseWriter, j *job, events <-chan sched.Event) output {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flusher := http.NewResponseController(w)
	send := func(v any) {
		w.Write([]byte("data: "))
		w.Write(encode(v))
		w.Write([]byte("\n\n"))
		flusher.Flush() // a client that left is noticed through its context
	}
	if v := j.form.open(j); v != nil {
		send(v)
	}
	out := collect(j.params, events, func(p *piece) { send(j.form.chunk(j, p)) })
	if o := j.params.StreamOptions; o != nil && o.IncludeUsage {
		send(struct {
			head
			Choices     []struct{} `json:"choices"`
			Usage       *usage     `json:"usage"`
			Fingerprint string     `json:"system_fingerprint"`
		}{j.head(j.form.object()), []struct{}{}, usageOf(len(j.request.Prompt), len(out.events), out.split), fingerprint})
	}
	w.Write([]byte("data: [DONE]\n\n"))
	flusher.Flush()
	return out
}

// head is how every reply and chunk begins.
type head struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

func (j *job) head(object string) head {
	return head{ID: j.id, Object: object, Created: j.created, Model: *j.params.Model}
}

// tail is how every whole reply ends.
type tail struct {
	ServiceTier any    `json:"service_tier"`
	Fingerprint string `json:"system_fingerprint"`
	Usage       *usage `json:"usage"`
}

func (j *job) tail(out *output) tail {
	return tail{Fingerprint: fingerprint, Usage: usageOf(len(j.request.Prompt), len(out.events), out.split)}
}

func tokenIDs(events []sched.Event) []int {
	ids := make([]int, 0, len(events))
	for _, ev := range events {
		ids = append(ids, ev.Token.ID)
	}
	return ids
}
