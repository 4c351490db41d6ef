package fault

import (
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// scalesDropped stores fp8 codes without their scales. A load leaves the scales
// that its destination has, which in a fresh block are 1. In bf16 there are none
// to lose.
var scalesDropped = Fault{
	ID:      "F02",
	Summary: "the store keeps fp8 codes and drops their scales",
	Plant: func(p *sched.Path) {
		p.Store.Codec.Write = func(dst []byte, b, _ *model.Block) []byte { return b.AppendCodes(dst) }
		p.Store.Codec.Read = func(src []byte, b *model.Block) error { return b.SetCodes(src) }
	},
}
