package receipts

import (
	"crypto/ed25519"
	"encoding/binary"
	"time"
)

// witnessSigner makes cosignatures; a witness is somebody else's program.
type witnessSigner struct {
	name string
	key  ed25519.PrivateKey
	at   time.Time
}

func (s *witnessSigner) Name() string { return s.name }

func (s *witnessSigner) KeyHash() uint32 {
	return cosignerHash(s.name, s.key.Public().(ed25519.PublicKey))
}

func (s *witnessSigner) Sign(msg []byte) ([]byte, error) {
	at := uint64(s.at.Unix())
	return append(binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(s.key, cosigned(at, msg))...), nil
}
