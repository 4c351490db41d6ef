package armtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Need skips a test that needs something of the machine which is not there, such as podman
// or slurm, and says why. What KVLADDER_REQUIRE lists, separated by commas, is missed loudly:
// a machine that is there to run these tests does not pass by leaving them out.
func Need(t testing.TB, what string, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case slices.Contains(strings.Split(os.Getenv("KVLADDER_REQUIRE"), ","), what):
		t.Fatalf("%s is required by KVLADDER_REQUIRE and cannot be used: %v", what, missing)
	default:
		t.Skipf("%s cannot be used here: %v", what, missing)
	}
}

// Asked skips a test that runs somebody else's programs unless KVLADDER_REQUIRE lists what it needs: make
// test-launchers does. A plain go test starts no containers and no cluster.
func Asked(t testing.TB, what string) {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("KVLADDER_REQUIRE"), ","), what) {
		t.Skipf("it starts %[1]s: KVLADDER_REQUIRE=%[1]s runs it", what)
	}
}

// Static builds a Go package, or with test its tests, without C libraries, for an image that
// holds nothing else.
func Static(t testing.TB, pkg, out string, test bool) {
	t.Helper()
	args := []string{"build", "-o", out, pkg}
	if test {
		args = []string{"test", "-c", "-o", out, pkg}
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, b)
	}
}
