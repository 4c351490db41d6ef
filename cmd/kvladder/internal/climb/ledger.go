package climb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"kvladder/receipts"
)

// enter adds one entry to the run folder's ledger. Entries of chains that run side by side
// come in the order in which they happen.
func (c *Climb) enter(kind string, o receipts.LedgerObject) error {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	o.Plan = digestOf(c.digest)
	if _, err := receipts.AppendLedger(c.Folder.Ledger(), kind, o); err != nil {
		return &WriteError{Path: c.Folder.Ledger(), Err: err}
	}
	return nil
}

// register makes the registration of the plan the ledger's first entry, before anything is
// run. A line that an earlier climb was killed in the middle of is cut off: it says nothing
// that the transcript does not.
func (c *Climb) register() error {
	b, err := os.ReadFile(c.Folder.Ledger())
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return &FolderError{Path: c.Folder.Path, What: reason(err)}
	default:
		whole := bytes.LastIndexByte(b, '\n') + 1
		if whole < len(b) {
			if err := os.Truncate(c.Folder.Ledger(), int64(whole)); err != nil {
				return &FolderError{Path: c.Folder.Path, What: reason(err)}
			}
		}
		if whole > 0 {
			return nil
		}
	}
	return c.enter(receipts.LedgerPrereg, receipts.LedgerObject{Set: c.Set.Digest})
}

// Register makes the run folder hold the registration and nothing else.
func (c *Climb) Register() error {
	d, _, err := c.Plan.Digest()
	if err != nil {
		return err
	}
	c.digest = string(d)
	return c.register()
}

// carry makes the request ids depend on the beacon: the ledger's, where it has one, else the
// one that was given, which is entered before any arm starts.
func (c *Climb) carry() error {
	fail := func(what, hint string) error { return &FolderError{Path: c.Folder.Path, What: what, Hint: hint} }
	ledger, err := receipts.ReadLedger(c.Folder.Ledger())
	if err != nil {
		return fail(reason(err), "choose another folder with --out")
	}
	have, err := receipts.BeaconOf(ledger)
	switch started := slices.ContainsFunc(ledger, func(e receipts.LedgerEntry) bool { return e.Kind == receipts.LedgerArmStart }); {
	case err != nil:
		return fail("its ledger: "+err.Error(), "choose another folder with --out")
	case c.Beacon == nil:
		c.Beacon = have
	case have != nil && *have != *c.Beacon:
		return fail(fmt.Sprintf("its ledger holds round %d of the beacon, --beacon gives round %d", have.Round, c.Beacon.Round), "leave --beacon out: the ledger's is used")
	case have != nil:
	case started:
		return fail("it holds arms that were run without a beacon", "leave --beacon out, or choose another folder with --out")
	default:
		if err := c.enter(receipts.LedgerBeacon, receipts.LedgerObject{Beacon: c.Beacon}); err != nil {
			return err
		}
	}
	c.ids = string(c.Beacon.IDs(digestOf(c.digest)))
	return nil
}
