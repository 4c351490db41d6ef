package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvladder/arms"
)

const anImage = "sha256:2ee63b3d77c1300b2c7851c7acde640b8a8c5059cd46457a68ec4893f16c7a0a"

// pinned is a container launcher under pins beside the image's.
func pinned(t *testing.T, pins map[string]string) Container {
	t.Helper()
	pins["image"] = anImage
	l, err := Container{}.With(pins)
	if err != nil {
		t.Fatal(err)
	}
	return l.(Container).Labelled("/runs/one").(Container)
}

// The command line of `run`: podman-run(1) and docker-run(1) describe every flag, and none
// means something else in the other.
func TestContainerArgv(t *testing.T) {
	for _, name := range ContainerAllowed {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("TZ", "UTC")
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(model, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "store")
	spec := arms.Spec{Argv: []string{"/opt/venv/bin/vllm", "serve", model, "--port", "1234"}, Env: map[string]string{"PYTHONHASHSEED": "0"},
		Files: []string{"/opt/venv/bin/vllm", model}, Folders: []string{store}}
	begin := []string{"run", "--detach", "--name", "kvladder-1", "--pull", "never", "--restart", "no", "--network", "host",
		"--label", "kvladder.folder=/runs/one", "--label", "kvladder.user=" + user(), "--env", "PYTHONHASHSEED=0", "--env", "TZ=UTC",
		"--volume", store + ":" + store, "--volume", model + ":" + model + ":ro"}
	end := append([]string{strings.TrimPrefix(anImage, "sha256:")}, spec.Argv[1:]...)
	for _, c := range []struct {
		name   string
		pins   map[string]string
		middle []string
	}{
		{"program looked up in the image", map[string]string{}, []string{"--entrypoint", "vllm"}},
		{"program by a pin", map[string]string{"container_program": "/app/server"}, []string{"--entrypoint", "/app/server"}},
		{"the image's entry point", map[string]string{"container_program": "entrypoint"}, nil},
		{"further arguments", map[string]string{"container_args": "--gpus all --shm-size=8g --annotation 'a b'"}, []string{"--entrypoint", "vllm", "--gpus", "all", "--shm-size=8g", "--annotation", "a b"}},
	} {
		got, err := pinned(t, c.pins).argv("kvladder-1", image{ID: anImage}, spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slices.Concat(begin, c.middle, end), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	spec.Folders = []string{filepath.Join(dir, "a:b")}
	if _, err := pinned(t, map[string]string{}).argv("kvladder-1", image{ID: anImage}, spec); err == nil || !strings.Contains(err.Error(), "colon") {
		t.Errorf("error %v, want one about the colon", err)
	}
}

func TestContainerPins(t *testing.T) {
	for _, c := range []struct {
		pins map[string]string
		want string
	}{
		{map[string]string{}, "image is missing"},
		{map[string]string{"image": "vllm/vllm-openai:latest"}, "no digest"},
		{map[string]string{"image": "@" + anImage}, "no name"},
		{map[string]string{"image": "sha256:2ee6"}, "no digest"},
		{map[string]string{"image": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, "no digest"}, // of nothing
		{map[string]string{"image": anImage, "marker": "1"}, "belong together"},
		{map[string]string{"image": anImage, "marker_command": "grep x"}, "belong together"},
		{map[string]string{"image": anImage, "container_args": "--label 'a"}, "container_args"},
		{map[string]string{"image": anImage, "container_runtime": ""}, "container_runtime"},
	} {
		if _, err := (Container{}).With(c.pins); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one with %q", c.pins, err, c.want)
		}
	}
	for _, ref := range []string{anImage, "registry.example/vllm@" + anImage} {
		if _, err := (Container{}).With(map[string]string{"image": ref}); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// What inspect says of an image: podman gives an id without its algorithm, docker with.
func TestImageIs(t *testing.T) {
	other := strings.Replace(anImage, "2ee6", "2ee7", 1)
	for _, im := range []image{{ID: anImage}, {ID: strings.TrimPrefix(anImage, "sha256:")}} {
		name, d, err := parseImage(anImage)
		if err != nil || im.is(name, d) != nil {
			t.Errorf("%s is not itself: %v, %v", im.ID, err, im.is(name, d))
		}
		name, d, _ = parseImage(other)
		if im.is(name, d) == nil {
			t.Errorf("%s passes for %s", im.ID, other)
		}
	}
	im := image{ID: other, RepoDigests: []string{"registry.example/vllm@" + anImage}}
	name, d, _ := parseImage("registry.example/vllm@" + anImage)
	if err := im.is(name, d); err != nil {
		t.Error(err)
	}
	name, d, _ = parseImage("registry.example/vllm@" + other)
	if im.is(name, d) == nil {
		t.Error("an image's id passes for the digest of its manifest")
	}
}

// What inspect says of a container: the members that both command lines write.
func TestSee(t *testing.T) {
	read := func(s string) (out state) {
		t.Helper()
		if err := json.Unmarshal([]byte(s), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := read(`{"Id":"c","Image":"i","RestartCount":0,"State":{"Status":"running","Running":true,"Pid":10,"StartedAt":"2026-11-29T22:27:43.614285626Z"}}`)
	p := &contained{id: "c", first: first, last: first}
	p.see(first)
	if p.replaced != "" || *p.Restarts() != 0 {
		t.Errorf("the same state is a restart: %q", p.replaced)
	}
	stopped := first
	stopped.State.Running, stopped.State.Status = false, "exited"
	p.see(stopped)
	if p.replaced != "" {
		t.Errorf("an end is a restart: %q", p.replaced)
	}
	again := read(`{"Id":"c","Image":"i","RestartCount":0,"State":{"Status":"running","Running":true,"Pid":11,"StartedAt":"2026-11-29T22:27:45.1Z"}}`)
	p.see(again)
	p.see(again)
	if seen, since := p.Replaced(); !strings.Contains(seen, "22:27:45.1Z") || !since.Equal(time.Date(2026, 11, 29, 22, 27, 45, 100e6, time.UTC)) || *p.Restarts() != 1 {
		t.Errorf("replaced %q at %v, %d restarts", seen, since, *p.Restarts())
	}
	counted := again
	counted.RestartCount = 5
	p.see(counted)
	if *p.Restarts() != 5 {
		t.Errorf("%d restarts where the runtime counts 5", *p.Restarts())
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string][]string{
		"": nil, "  ": nil, "a  b": {"a", "b"}, `python3 -c "import x; print('y')"`: {"python3", "-c", "import x; print('y')"},
		`--a='b c'd ''`: {"--a=b cd", ""},
	} {
		got, err := words(in)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("words(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if _, err := words(`a "b`); err == nil {
		t.Error("a quote that does not close is taken")
	}
}

func TestSlurmFields(t *testing.T) {
	f := fields("JobId=7 JobName=kvladder-1 UserId=root(0) JobState=CANCELLED Reason=None Dependency=(null) Restarts=2 Comment=kvladder.folder=/a Restarts=9\n")
	if f["JobState"] != "CANCELLED" || f["Restarts"] != "2" || f["Comment"] != "kvladder.folder=/a" {
		t.Errorf("fields %v", f)
	}
	for _, s := range []string{"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED", "CONFIGURING", ""} {
		if over(s) {
			t.Errorf("a job that is %s is held for ended", s)
		}
	}
	if got := (&JobError{ID: "7", State: "TIMEOUT", Reason: "TimeLimit"}).Error(); got != "slurm job 7: TIMEOUT (TimeLimit)" {
		t.Error(got)
	}
	if got := quote("it's"); got != `'it'\''s'` {
		t.Error(got)
	}
}
