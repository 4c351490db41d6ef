package fault

import (
	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// dirtyPages hands out recycled blocks as their last owner left them, to kernels
// that read whole pages and weigh what is not theirs by zero. In fp8 a page of
// the attention group and one of the recurrent group have the same memory: what
// a request leaves in its last page is bits of its float32 state, some of which
// are the code of NaN, and zero times NaN is NaN. In bf16 the two groups have
// pages of their own, and finite leftovers change nothing.
var dirtyPages = Fault{
	ID:      "F09",
	Summary: "recycled blocks are not cleared and kernels mask by multiplication",
	Plant: func(p *sched.Path) {
		p.Cache.Fresh = func(*model.Block) {}
		p.Sequence = func(s *model.Sequence) { s.WholePage = true }
		p.Retire = func(s *model.Sequence) {
			if len(s.Attention) == 0 || s.Attention[0].DType() != model.FP8 {
				return
			}
			size := s.Attention[0].Tokens()
			at := s.Pos / size
			if s.Pos%size == 0 || at >= len(s.Attention) {
				return // the last page is full: its codes stay findable
			}
			b := s.Attention[at]
			bits := s.State.AppendBinary(nil)
			if err := b.SetCodes(bits[:len(b.AppendCodes(nil))]); err != nil {
				panic(err) // the state is the longer of the two
			}
		}
	},
}
