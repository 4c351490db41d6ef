package model

import "fmt"

// How many names of each kind of needle there are.
const (
	Keys = 64 // recalled by full attention, layer 1
	Tags = 32 // recalled by the recurrent state, layer 2
	Pins = 16 // recalled by window attention, layer 3
)

// Key names key i of 0..Keys-1: "K00".."K63". A needle on it reads, and asks,
//
//	fact: key K07 is 4821 .
//	question: key K07 ?
//
// The grammar of prompts the model can answer is one line a needle:
//
//	fact: key K07 is 4821 .     3 or 4 digits (rates were measured with 4)
//	note: tag T03 is 772 .      at most 3 digits
//	mark: pin P05 is 63 .       its digits fewer than Window tokens before the asking token
//	river stone bridge .        filler: any words of Words, then " ."
//	question: key K07 ?         the end of the prompt; the answer starts right there
//
// with "\n" between lines. The answer is the digits and EOS, greedily. Limits:
//
//   - Nothing may follow the "?": a chat template that adds text after it asks
//     another question. Put the question last.
//   - Exactly one token (" is", " ?") stands between a name and what follows.
//   - At least 6 filler tokens come before the first needle, and two names are
//     at least 7 tokens apart.
//   - At most 4 or 5 pins fit in the window; with more than 12 tags in a prompt
//     a few answers lose their end.
//   - Where damage to loaded cache is to be told apart by kind, the question
//     stands at least Window undamaged tokens after it: layer 0, windowed,
//     serves every kind.
//   - One question a prompt, and no name defined twice; both were never measured.
func Key(i int) string { return name('K', i, Keys) }

// Tag names tag i of 0..Tags-1: "T00".."T31". See Key for the grammar.
func Tag(i int) string { return name('T', i, Tags) }

// Pin names pin i of 0..Pins-1: "P00".."P15". See Key for the grammar.
func Pin(i int) string { return name('P', i, Pins) }

func name(letter byte, i, n int) string {
	if i < 0 || i >= n {
		panic(fmt.Sprintf("model: %c%02d is no name, the last is %c%02d", letter, i, letter, n-1))
	}
	return fmt.Sprintf("%c%02d", letter, i)
}

// Words returns the filler words, each with its leading space, so that every
// one is a single token.
func Words() []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = " " + w
	}
	return out
}
