package fault

import (
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// halfPage takes the length of an fp8 page for two bytes an element, so that what
// it believes to be a page is half of it and half of its neighbour. Scales are
// kept, and bf16, where two bytes are right, is not touched.
var halfPage = Fault{
	ID:      "F02b",
	Summary: "the store takes half of an fp8 page from the page behind it",
	Plant: func(p *sched.Path) {
		healthy := p.Store.Codec.Write
		p.Store.Codec.Write = func(dst []byte, b, next *model.Block) []byte {
			if b.DType() != model.FP8 {
				return healthy(dst, b, next)
			}
			own, other := b.AppendCodes(nil), next.AppendCodes(nil)
			half := len(own) / 2
			return b.AppendScales(append(append(dst, own[:half]...), other[:len(own)-half]...))
		}
	},
}
