package probes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kvladder/receipts/digest"
)

func fact(name string) Record {
	return Record{Kind: KindFact, Chain: "c1", Arm: "B", Fact: &Fact{Name: name, Value: json.RawMessage(`{"a":"<é>"}`)}}
}

func reply(raw []byte) Record {
	lp := -0.25
	r := &Reply{Prompt: "p1", Pass: 1, Status: 200, Decoded: Decoded{Text: "x", Tokens: []Token{{ID: 7, Logprob: &lp}, {ID: 8, NonFinite: true}}}}
	r.SetRaw(raw)
	return Record{Kind: KindReply, Reply: r}
}

// write makes a transcript of rs and returns its path.
func write(t testing.TB, rs ...Record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTranscriptRoundTrip(t *testing.T) {
	odd := []byte("a\xff\x00 <b> & \u2028\n")
	in := []Record{fact("plan"), reply([]byte("{\"text\":\"é\u2028</script>\\u0000\"}\n")), reply(odd), {Kind: KindSample, Sample: &Sample{Phase: "before", Pass: 1, Raw: "x 1\n"}}}
	path := write(t, in...)
	out, err := ReadAll(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Seq != int64(i+1) {
			t.Errorf("record %d has seq %d", i+1, out[i].Seq)
		}
		if _, err := time.Parse(time.RFC3339Nano, out[i].Time); err != nil || !strings.HasSuffix(out[i].Time, "Z") {
			t.Errorf("record %d: time %q is not RFC 3339 in UTC", i+1, out[i].Time)
		}
		out[i].Seq, out[i].Prev, out[i].Time = 0, "", ""
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Errorf("what came back differs (-in +out):\n%s", d)
	}
	if b, err := out[2].Reply.Bytes(); err != nil || !bytes.Equal(b, odd) {
		t.Errorf("raw bytes came back as %q, %v", b, err)
	}
	if out[2].Reply.Received != digest.Of(odd) {
		t.Error("received is not the digest of the bytes")
	}
}

// The shell lines in the format's comment are the whole check.
func TestTranscriptShellCheck(t *testing.T) {
	if _, err := exec.LookPath("sha256sum"); err != nil {
		t.Skip("no sha256sum on this machine")
	}
	path := write(t, fact("plan"), reply([]byte(`{"a":",\"self\":\"x\"}"}`)), fact("end"))
	recs, err := ReadAll(path)
	if err != nil {
		t.Fatal(err)
	}
	sh := func(script string) string {
		out, err := exec.Command("sh", "-c", script, "sh", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))[0]
	}
	for line := 1; line <= 3; line++ {
		if line < 3 {
			if got, want := sh(fmt.Sprintf(`sed -n %dp "$1" | sha256sum`, line)), recs[line].Prev.Hex(); got != want {
				t.Errorf("prev of line %d is %s, the shell says %s", line+1, want, got)
			}
		}
		got := sh(fmt.Sprintf(`sed -n %dp "$1" | sed 's/,"self":"[^"]*"}$//' | tr -d '\n' | sha256sum`, line))
		if l := strings.Split(string(read(t, path)), "\n")[line-1]; !strings.HasSuffix(l, `"self":"sha256:`+got+`"}`) {
			t.Errorf("self of line %d is not what the shell says: %s", line, got)
		}
	}
}

// Every byte of a transcript is guarded: whichever one is flipped, the line is named.
func TestTranscriptTamper(t *testing.T) {
	path := write(t, fact("plan"), reply([]byte(`{"choices":[]}`)), fact("chain-end"))
	good := read(t, path)
	line := 1
	for i := range good {
		for _, bit := range []byte{0x01, 0x20} {
			b := bytes.Clone(good)
			b[i] ^= bit
			err := readAll(b)
			if err == nil {
				t.Fatalf("byte %d of line %d: a flipped bit 0x%02x was not noticed", i, line, bit)
			}
			// A newline that became something else joins its line to the next one.
			if want := fmt.Sprintf("t:%d: ", line); !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("byte %d of line %d: error does not name the line: %v", i, line, err)
			}
		}
		if good[i] == '\n' {
			line++
		}
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	join := func(ls ...[]byte) []byte { return bytes.Join(ls, nil) }
	for name, b := range map[string][]byte{
		"line removed":    join(lines[0], lines[2]),
		"first removed":   join(lines[1], lines[2]),
		"lines exchanged": join(lines[0], lines[2], lines[1]),
		"line repeated":   join(lines[0], lines[1], lines[1], lines[2]),
		"blank line":      join(lines[0], []byte("\n"), lines[1]),
	} {
		var ce *ChangedError
		if err := readAll(b); !errors.As(err, &ce) || ce.Line < 1 {
			t.Errorf("%s: got %v, want a *ChangedError", name, err)
		}
	}
	// What the chain cannot show is a missing end; the tail's digest does.
	r := NewReader("t", bytes.NewReader(join(lines[0], lines[1])))
	for _, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, d := r.Tail(); n != 2 || d != digest.Of(lines[1]) {
		t.Errorf("tail is %d %s", n, d)
	}
}

func readAll(b []byte) error {
	for _, err := range NewReader("t", bytes.NewReader(b)).All() {
		if err != nil {
			return err
		}
	}
	return nil
}

// sealed gives a line its own digest, as an attentive forger would.
func sealed(body string) []byte {
	return []byte(body + `,"self":"` + string(digest.Of([]byte(body))) + "\"}\n")
}

func TestReaderRefuses(t *testing.T) {
	const head = `{"seq":1,"prev":"","time":"t","kind":"fact"`
	for _, c := range []struct{ body, want string }{
		{head + `,"run":0,"fact":{"name":"a"},"colour":"red"`, `unknown field "colour"`},
		{head + `,"run":0,"fact":{"name":"a","colour":"red"}`, `unknown field "colour"`},
		{head + `,"run":0`, "must carry its fact"},
		{head + `,"run":0,"fact":{"name":"a"},"sample":{}`, "nothing else"},
		{`{"seq":1,"prev":"","time":"t","kind":"song","run":0`, `unknown kind "song"`},
		{`{"seq":2,"prev":"","time":"t","kind":"fact","run":0,"fact":{"name":"a"}`, "seq is 2, expected 1"},
		{`{"seq":1,"prev":"sha256:00","time":"t","kind":"fact","run":0,"fact":{"name":"a"}`, "names a line before it"},
		{head + `,"run":0,"fact":{"name":"a"}} {"a":1`, "something follows the record"},
	} {
		err := readAll(sealed(c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "t:1: ") {
			t.Errorf("%s\n got %v\nwant t:1: … %s", c.body, err, c.want)
		}
	}
	r := NewReader("t", strings.NewReader("junk\n"))
	_, err1 := r.Next()
	_, err2 := r.Next()
	if err1 == nil || err1 != err2 {
		t.Errorf("a Reader that failed went on: %v, then %v", err1, err2)
	}
}

// A killed process leaves half a line: every cut of the last line is repaired, and the
// chain goes on from the line before it.
func TestWriterRepairsTornLine(t *testing.T) {
	path := write(t, fact("plan"), fact("attempt"), fact("arm-start"))
	good := read(t, path)
	start := bytes.LastIndexByte(good[:len(good)-1], '\n') + 1
	for cut := start; cut < len(good); cut += 7 {
		if err := os.WriteFile(path, good[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		recs, err := ReadAll(path)
		if cut > start {
			var torn *TornError
			if !errors.As(err, &torn) || torn.Line != 3 || torn.Offset != int64(start) || torn.Bytes != int64(cut-start) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if len(recs) != 2 {
				t.Fatalf("cut at %d: %d whole records came back, want 2", cut, len(recs))
			}
		}
		w, err := OpenWriter(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if (w.Torn() != nil) != (cut > start) {
			t.Fatalf("cut at %d: torn is %v", cut, w.Torn())
		}
		if n, d := w.Tail(); n != 2 || d != digest.Of(bytes.SplitAfter(good, []byte("\n"))[1]) {
			t.Fatalf("cut at %d: continues after %d %s", cut, n, d)
		}
		if err := w.Append(fact("again")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		recs, err = ReadAll(path)
		if err != nil || len(recs) != 3 || recs[2].Fact.Name != "again" || recs[2].Seq != 3 {
			t.Fatalf("cut at %d: after repair: %d records, %v", cut, len(recs), err)
		}
	}
	// Zeros after a power cut are a torn line too.
	if err := os.WriteFile(path, append(bytes.Clone(good), make([]byte, 512)...), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := OpenWriter(path)
	if err != nil || w.Torn() == nil || w.Torn().Bytes != 512 {
		t.Fatalf("zeros at the end: %v", err)
	}
	w.Close()
	if !bytes.Equal(read(t, path), good) {
		t.Error("repair changed whole lines")
	}
}

func TestWriterRefusesBrokenTranscript(t *testing.T) {
	path := write(t, fact("plan"), fact("attempt"))
	b := read(t, path)
	b[40] ^= 1
	os.WriteFile(path, b, 0o644)
	var ce *ChangedError
	if _, err := OpenWriter(path); !errors.As(err, &ce) || ce.Line != 1 {
		t.Fatalf("got %v, want a *ChangedError of line 1", err)
	}
	if !bytes.Equal(read(t, path), b) {
		t.Error("a refused transcript was touched")
	}
}

func TestAppendRefusesUnfaithful(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	bad := []Record{
		{Kind: KindReply, Reply: &Reply{Raw: "\xff"}},
		{Kind: KindReply, Reply: &Reply{SentBody: "\xff"}},
		{Kind: KindSample, Sample: &Sample{Raw: "\xff"}},
		{Kind: KindReply, Reply: &Reply{Decoded: Decoded{Tokens: []Token{{Logprob: &nan}}}}},
		{Kind: KindFact},
		{Kind: KindFact, Fact: &Fact{}, Sample: &Sample{}},
		{Kind: "song", Fact: &Fact{}},
		{Kind: KindFact, Fact: &Fact{Value: json.RawMessage("{")}},
	}
	for i, r := range bad {
		if err := w.Append(r); err == nil {
			t.Errorf("case %d was written", i)
		}
	}
	if err := w.Append(fact("plan")); err != nil {
		t.Errorf("a refused record spoiled the writer: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(fact("late")); err == nil {
		t.Error("append after close was taken")
	}
	if recs, err := ReadAll(path); err != nil || len(recs) != 1 {
		t.Errorf("%d records, %v", len(recs), err)
	}
}

func TestAppendKeepsGivenTime(t *testing.T) {
	r := fact("plan")
	r.Time = "2026-01-02T03:04:05Z"
	recs, err := ReadAll(write(t, r))
	if err != nil || recs[0].Time != r.Time {
		t.Errorf("time became %q, %v", recs[0].Time, err)
	}
}

func TestWriterConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	const chains, each = 8, 50
	var wg sync.WaitGroup
	for c := range chains {
		wg.Go(func() {
			for i := range each {
				r := fact(strconv.Itoa(i))
				r.Chain = strconv.Itoa(c)
				if err := w.Append(r); err != nil {
					t.Error(err)
				}
				if i%10 == 0 {
					w.Sync()
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	recs, err := ReadAll(path)
	if err != nil || len(recs) != chains*each {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	next := map[string]int{}
	for _, r := range recs {
		if r.Fact.Name != strconv.Itoa(next[r.Chain]) {
			t.Fatalf("chain %s: record %s out of order", r.Chain, r.Fact.Name)
		}
		next[r.Chain]++
	}
}

// disk is a file that fills up after room bytes.
type disk struct {
	mu       sync.Mutex
	b        []byte
	room     int
	writes   int
	syncs    int
	syncErr  error
	cutFails bool
	closed   bool
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	n := min(len(p), d.room-len(d.b))
	d.b = append(d.b, p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	return d.syncErr
}

func (d *disk) Truncate(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cutFails {
		return io.ErrClosedPipe
	}
	d.b = d.b[:n]
	return nil
}

func (d *disk) Close() error { d.closed = true; return nil }

func TestWriterFullDisk(t *testing.T) {
	for _, cutFails := range []bool{false, true} {
		d := &disk{room: 700, cutFails: cutFails}
		w := startWriter("t", d, 0, "", 0, nil)
		n := 0
		var first error
		for first == nil && n < 100 {
			if first = w.Append(fact("plan")); first == nil {
				n++
			}
		}
		if !errors.Is(first, syscall.ENOSPC) {
			t.Fatalf("got %v, want a full disk", first)
		}
		d.room = 1 << 20
		for _, err := range []error{w.Append(fact("more")), w.Sync(), w.Close(), w.Close()} {
			if err != first {
				t.Errorf("after a failed write: %v, want the first error again", err)
			}
		}
		if d.writes != n+1 {
			t.Errorf("%d writes for %d records", d.writes, n+1)
		}
		got := 0
		var err error
		for _, err = range NewReader("t", bytes.NewReader(d.b)).All() {
			if err == nil {
				got++
			}
		}
		var torn *TornError
		if got != n || n == 0 || (err != nil && !errors.As(err, &torn)) || (err != nil) != cutFails {
			t.Errorf("%d of %d records survive, then %v", got, n, err)
		}
		if !d.closed {
			t.Error("the file was left open")
		}
	}
}

func TestWriterDevFull(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this machine")
	}
	w := startWriter("/dev/full", f, 0, "", 0, nil)
	if err := w.Append(fact("plan")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space left", err)
	}
	w.Close()
}

func TestWriterSyncs(t *testing.T) {
	d := &disk{room: 1 << 20}
	w := startWriter("t", d, 0, "", 0, nil)
	count := func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.syncs }
	for round := range 3 {
		before := count()
		w.Append(fact("plan"))
		deadline := time.Now().Add(5 * time.Second)
		for count() == before {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: nothing was synced", round)
			}
			time.Sleep(time.Millisecond)
		}
	}
	idle := count()
	time.Sleep(2 * syncEvery)
	if count() != idle {
		t.Error("an idle writer keeps syncing")
	}
	d.mu.Lock()
	d.syncErr = syscall.EIO
	d.mu.Unlock()
	w.Append(fact("x"))
	if err := w.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	if err := w.Append(fact("y")); !errors.Is(err, syscall.EIO) {
		t.Errorf("append after a failed sync: %v", err)
	}
	if err := w.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close after a failed sync: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(read(f, write(f, fact("plan"), reply([]byte("{}")))))
	f.Add(sealed(`{"seq":1,"prev":"","time":"t","kind":"fact","run":0,"fact":{"name":"a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader("t", bytes.NewReader(b))
		n := 0
		for _, err := range r.All() {
			if err == nil {
				n++
			}
		}
		if int64(n) != r.seq {
			t.Errorf("%d records given, %d counted", n, r.seq)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	path := filepath.Join(b.TempDir(), "t")
	w, err := OpenWriter(path)
	if err != nil {
		b.Fatal(err)
	}
	r := reply(bytes.Repeat([]byte(`{"text":"abc"}`+"\n"), 500))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Append(r); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
}

func BenchmarkReader(b *testing.B) {
	raw := reply(bytes.Repeat([]byte(`{"text":"abc"}`+"\n"), 100))
	var rs []Record
	for range 200 {
		rs = append(rs, raw)
	}
	all := read(b, write(b, rs...))
	b.SetBytes(int64(len(all)))
	b.ReportAllocs()
	for b.Loop() {
		if err := readAll(all); err != nil {
			b.Fatal(err)
		}
	}
}

// A pipe in the place of a transcript is refused by whoever reads it and by whoever goes on
// with it: both would wait for ever.
func TestPipeIsNoTranscript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"read":     func() error { _, err := ReadAll(path); return err },
		"continue": func() error { _, err := OpenWriter(path); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- open() }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "no regular file") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits for a writer", name)
		}
	}
}
