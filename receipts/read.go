package receipts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Bounds of what is read as a whole. A folder comes from somebody else: a pipe may have no
// beginning, a device no end, and a number may stand for more work than there is time.
const (
	mostReceipt = 256 << 20 // bytes of a receipt, a plan or an envelope
	mostNote    = 1 << 20   // bytes of a checkpoint, a sidecar or a key
	mostPolicy  = 64 << 10  // bytes of a policy
	mostLine    = 1 << 20   // bytes of a line of a ledger
	mostEntries = 1 << 20   // lines of a ledger
	mostEvents  = 1 << 16   // deaths of an engine that two builds are compared by
	mostExact   = 1 << 12   // values above a floor up to which the screen is computed in integers
	mostPasses  = 1 << 16   // passes of an arm
	mostRuns    = 1 << 10   // climbs of a ladder, replicates included
)

// readFile reads a regular file of at most that many bytes.
func readFile(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case st.Size() > most:
		return nil, fmt.Errorf("%s has %d bytes, %d are the most that it can have", path, st.Size(), most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s grew while it was read", path)
	}
	return b, err
}

// openFile opens a regular file.
func openFile(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return os.Open(path)
}

var errLongLine = fmt.Errorf("the line is longer than %d bytes", mostLine)

// readLine reads one line with its line feed. io.EOF comes with what stands there without
// one, and alone at the end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > mostLine {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
