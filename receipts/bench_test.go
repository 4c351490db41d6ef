package receipts

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvladder/receipts/digest"
)

// BenchmarkVerifyObjects verifies a run folder that is all objects beside sha256sum over the
// same files, and reports the ratio of their speeds and the peak of resident memory. The
// budget is a ratio of at least 0.8 in under 200 MiB at 1 GiB:
//
//	KVLADDER_BENCH_MIB=1024 go test ./receipts -run '^$' -bench VerifyObjects -benchtime 3x
func BenchmarkVerifyObjects(b *testing.B) {
	sum, err := exec.LookPath("sha256sum")
	if err != nil {
		b.Skip("no sha256sum here")
	}
	mib := 64
	if s := os.Getenv("KVLADDER_BENCH_MIB"); s != "" {
		if mib, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	dir := objectFolder(b, mib)
	var files []string
	for _, e := range must(Walk(dir)) {
		files = append(files, filepath.Join(dir, filepath.FromSlash(e.Name)))
	}
	b.SetBytes(int64(mib) << 20)
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		if rep := Verify(dir, testChecker); !rep.OK {
			b.Fatalf("%+v", rep)
		}
		ours += time.Since(start)
		b.StopTimer()
		start = time.Now()
		if out, err := exec.Command(sum, files...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		theirs += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(theirs)/float64(ours), "x-sha256sum")
	b.ReportMetric(peakMiB(), "peak-MiB")
}

// objectFolder is a sealed folder with that many MiB in objects of 16 MiB.
func objectFolder(tb testing.TB, mib int) string {
	tb.Helper()
	set := testSet(4)
	plan := testPlan(set)
	dir := runFolder(tb, plan, set)
	src := rand.NewChaCha8([32]byte{1})
	buf := make([]byte, 16<<20)
	for left := mib << 20; left > 0; left -= len(buf) {
		buf = buf[:min(len(buf), left)]
		src.Read(buf)
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(ObjectDir), digest.Of(buf).Hex()), buf, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	res := must(assessed(plan, set, must(readTranscript(filepath.Join(dir, TranscriptFile)))))
	if _, err := Seal(dir, plan, res, Options{}); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// peakMiB is the most memory this process has held, 0 where the system does not say.
func peakMiB() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if kb, err := strconv.Atoi(strings.Fields(rest)[0]); err == nil {
				return float64(kb) / 1024
			}
		}
	}
	return 0
}

// What a verifier holds does not grow with what it verifies.
func TestVerifyStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes 96 MiB")
	}
	dir := objectFolder(t, 96)
	var before, after uint64
	before = allocated()
	if rep := Verify(dir, testChecker); !rep.OK {
		t.Fatalf("%+v", rep)
	}
	after = allocated()
	if grown := (after - before) >> 20; grown > 32 {
		t.Errorf("verifying 96 MiB of objects allocated %d MiB in all", grown)
	}
}
