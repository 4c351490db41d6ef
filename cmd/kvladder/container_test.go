package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kvladder/arms/armtest"
	"kvladder/arms/launch"
	"kvladder/receipts"
	"kvladder/scoring"
)

// labelled lists containers that kvladder launched for a run folder.
func labelled(t *testing.T, folder string) []string {
	t.Helper()
	out, err := exec.Command("podman", "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=kvladder.folder="+folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// A ladder whose processes are containers: an image made from nothing but this program, from
// a local archive.
func TestContainerLadder(t *testing.T) {
	armtest.Asked(t, "podman")
	_, err := launch.RuntimeVersion(context.Background(), "podman")
	armtest.Need(t, "podman", err)
	dir := t.TempDir()
	static := filepath.Join(dir, "static")
	armtest.Static(t, ".", static, false)
	im := armtest.NewImage(t, "podman", static, "kvladder", "--version")
	archive := filepath.Join(dir, "image.tar")
	im.Save(t, archive)
	t.Cleanup(func() { exec.Command("podman", "rmi", "--force", im.ID).Run() })
	version, err := exec.Command(static, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	pins := fmt.Sprintf("image: %q, image_archive: %q, container_args: %q, container_runtime: podman, marker_command: kvladder --version, marker: %q",
		im.ID, archive, im.Args, strings.TrimSpace(string(version)))
	ladder := sixArms(t, "container", pins)

	t.Run("a tag is refused", func(t *testing.T) {
		code, _, errs := kvladder(t, "plan", sixArms(t, "container", "image: "+im.Name))
		if code != 3 || !strings.Contains(errs, "no digest") || !strings.Contains(errs, "six.yaml:6:") {
			t.Errorf("exit %d, want 3 and a word on the digest, with its place:\n%s", code, errs)
		}
		code, _, errs = kvladder(t, "plan", sixArms(t, "container", ""))
		if code != 3 || !strings.Contains(errs, "pin image is missing") {
			t.Errorf("exit %d, want 3 and a word on the pin:\n%s", code, errs)
		}
		code, _, errs = kvladder(t, "plan", sixArms(t, "local", "image: "+im.ID))
		if code != 3 || !strings.Contains(errs, `no pin "image"`) {
			t.Errorf("local: exit %d, want 3 and a word on the pin:\n%s", code, errs)
		}
	})
	t.Run("clean from an archive", func(t *testing.T) {
		folder := filepath.Join(dir, "clean")
		code, out, errs := kvladder(t, "run", "--json", "--out", folder, ladder)
		if code != 0 {
			t.Fatalf("exit %d\n%s\n%s", code, errs, out)
		}
		if !strings.Contains(errs, "loading image "+im.ID) {
			t.Errorf("the archive was not loaded:\n%s", errs)
		}
		r, err := receipts.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, p := range r.Predicate.PinsRead {
			if p.Read != nil && p.Agrees != nil && *p.Agrees {
				switch p.Name {
				case "image":
					if *p.Read != im.ID || !strings.Contains(p.Source, "podman") {
						t.Errorf("arm %s: image %s by %s, want %s", p.Arm, *p.Read, p.Source, im.ID)
					}
					seen[p.Name]++
				case "marker":
					if *p.Read != strings.TrimSpace(string(version)) {
						t.Errorf("arm %s: marker %q", p.Arm, *p.Read)
					}
					seen[p.Name]++
				}
			}
		}
		if seen["image"] == 0 || seen["marker"] != seen["image"] {
			t.Errorf("pins read back: %v, want image and marker of each arm that launches", seen)
		}
		if code, out, _ := kvladder(t, "verify", folder); code != 0 {
			t.Errorf("verify: exit %d\n%s", code, out)
		}
		if left := labelled(t, folder); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
		if inc := arm(t, out, "WARM").Incarnations; len(inc) == 0 || len(inc[0].ID) != 64 || inc[0].Restarts == nil || *inc[0].Restarts != 0 {
			t.Errorf("incarnations of WARM: %+v, want a container's id and no restart", inc)
		}
	})
	t.Run("other code than the marker", func(t *testing.T) {
		folder := filepath.Join(dir, "marker")
		code, out, errs := kvladder(t, "run", "--json", "--out", folder, sixArms(t, "container", strings.Replace(pins, "marker: "+strconv.Quote(strings.TrimSpace(string(version))), "marker: patched", 1)))
		if code == 0 {
			t.Fatalf("exit 0\n%s", errs)
		}
		if out != "" {
			if a := arm(t, out, "WARM"); a.Columns["P"] != "n" {
				t.Errorf("WARM is %s with P %s, want the pin found out", verdict(a), a.Columns["P"])
			}
		} else {
			t.Error(errs)
		}
	})
	t.Run("restarted from outside", func(t *testing.T) {
		folder := filepath.Join(dir, "restarted")
		cmd, stdout, stderr := startRun(t, "--out", folder, "--launcher", "container", ladder)
		id := inChain(t, folder, "store", "")
		if out, err := exec.Command("podman", "restart", "-t", "5", id).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		err := cmd.Wait()
		if code := exitCode(err); err == nil || code != 4 {
			t.Fatalf("exit %d, want 4\n%s\n%s", code, stderr, stdout)
		}
		var sub []string
		for _, a := range result(t, stdout.String()).Arms {
			if verdict(a) == "ENGINE_DIED" {
				if a.Sub != nil {
					sub = append(sub, a.Name+" "+*a.Sub)
				}
			}
		}
		if !strings.Contains(strings.Join(sub, ","), "RESTARTED") {
			t.Errorf("arms that died: %v, want one RESTARTED\n%s", sub, stdout)
		}
		if a := arm(t, stdout.String(), "C1"); verdict(a) == "ENGINE_DIED" {
			t.Errorf("C1 of another chain is %s", verdict(a))
		}
		if code, out, _ := kvladder(t, "verify", folder); code != 4 && code != 0 {
			t.Errorf("verify: exit %d\n%s", code, out)
		}
		if left := labelled(t, folder); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	})
	t.Run("killed", func(t *testing.T) {
		folder := filepath.Join(dir, "killed")
		ladder := sixArms(t, "container", pins, "{preset: SOAK, base: WARM, passes: 2, minutes: 0.3}") // which takes a while
		last := ""
		kill := func(args ...string) {
			t.Helper()
			cmd, _, stderr := startRun(t, append(args, "--only", "SOAK", "--out", folder, ladder)...)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(stderr)
				}
			})
			id := inChain(t, folder, "SOAK", last)
			if code, out, _ := kvladder(t, "doctor", "--clean", "--json"); code != 0 || !strings.Contains(out, id) {
				t.Errorf("doctor: exit %d, want container %s listed:\n%s", code, id, out[max(0, strings.Index(out, `"launchers"`)):])
			}
			if left := labelled(t, folder); len(left) == 0 {
				t.Error("doctor ended the container of a climb that goes on")
			}
			cmd.Process.Signal(syscall.SIGKILL)
			cmd.Wait()
			last = id
		}
		kill()
		if len(labelled(t, folder)) == 0 {
			t.Fatal("no container outlived its climb: there is nothing to find")
		}
		if code, out, errs := kvladder(t, "doctor", "--clean"); code != 0 || !strings.Contains(out, "ended") {
			t.Errorf("doctor: exit %d\n%s%s", code, out, errs)
		}
		if left := labelled(t, folder); len(left) > 0 {
			t.Errorf("doctor left %v", left)
		}
		if exec.Command("podman", "image", "exists", im.ID).Run() != nil {
			t.Error("doctor removed the image")
		}
		kill("--resume")
		code, out, errs := kvladder(t, "run", "--json", "--resume", "--out", folder, ladder)
		if code != 0 {
			t.Fatalf("resumed: exit %d\n%s\n%s", code, errs, out)
		}
		if !strings.Contains(errs, last) {
			t.Errorf("nothing is said of container %s that was ended:\n%s", last, errs)
		}
		if left := labelled(t, folder); len(left) > 0 {
			t.Errorf("resume left %v", left)
		}
	})
}

// inChain waits until a chain of a climb has sent a request to another container than the
// last one, and gives it.
func inChain(t *testing.T, folder, chain, before string) (id string) {
	t.Helper()
	if !soon(func() bool {
		b, err := os.ReadFile(filepath.Join(folder, "transcript.jsonl"))
		if err != nil {
			return false
		}
		var last string
		replied := false
		for line := range strings.Lines(string(b)) {
			var r struct {
				Kind, Chain string
				Fact        *struct {
					Name  string
					Value struct{ ID string }
				}
			}
			if json.Unmarshal([]byte(line), &r) != nil || r.Chain != chain {
				continue
			}
			if r.Fact != nil && r.Fact.Name == "incarnation" {
				last, replied = r.Fact.Value.ID, false
			}
			if r.Fact != nil && (r.Fact.Name == "stopped" || r.Fact.Name == "chain-end") {
				last = ""
			}
			replied = replied || r.Kind == "reply"
		}
		if replied {
			id = last
		}
		return id != "" && id != before
	}) {
		t.Fatalf("chain %s has sent nothing", chain)
	}
	return id
}

func result(t *testing.T, out string) scoring.Result {
	t.Helper()
	var r scoring.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

func arm(t *testing.T, out, name string) scoring.ArmResult {
	t.Helper()
	for _, a := range result(t, out).Arms {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no arm %s in\n%s", name, out)
	return scoring.ArmResult{}
}

// verdict is an arm's verdict, "" when it has none.
func verdict(a scoring.ArmResult) string {
	if a.Verdict == nil {
		return ""
	}
	return *a.Verdict
}

// soon gives a climb the time that its earlier chains take.
func soon(ok func() bool) bool {
	for range 6 {
		if armtest.Eventually(ok) {
			return true
		}
	}
	return false
}
