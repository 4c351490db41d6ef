package armtest

import (
	"archive/tar"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Image is an image made from nothing but one program, in /usr/bin.
type Image struct {
	Command string // podman or docker
	ID      string // "sha256:..."
	Name    string // with its tag
	Args    string // what `run` needs on this machine, for the pin container_args
}

// quirks are what `run` may need where the kernel or the privileges are not what a runtime
// expects, least first: old control groups that crun refuses, limits that may not be raised.
var quirks = []string{"", "--runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"}

// NewImage makes an image of program, called as, and finds out how containers of it can be
// run here; ends says with which arguments it ends by itself with status 0. The image is
// removed when the test is over.
func NewImage(t testing.TB, command, program, as string, ends ...string) Image {
	t.Helper()
	var random [4]byte
	rand.Read(random[:])
	im := Image{Command: command, Name: "localhost/kvladder-test-" + hex.EncodeToString(random[:]) + ":1"}
	archive := filepath.Join(t.TempDir(), "root.tar")
	if err := writeTar(archive, program, "usr/bin/"+as); err != nil {
		t.Fatal(err)
	}
	im.run(t, "import", "--change", "ENV PATH=/usr/bin", archive, im.Name)
	t.Cleanup(func() { exec.Command(command, "rmi", "--force", im.Name).Run() })
	im.ID = im.run(t, "image", "inspect", "--format", "{{.Id}}", im.Name)
	if !strings.Contains(im.ID, ":") {
		im.ID = "sha256:" + im.ID
	}
	var seen []string
	for _, q := range quirks {
		argv := append([]string{"run", "--rm", "--network", "host", "--entrypoint", as}, strings.Fields(q)...)
		out, err := exec.Command(command, append(append(argv, im.Name), ends...)...).CombinedOutput()
		if err == nil {
			im.Args = q
			return im
		}
		seen = append(seen, fmt.Sprintf("%v: %s", err, strings.TrimSpace(string(out))))
	}
	Need(t, filepath.Base(command), fmt.Errorf("no container can be run: %s", strings.Join(seen, "; ")))
	return im
}

// Save writes the image as an archive, and forgets the image.
func (im Image) Save(t testing.TB, archive string) {
	t.Helper()
	im.run(t, "save", "--output", archive, im.Name)
	im.run(t, "rmi", "--force", im.Name)
}

func (im Image) run(t testing.TB, args ...string) string {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(im.Command, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", im.Command, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

func writeTar(archive, program, as string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, dir := range []string{"tmp/", "usr/", "usr/bin/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o777}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: as, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(b))}); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}
