// Package digest is the ground that everything else stands on: content addresses
// and the canonical bytes that they address.
//
// A Digest is "sha256:" followed by 64 lower-case hexadecimal digits of the bytes it
// names, so that `sha256sum FILE` is the whole check. Structured values are first
// written as canonical JSON (RFC 8785) by Canonical, and the digest is of those bytes.
package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gowebpki/jcs"
)

// Digest is "sha256:<hex>".
type Digest string

// OfNothing is the digest of no bytes: a value that proves that something was hashed
// and that there was nothing in it.
const OfNothing Digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const prefix = "sha256:"

// Of is the digest of b.
func Of(b []byte) Digest {
	s := sha256.Sum256(b)
	return Digest(prefix + hex.EncodeToString(s[:]))
}

// FromReader reads r to its end and returns the digest and the count of its bytes.
func FromReader(r io.Reader) (Digest, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return "", n, err
	}
	return Digest(prefix + hex.EncodeToString(h.Sum(nil))), n, nil
}

// OfFile is the digest and the size of the file at path.
func OfFile(path string) (Digest, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	return FromReader(f)
}

// Parse checks that s has the form of a Digest.
func Parse(s string) (Digest, error) {
	h, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return "", fmt.Errorf("digest %q does not begin with %q", s, prefix)
	}
	if len(h) != 64 || strings.ToLower(h) != h {
		return "", fmt.Errorf("digest %q is not 64 lower-case hexadecimal digits", s)
	}
	if _, err := hex.DecodeString(h); err != nil {
		return "", fmt.Errorf("digest %q is not hexadecimal", s)
	}
	return Digest(s), nil
}

// Empty reports whether d is the digest of no bytes.
func (d Digest) Empty() bool { return d == OfNothing }

// Hex is the digest without its algorithm name.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), prefix) }

// Short is the first twelve hexadecimal digits: for file names and for people.
func (d Digest) Short() string {
	h := d.Hex()
	if len(h) > 12 {
		return h[:12]
	}
	return h
}

// Canonical is the RFC 8785 form of v, which is first marshalled by encoding/json.
// Numbers are IEEE doubles there: integers beyond 2^53 must be decimal strings in v.
func Canonical(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return jcs.Transform(bytes.TrimRight(buf.Bytes(), "\n"))
}

// OfJSON is the digest of the canonical form of v, and that form.
func OfJSON(v any) (Digest, []byte, error) {
	b, err := Canonical(v)
	if err != nil {
		return "", nil, err
	}
	return Of(b), b, nil
}
