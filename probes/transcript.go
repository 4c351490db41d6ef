package probes

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"kvladder/receipts/digest"
)

// The transcript's format. One line is one Record as JSON, ended by a newline. The members
// seq, prev and time come first, in this order; the last member is self.
//
//	{"seq":2,"prev":"sha256:…","time":"…","kind":"fact",…,"self":"sha256:…"}
//
// seq is the line number. prev is the digest of the whole line before, newline included:
//
//	sed -n 1p transcript.jsonl | sha256sum          # is prev of line 2
//
// self is the digest of the line's own bytes up to the comma before it, so that the last
// line, which no other line names, is guarded too:
//
//	sed -n 2p transcript.jsonl | sed 's/,"self":"[^"]*"}$//' | tr -d '\n' | sha256sum
//
// The format may grow by members that a Record does not have yet; a reader that does not
// know a member refuses the line, since it could not say what the member changes.

// syncEvery is how long a record may stay in the operating system's memory.
const syncEvery = 100 * time.Millisecond

const (
	selfMember = `,"self":"sha256:`
	selfLen    = len(selfMember) + 64 + len(`"}`)
)

// TornError says that the last line of a transcript is not whole: its writer was killed
// while writing it. OpenWriter repairs it by cutting the file at Offset.
type TornError struct {
	File   string
	Line   int
	Offset int64 // of the line's first byte
	Bytes  int64 // that are there of it
}

func (e *TornError) Error() string {
	return fmt.Sprintf("%s:%d: the last line is torn (%d bytes without a newline): resume the run to cut it off", e.File, e.Line, e.Bytes)
}

// ChangedError says that a transcript is not the one that was written.
type ChangedError struct {
	File string
	Line int
	What string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s:%d: the transcript was changed after it was written: %s", e.File, e.Line, e.What)
}

// file is what a Writer needs of an *os.File.
type file interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Close() error
}

// Writer appends Records to a transcript. It is safe for concurrent use: several chains
// write to one transcript, and the order of its lines is the order in which Append took
// them.
//
// Every record is one write to the file, done before Append returns, and is synced to
// stable storage within 100 ms. A failed write or sync is final: that error is returned
// now and by every later call, and what was written before stays as it is.
type Writer struct {
	name   string
	f      file
	torn   *TornError
	now    func() time.Time
	dirty  chan struct{}
	stop   chan struct{}
	synced sync.WaitGroup

	mu     sync.Mutex
	seq    int64
	tail   digest.Digest
	size   int64 // bytes of whole lines
	unsync bool
	err    error
	closed bool
	line   []byte
}

// OpenWriter creates the transcript at path, or continues it: the lines that are there
// are read and checked as a Reader checks them, and a torn last line is cut off (see
// Torn). A transcript that is broken elsewhere is refused and left alone.
func OpenWriter(path string) (*Writer, error) {
	f, err := openFile(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	w, err := continueFile(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// openFile opens a regular file, or makes one where flag says so. Of a pipe it would have to
// wait for a writer, and of a device for the end.
func openFile(path string, flag int) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("transcript: %s is no regular file: replace it by its content, or start a new run folder", path)
	}
	f, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	return f, nil
}

func continueFile(path string, f *os.File) (*Writer, error) {
	r := NewReader(path, f)
	var torn *TornError
	for {
		_, err := r.Next()
		if err == io.EOF {
			break
		}
		if errors.As(err, &torn) {
			if err := f.Truncate(torn.Offset); err != nil {
				return nil, fmt.Errorf("transcript %s: cutting the torn line %d: %w", path, torn.Line, err)
			}
			break
		}
		if err != nil {
			return nil, err
		}
	}
	seq, tail := r.Tail()
	if _, err := f.Seek(r.off, io.SeekStart); err != nil {
		return nil, fmt.Errorf("transcript %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("transcript %s: %w", path, err)
	}
	// The name must survive a power cut too.
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		d.Sync()
		d.Close()
	}
	return startWriter(path, f, seq, tail, r.off, torn), nil
}

func startWriter(name string, f file, seq int64, tail digest.Digest, size int64, torn *TornError) *Writer {
	w := &Writer{
		name: name, f: f, torn: torn, now: time.Now,
		seq: seq, tail: tail, size: size,
		dirty: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	w.synced.Add(1)
	go w.syncLoop()
	return w
}

// Torn describes the torn line that OpenWriter cut off, nil when there was none.
func (w *Writer) Torn() *TornError { return w.torn }

// Tail is the number of lines and the digest of the last, "" when there is none.
func (w *Writer) Tail() (int64, digest.Digest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq, w.tail
}

// Append writes r as the next line. It sets Seq and Prev, and Time where it is empty. A
// record that cannot be written down faithfully (a NaN, raw bytes that are not UTF-8, a
// kind without its member) is refused and leaves the Writer usable.
func (w *Writer) Append(r Record) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("transcript %s: %w", w.name, err)
	}
	stamp := r.Time
	r.Seq, r.Prev, r.Time = 0, "", ""
	// Chains share the lock, so the long part of the line is made outside it.
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("transcript %s: record of kind %q: %w", w.name, r.Kind, err)
	}
	const blank = `{"seq":0,"prev":"","time":""`
	rest, ok := bytes.CutPrefix(buf.Bytes(), []byte(blank))
	rest, ok2 := bytes.CutSuffix(rest, []byte("}\n"))
	if !ok || !ok2 {
		return fmt.Errorf("transcript %s: a record no longer begins with seq, prev and time", w.name)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return fmt.Errorf("transcript %s: append after close", w.name)
	}
	if stamp == "" {
		stamp = w.now().UTC().Format(time.RFC3339Nano)
	}
	quoted, err := json.Marshal(stamp)
	if err != nil {
		return fmt.Errorf("transcript %s: %w", w.name, err)
	}
	b := append(w.line[:0], `{"seq":`...)
	b = strconv.AppendInt(b, w.seq+1, 10)
	b = append(b, `,"prev":"`...)
	b = append(b, w.tail...)
	b = append(b, `","time":`...)
	b = append(b, quoted...)
	b = append(b, rest...)
	var d lineDigest
	self := d.add(b)
	cut := len(b)
	b = append(b, `,"self":"`...)
	b = append(b, self...)
	b = append(b, "\"}\n"...)
	w.line = b
	if cap(w.line) > 1<<20 {
		w.line = nil // one long reply must not be held for ever
	}
	if n, err := w.f.Write(b); err != nil {
		w.err = fmt.Errorf("transcript %s: writing record %d: %w (%d records before it are kept)", w.name, w.seq+1, err, w.seq)
		if n > 0 {
			// Best effort: without it the torn line is cut off on resume.
			w.f.Truncate(w.size)
		}
		return w.err
	}
	w.seq++
	w.tail = d.add(b[cut:])
	w.size += int64(len(b))
	w.unsync = true
	select {
	case w.dirty <- struct{}{}:
	default:
	}
	return nil
}

// lineDigest hashes a line once for both of its digests: the one up to self, and the one
// of all of it.
type lineDigest struct{ h hash.Hash }

// add is the digest of everything added so far, b included.
func (d *lineDigest) add(b []byte) digest.Digest {
	if d.h == nil {
		d.h = sha256.New()
	}
	d.h.Write(b)
	return digest.Digest("sha256:" + hex.EncodeToString(d.h.Sum(nil)))
}

// check refuses what JSON would change or a Reader would not take back.
func (r *Record) check() error {
	n := 0
	for _, has := range []bool{r.Reply != nil, r.Sample != nil, r.Fact != nil} {
		if has {
			n++
		}
	}
	var ok bool
	switch r.Kind {
	case KindReply:
		ok = r.Reply != nil
	case KindSample:
		ok = r.Sample != nil
	case KindFact:
		ok = r.Fact != nil
	default:
		return fmt.Errorf("record of unknown kind %q", r.Kind)
	}
	if !ok || n != 1 {
		return fmt.Errorf("record of kind %q must carry its %s and nothing else", r.Kind, r.Kind)
	}
	if r.Reply != nil {
		if !utf8.ValidString(r.Reply.Raw) || !utf8.ValidString(r.Reply.SentBody) {
			return errors.New("reply with raw bytes that are not UTF-8: keep them with SetRaw")
		}
	}
	if r.Sample != nil && !utf8.ValidString(r.Sample.Raw) {
		return errors.New("sample with raw text that is not UTF-8")
	}
	return nil
}

// Sync puts everything appended so far on stable storage.
func (w *Writer) Sync() error {
	w.mu.Lock()
	if w.err != nil || !w.unsync {
		defer w.mu.Unlock()
		return w.err
	}
	w.unsync = false
	w.mu.Unlock()
	// Outside the lock: a slow disk must not hold back the chains.
	if err := w.f.Sync(); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = fmt.Errorf("transcript %s: sync: %w", w.name, err)
		}
		return w.err
	}
	return nil
}

func (w *Writer) syncLoop() {
	defer w.synced.Done()
	for {
		select {
		case <-w.stop:
			return
		case <-w.dirty:
		}
		// Half the bound is left to the sync itself.
		t := time.NewTimer(syncEvery / 2)
		select {
		case <-w.stop:
			t.Stop()
			return
		case <-t.C:
		}
		w.Sync() // its error is kept and returned by the next call
	}
}

// Close syncs and closes the file and waits for the goroutine that syncs. It returns the
// first error of the Writer's life. Closing twice is allowed.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.closed {
		defer w.mu.Unlock()
		return w.err
	}
	w.closed = true
	w.mu.Unlock()
	close(w.stop)
	w.synced.Wait()
	w.Sync()
	cerr := w.f.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && cerr != nil {
		w.err = fmt.Errorf("transcript %s: close: %w", w.name, cerr)
	}
	return w.err
}

// Reader streams the Records of a transcript, checking each line: its own digest, its
// place, the digest of the line before, and that no member is unknown. After an error
// every further call returns that error.
type Reader struct {
	name string
	r    *bufio.Reader
	line int
	off  int64 // of the next line
	seq  int64
	tail digest.Digest
	err  error
}

// NewReader reads a transcript from r; name is used in errors.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, r: bufio.NewReaderSize(r, 1<<16)}
}

// Next is the next Record; io.EOF after the last. Its error is a *TornError where the
// last line has no end, and a *ChangedError where the chain is broken.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	rec, err := r.next()
	r.err = err
	return rec, err
}

func (r *Reader) next() (Record, error) {
	b, err := r.readLine()
	if err == io.EOF && len(b) == 0 {
		return Record{}, io.EOF
	}
	r.line++
	if err == io.EOF {
		return Record{}, &TornError{File: r.name, Line: r.line, Offset: r.off, Bytes: int64(len(b))}
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	changed := func(format string, args ...any) (Record, error) {
		return Record{}, &ChangedError{File: r.name, Line: r.line, What: fmt.Sprintf(format, args...)}
	}
	body := b[:len(b)-1]
	cut := len(body) - selfLen
	if cut < 1 || string(body[cut:cut+len(selfMember)]) != selfMember || !bytes.HasSuffix(body, []byte(`"}`)) {
		return changed("it does not end with its own digest")
	}
	self := string(body[cut+len(selfMember) : len(body)-2])
	var d lineDigest
	if got := d.add(body[:cut]); got.Hex() != self {
		return changed("its digest is %s, the line says %.12s", got.Short(), self)
	}
	whole := d.add(b[cut:])
	b[cut] = '}' // what was hashed, as the object that it is
	var rec Record
	dec := json.NewDecoder(bytes.NewReader(b[:cut+1]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return Record{}, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return changed("something follows the record")
	}
	if rec.Seq != r.seq+1 {
		return changed("seq is %d, expected %d", rec.Seq, r.seq+1)
	}
	if rec.Prev != r.tail {
		if r.tail == "" {
			return changed("the first line names a line before it")
		}
		return changed("it follows a line with digest %s, but line %d has %s", rec.Prev.Short(), r.line-1, r.tail.Short())
	}
	if err := rec.check(); err != nil {
		return Record{}, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	r.seq = rec.Seq
	r.tail = whole
	r.off += int64(len(b))
	return rec, nil
}

// mostLine bounds a line: a record of the longest reply has a tenth of it.
const mostLine = 512 << 20

// readLine is bufio.Reader.ReadBytes with a bound.
func (r *Reader) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > mostLine {
			return nil, fmt.Errorf("the line is longer than %d bytes", mostLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// All yields what Next returns until the end; an error is yielded once, last.
func (r *Reader) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			rec, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// Tail is the number of good lines read and the digest of the last of them: what a
// receipt holds to prove that no line was cut off at the end.
func (r *Reader) Tail() (int64, digest.Digest) { return r.seq, r.tail }

// ReadAll reads the whole transcript at path. With a *TornError the records before the
// torn line are returned too.
func ReadAll(path string) ([]Record, error) {
	f, err := openFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Record
	for rec, err := range NewReader(path, f).All() {
		var torn *TornError
		if errors.As(err, &torn) {
			return out, err
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}
