package detect

import (
	"net/http"
	"strings"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// Empty fires on a reply with nothing in it where something is expected, and on an internal
// server error (500), which is an engine's way of answering nothing. A request that got no
// reply at all is not a reply. Whether the reference had more to say is for the pairing.
type Empty struct{}

func (Empty) Name() string { return "empty" }

func (Empty) Inspect(r *probes.Reply, e prompts.Expectation) scoring.Finding {
	switch {
	case e.Empty:
		return scoring.Finding{}
	case r.Status == http.StatusInternalServerError:
		return scoring.Finding{Fired: true, Detail: "the engine answered with an internal error"}
	case !judged(r) || len(r.Tokens) > 0 || strings.TrimSpace(said(r)) != "":
		return scoring.Finding{}
	}
	return scoring.Finding{Fired: true, Detail: "no text and no token"}
}

func (Empty) Specimen() (*probes.Reply, prompts.Expectation) { return text(" \n"), english }
