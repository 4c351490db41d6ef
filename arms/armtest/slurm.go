package armtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Cluster is a Slurm cluster of one node that runs while a test does.
type Cluster struct{ script, dir string }

// NewCluster starts a cluster and points Slurm's programs at it with $SLURM_CONF. It needs
// slurmctld, slurmd and munged, and root, as whom they run.
func NewCluster(t *testing.T) *Cluster {
	t.Helper()
	var missing error
	for _, name := range []string{"slurmctld", "slurmd", "munged", "sbatch"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = err
		}
	}
	if os.Geteuid() != 0 {
		missing = errors.New("a cluster of one node runs as root")
	}
	Need(t, "slurm", missing)
	_, file, _, _ := runtime.Caller(0)
	dir, err := os.MkdirTemp("", "kvladder-slurm-") // its sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{script: filepath.Join(filepath.Dir(file), "..", "launch", "slurm", "cluster.sh"), dir: dir}
	t.Cleanup(func() {
		c.call(t, "stop", dir)
		os.RemoveAll(dir)
	})
	t.Setenv("SLURM_CONF", c.call(t, "start", dir))
	return c
}

// Controller takes the controller away, or gives it back.
func (c *Cluster) Controller(t testing.TB, up bool) {
	t.Helper()
	c.call(t, "controller", map[bool]string{true: "start", false: "stop"}[up], c.dir)
}

func (c *Cluster) call(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.script, args...)
	log, err := os.Create(filepath.Join(c.dir, "cluster.out")) // daemons keep it open: no pipe
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	b, _ := os.ReadFile(log.Name())
	if err != nil {
		t.Fatalf("cluster.sh %s: %v\n%s", strings.Join(args, " "), err, b)
	}
	return strings.TrimSpace(string(b))
}
