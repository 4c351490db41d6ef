// Package model is the decoder of the embedded engine: a small transformer
// whose weights are built, not trained, so that it answers questions about its
// prompt, and so that each kind of damage to its cache spoils the answers that
// depend on what was damaged.
//
//  1. New builds the weights of a seed. Encode turns text into token ids; Key
//     says which prompts the model can answer.
//  2. A Sequence names the cache of one request: Blocks of 16 positions for the
//     attention layer and for the two windowed layers, and the State of the
//     recurrent layer. Whoever owns the blocks may store them, copy them, lose
//     them or damage them.
//  3. A Decoder computes positions. It writes keys and values to the cache in
//     storage format and reads all of them back from there, the newest too.
//
// The layers, each added to a residual stream of 96 numbers after an RMSNorm:
// windowed attention, which flags the tokens 1 to 6 places after a name; full
// attention, which recalls keys; a gated MLP; a gated delta rule, which recalls
// tags; windowed attention, which recalls pins; a second gated MLP.
//
// The result for a position is a function of the weights, the tokens and the
// cache alone, bit for bit: sums have one order (see dot4), nothing is fused,
// and neither tiling, batching nor the place where a prompt was split matters.
// The figures in testdata/golden.json pin every tensor and a set of runs.
package model

// DefaultSeed is the seed the recall rates were measured on.
const DefaultSeed = 11

// Model holds the weights of one seed. It is immutable and safe for concurrent
// use; each goroutine takes a Decoder of its own.
type Model struct {
	seed        uint64
	embed       []float32
	l0, l1, l3  attentionLayer
	l2          recurrentLayer
	m1, m2      mlpLayer
	unembed     panels
	unembedBias []float32
}

// attentionLayer is attention packed for the kernels: one input matrix whose
// columns are queries, keys, values and sinks, and one output matrix.
type attentionLayer struct {
	shape
	queries, window int
	rope            rotary
	in, out         panels
	inBias, outBias []float32
	mu              []float32
	sink            bool
}

type recurrentLayer struct{ in, out panels } // in: k, q, v, beta, gate, alpha

type mlpLayer struct{ in, out panels } // in: gate, up

// New builds the model of a seed, in some milliseconds. Every seed gives a
// working model; DefaultSeed is the one with measured recall.
func New(seed uint64) *Model { return NewVariant(seed, 0) }

// NewVariant builds the model of a seed in which digit d has the code that
// digit (d+shift) mod 10 has in New's, where it is read and where it is written.
// It answers the same questions as well, and cached keys and values of another
// variant make it answer with other digits: what a model fine-tuned by an adapter
// does with the cache of its base, and so what identities are tried with.
func NewVariant(seed uint64, shift int) *Model {
	w := buildWeights(seed, shift)
	return &Model{
		seed:  seed,
		embed: w.embed,
		l0:    w.l0.packed(),
		l1:    w.l1.packed(),
		l3:    w.l3.packed(),
		l2: recurrentLayer{
			in:  pack(w.l2.k, w.l2.q, w.l2.v, w.l2.beta, w.l2.gate, w.l2.alpha),
			out: pack(w.l2.out),
		},
		m1:          w.m1.packed(),
		m2:          w.m2.packed(),
		unembed:     pack(w.unembed),
		unembedBias: w.unembedBias,
	}
}

// Seed returns the seed the weights were built from.
func (m *Model) Seed() uint64 { return m.seed }

func (l *attention) packed() attentionLayer {
	p := attentionLayer{
		shape: l.shape, queries: l.queries, window: l.window,
		rope: newRotary(l.periods), out: pack(l.wo), outBias: l.bo,
		mu: l.mu, sink: l.ws != nil,
	}
	columns := []*matrix{l.wq, l.wk, l.wv}
	p.inBias = append(append(append(p.inBias, l.bq...), l.bk...), l.bv...)
	if p.sink {
		columns = append(columns, l.ws)
		p.inBias = append(p.inBias, l.bs...)
	}
	p.in = pack(columns...)
	return p
}

func (l mlp) packed() mlpLayer { return mlpLayer{pack(l.gate, l.up), pack(l.down)} }
