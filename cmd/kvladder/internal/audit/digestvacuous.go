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

A digest that says beside it that there was nothing (empty: true, or 0 files) hides nothing
and is passed over, unless every digest of the file is of that kind.

Look at the artifact itself. If it is empty, what was concluded from it is not shown.`,
	Look: func(e *Evidence) []Finding {
		var out []Finding
		for _, f := range e.Files {
			if f.Root == nil {
				continue
			}
			var open []Finding // said to be of nothing
			full := false
			f.Root.each(func(v *Value) {
				if v.Kind != Text {
					return
				}
				what := vacuous(v.Text)
				switch {
				case what == "":
					full = full || wholeDigest.MatchString(v.Text)
				case v.saysNothing():
					open = append(open, at(f, v, fmt.Sprintf("%s is the digest of %s", v.Text, what)))
				default:
					out = append(out, at(f, v, fmt.Sprintf("%s is the digest of %s", v.Text, what)))
				}
			})
			if !full {
				out = append(out, open...)
			}
		}
		return out
	},
	Fires: map[string]string{"all.json": `{"artifacts": [
		{"name": "a", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "empty": true},
		{"name": "b", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "empty": true}]}`, "receipt.json": `{"rows": [
		{"id": "r1", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"id": "r2", "sha256": "sha256:74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},
		{"id": "r3", "sha256": "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"},
		{"id": "r4", "md5": "d41d8cd98f00b204e9800998ecf8427e"},
		{"id": "r5", "seen": "e3b0c442…b855"}]}`},
	Silent: map[string]string{"receipt.json": `{"rows": [
		{"id": "r1", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b854"},
		{"id": "r2", "seen": "e3b0c442…b854"}]}`, "evidence.json": `{"evidence": [
		{"name": "logs/a.log", "digest": {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, "size": 0, "empty": true},
		{"name": "b.jsonl", "digest": {"sha256": "2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb"}, "size": 7, "empty": false}],
		"store": {"files": 0, "digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}`},
}

// wholeDigest is a digest in hexadecimal at its full length.
var wholeDigest = regexp.MustCompile(`^(?i:(?:md5|sha-?1|sha-?256|sha-?384|sha-?512)[:\-=])?(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})$`)

// saysNothing reports whether it is said beside a digest that there was nothing to digest.
func (v *Value) saysNothing() bool {
	for _, x := range v.around() {
		n, ok := x.integer()
		if x.Kind == Bool && x.Bool && strings.EqualFold(x.Key, "empty") || ok && n == 0 && strings.EqualFold(x.Key, "files") {
			return true
		}
	}
	return false
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
