package arms

import (
	"fmt"
	"io"

	"kvladder/probes"
)

// What follows is, as the interfaces beside Engine, what some engines can do or know.

// Chooser is an Engine that can run some presets only under some pins.
type Chooser interface {
	// CannotWith says why the preset cannot run with these pins, "" when it can.
	CannotWith(preset string, pins map[string]string) string
}

// Inexacter is an Engine some of whose reuse is documented as inexact: what it keeps is not
// what computing the prompt anew would give. Such an arm is measured like any other; its
// numbers neither accuse nor absolve it.
type Inexacter interface {
	// Inexact says which reuse that is under these pins, "" where there is none.
	Inexact(pins map[string]string) string
}

// Chunker is an Engine that knows how long the last computed chunk of a prompt is, where
// that does not follow from the prefill budget alone.
type Chunker interface {
	LastChunk(pins map[string]string, tokens, reused int) int
}

// Accountant is an Engine whose server says in its log, and nowhere else, where the tokens
// of a request came from.
type Accountant interface {
	// Account reads what a process printed while it served requests one after another, and
	// returns one Load for each, in order, without RequestID. ok is false where the log
	// says nothing that the reply does not say.
	Account(log io.Reader, pins map[string]string) (loads []Load, ok bool, err error)
	// Kept reads the last that a process printed of what its store holds; ok is false where
	// the store of these pins is not one that the log tells of.
	Kept(log io.Reader, pins map[string]string) (f probes.StoreFact, ok bool, err error)
}

// Damager changes stored values in the engine's own format, so that a reader of the file
// finds nothing wrong with it.
type Damager interface {
	// Damage does what args say to everything that res stores, and says what it did.
	Damage(res Resources, args []string) (seen string, err error)
	// CheckDamage says what is wrong with args, "" when nothing is.
	CheckDamage(args []string) string
}

// Keeper is an Engine whose Save writes files that nobody touches until Restore: they can be
// held against each other.
type Keeper interface {
	// KeepsSaved says whether that is so under these pins.
	KeepsSaved(pins map[string]string) bool
}

// Explainer is an Engine whose server tells its log more than its client about a refusal.
type Explainer interface {
	// Explain finds the cause of a refusal among the last lines of the log, "" when it is not there.
	Explain(lines []string) string
}

// RefusedError says that a server refused to take state back: it answered, with a status
// and a reason. That protects whoever asks next, and is no failure of the harness.
type RefusedError struct {
	What   string // what was asked: "restore slot 3"
	Status int
	Says   string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.What, e.Status, e.Says)
}
