package climb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// corrupt flips every bit of N bytes at OFFSET in each stored file whose name matches FILE
// (a pattern of path/filepath.Match, looked for anywhere in the store). A negative OFFSET
// counts from the file's end, and one like 25.8% is that part of the file's size: files of
// one layout and several lengths are then hit in one place. A damage that is a step of the schedule is repeated by the
// replicate, so that it can be told from chance.
func corrupt(dir string, args []string) (string, error) {
	if len(args) != 3 {
		return "", errors.New("it takes FILE OFFSET N")
	}
	part, percent := strings.CutSuffix(args[1], "%")
	var off int64
	var share float64
	var err error
	if percent {
		if share, err = strconv.ParseFloat(part, 64); err != nil || !(share >= 0 && share < 100) {
			return "", fmt.Errorf("offset %q is not a percentage below 100", args[1])
		}
	} else if off, err = strconv.ParseInt(args[1], 10, 64); err != nil {
		return "", fmt.Errorf("offset %q is neither a whole number nor a percentage", args[1])
	}
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil || n < 1 {
		return "", fmt.Errorf("count %q is not a positive whole number", args[2])
	}
	var files []string
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		ok, err := filepath.Match(args[0], d.Name())
		if ok {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	if len(files) == 0 {
		return "", fmt.Errorf("no stored file matches %q", args[0])
	}
	for _, f := range files {
		at := off
		if percent {
			st, err := os.Stat(f)
			if err != nil {
				return "", err
			}
			at = int64(share / 100 * float64(st.Size()))
		}
		if err := flip(f, at, n); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d bytes flipped at %s in each of %d files", n, args[1], len(files)), nil
}

func flip(path string, off, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if off < 0 {
		off += st.Size()
	}
	if off < 0 || off+n > st.Size() {
		return fmt.Errorf("%s has %d bytes, the step asks for %d at %d", filepath.Base(path), st.Size(), n, off)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		return err
	}
	for i := range b {
		b[i] = ^b[i]
	}
	if _, err := f.WriteAt(b, off); err != nil {
		return err
	}
	return f.Sync()
}
