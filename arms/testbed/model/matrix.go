package model

// matrix is a dense matrix, row-major [in][out].
type matrix struct {
	in, out int
	w       []float32
}

func newMatrix(in, out int) *matrix {
	return &matrix{in: in, out: out, w: make([]float32, in*out)}
}

// add adds x to one element.
func (m *matrix) add(i, o int, x float32) { m.w[i*m.out+o] += x }

// row returns row i, to read or to write.
func (m *matrix) row(i int) []float32 { return m.w[i*m.out : (i+1)*m.out] }

// scale multiplies row i by f.
func (m *matrix) scale(i int, f float32) {
	r := m.row(i)
	for o := range r {
		r[o] *= f
	}
}

// place overwrites the region at (i, o) by all of src.
func (m *matrix) place(i, o int, src *matrix) {
	for r := range src.in {
		copy(m.row(i + r)[o:], src.row(r))
	}
}

// panelWidth is the number of output columns the kernels compute together.
const panelWidth = 16

// panels is a matrix cut into groups of panelWidth columns, each stored as
// [in][panelWidth] and the last one padded with zeros: the layout in which one
// broadcast input element meets sixteen weights that lie side by side. The
// lanes of dot4 then become four accumulators of sixteen columns, which keeps
// its order of additions and needs no sum across a register.
type panels struct {
	in, n int // input length, number of panels
	w     []float32
}

// pack joins the columns of matrices of equal input length.
func pack(ms ...*matrix) panels {
	out := 0
	for _, m := range ms {
		out += m.out
	}
	p := panels{in: ms[0].in, n: (out + panelWidth - 1) / panelWidth}
	p.w = make([]float32, p.n*p.in*panelWidth)
	o := 0
	for _, m := range ms {
		for c := range m.out {
			for i := range m.in {
				p.w[((o/panelWidth)*p.in+i)*panelWidth+o%panelWidth] = m.w[i*m.out+c]
			}
			o++
		}
	}
	return p
}

// apply computes rows products: row r of x [rows][in] times the matrix goes to
// row r of dst, whose rows are stride long, stride >= 16 n.
func (p *panels) apply(dst []float32, stride int, x []float32, rows int) {
	for i := range p.n {
		dotPanel(dst[i*panelWidth:], stride, x, p.in, p.w[i*p.in*panelWidth:][:p.in*panelWidth], rows)
	}
}
