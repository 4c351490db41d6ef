package audit

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

var digestVacuous = Lint{
	Code:  "DIGEST_VACUOUS",
	Title: "a digest of nothing: of no bytes, of null, of an empty list",
	Explain: `A digest shows that bytes are those that were meant. This one is the digest of nothing at
all: of no bytes (sha256 e3b0c442…b855), of the word null, of an empty list, object or text,
or of a list of empty texts. It is what a harness writes when the reply, the metrics page or
the file that it meant to hash was not there. Two such digests are equal, whatever the two
servers did: a comparison that rests on them has compared nothing.

Look at the artifact itself. If it is empty, what was concluded from it is not shown.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		e.values(func(f *File, v *Value) {
			if v.Kind != Text {
				return
			}
			if what := vacuous(v.Text); what != "" {
				out = append(out, at(f, v, fmt.Sprintf("%s is the digest of %s", v.Text, what)))
			}
		})
		return out
	},
	Fires: map[string]string{"receipt.json": `{"rows": [
		{"id": "r1", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"id": "r2", "sha256": "sha256:74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},
		{"id": "r3", "sha256": "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"},
		{"id": "r4", "md5": "d41d8cd98f00b204e9800998ecf8427e"},
		{"id": "r5", "seen": "e3b0c442…b855"}]}`},
	Silent: map[string]string{"receipt.json": `{"rows": [
		{"id": "r1", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b854"},
		{"id": "r2", "seen": "e3b0c442…b854"}]}`},
}

// nothings are contents without content, by what to call them.
var nothings = func() map[string]string {
	m := map[string]string{"": "no bytes", "null": "null", "None": "None", "{}": "an empty object", "[]": "an empty list", `""`: "an empty text"}
	for n := 1; n <= 64; n++ {
		for _, sep := range []string{",", ", "} {
			m["["+strings.TrimSuffix(strings.Repeat(`""`+sep, n), sep)+"]"] = fmt.Sprintf("a list of %d empty texts", n)
			m["["+strings.TrimSuffix(strings.Repeat("null"+sep, n), sep)+"]"] = fmt.Sprintf("a list of %d nulls", n)
		}
	}
	for c, what := range m {
		m[c+"\n"] = what
	}
	m["\n"] = "a line break"
	return m
}()

// vacuousHex and vacuousBase64 give what a digest is the digest of.
var vacuousHex, vacuousBase64 = func() (map[string]string, map[string]string) {
	h, b := map[string]string{}, map[string]string{}
	for c, what := range nothings {
		d := []byte(c)
		s1, m5, s256, s384, s512 := sha1.Sum(d), md5.Sum(d), sha256.Sum256(d), sha512.Sum384(d), sha512.Sum512(d)
		for _, sum := range [][]byte{s1[:], m5[:], s256[:], s384[:], s512[:]} {
			h[hex.EncodeToString(sum)] = what
			b[base64.StdEncoding.EncodeToString(sum)] = what
		}
	}
	return h, b
}()

var (
	digestForm = regexp.MustCompile(`^(?i:(?:md5|sha-?1|sha-?256|sha-?384|sha-?512|h1)[:\-=])?(.*)$`)
	shortForm  = regexp.MustCompile(`^([0-9a-f]{7,})(?:…|\.\.\.?)([0-9a-f]*)$`)
)

// vacuous says what s is the digest of, when that is nothing.
func vacuous(s string) string {
	if len(s) > 200 || strings.ContainsAny(s, " \n") {
		return ""
	}
	s = digestForm.FindStringSubmatch(strings.TrimSpace(s))[1]
	low := strings.ToLower(s)
	if what, ok := vacuousHex[low]; ok {
		return what
	}
	if what, ok := vacuousBase64[s]; ok {
		return what
	}
	if m := shortForm.FindStringSubmatch(low); m != nil {
		for h, what := range vacuousHex {
			if strings.HasPrefix(h, m[1]) && strings.HasSuffix(h, m[2]) {
				return what
			}
		}
	}
	return ""
}
