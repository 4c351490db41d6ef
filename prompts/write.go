package prompts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Write puts the Set and its sidecar at path, and makes the folder where there is none; it
// never writes over a different Set. Both files are written in full under other names, made
// durable, and then renamed, the sidecar first: whatever ends the process or fills the disk,
// there is the whole Set at path or none, and writing again completes it.
func (s *Set) Write(path string) error {
	err := s.write(path)
	if err == nil || errors.Is(err, errDiffers) {
		return err
	}
	return fmt.Errorf("set %s cannot be written: %w; %s", path, err, remedy(err))
}

var errDiffers = errors.New("a frozen set is never written over; choose another name")

func (s *Set) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	there := false
	if fi, err := os.Lstat(path); err == nil {
		if !fi.Mode().IsRegular() && fi.Mode()&os.ModeSymlink == 0 {
			return fmt.Errorf("%s is there and is no regular file", path)
		}
		old, err := readFile(path)
		if err != nil {
			return err
		}
		if there = bytes.Equal(old, s.bytes); !there {
			return fmt.Errorf("set %s exists and differs: %w", path, errDiffers)
		}
	}
	side := path + ".sha256"
	sideBytes := []byte(s.Digest.Hex() + "  " + filepath.Base(path) + "\n")
	if old, err := readFile(side); there && err == nil && bytes.Equal(old, sideBytes) {
		return nil
	}
	var temps []string
	defer func() {
		for _, t := range temps {
			os.Remove(t)
		}
	}()
	for _, b := range [][]byte{sideBytes, s.bytes} {
		t, err := writeTemp(filepath.Dir(path), b)
		if t != "" {
			temps = append(temps, t)
		}
		if err != nil {
			return err
		}
	}
	for i, to := range []string{side, path} {
		if err := os.Rename(temps[i], to); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(path))
}

// writeTemp writes b to a new file of the folder, durably, and says what it is called.
func writeTemp(dir string, b []byte) (string, error) {
	f, err := os.CreateTemp(dir, ".set-*.part")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	return f.Name(), errors.Join(err, f.Close())
}

// syncDir makes the renames in a folder durable. A file system that cannot is no failure: the
// files are whole.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	d.Sync()
	return d.Close()
}

// remedy says what to do about a failed write.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return "nothing half-written is left: free some space and freeze it again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		return "choose a folder that can be written"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, os.ErrExist):
		return "choose another place"
	}
	return "nothing half-written is left: free some space or choose another place, and freeze it again"
}
