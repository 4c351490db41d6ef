package climb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kvladder/arms"
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
	where, err := arms.CorruptRange(args[1], args[2])
	if err != nil {
		return "", err
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
		at := where.Offset
		if where.Share != nil {
			st, err := os.Stat(f)
			if err != nil {
				return "", err
			}
			at = int64(*where.Share / 100 * float64(st.Size()))
		}
		if err := flip(f, at, where.Count); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d bytes flipped at %s in each of %d files", where.Count, args[1], len(files)), nil
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
	if off < 0 || n > st.Size()-off {
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
