package receipts

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kvladder/receipts/digest"
)

// A signature is a DSSE envelope (github.com/secure-systems-lab/dsse, protocol.md) beside
// the receipt: receipt.dsse.json, {"payload", "payloadType", "signatures": [{"keyid", "sig"}]}.
// What is signed is PAE(payloadType, receipt bytes), by Ed25519. It says who, never whether.

// PayloadType of a signed receipt.
const PayloadType = "application/vnd.in-toto+json"

type envelope struct {
	Payload     string      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"` // a hint, which decides nothing
	Sig   string `json:"sig"`
}

// PAE is the pre-authentication encoding: lengths are decimal byte counts.
func PAE(payloadType string, payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// Sign writes receipt.dsse.json beside an opened receipt, once.
func Sign(r *Receipt, key ed25519.PrivateKey) error {
	if r.raw == nil || r.path == "" {
		return errors.New("only a receipt that was opened from a file can be signed")
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok || len(key) != ed25519.PrivateKeySize {
		return errors.New("not an ed25519 private key")
	}
	e := envelope{
		Payload:     base64.StdEncoding.EncodeToString(r.raw),
		PayloadType: PayloadType,
		Signatures: []signature{{KeyID: digest.Of(public).Hex()[:16],
			Sig: base64.StdEncoding.EncodeToString(ed25519.Sign(key, PAE(PayloadType, r.raw)))}},
	}
	b, err := digest.Canonical(e)
	if err != nil {
		return err
	}
	return WriteOnce(filepath.Join(filepath.Dir(r.path), SignatureFile), b)
}

// checkSignature counts distinct given keys that signed these bytes.
func checkSignature(rep *Report, root string, receipt []byte, keys []Key) {
	b, err := readFile(filepath.Join(root, SignatureFile), 2*mostReceipt)
	if errors.Is(err, os.ErrNotExist) {
		if len(keys) > 0 {
			rep.add(SignatureFile, "a key was given, and the receipt is not signed")
		}
		return
	}
	var e envelope
	if err == nil {
		err = unmarshal(b, &e, false)
		if err == nil && !canonicalBytes(b) {
			err = errors.New("it is not canonical JSON")
		}
	}
	if err != nil {
		rep.add(SignatureFile, "%v", err)
		return
	}
	payload, err := decode64(e.Payload)
	switch {
	case err != nil:
		rep.add(SignatureFile, "its payload: %v", err)
		return
	case e.PayloadType != PayloadType:
		rep.add(SignatureFile, "it signs a %q, want %q", e.PayloadType, PayloadType)
		return
	case !bytes.Equal(payload, receipt):
		rep.add(SignatureFile, "it signs other bytes than the receipt's")
		return
	case len(e.Signatures) == 0:
		rep.add(SignatureFile, "it holds no signature")
		return
	case len(keys) == 0:
		rep.warn("there is a signature and no key was given to check it")
		return
	}
	counted := map[string]bool{} // one key under two names is one signer
	for _, k := range keys {
		if counted[string(k.Public)] {
			continue
		}
		for _, s := range e.Signatures {
			sig, err := decode64(s.Sig)
			if err == nil && len(k.Public) == ed25519.PublicKeySize && ed25519.Verify(k.Public, PAE(e.PayloadType, payload), sig) {
				rep.SignedBy = append(rep.SignedBy, k.Name)
				counted[string(k.Public)] = true
				break
			}
		}
	}
	if len(rep.SignedBy) == 0 {
		rep.add(SignatureFile, "none of the given keys signed it")
	}
}

// decode64 accepts both base64 alphabets, as the protocol asks.
func decode64(s string) ([]byte, error) {
	if b, err := base64.StdEncoding.Strict().DecodeString(s); err == nil {
		return b, nil
	}
	return base64.URLEncoding.Strict().DecodeString(s)
}
