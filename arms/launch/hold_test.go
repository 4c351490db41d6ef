package launch

import "testing"

func TestParseStat(t *testing.T) {
	line := func(comm string) string {
		return "123 (" + comm + ") S 45 123 123 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 678 0 0"
	}
	for _, comm := range []string{"engine", "a b", "a) S 1 (b", ""} {
		got, err := parseStat(line(comm))
		if want := (stat{pid: 123, ppid: 45, ticks: 678}); err != nil || got != want {
			t.Errorf("command %q: %+v, %v, want %+v", comm, got, err, want)
		}
	}
	for _, bad := range []string{"", "123 engine S 45", "123 (engine) S 45", "x (engine" + line("")[4:]} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}
