package receipts

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Sighting is what a witness vouches for: the first Size entries of the ledger were there
// at UTC, by the witness's clock.
type Sighting struct {
	By   string `json:"by"`
	Size int64  `json:"size"`
	UTC  string `json:"utc"` // RFC 3339
}

// A cosignature (C2SP tlog-cosignature) is a note signature whose bytes are the time, eight
// bytes of seconds, and an Ed25519 signature of
//
//	cosignature/v1
//	time SECONDS
//	<the note's text>
//
// Its key's id is the first four bytes of sha256(name, line feed, 0x04, public key).
const cosignatureType = 0x04

type witnessVerifier struct{ key Key }

func newWitness(k Key) *witnessVerifier { return &witnessVerifier{key: k} }

func (w *witnessVerifier) Name() string { return w.key.Name }

func (w *witnessVerifier) KeyHash() uint32 { return cosignerHash(w.key.Name, w.key.Public) }

func cosignerHash(name string, key ed25519.PublicKey) uint32 {
	h := sha256.New()
	h.Write([]byte(name + "\n"))
	h.Write([]byte{cosignatureType})
	h.Write(key)
	return binary.BigEndian.Uint32(h.Sum(nil))
}

func (w *witnessVerifier) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize || len(w.key.Public) != ed25519.PublicKeySize {
		return false
	}
	at := binary.BigEndian.Uint64(sig)
	return at > 0 && at < 1<<40 && ed25519.Verify(w.key.Public, cosigned(at, msg), sig[8:])
}

func cosigned(at uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", at), text...)
}

// cosignedAt is the time in a signature that has been verified.
func cosignedAt(s note.Signature) string {
	b, err := base64.StdEncoding.DecodeString(s.Base64)
	if err != nil || len(b) < 12 {
		return ""
	}
	return time.Unix(int64(binary.BigEndian.Uint64(b[4:])), 0).UTC().Format(time.RFC3339)
}
