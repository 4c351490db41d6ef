package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// Evidence is one file of a run folder.
type Evidence struct {
	Name      string    `json:"name"` // path inside the folder, with slashes
	Digest    DigestSet `json:"digest"`
	Size      int64     `json:"size"`
	MediaType string    `json:"mediaType"`
	Empty     bool      `json:"empty"`    // nothing was hashed: such a digest proves nothing
	Required  bool      `json:"required"` // a receipt whose required evidence is empty does not hold
}

// Files of a run folder that have a meaning of their own.
const (
	PlanFile       = "plan.json"
	TranscriptFile = "transcript.jsonl"
	LedgerFile     = "ledger.jsonl"
	ReceiptFile    = "receipt.json"
	SignatureFile  = "receipt.dsse.json"
	ReportFile     = "report.html"
	SetDir         = "set"
	ObjectDir      = "objects/sha256"
	LogDir         = "logs"
)

// Covered reports whether a file of a run folder must be listed by the receipt. The receipt
// and its sidecar vouch for each other, a signature or a cosigned checkpoint vouches for
// itself, and a report or a lock says nothing that is relied on.
func Covered(name string) bool {
	switch name {
	case ReceiptFile, ReceiptFile + ".sha256", SignatureFile, CosignedFile, ReportFile:
		return false
	}
	return !strings.HasSuffix(name, ".lock")
}

// Walk lists the covered files of a run folder, sorted by name. Anything that is neither a
// folder nor a regular file (a link, a socket) is an error: its content is not the folder's.
func Walk(folder string) ([]Evidence, error) {
	out := []Evidence{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case d.IsDir() || !Covered(name):
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: a run folder holds files only; replace it by its content", name)
		}
		out = append(out, Evidence{Name: name, MediaType: mediaType(name), Required: required(name)})
		return nil
	})
	if err == nil {
		err = hashAll(folder, out)
	}
	if err != nil {
		return nil, fmt.Errorf("run folder %s: %w", folder, err)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// hashAll fills in size and digest, as many files at a time as there are processors, each
// through a buffer of a fixed size.
func hashAll(folder string, es []Evidence) error {
	var next atomic.Int64
	errs := make([]error, min(runtime.GOMAXPROCS(0), max(1, len(es))))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			buf := make([]byte, 256<<10)
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(es) {
					return
				}
				errs[w] = es[i].hash(filepath.Join(folder, filepath.FromSlash(es[i].Name)), buf)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (e *Evidence) hash(path string, buf []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	// Neither side may bring its own way of copying: the buffer is what bounds the memory.
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, buf)
	if err != nil {
		return err
	}
	e.Digest, e.Size, e.Empty = DigestSet{SHA256: hex.EncodeToString(h.Sum(nil))}, n, n == 0
	return nil
}

// required files are those without which nothing can be recomputed.
func required(name string) bool {
	switch name {
	case PlanFile, TranscriptFile, LedgerFile:
		return true
	}
	return strings.HasPrefix(name, SetDir+"/")
}

func mediaType(name string) string {
	switch {
	case strings.HasSuffix(name, ".jsonl"):
		return "application/jsonl"
	case strings.HasSuffix(name, ".json"):
		return "application/json"
	case strings.HasSuffix(name, ".log"), strings.HasSuffix(name, ".txt"), strings.HasSuffix(name, ".sha256"):
		return "text/plain"
	}
	return "application/octet-stream"
}
