package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"kvladder/probes"
	"kvladder/receipts/digest"
)

// folderFact describes what a folder holds, folders below it included: files, bytes, and
// a digest of what this prints inside it, file names sorted as bytes:
//
//	find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum
//
// A folder that does not exist is empty. A folder "" is not known.
func folderFact(folder string) (probes.StoreFact, error) {
	if folder == "" {
		return probes.StoreFact{}, nil
	}
	var bytes int64
	sums := map[string]string{} // file name -> sha256
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var sum digest.Digest
			var n int64
			if sum, n, err = digest.OfFile(path); err == nil {
				name, _ := filepath.Rel(folder, path)
				sums[filepath.ToSlash(name)] = sum.Hex()
				bytes += n
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no folder at all, or a temporary file that was renamed meanwhile
		}
		return err
	})
	if err != nil {
		return probes.StoreFact{}, fmt.Errorf("store %s: %w", folder, err)
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&lines, "%s  %s\n", sums[name], name)
	}
	files := len(sums)
	return probes.StoreFact{Files: &files, Bytes: &bytes, Digest: digest.Of([]byte(lines.String()))}, nil
}

// chunkFact is folderFact for a store that keeps each chunk in a file whose name ends in .kv.
func chunkFact(folder string) (probes.StoreFact, error) {
	fact, err := folderFact(folder)
	if err != nil || fact.Files == nil {
		return fact, err
	}
	chunks := 0
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && filepath.Ext(path) == ".kv" {
			chunks++
		}
		return err
	})
	fact.Chunks = &chunks
	return fact, err
}
