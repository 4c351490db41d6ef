// Package probes holds what is seen: Records, and the transcript they are appended to.
//
// The transcript is the seam of the program. Everything before it needs a server;
// everything after it is pure and repeatable from the file alone.
//
//  1. A Writer opens transcript.jsonl and appends one line per Record, each naming the
//     digest of the line before.
//  2. Probes observe an Endpoint and emit Records; a Record is on disk before the next
//     request goes out on that connection.
//  3. A Reader gives them back, refusing a broken chain with file and line.
package probes

import (
	"encoding/json"
	"math"
	"strings"

	"kvladder/receipts/digest"
)

// Kind says which of its members a Record carries.
type Kind string

const (
	KindReply  Kind = "reply"
	KindSample Kind = "sample"
	KindFact   Kind = "fact"
)

// Record is one thing seen.
type Record struct {
	Seq         int64         `json:"seq"`
	Prev        digest.Digest `json:"prev"` // of the line before, "" on the first line
	Time        string        `json:"time"` // RFC 3339 with nanoseconds, UTC
	Kind        Kind          `json:"kind"`
	Attempt     string        `json:"attempt,omitempty"`     // names one climb of one chain; an abandoned attempt is not scored
	Run         int           `json:"run"`                   // 0 = the registered run, 1.. = replicates
	Chain       string        `json:"chain,omitempty"`       //
	Arm         string        `json:"arm,omitempty"`         //
	Incarnation string        `json:"incarnation,omitempty"` // one lifetime of one engine process

	Reply  *Reply  `json:"reply,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
	Fact   *Fact   `json:"fact,omitempty"`
}

// Reply is one request and what came back.
type Reply struct {
	Prompt    string        `json:"prompt"`
	Pass      int           `json:"pass"` // 1-based
	Prime     bool          `json:"prime,omitempty"`
	RequestID string        `json:"request_id"` // sent as X-Request-Id, derived from the plan
	Client    string        `json:"client,omitempty"`
	RankAsked *int          `json:"rank_asked,omitempty"`
	Path      string        `json:"path"`
	Sent      digest.Digest `json:"sent"`                // of the body bytes that went on the wire
	SentBody  string        `json:"sent_body,omitempty"` // only when it differs from the frozen body (a rank pinned in the body, a trace)
	Received  digest.Digest `json:"received"`
	Raw       string        `json:"raw"`                  // the reply body, streams included, as received
	RawBase64 bool          `json:"raw_base64,omitempty"` // Raw is base64, since the bytes were not UTF-8
	Truncated bool          `json:"truncated,omitempty"`  // the body ended before the transport said it would
	Status    int           `json:"status"`               // HTTP status; 0 when no reply line came
	Error     string        `json:"error,omitempty"`      // transport or decoding error
	ErrorKind string        `json:"error_kind,omitempty"` // "transport", "timeout", "http", "decode", "model"

	Decoded

	Counters []Counter `json:"counters,omitempty"` // engine counters read before and after this request

	SentAt       int64 `json:"sent_at"`                  // microseconds since the transcript's clock zero (Fact "clock")
	FirstByteAt  int64 `json:"first_byte_at,omitempty"`  //
	FirstTokenAt int64 `json:"first_token_at,omitempty"` // streams only
	LastAt       int64 `json:"last_at"`                  //
}

// TraceField is the member of a request's body that names the tokens of its reply.
const TraceField = "trace_decode_token_ids"

// Trace is the tokens that the request named for its reply, nil where it named none.
func (r *Reply) Trace() []int {
	if r.SentBody == "" || !strings.Contains(r.SentBody, TraceField) {
		return nil
	}
	var body struct {
		Trace []int `json:"trace_decode_token_ids"`
	}
	if json.Unmarshal([]byte(r.SentBody), &body) != nil {
		return nil
	}
	return body.Trace
}

// Decoded is what the reply bytes say, as a pure function of Raw, Status and the dialect:
// a verifier decodes again and compares.
type Decoded struct {
	Text      string  `json:"text"`
	Reasoning string  `json:"reasoning,omitempty"`
	Finish    string  `json:"finish,omitempty"`
	Tokens    []Token `json:"tokens,omitempty"`
	Usage     Usage   `json:"usage"`
	Model     string  `json:"model,omitempty"`
	Slot      *int    `json:"slot,omitempty"` // that served, as the server says (llama-server's id_slot)
}

// Token is one generated token.
type Token struct {
	ID        int         `json:"id"`                   // -1 when the server did not say
	Text      string      `json:"text,omitempty"`       //
	Logprob   *float64    `json:"logprob"`              // nil: null or absent, see NonFinite
	NonFinite bool        `json:"non_finite,omitempty"` // the server sent null, NaN or an infinity where a number belongs
	Top       []Candidate `json:"top,omitempty"`        // best first
}

// Candidate is one entry of a token's top-k.
type Candidate struct {
	ID      int      `json:"id"`
	Text    string   `json:"text,omitempty"`
	Logprob *float64 `json:"logprob"`
}

// Usage is what the server said of the request's tokens; nil = it did not say.
type Usage struct {
	Prompt     *int `json:"prompt"`
	Completion *int `json:"completion"`
	Cached     *int `json:"cached"`   // prompt tokens taken from any cache
	Computed   *int `json:"computed"` // prompt tokens evaluated, where the engine reports it (llama-server prompt_n)
}

// Counter roles: what a series means, whatever the engine calls it. Values are tokens
// unless the name says otherwise.
const (
	LocalQueries    = "local_queries"
	LocalHits       = "local_hits"
	ExternalQueries = "external_queries"
	ExternalHits    = "external_hits"
	PromptTokens    = "prompt_tokens"
	Computed        = "computed"      // prompt tokens computed, where the engine counts them
	Preemptions     = "preemptions"   // events
	StoredChunks    = "stored_chunks" // chunks written to the store
	StoredBytes     = "stored_bytes"  //
	LoadedBytes     = "loaded_bytes"  //
	CachedTokens    = "cached_tokens" // local and external together
	Corrupted       = "corrupted"     // requests in which the engine saw non-finite values
	Evictions       = "evictions"     // findable blocks recycled for another use
	Running         = "running"       // gauge: requests computing at the moment
	NullBlock       = "null_block"    // gauge: checksum over the null block of every group
	ProcessStart    = "process_start" // gauge: when the process began, seconds since the epoch as it says itself; only a change means anything
)

// Counter is one series read before and after something happened.
type Counter struct {
	Role   string   `json:"role"`
	Series string   `json:"series"`         // as the engine names it
	Rank   string   `json:"rank,omitempty"` // the engine label, where the series has one
	Before *float64 `json:"before"`         // nil = the series was absent
	After  *float64 `json:"after"`
}

// Delta is After - Before, and false when either is absent or no count (negative, not
// finite), or the counter went back.
func (c Counter) Delta() (float64, bool) {
	if c.Before == nil || c.After == nil || !(0 <= *c.Before && *c.Before <= *c.After) || math.IsInf(*c.After, 0) {
		return 0, false
	}
	return *c.After - *c.Before, true
}

// Sample is one reading of an engine's counters.
type Sample struct {
	Phase  string        `json:"phase"` // "before" or "after" a pass
	Pass   int           `json:"pass"`
	Source string        `json:"source"` // URL path, or file name of an imported snapshot
	Digest digest.Digest `json:"digest"` // of the text read
	Raw    string        `json:"raw,omitempty"`
	Values []Value       `json:"values,omitempty"`
	Error  string        `json:"error,omitempty"` // a scrape that failed is a recorded fact
}

// Value is one series of a Sample.
type Value struct {
	Role   string  `json:"role"`
	Series string  `json:"series"`
	Rank   string  `json:"rank,omitempty"`
	Value  float64 `json:"value"`
	Bad    string  `json:"bad,omitempty"` // what the engine wrote where a count belongs ("NaN", "+Inf", "-3"): Value is then 0 and says nothing
}

// Fact is anything else that was seen or done: a step of the schedule, an identity read,
// a death line, the end of a process.
type Fact struct {
	Name   string          `json:"name"`
	Source string          `json:"source,omitempty"` // how it is known: an endpoint, a log line, the launcher
	Value  json.RawMessage `json:"value,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Names of the facts that scoring reads. Their values are the structs named after them.
const (
	FactPlan        = "plan"        // PlanFact: first record of a transcript
	FactArmStart    = "arm-start"   // none
	FactArmEnd      = "arm-end"     // ArmEndFact
	FactIncarnation = "incarnation" // IncarnationFact: a process was launched or attached
	FactStopped     = "stopped"     // StoppedFact: a process ended
	FactIdentity    = "identity"    // IdentityFact
	FactPins        = "pins"        // PinsFact
	FactStore       = "store"       // StoreFact
	FactReset       = "reset"       // StepFact
	FactDrain       = "drain"       // StepFact
	FactStep        = "step"        // StepFact
	FactDeath       = "death"       // DeathFact
	FactAbandoned   = "abandoned"   // AbandonedFact: everything of that attempt is superseded
	FactAttempt     = "attempt"     // AttemptFact: a climb of a chain begins
	FactChainEnd    = "chain-end"   // none: the chain was climbed to its end
	FactHarness     = "harness"     // HarnessFact: something the harness failed to do
	FactInvariant   = "invariant"   // InvariantFact
	FactLiveness    = "liveness"    // LivenessFact
	FactLoads       = "loads"       // LoadsFact: what the engine itself says of the requests of a pass
	FactPool        = "pool"        // PoolFact
	FactRunning     = "running"     // RunningFact
	FactGathered    = "gathered"    // GatheredFact: the records that follow were made elsewhere
	FactLoadFailed  = "load-failed" // LoadFailedFact
	FactStop        = "stop"        // StopFact: a soak ends before its length, by its registered rule
)

// PlanFact opens a transcript.
type PlanFact struct {
	Plan digest.Digest `json:"plan"`
	Set  digest.Digest `json:"set"`
	Tool string        `json:"tool"`
}

// AttemptFact opens one climb of a chain.
type AttemptFact struct {
	Chain string `json:"chain"`
	Run   int    `json:"run"`
}

// AbandonedFact names the attempt whose records are superseded, and why.
type AbandonedFact struct {
	Attempt string `json:"attempt"`
	Why     string `json:"why"`
}

// IncarnationFact describes a process that an arm talks to.
type IncarnationFact struct {
	ID       string            `json:"id"` // pid or container id, as the launcher names it
	Argv     []string          `json:"argv,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	URL      string            `json:"url"`
	Start    string            `json:"start"`
	Attached bool              `json:"attached,omitempty"`
}

// StoppedFact describes the end of a process.
type StoppedFact struct {
	ID     string        `json:"id"`
	Exit   *int          `json:"exit"` // nil when not known
	Signal string        `json:"signal,omitempty"`
	Asked  bool          `json:"asked"` // the harness asked for it
	Log    string        `json:"log,omitempty"`
	Digest digest.Digest `json:"digest,omitempty"` // of the log
}

// IdentityFact is who answers, read before and after each pass.
type IdentityFact struct {
	Phase    string `json:"phase"`
	Pass     int    `json:"pass"`
	Process  string `json:"process"`  // pid or container id
	Start    string `json:"start"`    // start time as the system reports it, "" when not known
	Restarts *int   `json:"restarts"` // nil when the launcher cannot count them
	Alive    bool   `json:"alive"`
	Model    string `json:"model,omitempty"`
	Version  string `json:"version,omitempty"`
}

// PinsFact holds pins as they were read back from the engine.
type PinsFact struct {
	Read []PinRead `json:"read"`
}

// PinRead is one pin: what was asked, what the engine says, and where it says it.
type PinRead struct {
	Name   string  `json:"name"`
	Asked  string  `json:"asked"`
	Read   *string `json:"read"` // nil = could not be read
	Source string  `json:"source"`
	Agrees *bool   `json:"agrees"` // nil = could not be compared
}

// StoreFact is what an external store held at a moment of the schedule.
type StoreFact struct {
	When   string        `json:"when"`  // "start" or "end" of the arm
	Files  *int          `json:"files"` // nil = could not be counted
	Bytes  *int64        `json:"bytes"`
	Chunks *int          `json:"chunks"`
	Digest digest.Digest `json:"digest,omitempty"` // over sorted file names and digests
}

// StepFact is one step of a schedule and whether its effect was proved.
type StepFact struct {
	Step   string   `json:"step"`
	Args   []string `json:"args,omitempty"`
	Done   bool     `json:"done"`
	Proved *bool    `json:"proved"` // nil = nothing to prove, or no way to
	Seen   string   `json:"seen,omitempty"`
}

// DeathFact is a sign that the engine died or was replaced.
type DeathFact struct {
	Sub    string `json:"sub"` // DIED, RESTARTED, HUNG
	Seen   string `json:"seen"`
	Prompt string `json:"prompt,omitempty"` // in flight
	Pass   int    `json:"pass,omitempty"`
	After  int64  `json:"after,omitempty"` // microseconds since the clock zero: what was answered later came from another process; 0 = not known
}

// GatheredFact names the transcript of a chain that was climbed on another machine, whose
// records are appended behind it with their own times.
type GatheredFact struct {
	Transcript digest.Digest `json:"transcript"`
	Records    int           `json:"records"`
}

// ArmEndFact closes an arm.
type ArmEndFact struct {
	Sent    int `json:"sent"`
	Records int `json:"records"`
}

// HarnessFact is a failure of the harness itself.
type HarnessFact struct {
	What string `json:"what"`
}

// InvariantFact is a registered invariant checked by the harness.
type InvariantFact struct {
	Name string `json:"name"`
	Held *bool  `json:"held"` // nil = could not be checked
	Seen string `json:"seen"`
}

// LoadsFact is what an engine says of the requests of one pass, after the pass.
type LoadsFact struct {
	Pass     int    `json:"pass"`
	Complete bool   `json:"complete"` // a request that is not among them loaded nothing from the store
	Loads    []Load `json:"loads"`
}

// Load is where one request resumed and what was written for it, as the engine reports it.
type Load struct {
	RequestID string `json:"request_id"`
	Rank      int    `json:"rank"`
	Local     int    `json:"local"`    // prompt tokens taken from the local cache
	External  int    `json:"external"` // prompt tokens that the store supplied beyond them
}

// PoolFact is the size of the engine's local pool as it reports it.
type PoolFact struct {
	Blocks int `json:"blocks"`
	Tokens int `json:"tokens"` // of all blocks together
}

// RunningFact is how many requests were seen computing at once during a pass.
type RunningFact struct {
	Pass     int `json:"pass"`
	Peak     int `json:"peak"`
	Readings int `json:"readings"` // 0 = the gauge was never read
}

// LoadFailedFact is one line in which the engine said that loads had failed, seen while the
// reply to a request was awaited.
type LoadFailedFact struct {
	Pass      int    `json:"pass"`
	Prompt    string `json:"prompt"`
	Recovered bool   `json:"recovered"` // the engine computed what was missing; false: it ended the request
	Line      string `json:"line"`
}

// StopFact says where a registered rule ended a soak: what it decided, after how many
// requests, and the pass that was finished then.
type StopFact struct {
	Rule     string `json:"rule"`
	Decision string `json:"decision"`
	Requests int    `json:"requests"`
	Pass     int    `json:"pass"`
}

// LivenessFact is the question asked of the engine after load.
type LivenessFact struct {
	Prompt string `json:"prompt"`
	Right  *bool  `json:"right"`
	Seen   string `json:"seen"`
}
