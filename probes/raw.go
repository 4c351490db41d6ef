package probes

import (
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"kvladder/receipts/digest"
)

// SetRaw keeps b as the reply's body, as text where it is UTF-8 and as base64 where it is
// not, and sets Received to its digest.
func (r *Reply) SetRaw(b []byte) {
	r.Received = digest.Of(b)
	r.RawBase64 = !utf8.Valid(b)
	if r.RawBase64 {
		r.Raw = base64.StdEncoding.EncodeToString(b)
		return
	}
	r.Raw = string(b)
}

// Bytes are the reply's body as it was received.
func (r *Reply) Bytes() ([]byte, error) {
	if !r.RawBase64 {
		return []byte(r.Raw), nil
	}
	b, err := base64.StdEncoding.DecodeString(r.Raw)
	if err != nil {
		return nil, fmt.Errorf("reply of prompt %q: raw is not base64: %w", r.Prompt, err)
	}
	return b, nil
}
