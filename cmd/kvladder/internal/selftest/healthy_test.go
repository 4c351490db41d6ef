package selftest

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"kvladder/arms"
	"kvladder/scoring"
)

// What is accused has to be counted, in the half that it belongs to, and only a ladder whose
// controls held counts against the five percent.
func TestHealthyCounts(t *testing.T) {
	judged := func(word, k string) scoring.ArmResult {
		a := arm("C1", word, "", "")
		a.Columns = map[string]string{"K": k}
		return a
	}
	rep := HealthyReport{Verdicts: map[string]int{}, VerdictsN: map[string]int{}}
	clean := result(0, judged(scoring.CleanBounded, "y"))
	corrupt := result(scoring.ExitCorrupt, judged(scoring.CorruptionAttributed, "y"))
	died := result(scoring.ExitDied, judged(scoring.EngineDied, "y"))
	dirty := result(2, judged(scoring.ControlDirty, "n"))
	unattributed := result(scoring.ExitCorrupt, judged(scoring.CorruptionUnattributed, "n"))
	for _, c := range []struct {
		res   scoring.Result
		noisy bool
	}{{clean, false}, {corrupt, false}, {died, false}, {clean, true}, {clean, true}, {corrupt, true}, {dirty, true}, {unattributed, true}} {
		rep.count(c.res, c.noisy, c.res.Verdict)
	}
	got := []int{rep.Ladders, rep.Accused, rep.Noisy, rep.AccusedNoisy, rep.NoisySound, rep.AccusedSound, rep.ControlDirty, len(rep.Cases)}
	if want := []int{3, 2, 5, 2, 3, 1, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("ladders, accused, noisy, accused noisy, sound, accused sound, dirty, cases: %v, want %v", got, want)
	}
	if rep.Verdicts[scoring.CleanBounded] != 1 || rep.VerdictsN[scoring.CleanBounded] != 2 {
		t.Errorf("verdicts %v and %v", rep.Verdicts, rep.VerdictsN)
	}
}

// Every drawn ladder can be planned, and comes out of its seed and number again.
func TestHealthyDraws(t *testing.T) {
	kinds := map[string]bool{}
	for i := range 60 {
		text, kind, size, seed, geo := drawHealthy(5, i, i%2 == 1)
		again, _, _, _, _ := drawHealthy(5, i, i%2 == 1)
		if text != again {
			t.Errorf("ladder %d comes out in two forms", i)
		}
		if _, err := arms.ParseLadder("x", []byte(text)); err != nil {
			t.Errorf("ladder %d: %v\n%s", i, err, text)
		}
		if noisy := strings.Contains(text, "noise: "); noisy != (i%2 == 1) || size < 10 || seed < 1 || geo.RecurrentBlock%geo.AttentionBlock != 0 {
			t.Errorf("ladder %d: noisy %v, %d requests, seed %d, geometry %v", i, noisy, size, seed, geo)
		}
		kinds[kind] = true
	}
	if len(kinds) < 4 {
		t.Errorf("kinds %v", kinds)
	}
}

// spy is a launcher that keeps what it was told to start.
type spy struct{ argv [][]string }

func (*spy) Name() string { return "spy" }
func (s *spy) Launch(_ context.Context, spec arms.Spec, _ io.Writer) (arms.Process, error) {
	s.argv = append(s.argv, spec.Argv)
	return nil, nil
}

// Each process of a ladder has a number of its own, or one order of summation and one row of
// flakes would stand for all of them.
func TestProcessesAreNumbered(t *testing.T) {
	s := new(spy)
	l := &numbered{Launcher: s}
	argv := make([]string, 1, 8)
	for range 3 {
		if _, err := l.Launch(context.Background(), arms.Spec{Argv: argv}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range s.argv {
		if want := []string{"", "--noise-process", []string{"1", "2", "3"}[i]}; !slices.Equal(a, want) {
			t.Errorf("launch %d: %q", i, a)
		}
	}
}
