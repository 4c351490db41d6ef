package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"

	"kvladder/receipts/digest"
)

// Beacon is one round of a public source of randomness, the quicknet chain of the League of
// Entropy (drand): a value that nobody could know before the round was published, signed by
// a threshold of independent operators. What carries it was made after that moment.
type Beacon struct {
	Chain     string `json:"chain"`     // hash of the chain, hexadecimal: always QuicknetChain
	Round     int64  `json:"round"`     // counts from 1
	Signature string `json:"signature"` // of the round: a compressed point of G1, 96 hexadecimal digits
}

// QuicknetChain is the hash of the one chain whose rounds are taken. Its scheme is
// bls-unchained-g1-rfc9380: the message is the sha256 of the round in eight big-endian bytes,
// hashed to G1 of BLS12-381 as RFC 9380 says, the public key is in G2, and a round's
// randomness is the sha256 of its signature. The chain's public parameters are what
// https://api.drand.sh/52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971/info
// answers.
const QuicknetChain = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"

const (
	quicknetKey = "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c" +
		"8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb" +
		"5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
	quicknetGenesis = 1692803367 // when round 1 was published, Unix seconds
	quicknetPeriod  = 3          // seconds
	quicknetDST     = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"
	mostRound       = 1 << 40 // a hundred thousand years
	mostBeacon      = 1 << 16 // bytes of a file with one round
)

// quicknet is the chain's public key, in G2.
var quicknet = sync.OnceValues(func() (bls.G2Affine, error) {
	var key bls.G2Affine
	b, err := hex.DecodeString(quicknetKey)
	if err == nil {
		_, err = key.SetBytes(b)
	}
	return key, err
})

// ReadBeacon reads and checks a file with one round, as drand's HTTP API gives it:
//
//	curl https://api.drand.sh/CHAIN/public/latest
//
// which is {"round": N, "randomness": HEX, "signature": HEX}. Nothing is asked of the network.
func ReadBeacon(path string) (*Beacon, error) {
	fail := func(format string, args ...any) (*Beacon, error) {
		return nil, fmt.Errorf("beacon %s: %w; fetch a round with curl https://api.drand.sh/%s/public/latest", path, fmt.Errorf(format, args...), QuicknetChain)
	}
	b, err := readFile(path, mostBeacon)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fail("%w", err)
	}
	var r struct {
		Round      *int64  `json:"round"`
		Randomness *string `json:"randomness"`
		Signature  *string `json:"signature"`
		Previous   string  `json:"previous_signature"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return fail("it is not the JSON of a drand round: %w", err)
	}
	switch {
	case r.Round == nil || r.Randomness == nil || r.Signature == nil:
		return fail("it lacks one of round, randomness and signature")
	case r.Previous != "":
		return fail("it is a round of a chained network, not of quicknet")
	}
	out := &Beacon{Chain: QuicknetChain, Round: *r.Round, Signature: *r.Signature}
	if err := out.Check(); err != nil {
		return fail("%w", err)
	}
	if got := hex.EncodeToString(out.randomness()); got != *r.Randomness {
		return fail("its randomness is not the sha256 of its signature")
	}
	return out, nil
}

// ParseBeacon is the inverse of String; the round is checked.
func ParseBeacon(s string) (*Beacon, error) {
	round, sig, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(round, 10, 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("beacon %q: want ROUND:SIGNATURE", s)
	}
	b := &Beacon{Chain: QuicknetChain, Round: n, Signature: sig}
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("beacon: %w", err)
	}
	return b, nil
}

// String is ROUND:SIGNATURE.
func (b *Beacon) String() string { return fmt.Sprintf("%d:%s", b.Round, b.Signature) }

// Check verifies the round's signature with the chain's public key. It needs no network.
func (b *Beacon) Check() error {
	if b.Chain != QuicknetChain {
		return fmt.Errorf("it is of the chain %q, rounds of drand's quicknet (%.8s…) are taken", b.Chain, QuicknetChain)
	}
	if b.Round < 1 || b.Round > mostRound {
		return fmt.Errorf("there is no round %d", b.Round)
	}
	raw, err := hex.DecodeString(b.Signature)
	if err != nil || len(raw) != bls.SizeOfG1AffineCompressed || hex.EncodeToString(raw) != b.Signature {
		return fmt.Errorf("the signature of round %d is not %d lower-case hexadecimal digits", b.Round, 2*bls.SizeOfG1AffineCompressed)
	}
	// SetBytes takes points of the right subgroup alone; a compressed point has one form.
	var sig bls.G1Affine
	if n, err := sig.SetBytes(raw); err != nil || n != len(raw) || sig.IsInfinity() {
		return fmt.Errorf("the signature of round %d is no point of the curve that could sign", b.Round)
	}
	if form := sig.Bytes(); !bytes.Equal(form[:], raw) {
		return fmt.Errorf("the signature of round %d is no point of the curve that could sign", b.Round)
	}
	key, err := quicknet()
	if err != nil {
		return err
	}
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(b.Round))
	msg := sha256.Sum256(at[:])
	h, err := bls.HashToG1(msg[:], []byte(quicknetDST))
	if err != nil {
		return err
	}
	_, _, _, g2 := bls.Generators()
	var minus bls.G2Affine
	minus.Neg(&g2)
	// e(signature, -g2) · e(H(round), key) = 1
	ok, err := bls.PairingCheck([]bls.G1Affine{sig, h}, []bls.G2Affine{minus, key})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the signature is not drand quicknet's for round %d", b.Round)
	}
	return nil
}

func (b *Beacon) randomness() []byte {
	raw, err := hex.DecodeString(b.Signature)
	if err != nil {
		return nil // Check refuses it
	}
	r := sha256.Sum256(raw)
	return r[:]
}

// Time is when the round was published, by the chain's schedule.
func (b *Beacon) Time() time.Time {
	return time.Unix(quicknetGenesis+(b.Round-1)*quicknetPeriod, 0).UTC()
}

// IDs is what the request ids of a run are derived from: the digest of its plan, or, where
// the run carries a beacon, the sha256 of that digest and the round's 32 random bytes:
//
//	(printf %s PLAN; printf %s RANDOMNESS | xxd -r -p) | sha256sum
//
// A nil Beacon gives the plan.
func (b *Beacon) IDs(plan digest.Digest) digest.Digest {
	if b == nil {
		return plan
	}
	return digest.Of(append([]byte(plan), b.randomness()...))
}

// BeaconOf finds the beacon of a ledger and checks it: one entry at most, after the
// registration and before anything was run. Nil, nil: the ledger has none.
func BeaconOf(ledger []LedgerEntry) (*Beacon, error) {
	var found *Beacon
	started := int64(-1)
	for _, e := range ledger {
		switch {
		case e.Kind == LedgerArmStart && started < 0:
			started = e.Seq
		case e.Kind != LedgerBeacon && e.Object.Beacon != nil:
			return nil, fmt.Errorf("entry %d is of kind %q and holds a beacon", e.Seq, e.Kind)
		case e.Kind != LedgerBeacon:
		case e.Object.Beacon == nil:
			return nil, fmt.Errorf("entry %d is of kind %q and holds none", e.Seq, e.Kind)
		case found != nil:
			return nil, fmt.Errorf("entry %d is a second beacon: a run has one", e.Seq)
		case started >= 0:
			return nil, fmt.Errorf("the beacon of entry %d came after an arm had started (entry %d): the data do not depend on it", e.Seq, started)
		default:
			if err := e.Object.Beacon.Check(); err != nil {
				return nil, fmt.Errorf("the beacon of entry %d does not hold: %w", e.Seq, err)
			}
			found = e.Object.Beacon
		}
	}
	return found, nil
}

// Published is when a beacon's round was published: the data are not earlier.
type Published struct {
	Round int64  `json:"round"`
	UTC   string `json:"utc"` // RFC 3339
}

func (b *Beacon) published() *Published {
	return &Published{Round: b.Round, UTC: b.Time().Format(time.RFC3339)}
}

// checkBeacon holds the receipt's beacon against the ledger's and gives it back where it holds.
func checkBeacon(rep *Report, p *Predicate, ledger []LedgerEntry) *Beacon {
	b, err := BeaconOf(ledger)
	switch {
	case err != nil:
		rep.add(LedgerFile, "%v", err)
	case !rawEqual(b, p.Beacon):
		rep.add("predicate.beacon", "the ledger gives: %s", differences(p.Beacon, b))
	default:
		return b
	}
	return nil
}
