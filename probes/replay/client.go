// Package replay sends frozen requests and keeps what comes back.
//
// The bytes on the wire are the bytes of the Set: no field is added, reordered or dropped
// on the way (go-openai v1.43.0, left to itself, drops a temperature of 0, and an engine
// then samples). What went wrong is part of the evidence, so Send has no error: it returns
// a Reply that says what happened.
//
//  1. A Client knows an Endpoint, the dialect it speaks and how a data-parallel rank is
//     pinned there.
//  2. Send puts one frozen body on the wire, reads the reply to its end, and hashes and
//     keeps both.
//  3. Decode turns the kept bytes into text, tokens and counts; a verifier calls it again
//     on the transcript.
package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"kvladder/probes"
	"kvladder/receipts/digest"
)

// Client sends requests to one Endpoint. Its zero value with an Endpoint works. It is
// safe for concurrent use, and must not be copied or changed after the first Send.
type Client struct {
	// HTTP carries the requests; nil = a client of this package with room for a few
	// hundred connections. Redirects are never followed: a frozen request goes where the
	// plan says.
	HTTP     *http.Client
	Endpoint probes.Endpoint
	Dialect  string        // of the replies; "" = VLLM
	Timeout  time.Duration // of one request, to the last byte of its reply; 0 = none
	Pin      Pin
	Zero     time.Time // the transcript's clock zero; the zero value = the first Send
	Limit    int64     // bytes of a reply that are read; 0 = 64 MiB

	once sync.Once
	http *http.Client
	zero time.Time
}

// Pin says how a request names the data-parallel rank that must answer it.
type Pin struct {
	By    string // PinHeader, PinBody, PinURL; "" = ranks cannot be named
	Field string // of the header or the body's member; "" = the engine's usual one
}

const (
	PinHeader = "header" // X-data-parallel-rank, as vLLM and SGLang read it
	PinBody   = "body"   // a member at the end of the body, routed_dp_rank in SGLang
	PinURL    = "url"    // one server per rank: Endpoint.RankURLs
)

// Request is one frozen request.
type Request struct {
	Path      string            // URL path
	Body      []byte            // sent byte for byte
	RequestID string            // sent as X-Request-Id
	Rank      *int              // nil = whichever rank the server takes
	Trace     []int             // tokens that the reply is to be made of, sent as TraceField; nil = the model's own
	Header    map[string]string // sent beside the usual ones
}

// TraceField is the member of a body by which vLLM's trace replay is told the reply: decoding
// goes along these tokens, with the model's own logprobs (vllm#46701).
const TraceField = probes.TraceField

// RequestID names a request by what the plan says of it: 32 hexadecimal digits of
//
//	printf '%s\n' PLAN ARM RUN PASS PROMPT | sha256sum | cut -c1-32
//
// so that an engine's log can be laid beside the transcript, and a reply that belongs to
// another request shows. A prompt's prime is named by PROMPT with "/prime" behind it.
func RequestID(plan, arm string, run, pass int, prompt string) string {
	s := strings.Join([]string{plan, arm, strconv.Itoa(run), strconv.Itoa(pass), prompt, ""}, "\n")
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:16])
}

const defaultLimit = 64 << 20

// shared is used where a Client brings no http.Client: replay may hold a few hundred
// streams to one host, where net/http would keep two connections.
var shared = sync.OnceValue(func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 1024, 1024
	t.ForceAttemptHTTP2 = false
	return &http.Client{Transport: t}
})

func (c *Client) init() {
	c.once.Do(func() {
		h := c.HTTP
		if h == nil {
			h = shared()
		}
		own := *h
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.http = &own
		if c.zero = c.Zero; c.zero.IsZero() {
			c.zero = time.Now()
		}
	})
}

// now is microseconds since the clock zero.
func (c *Client) now() int64 { return time.Since(c.zero).Microseconds() }

// Send sends r and reads the reply to its end. Whatever goes wrong is told in the Reply:
// Error and ErrorKind say what, and Raw holds the bytes that came before it. Prompt, Pass,
// Prime, Client and Counters are left to the caller.
func (c *Client) Send(ctx context.Context, r Request) probes.Reply {
	c.init()
	out := probes.Reply{RequestID: r.RequestID, RankAsked: r.Rank, Path: r.Path}
	fail := func(kind string, err error) probes.Reply {
		out.Error, out.ErrorKind = err.Error(), kind
		return out
	}
	w := &wire{client: c, request: r, body: r.Body, url: c.Endpoint.URL}
	if err := c.pin(w); err != nil {
		out.SentAt = c.now()
		out.LastAt = out.SentAt
		out.Sent = digest.Of(nil)
		out.SetRaw(nil)
		return fail(KindTransport, err)
	}
	out.Sent = digest.Of(w.body)
	if w.pinned {
		out.SentBody = string(w.body)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}

	out.SentAt = c.now()
	err := w.dispatch(ctx)
	raw := w.drain(err)
	out.LastAt = c.now()
	out.SetRaw(raw)
	out.Status, out.Truncated = w.status, w.truncated
	out.FirstByteAt, out.FirstTokenAt = w.firstByte, w.firstToken

	// What arrived is decoded even when the rest did not, since a verifier can only
	// decode what is there; the transport's error is the one that is told.
	if w.status != 0 {
		var derr error
		out.Decoded, derr = Decode(cmp.Or(c.Dialect, VLLM), w.status, raw)
		var de *DecodeError
		if errors.As(derr, &de) {
			if de.Kind == KindDecode && w.contentType != "" {
				de.What += " (content type " + w.contentType + ")"
			}
			fail(de.Kind, de)
		}
	}
	if w.err != nil {
		kind := KindTransport
		var ne net.Error
		if errors.As(w.err, &ne) && ne.Timeout() {
			kind = KindTimeout
		}
		return fail(kind, w.err)
	}
	return out
}

// pin chooses the URL and completes the body for the rank that is asked for, and for the
// tokens that the reply is to be made of.
func (c *Client) pin(w *wire) error {
	if w.request.Trace != nil {
		ids, err := json.Marshal(w.request.Trace)
		if err != nil {
			return err
		}
		if w.body, err = insert(w.body, TraceField, string(ids)); err != nil {
			return err
		}
		w.pinned = true
	}
	rank := w.request.Rank
	if rank == nil {
		return nil
	}
	switch c.Pin.By {
	case PinHeader:
		w.rankHeader = cmp.Or(c.Pin.Field, "X-data-parallel-rank")
	case PinBody:
		body, err := insert(w.body, cmp.Or(c.Pin.Field, "routed_dp_rank"), strconv.Itoa(*rank))
		if err != nil {
			return err
		}
		w.body, w.pinned = body, true
	case PinURL:
		if *rank < 0 || *rank >= len(c.Endpoint.RankURLs) {
			return fmt.Errorf("rank %d is asked for, and the endpoint has %d rank urls: correct the ladder's ranks", *rank, len(c.Endpoint.RankURLs))
		}
		w.url = c.Endpoint.RankURLs[*rank]
	default:
		return fmt.Errorf("rank %d is asked for, and pin by %q names no way to ask: use %s, %s or %s", *rank, c.Pin.By, PinHeader, PinBody, PinURL)
	}
	return nil
}

// dispatch puts the request on the wire. OpenAI paths go through go-openai's client, whose
// request w replaces by the frozen one; other paths go to w directly.
func (w *wire) dispatch(ctx context.Context) error {
	chat := strings.HasSuffix(w.request.Path, "/chat/completions")
	if !chat && !strings.HasSuffix(w.request.Path, "/completions") {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target(), nil)
		if err != nil {
			return err
		}
		if key := w.client.Endpoint.APIKey; key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		_, err = w.Do(req)
		return err
	}
	cfg := openai.DefaultConfig(w.client.Endpoint.APIKey)
	cfg.BaseURL = strings.TrimRight(w.url, "/")
	cfg.HTTPClient = w
	oc := openai.NewClientWithConfig(cfg)
	// The stream calls, since they leave the body to w. Their errors for a status other
	// than 2xx are told by Decode, from bytes that w has kept.
	var err error
	if chat {
		_, err = oc.CreateChatCompletionStream(ctx, openai.ChatCompletionRequest{})
	} else {
		_, err = oc.CreateCompletionStream(ctx, openai.CompletionRequest{Prompt: ""})
	}
	if w.response != nil {
		return nil
	}
	return err
}
