package receipts

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Keys are Ed25519 and have a name. They are written as signed notes write them (C2SP
// signed-note): the private one as PRIVATE+KEY+<name>+<id>+<base64>, the public one as
// <name>+<id>+<base64>, which fits in one line of a README.

// PrivateKey signs receipts and checkpoints.
type PrivateKey struct {
	Name   string
	key    ed25519.PrivateKey
	signer note.Signer
}

// Key is a public key that is trusted, under a name.
type Key struct {
	Name   string
	Public ed25519.PublicKey
}

func (k Key) verifierKey() string {
	s, err := note.NewEd25519VerifierKey(k.Name, k.Public)
	if err != nil {
		return ""
	}
	return s
}

// String is the public key in its one line.
func (k Key) String() string { return k.verifierKey() }

const (
	privatePrefix = "PRIVATE+KEY+"
	ed25519Type   = 1
)

// GenerateKey makes a key pair, each half in its written form. The name must have neither
// spaces nor plus signs.
func GenerateKey(name string) (private, public string, err error) {
	if name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return "", "", fmt.Errorf("key name %q: it must not be empty, nor hold spaces or plus signs", name)
	}
	return note.GenerateKey(rand.Reader, name)
}

// ParsePrivateKey reads the written form of a private key.
func ParsePrivateKey(s string) (*PrivateKey, error) {
	s = strings.TrimSpace(s)
	signer, err := note.NewSigner(s)
	rest, ok := strings.CutPrefix(s, privatePrefix)
	if err != nil || !ok {
		return nil, errors.New("not a private key: kvladder keygen makes one")
	}
	parts := strings.SplitN(rest, "+", 3)
	b, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 3 || len(b) != 1+ed25519.SeedSize || b[0] != ed25519Type {
		return nil, errors.New("not an ed25519 private key: kvladder keygen makes one")
	}
	return &PrivateKey{Name: parts[0], key: ed25519.NewKeyFromSeed(b[1:]), signer: signer}, nil
}

// ReadPrivateKey reads a private key from a file, which others must not be able to read.
func ReadPrivateKey(path string) (*PrivateKey, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key %s can be read by others (mode %04o): chmod 600 %s", path, st.Mode().Perm(), path)
	}
	b, err := readFile(path, mostNote)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	k, err := ParsePrivateKey(string(b))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return k, nil
}

// Public is the other half.
func (k *PrivateKey) Public() Key {
	return Key{Name: k.Name, Public: k.key.Public().(ed25519.PublicKey)}
}

// Sign writes receipt.dsse.json beside an opened receipt, once.
func (k *PrivateKey) Sign(r *Receipt) error { return Sign(r, k.key) }

// ParseKey reads the one line of a public key, or of the file of that name.
func ParseKey(s string) (Key, error) {
	text := strings.TrimSpace(s)
	if b, err := readFile(s, mostNote); err == nil {
		text = strings.TrimSpace(string(b))
	}
	if strings.HasPrefix(text, privatePrefix) {
		return Key{}, fmt.Errorf("key %s is the private half: give the public one", brief(s))
	}
	if _, err := note.NewVerifier(text); err != nil {
		return Key{}, fmt.Errorf("%s is neither a public key nor a file that holds one: %w", brief(s), err)
	}
	parts := strings.SplitN(text, "+", 3)
	b, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(b) != 1+ed25519.PublicKeySize || b[0] != ed25519Type {
		return Key{}, fmt.Errorf("%s is not an ed25519 public key", brief(s))
	}
	return Key{Name: parts[0], Public: ed25519.PublicKey(b[1:])}, nil
}

// ParseWitness reads a witness's cosigner key, <name>+<id>+<base64 of 0x04 and the key>.
func ParseWitness(s string) (Key, error) {
	text := strings.TrimSpace(s)
	if b, err := readFile(s, mostNote); err == nil {
		text = strings.TrimSpace(string(b))
	}
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 {
		return Key{}, fmt.Errorf("%s is neither a witness key nor a file that holds one", brief(s))
	}
	b, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(b) != 1+ed25519.PublicKeySize || b[0] != cosignatureType {
		return Key{}, fmt.Errorf("%s is not the ed25519 cosigner key of a witness", brief(s))
	}
	k := Key{Name: parts[0], Public: ed25519.PublicKey(b[1:])}
	if want := fmt.Sprintf("%08x", cosignerHash(k.Name, k.Public)); parts[1] != want {
		return Key{}, fmt.Errorf("witness key %s has the id %s, its bytes give %s", k.Name, parts[1], want)
	}
	return k, nil
}
