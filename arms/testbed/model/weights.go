package model

import (
	"math"
	"math/bits"
	"slices"
)

// The residual stream: dim numbers, cut into fields.
const (
	dim     = 96
	rToken  = 0  // 21: what the token is
	rDigit  = 21 // 16: code of a digit or of the terminator
	rEntity = 37 // 32: code of a key, tag or pin
	rType   = 69 // 3: key, tag, pin
	rBOS    = 72 // 1
	rIndex  = 73 // 6: distance to the entity, 1..6
	rConst  = 79 // 1: fills each embedding up to unit mean square
	rOut    = 80 // 16: the digit code to say next
)

// weights are the plain tensors of one seed, before they are packed.
type weights struct {
	embed       []float32 // [Vocab][dim]
	l0, l1, l3  *attention
	l2          recurrent
	m1, m2      mlp
	unembed     *matrix // [dim][Vocab]
	unembedBias []float32
}

func buildWeights(seed uint64, shift int) *weights {
	s := source(seed)
	digits := s.codewords("code.digit", 21, 16, 6) // " 0".." 9", "0".."9", terminator
	for _, kind := range [][][]float32{digits[:10], digits[10:20]} {
		codes := slices.Clone(kind)
		for d := range kind {
			kind[d] = codes[(d+shift%10+10)%10]
		}
	}
	w := &weights{
		embed: s.embedding(digits),
		l0:    s.copying(),
		l1:    s.recall("L1", 3, 2, 0.825, 0),
		l2:    s.recurrent(),
		l3:    s.recall("L3", 2, 1, 1.85, 2),
		m1:    s.mlp("M1"),
		m2:    s.mlp("M2"),
	}
	w.l3.window = Window
	w.unembed, w.unembedBias = s.unembedding(digits)
	return w
}

// embedding builds the token vectors. Every row has mean square 1.
func (s source) embedding(digits [][]float32) []float32 {
	e := make([]float32, Vocab*dim)
	row := func(id int) []float32 { return e[id*dim : (id+1)*dim] }
	for _, f := range []struct {
		name     string
		at, size int
		amp      float32
	}{{"emb.tok", rToken, 21, 0.6}, {"emb.dig", rDigit, 16, 0.10}, {"emb.ent", rEntity, 32, 0.05}} {
		x := s.draw(f.name, Vocab*f.size)
		for id := range Vocab {
			for j := range f.size {
				row(id)[f.at+j] = f.amp * x[id*f.size+j]
			}
		}
	}
	for id := range Vocab {
		if id >= '0' && id <= '9' || id >= idSpacedDigit && id < idMark || id == idQuery || id == idIs {
			for j := range 21 {
				row(id)[rToken+j] *= 0.2
			}
		}
	}
	for d := range 10 {
		copy(row(idSpacedDigit + d)[rDigit:], digits[d])
		copy(row('0' + d)[rDigit:], digits[10+d])
	}
	copy(row(idStop)[rDigit:], digits[20])

	front, back := s.codewords("code.k0", Keys, 16, 8), s.codewords("code.k1", Keys, 16, 8)
	for i := range Keys {
		r := row(idKey + i)
		copy(r[rEntity:], front[i])
		copy(r[rEntity+16:], back[i])
		r[rType] = 2
	}
	flip := make([]float64, 32)
	bit := newStream(uint64(s), "code.t")
	for j := range flip {
		flip[j] = 2*float64(bit.next()&1) - 1
	}
	noise := s.draw("code.tn", Tags*32)
	for i := range Tags { // rows of a Hadamard matrix, columns flipped, a little noise
		r := row(idTag + i)
		for j := range 32 {
			h := flip[j]
			if bits.OnesCount(uint(i&j))&1 == 1 {
				h = -h
			}
			r[rEntity+j] = float32(h + float64(float32(float32(0.08)*noise[i*32+j])))
		}
		r[rType+1] = 2
	}
	front, tail := s.codewords("code.p", Pins, 16, 8), s.draw("code.p2", Pins*16)
	for i := range Pins {
		r := row(idPin + i)
		copy(r[rEntity:], front[i])
		for j := range 16 {
			r[rEntity+16+j] = sign(tail[i*16+j])
		}
		r[rType+2] = 2
	}
	row(BOS)[rBOS] = 3
	for id := range Vocab {
		sum := 0.0
		for _, v := range row(id) {
			sum += float64(float64(v) * float64(v))
		}
		row(id)[rConst] = float32(math.Sqrt(96 - sum))
	}
	return e
}

// unembedding builds the output matrix and its bias: digits answer to the code
// in rOut, everything else is a weak random language model.
func (s source) unembedding(digits [][]float32) (*matrix, []float32) {
	const prior = 1.5625 // strength of the format prior: a digit, more digits, then the end
	u, bias := newMatrix(dim, Vocab), make([]float32, Vocab)
	words, marks := Vocab-idWord, idWord-idMark
	rest, word, mark := s.draw("un.r", Vocab*dim), s.draw("un.w", words*dim), s.draw("un.s", marks*dim)
	token := s.draw("un.t", words*21)
	for id := range Vocab {
		bias[id] = -7
		for j := range dim {
			x := float32(0.10) * rest[id*dim+j]
			switch {
			case id >= idWord && j < 21:
				x = float32(0.9) * token[(id-idWord)*21+j]
			case id >= idWord:
				x = float32(0.16) * word[(id-idWord)*dim+j]
			case id >= idMark:
				x = float32(0.16) * mark[(id-idMark)*dim+j]
			}
			if j == rConst {
				x = 0
			}
			u.row(j)[id] = x
		}
		if id >= idWord {
			bias[id] = -1.2
		} else if id >= idMark {
			bias[id] = -2.2
		}
	}
	says := func(id int, code []float32) {
		for k := range 5 {
			u.add(rIndex+k, id, 2.5)
		}
		for j, c := range code {
			u.add(rOut+j, id, float32(float32(0.42)*c))
		}
		bias[id] = -4
	}
	for d := range 10 {
		says(idSpacedDigit+d, digits[d])
		says('0'+d, digits[10+d])
		u.add(rIndex, idSpacedDigit+d, prior)
		for k, f := range []float64{1, 1, 0.7, 0.3} {
			u.add(rIndex+1+k, '0'+d, float32(f*prior))
		}
	}
	says(EOS, digits[20])
	for k, f := range []float64{0.6, 0.9, 1.2} {
		u.add(rIndex+2+k, EOS, float32(f*prior))
	}
	return u, bias
}
