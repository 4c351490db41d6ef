package climb

import (
	"bytes"
	"errors"
	"os"

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
