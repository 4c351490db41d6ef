package model

import "strings"

// Token ids. Below 256 an id is a byte.
const (
	idSpacedDigit = 258 // " 0".." 9"
	idKey         = 268 // " K00".." K63"
	idTag         = idKey + Keys
	idPin         = idTag + Tags
	idMark        = idPin + Pins // the marks, in their order
	idQuery       = idMark + 11  // " ?"
	idStop        = idMark + 12  // " ."
	idWord        = 396          // the words, each with a leading space
	idIs          = 614          // " is"
)

// marks are the fixed strings of the prompt grammar.
var marks = []string{
	"fact:", "note:", "mark:", "question:", " fact:", " note:", " mark:", " question:",
	" key", " tag", " pin", " ?", " .", "answer:", " :", ",",
}

// words is the filler vocabulary, in the order of its ids.
var words = strings.Fields(`
the a of to in and on at by from with near over under into through past beyond along across around river
stone bridge forest hill valley road field garden house window door table lamp paper letter book page ink
glass water rain snow wind cloud storm sun moon star light shadow morning evening night winter summer autumn
spring harbor ship boat sail rope anchor wave shore sand island cliff bird crow gull horse dog cat sheep goat
wolf bear fox deer fish tree leaf root branch bark seed grain bread salt honey apple pear plum wool cloth
thread needle hammer nail wheel cart barrel box coin map clock bell tower wall gate street market square
church mill farm barn fence path trail camp fire smoke ash coal iron silver copper gold wood brick clay dust
mud grass moss fern rose thorn old new small large tall short long quiet loud slow quick bright dark warm
cold dry wet deep high low soft hard sharp round flat empty full early late first last plain green red blue
white black grey brown walks runs stands sits turns moves falls rises opens closes carries holds brings takes
leaves finds keeps sees hears knows asks tells sings sleeps wakes waits works builds breaks mends burns grows
drifts flows rests was were is are had has then when while where there here now soon again still often never
always almost only both each every some many few
`)

// tokens is the string of every id, and longest the length of the longest.
var tokens, longest = func() (t [Vocab]string, longest int) {
	for i := range 256 {
		t[i] = string([]byte{byte(i)})
	}
	for d := range 10 {
		t[idSpacedDigit+d] = " " + string(rune('0'+d))
	}
	for i := range Keys {
		t[idKey+i] = " " + Key(i)
	}
	for i := range Tags {
		t[idTag+i] = " " + Tag(i)
	}
	for i := range Pins {
		t[idPin+i] = " " + Pin(i)
	}
	copy(t[idMark:], marks)
	for i, w := range words {
		t[idWord+i] = " " + w
	}
	for _, s := range t {
		longest = max(longest, len(s))
	}
	return t, longest
}()

// ids finds a token by its string. The comma is both a byte and a mark; the mark
// is the one Encode gives.
var ids = func() map[string]int {
	m := make(map[string]int, Vocab)
	for id, s := range tokens {
		if s != "" {
			m[s] = id
		}
	}
	return m
}()

// Encode returns BOS and then, from each byte on, the longest token that
// matches. Any bytes are accepted; Decode gives them back unchanged.
func Encode(text string) []int {
	out := append(make([]int, 0, 1+len(text)/3), BOS)
	for len(text) > 0 {
		n := min(longest, len(text))
		for n > 1 {
			if _, ok := ids[text[:n]]; ok {
				break
			}
			n--
		}
		out = append(out, ids[text[:n]])
		text = text[n:]
	}
	return out
}

// Decode joins the strings of ids. BOS, EOS and numbers that are no token ids
// add nothing.
func Decode(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(TokenString(id))
	}
	return b.String()
}

// TokenString returns the bytes of one token, "" for BOS, EOS and numbers that
// are no token ids. A token below 256 is one byte and need not be valid UTF-8.
func TokenString(id int) string {
	if id < 0 || id >= Vocab {
		return ""
	}
	return tokens[id]
}
